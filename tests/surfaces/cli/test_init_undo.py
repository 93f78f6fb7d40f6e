"""`holdlog init --undo` after a person changed the files: only what init added is removed, and nothing else changes."""

import json
import os
from pathlib import Path

import pytest

from holdlog.adapters.cli.setup.changes import FileEdit, change_of, write
from holdlog.adapters.cli.setup.hosts import HOSTS
from holdlog.adapters.cli.setup.plan import Choices, plan, project_here
from holdlog.adapters.cli.setup.records import Records
from tests.support.set_up import set_up
from tests.surfaces.cli.test_init import files

CLAUDE, CURSOR, OPENCODE, CODEX = (
    ".claude/settings.local.json",
    ".cursor/hooks.json",
    "opencode.json",
    ".codex/hooks.json",
)
EMPTY = '{"mcpServers": {}, "note": 1}'
TEXTS = [
    ("claude-code", ".mcp.json", EMPTY),
    ("claude-code", ".mcp.json", f"{EMPTY}\n"),
    ("claude-code", ".mcp.json", "\ufeff" + EMPTY + "\r\n"),
    ("claude-code", ".mcp.json", '{\r\n\t"mcpServers": {},\r\n\t"note": 1\r\n}'),
    ("claude-code", ".mcp.json", '{\r\n  "note": 1\r\n}\r\n'),
    ("claude-code", ".mcp.json", '{\r\n  "mcpServers": {"other": {"command": "x"}}, // mine\r\n  "note": 1,\r\n}\r\n'),
    ("claude-code", CLAUDE, '{\n    "note": 1,\n    "hooks": {"Stop": [], "PreToolUse": []}\n}\n'),
    ("claude-code", CLAUDE, '{"permissions": {"allow": []}, "note": 1, "hooks": {}}\n'),
    ("claude-code", CLAUDE, '{"permissions": {}, "note": 1}'),
    ("claude-code", CLAUDE, '{"permissions": {"allow": ["mcp__holdlog"]}, "note": 1}'),
    ("claude-code", CLAUDE, '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]}, "note": 1}'),
    ("cursor", CURSOR, '{"version": 1, "note": 1}\n'),
    ("cursor", CURSOR, '{"version": 1, "hooks": {}, "note": 1}\n'),
    ("cursor", CURSOR, '{"hooks": {"stop": []}, "note": 1}\n'),
    ("cursor", CURSOR, '{"note": 1}'),
    ("cursor", ".cursor/mcp.json", EMPTY),
    ("codex", CODEX, '{"hooks": {"Stop": []}, "note": 1}'),
    ("codex", "../home/.codex/config.toml", "note = 1"),
    ("codex", "../home/.codex/config.toml", "note = 1\n"),
    ("codex", "../home/.codex/config.toml", "note = 1\r\n\r\n"),
    ("codex", "../home/.codex/config.toml", "\ufeffnote = 1\r\n[mcp_servers]\r\n"),
    ("opencode", OPENCODE, '{"mcp": {}, "note": 1}'),
    ("opencode", OPENCODE, '{\r\n  "$schema": "x", "note": 1\r\n}\r\n'),
    ("opencode", "opencode.jsonc", '{\n  "mcp": { /* mine */ }, "note": 1,\n}\n'),
    ("vscode", ".vscode/mcp.json", '{"servers": {}, "inputs": [], "note": 1}'),
    ("windsurf", "../home/.codeium/windsurf/mcp_config.json", EMPTY),
    ("opencode", OPENCODE, '{"mcp": {\n  }, "note": 1}'),
    ("claude-code", CLAUDE, '{"hooks": { "Stop": [ ] }, "note": 1}'),
]
"""Hosts, their files, and what a person has in them."""


def change_file(folder: Path, client: str, name: str, undo: bool = False) -> None:
    """Write what init or --undo would change in one file of a host, with its record."""
    here = project_here(folder / "project", "holdlog", {"HOME": str(folder / "home")})
    [file] = [it for it in HOSTS[client].files(here) if it.path == Path(os.path.normpath(here.root / name))]
    records = Records(folder / "copies")
    edit = change_of(file, records, undo, tracked=True)
    assert isinstance(edit, FileEdit)
    records.note(edit.path, edit.record)
    write(edit, folder / "copies")


@pytest.mark.parametrize("rewritten", [False, True], ids=["as it was", "changed meanwhile"])
@pytest.mark.parametrize(("client", "name", "text"), TEXTS, ids=[f"{it[1]}-{at}" for at, it in enumerate(TEXTS)])
def test_undo_restores_every_character_of_a_file(
    client: str, name: str, text: str, rewritten: bool, tmp_path: Path
) -> None:
    path = tmp_path / "project" / name
    (tmp_path / "project").mkdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    change_file(tmp_path, client, name)
    written = path.read_bytes().decode()
    assert "holdlog" in written
    assert "\r\n" not in text or "\n" not in written.replace("\r\n", "")
    if rewritten:
        path.write_bytes(written.replace("note", "NOTE").encode())
        text = text.replace("note", "NOTE")
    change_file(tmp_path, client, name, undo=True)
    assert path.read_bytes().decode() == text


@pytest.mark.parametrize("text", ["note", "note\r\n"])
def test_undo_restores_every_character_of_gits_exclude_file(text: str, project: Path) -> None:
    path = project / ".git" / "info" / "exclude"
    path.write_bytes(text.encode())
    set_up("claude-code")
    assert b"/.mcp.json" in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b"note", b"NOTE"))
    set_up("claude-code", undo=True)
    assert path.read_bytes().decode() == text.replace("note", "NOTE")


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "{}", "{ }\r\n", "\ufeff{}"])
@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize(("client", "name"), [("claude-code", CLAUDE), ("cursor", CURSOR), ("opencode", OPENCODE)])
def test_undo_restores_a_file_that_was_empty(
    client: str, name: str, text: str, rewritten: bool, tmp_path: Path
) -> None:
    path = tmp_path / "project" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    change_file(tmp_path, client, name)
    if rewritten:
        path.write_bytes(path.read_bytes() + b"\n")
    change_file(tmp_path, client, name, undo=True)
    assert path.read_bytes().decode() == text


@pytest.mark.parametrize(
    ("client", "folders"),
    [
        ("claude-code", [".claude"]),
        ("cursor", [".cursor"]),
        ("codex", [".codex", "../home/.codex"]),
        ("opencode", [".opencode"]),
        ("opencode", [".opencode/plugins"]),
        ("vscode", [".vscode"]),
        ("windsurf", ["../home/.codeium/windsurf"]),
    ],
)
def test_undo_keeps_empty_folders_of_a_person(client: str, folders: list[str], project: Path) -> None:
    for name in folders:
        (project / name).mkdir(parents=True)
    before = sorted(it.relative_to(project.parent) for it in project.parent.rglob("*") if it.is_dir())
    set_up(client)
    set_up(client)
    set_up(client, undo=True)
    after = sorted(it.relative_to(project.parent) for it in project.parent.rglob("*") if it.is_dir())
    ours = [it for it in after if "holdlog" in it.parts]
    assert [it for it in after if it not in ours] == before


@pytest.mark.parametrize("client", ["claude-code", "cursor", "codex", "opencode", "vscode", "windsurf"])
def test_undo_removes_each_folder_that_init_created(client: str, project: Path) -> None:
    set_up(client)
    assert files(project)
    set_up(client, undo=True)
    assert sorted(it.name for it in project.iterdir()) == [".git"]
    assert list((project.parent / "home").iterdir()) == []


def test_records_of_an_earlier_version_are_read(project: Path) -> None:
    set_up("vscode")
    path = project / ".git" / "holdlog" / "state.db.replaced" / "init.json"
    path.write_text(json.dumps(json.loads(path.read_text())["files"]))
    (project / ".vscode" / "mcp.json").write_text('{"mine": 1}')
    assert (project / ".vscode" / "mcp.json") in Records(path.parent)
    set_up("vscode", undo=True)
    assert (project / ".vscode" / "mcp.json").read_text() == '{"mine": 1}'


def test_records_of_processes_that_run_at_the_same_time_are_kept(project: Path) -> None:
    first, second = Records(project / "copies"), Records(project / "copies")
    edits = plan(project_here(project, "holdlog", dict(os.environ)), Choices(["claude-code"])).hosts
    first.note(edits[0].path, edits[0].record)
    second.note(edits[1].path, edits[1].record)
    found = Records(project / "copies")
    assert [it.path in found for it in edits[:2]] == [True, True]
