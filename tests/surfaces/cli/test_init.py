"""`holdlog init` and `holdlog doctor --client`, in real git repositories with a home of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.cli.init import CLIENTS
from holdlog.adapters.cli.setup.changes import write
from holdlog.adapters.cli.setup.hosts import HOSTS
from holdlog.adapters.cli.setup.json_tree import parse
from holdlog.adapters.cli.setup.plan import Choices, plan, project_here
from holdlog.adapters.cli.setup.probe import probe
from holdlog.adapters.cli.setup.report import configured, started
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import note_observation
from tests.support.command_line import run_command
from tests.support.terminal import terminal
from tests.unit.operating_system.test_workspaces import git, repository

SETTINGS = ".claude/settings.local.json"
HOSTS_PAGE = Path(__file__).parents[3] / "docs" / "hosts.md"


def files(folder: Path) -> dict[str, bytes]:
    """All files of the project and its home, except those of git and of the store."""
    found = {}
    for root in (folder, folder.parent / "home"):
        for path in root.rglob("*"):
            if path.is_file() and ".git" not in path.relative_to(root).parts:
                found[str(path.relative_to(folder.parent))] = path.read_bytes()
    return found


def test_host_that_is_used_is_found_and_set_up_and_its_server_starts(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.parent / "home" / ".claude").mkdir()
    code, out, err = run_command(capsys, "init", "--yes")
    assert (code, err) == (0, "")
    assert "Claude Code: the server starts in " in out
    assert "next: restart Claude Code in this folder, and approve the server holdlog" in out
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["holdlog"] == {
        "command": "holdlog",
        "args": [],
    }
    settings = json.loads((project / SETTINGS).read_text())
    assert settings["permissions"]["allow"] == ["mcp__holdlog"]
    assert {"PreToolUse", "SessionStart", "Stop"} < set(settings["hooks"])
    assert (project / ".git" / "holdlog" / "state.db").exists()
    assert subprocess.run(["git", "status", "--porcelain"], capture_output=True, check=True).stdout == b""
    assert not (project / "AGENTS.md").exists()
    before = files(project)
    code, out, _ = run_command(capsys, "init", "--yes")
    assert (code, out.splitlines()[0]) == (0, "everything is set up already")
    assert files(project) == before


@pytest.mark.check
@pytest.mark.parametrize("client", CLIENTS)
def test_undo_restores_what_was_there(client: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in HOSTS[client].files(_project(project)):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        comment = (
            "# mine\n[mcp_servers.other]\ncommand = 'x'\n" if file.block else '{\n\t// mine\n\t"theme": "dark"\n}\n'
        )
        file.path.write_text(comment)
        file.path.chmod(0o640)
    before = files(project)
    exclude = (project / ".git" / "info" / "exclude").read_bytes()
    assert run_command(capsys, "init", "--client", client, "--yes", "--agents-md", "--git-hook")[0] == 0
    assert files(project) != before
    modes = {file.path.stat().st_mode & 0o777 for file in HOSTS[client].files(_project(project))}
    assert modes == {0o640}
    code, out, _ = run_command(capsys, "init", "--client", client, "--undo", "--yes")
    assert code == 0
    assert out.splitlines()[-1].startswith("removed from ")
    assert files(project) == before
    assert (project / ".git" / "info" / "exclude").read_bytes() == exclude
    assert not (project / ".git" / "hooks" / "pre-commit").exists()
    _, out, _ = run_command(capsys, "init", "--client", client, "--undo", "--yes")
    assert out == "nothing that init added is left here\n"


@pytest.mark.check
@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("claude-code", ".mcp.json", "{}"),
        ("claude-code", ".mcp.json", '{"mcpServers": {}}\n'),
        ("claude-code", ".claude/settings.local.json", '{"permissions": {"allow": []}}\n'),
        ("claude-code", ".claude/settings.local.json", '{"permissions": {"allow": ["mcp__holdlog"]}}\n'),
        ("claude-code", ".mcp.json", "{\n  // mine\n}\n"),
        ("claude-code", ".mcp.json", '{"mcpServers": { /* mine */ }}\n'),
        ("claude-code", ".mcp.json", '{\n  "mcpServers": {}, // mine\n}\n'),
        ("claude-code", "CLAUDE.md", "no line break at the end"),
        ("claude-code", "CLAUDE.md", ""),
        ("cursor", ".cursor/hooks.json", '{"version": 1, "hooks": {}}\n'),
        ("codex", "../home/.codex/config.toml", ""),
        ("opencode", "opencode.jsonc", '{\n  "mcp": {}, // mine\n}\n'),
    ],
)
def test_undo_restores_a_file_in_which_nothing_else_is_left(
    client: str, name: str, text: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    init = ("init", "--client", client, "--yes", "--agents-md")
    assert run_command(capsys, *init)[0] == 0
    assert "holdlog" in path.read_text()
    assert text.count("mine") == path.read_text().count("mine")
    assert run_command(capsys, *init)[0] == 0
    assert run_command(capsys, "init", "--client", client, "--undo", "--yes")[0] == 0
    assert path.read_text() == text


@pytest.mark.check
def test_undo_keeps_what_a_person_wrote_after_init(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / ".mcp.json"
    path.write_text("{}\n")
    init = ("init", "--client", "claude-code", "--yes")
    assert run_command(capsys, *init)[0] == 0
    path.write_text(path.read_text().replace('"mcpServers"', '"mine": 1, "mcpServers"'))
    assert run_command(capsys, *init, "--undo")[0] == 0
    assert json.loads(path.read_text()) == {"mine": 1}
    assert run_command(capsys, *init)[0] == 0
    path.write_text(path.read_text().replace('"mine": 1,', ""))
    assert run_command(capsys, *init, "--undo")[0] == 0
    assert json.loads(path.read_text()) == {}


@pytest.mark.check
def test_undo_of_one_host_after_another_restores_what_was_there(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    excluded = project / ".git" / "info" / "exclude"
    excluded.write_text("")
    for client in ("claude-code", "cursor"):
        assert run_command(capsys, "init", "--client", client, "--yes")[0] == 0
    assert run_command(capsys, "init", "--client", "cursor", "--undo", "--yes")[0] == 0
    assert "/.mcp.json" in excluded.read_text()
    assert run_command(capsys, "init", "--client", "claude-code", "--undo", "--yes")[0] == 0
    assert excluded.read_text() == ""


@pytest.mark.check
def test_undo_removes_user_wide_entries_only_if_init_wrote_them_here(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_command(capsys, "init", "--client", "codex", "--yes")[0] == 0
    config = project.parent / "home" / ".codex" / "config.toml"
    monkeypatch.chdir(repository(project.parent / "other"))
    assert run_command(capsys, "init", "--client", "codex", "--yes")[0] == 0
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert config.exists()
    assert run_command(capsys, "init", "--undo", "--client", "codex", "--yes")[0] == 0
    assert not config.exists()
    assert run_command(capsys, "init", "--client", "codex", "--yes")[0] == 0
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert not config.exists()


def _project(project: Path) -> Any:
    from holdlog.adapters.cli.setup.plan import project_here

    return project_here(project, "holdlog", dict(os.environ))


@pytest.mark.check
def test_init_keeps_comments_other_servers_and_tokens(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = '{"mcpServers": {"other": {"command": "x", "env": {"TOKEN": "s3cr3t"}}}} // mine\n'
    (project / ".mcp.json").write_text(other)
    config = project.parent / "home" / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('# mine\nmodel = "x"  # a comment\n')
    code, out, _ = run_command(capsys, "init", "--client", "claude-code", "--client", "codex", "--yes")
    assert code == 0
    assert "s3cr3t" not in out
    text = (project / ".mcp.json").read_text()
    assert parse(text).plain()["mcpServers"]["other"]["env"] == {"TOKEN": "s3cr3t"}
    assert text.endswith("// mine\n")
    assert config.read_text().startswith('# mine\nmodel = "x"  # a comment\n')
    assert tomllib.loads(config.read_text())["mcp_servers"]["holdlog"]["command"] == "holdlog"
    kept = sorted((project / ".git" / "holdlog" / "state.db.replaced").iterdir())
    assert [it.read_text() for it in kept if it.name.startswith(".mcp.json")] == [other]
    assert {it.stat().st_mode & 0o777 for it in kept} == {0o600}


def test_print_writes_nothing_and_shows_all(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "init", "--client", "cursor", "--print")
    assert code == 0
    for shown in ("create .cursor/hooks.json", "create AGENTS.md", "pre-commit", '"command": "holdlog hook"'):
        assert shown in out
    assert "create AGENTS.md: tells agents how to coordinate (--yes writes it only with --agents-md)\n" in out
    assert "pre-commit: checks claims before a commit (--yes writes it only with --git-hook)\n" in out
    assert files(project) == {}
    assert not (project / ".git" / "holdlog").exists()
    assert (
        "only with" not in run_command(capsys, "init", "--client", "cursor", "--print", "--agents-md", "--git-hook")[1]
    )
    assert run_command(capsys, "init", "--print", "--undo")[1] == "nothing that init added is left here\n"


@pytest.mark.check
def test_print_reports_that_everything_is_set_up(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init = ["init", "--client", "vscode"]
    assert run_command(capsys, *init, "--yes", "--agents-md", "--git-hook")[0] == 0
    assert run_command(capsys, *init, "--print") == (0, "everything is set up already\n", "")


def test_without_a_terminal_it_writes_only_with_yes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "init", "--client", "claude-code")
    command = "holdlog init --client claude-code --yes"
    assert (code, err) == (2, f"holdlog: --yes: is missing; without a terminal, run: {command}\n")
    assert files(project) == {}


@pytest.mark.check
def test_undo_without_a_terminal_names_the_command_to_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "init", "--client", "vscode", "--yes")[0] == 0
    code, _, err = run_command(capsys, "init", "--undo")
    assert (code, err) == (2, "holdlog: --yes: is missing; without a terminal, run: holdlog init --undo --yes\n")


def test_no_host_is_named_and_none_is_found(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "init", "--yes")
    assert (code, err.count("\n")) == (2, 1)
    assert "--client: no host was found here; name one, for example: holdlog init --client claude-code (or " in err


def test_file_that_git_tracks_is_changed_only_on_request(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".mcp.json").write_text("{}\n")
    git(project, "add", ".mcp.json")
    code, out, err = run_command(capsys, "init", "--client", "claude-code", "--yes")
    assert code == 1
    assert "does not start holdlog; run: holdlog init --client claude-code --tracked" in out
    assert err.startswith("holdlog: .mcp.json is tracked by git, so it is left as it is: use --tracked, or ")
    assert err.count("\n") == 1
    assert (project / ".mcp.json").read_text() == "{}\n"
    code, found, _ = _doctor(capsys)
    assert code == 1
    assert "missing entries: 1; run: holdlog init --client claude-code --tracked" in found[0]["text"]
    assert run_command(capsys, "init", "--client", "claude-code", "--yes", "--tracked")[0] == 0
    assert "holdlog" in (project / ".mcp.json").read_text()


@pytest.mark.parametrize("text", [b'{"mcpServers": [', b"[]", b"\xff\xfe", b'{"mcpServers": "none"}'])
def test_file_that_cannot_be_edited_stays_as_it_is(
    text: bytes, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".mcp.json").write_bytes(text)
    code, _, err = run_command(capsys, "init", "--client", "claude-code", "--yes")
    assert code == 1
    assert err.startswith("holdlog: .mcp.json is left as it is: ")
    assert err.count("\n") == 1
    assert (project / ".mcp.json").read_bytes() == text
    assert (project / SETTINGS).exists()


@pytest.mark.check
def test_full_disk_leaves_files_as_they_are(project: Path) -> None:
    (project / ".mcp.json").write_text("{}\n")
    assert subprocess.run(["holdlog", "init", "--client", "vscode", "--yes"], capture_output=True).returncode == 0
    command = "ulimit -f 0; exec holdlog init --client claude-code --yes"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert ".mcp.json is left as it is: File too large" in done.stderr
    assert (project / ".mcp.json").read_text() == "{}\n"
    assert not list(project.glob(".holdlog*"))


@pytest.mark.check
def test_link_to_a_file_elsewhere_stays_a_link(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = project.parent / "shared.json"
    shared.write_text("{}\n")
    (project / ".mcp.json").symlink_to(shared)
    assert run_command(capsys, "init", "--client", "claude-code", "--yes")[0] == 0
    assert (project / ".mcp.json").is_symlink()
    assert "holdlog" in shared.read_text()


@pytest.mark.check
def test_folder_without_git_gets_a_store_of_its_own(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.parent / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert run_command(capsys, "init", "--client", "cursor", "--yes")[0] == 0
    assert (folder / ".holdlog" / "state.db").exists()


@pytest.mark.check
def test_git_hook_is_added_to_a_shell_script_and_not_to_what_others_manage(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/bash\nmake lint\nexit 0\n")
    hook.chmod(0o755)
    assert run_command(capsys, "init", "--client", "cursor", "--yes", "--git-hook")[0] == 0
    assert hook.read_text().splitlines()[1].startswith(f"holdlog={shutil.which('holdlog')}; ")
    assert hook.stat().st_mode & 0o777 == 0o755
    assert run_command(capsys, "init", "--client", "cursor", "--undo", "--yes")[0] == 0
    assert hook.read_text() == "#!/bin/bash\nmake lint\nexit 0\n"
    (project / "lefthook.yml").write_text("")
    _, _, err = run_command(capsys, "init", "--client", "cursor", "--yes", "--git-hook")
    assert "lefthook.yml manages the git hooks, so they are left as they are; add " in err
    assert hook.read_text() == "#!/bin/bash\nmake lint\nexit 0\n"


@pytest.mark.check
def test_git_hook_that_git_tracks_is_changed_only_on_request(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = project / ".githooks" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nmake lint\n")
    git(project, "add", ".githooks")
    git(project, "config", "core.hooksPath", ".githooks")
    init = ["init", "--client", "cursor", "--yes"]
    code, _, err = run_command(capsys, *init, "--git-hook")
    assert (code, hook.read_text()) == (0, "#!/bin/sh\nmake lint\n")
    assert err.startswith("holdlog: .githooks/pre-commit is tracked by git, so it is left as it is: use --tracked, or ")
    assert run_command(capsys, *init, "--git-hook", "--tracked")[0] == 0
    changed = hook.read_text()
    assert "holdlog check" in changed
    assert run_command(capsys, *init, "--undo")[2].startswith("holdlog: .githooks/pre-commit is tracked by git")
    assert hook.read_text() == changed
    assert run_command(capsys, *init, "--undo", "--tracked")[0] == 0
    assert hook.read_text() == "#!/bin/sh\nmake lint\n"


def at_terminal(answers: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Run a command at a terminal, and answer its questions. Returns its exit code and what it shows."""
    with terminal("holdlog", *arguments) as shown:
        for question, answer in answers.items():
            shown.wait_for(question)
            shown.type(f"{answer}\n")
        return shown.end(), shown.shown.replace("\r\n", "\n")


@pytest.mark.check
def test_person_at_a_terminal_is_asked_for_each_group(project: Path) -> None:
    answers = {"Write these files? [Y/n] ": "", "instructions for agents? [y/N] ": "y", "commit? [y/N] ": ""}
    assert at_terminal(answers, "init", "--client", "claude-code")[0] == 0
    assert (project / ".mcp.json").exists()
    assert "holdlog" in (project / "CLAUDE.md").read_text()
    assert not (project / ".git" / "hooks" / "pre-commit").exists()


@pytest.mark.check
def test_person_who_declines_every_change_learns_that_nothing_was_written(project: Path) -> None:
    declined = dict.fromkeys(("these files? [Y/n] ", "commit? [y/N] "), "n")
    code, shown = at_terminal(declined, "init", "--client", "cursor")
    again = "nothing was written; to be asked again, run holdlog init --client cursor; --yes writes without asking"
    assert (code, shown.splitlines()[-1], files(project)) == (0, again, {})
    assert not (project / ".git" / "holdlog").exists()
    assert "for agents?" not in shown
    agreed = {"these files? [Y/n] ": "", "for agents? [y/N] ": "n", "commit? [y/N] ": "n"}
    assert at_terminal(agreed, "init", "--client", "vscode")[0] == 0
    before = files(project)
    code, shown = at_terminal({"these files? [Y/n] ": "n"}, "init", "--client", "vscode", "--undo")
    assert (code, files(project)) == (0, before)
    assert shown.splitlines()[-1].startswith(
        "nothing was written; to be asked again, run holdlog init --client vscode --undo; "
    )


@pytest.mark.check
def test_git_hook_alone_starts_no_server(project: Path) -> None:
    answers = {"these files? [Y/n] ": "n", "commit? [y/N] ": "y"}
    code, shown = at_terminal(answers, "init", "--client", "cursor")
    assert (code, "server" in shown.partition("commit?")[2]) == (0, False)
    assert (project / ".git" / "hooks" / "pre-commit").exists()


@pytest.mark.check
def test_undo_creates_no_store(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "init", "--client", "cursor", "--yes")[0] == 0
    shutil.rmtree(project / ".git" / "holdlog")
    assert run_command(capsys, "init", "--client", "cursor", "--undo", "--yes")[0] == 0
    assert not (project / ".cursor" / "mcp.json").exists()
    assert not (project / ".git" / "holdlog" / "state.db").exists()


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "mcpServers": {\n    "other": {"command": "x", "env": {"TOKEN": "s3cr3t"}}\n  }\n}\n',
        '{"mcpServers": {"other": {"env": {"TOKEN": "s3cr3t"}}}}\n',
        '{"permissions": {"allow": []}, "env": {"TOKEN": "s3cr3t"}, "hooks": {"Stop": []}}\n',
    ],
)
def test_secrets_in_changed_lines_are_not_shown(text: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".claude").mkdir()
    for name in (".mcp.json", SETTINGS):
        (project / name).write_text(text)
    code, out, _ = run_command(capsys, "init", "--client", "claude-code", "--print")
    assert code == 0
    assert '"holdlog hook"' in out
    assert "s3cr3t" not in out
    assert "TOKEN" not in out


def test_server_that_a_person_configured_is_kept(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        '{"mcpServers": {"holdlog": {"type": "http", "url": "http://x/mcp", "headers": {"Authorization": "s3cr3t"}}}}'
    )
    (project / ".mcp.json").write_text(text)
    code, out, err = run_command(capsys, "init", "--client", "claude-code", "--yes")
    assert (code, err) == (0, "")
    assert ".mcp.json has another configuration of holdlog, which stays" in out
    assert (project / ".mcp.json").read_text() == text
    assert run_command(capsys, "init", "--client", "claude-code", "--undo", "--yes")[0] == 0
    assert (project / ".mcp.json").read_text() == text


@pytest.mark.check
def test_files_of_each_host_stay_out_of_git_status(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def status() -> list[str]:
        command = ["git", "status", "--porcelain", "-uall"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    for client in ("cursor", "claude-code", "vscode"):
        assert run_command(capsys, "init", "--client", client, "--yes")[0] == 0
    assert status() == []
    (project / ".vscode" / "mcp.json").write_text('{"mine": 1}')
    for client in ("cursor", "vscode"):
        assert run_command(capsys, "init", "--client", client, "--undo", "--yes")[0] == 0
    assert status() == ["?? .vscode/mcp.json"]
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert "holdlog" not in (project / ".git" / "info" / "exclude").read_text()


@pytest.mark.check
def test_exclude_file_that_cannot_be_read_stays_as_it_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".git" / "info" / "exclude").write_bytes(b"\xe9t\xe9\n")
    code, _, err = run_command(capsys, "init", "--client", "cursor", "--yes")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("holdlog: .git/info/exclude is left as it is: it is not UTF-8")
    assert (project / ".git" / "info" / "exclude").read_bytes() == b"\xe9t\xe9\n"
    assert (project / ".cursor" / "mcp.json").exists()


@pytest.mark.check
def test_file_that_git_tracks_is_not_changed_through_a_link(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "shared.json").write_text("{}\n")
    git(project, "add", "shared.json")
    (project / ".mcp.json").symlink_to("shared.json")
    code, _, err = run_command(capsys, "init", "--client", "claude-code", "--yes")
    assert code == 1
    assert err.startswith("holdlog: .mcp.json is tracked by git")
    assert (project / "shared.json").read_text() == "{}\n"


@pytest.mark.check
@pytest.mark.parametrize("text", ["", "# Rules\n"])
def test_instructions_with_two_names_are_added_and_removed_once(
    text: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "AGENTS.md").write_text(text)
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    assert run_command(capsys, "init", "--client", "cursor", "--yes", "--agents-md")[0] == 0
    code, _, err = run_command(capsys, "init", "--client", "cursor", "--undo", "--yes")
    assert (code, err) == (0, "")
    assert not text or (project / "CLAUDE.md").read_text() == text


@pytest.mark.parametrize(
    ("clients", "there", "changed"),
    [
        (["claude-code"], {}, ["CLAUDE.md"]),
        (["claude-code"], {"AGENTS.md": "# Rules\n"}, ["CLAUDE.md"]),
        (["claude-code"], {"AGENTS.md": "# Rules\n", "CLAUDE.md": "# Rules\n"}, ["CLAUDE.md"]),
        (["claude-code"], {"AGENTS.md": "# Rules\n", "CLAUDE.md": "@AGENTS.md\n"}, ["AGENTS.md"]),
        (["cursor", "codex"], {"CLAUDE.md": "# Rules\n"}, ["AGENTS.md"]),
        (["claude-code", "codex"], {"AGENTS.md": "# Rules\n"}, ["AGENTS.md", "CLAUDE.md"]),
        (["claude-desktop"], {}, []),
    ],
)
def test_instructions_are_in_the_file_that_each_host_reads(
    clients: list[str], there: dict[str, str], changed: list[str], project: Path
) -> None:
    for name, text in there.items():
        (project / name).write_text(text)
    found = plan(project_here(project, "holdlog", dict(os.environ)), Choices(clients)).instructions
    assert sorted(it.path.name for it in found) == changed


def test_option_for_instructions_also_changes_a_tracked_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "AGENTS.md").write_text("# Rules\n")
    git(project, "add", "AGENTS.md")
    assert run_command(capsys, "init", "--client", "vscode", "--yes", "--agents-md")[0] == 0
    assert "holdlog" in (project / "AGENTS.md").read_text()


def test_opencode_keeps_its_one_file_with_comments(project: Path) -> None:
    text = '{\n  // mine\n  "model": "x"\n}\n'
    (project / "opencode.jsonc").write_text(text)
    here = project_here(project, "holdlog", dict(os.environ))
    assert HOSTS["opencode"].is_used(here)
    for change in plan(here, Choices(["opencode"])).hosts:
        write(change, project.parent / "backups")
    assert "// mine" in (project / "opencode.jsonc").read_text()
    assert parse((project / "opencode.jsonc").read_text()).plain()["mcp"]["holdlog"]["enabled"] is True
    assert not (project / "opencode.json").exists()
    for change in plan(here, Choices(["opencode"], undo=True)).hosts:
        write(change, project.parent / "backups")
    assert (project / "opencode.jsonc").read_text() == text


@pytest.mark.check
@pytest.mark.parametrize("client", ["codex", "windsurf", "claude-desktop"])
def test_undo_names_entries_that_are_user_wide(client: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "init", "--client", client, "--yes")[0] == 0
    code, out, _ = run_command(capsys, "init", "--undo", "--yes")
    assert code == 0
    [line] = [it for it in out.splitlines() if it.startswith("remove ~/")]
    assert line.endswith("; user-wide: it applies to all your repositories")


@pytest.mark.check
@pytest.mark.parametrize("client", CLIENTS)
def test_undo_removes_the_folders_that_it_leaves_empty(
    client: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".opencode").mkdir()
    (project / ".opencode" / "mine.txt").touch()
    assert run_command(capsys, "init", "--client", client, "--yes")[0] == 0
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert sorted(it.name for it in project.iterdir()) == [".git", ".opencode"]
    assert [it.name for it in (project / ".opencode").iterdir()] == ["mine.txt"]
    assert client == "opencode" or not HOSTS[client].is_used(_project(project))
    assert (project.parent / "home").is_dir()


def test_undo_keeps_the_folder_of_the_project(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.parent / "home"
    monkeypatch.chdir(folder)
    (folder / ".mcp.json").write_text('{"mcpServers": {"holdlog": {"command": "holdlog", "args": []}}}')
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert not (folder / ".mcp.json").exists()
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"holdlog": {"command": "holdlog", "args": ["--db", "x.db"]}}}'),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"holdlog": {"command": "holdlog", "args": ["--tools=all"]}}}'),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"holdlog": {"command": "holdlog", "env": {"A": "b"}}}}'),
        (
            "opencode",
            "opencode.json",
            '{"mcp": {"holdlog": {"type": "local", "command": ["holdlog"], "enabled": false}}}',
        ),
    ],
)
def test_server_that_a_person_changed_is_not_replaced(client: str, name: str, text: str, project: Path) -> None:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    changed = plan(project_here(project, "holdlog", dict(os.environ)), Choices([client])).hosts
    assert path not in [it.path for it in changed]


@pytest.mark.parametrize("client", sorted({*CLIENTS} - {"codex"}))
def test_server_with_a_former_path_of_holdlog_is_replaced(client: str, project: Path) -> None:
    former = plan(project_here(project, "/former/holdlog", dict(os.environ)), Choices([client])).hosts[0]
    write(former, project.parent / "backups")
    changed = plan(project_here(project, "holdlog", dict(os.environ)), Choices([client])).hosts[0]
    assert changed.path == former.path
    assert "/former/" not in (changed.after or "")


def test_file_that_changed_before_it_is_removed_is_kept(project: Path) -> None:
    here = project_here(project, "holdlog", dict(os.environ))
    for change in plan(here, Choices(["vscode"])).hosts:
        write(change, project.parent / "backups")
    path = project / ".vscode" / "mcp.json"
    [removal, *_] = plan(here, Choices(["vscode"], undo=True)).hosts
    path.write_text("{} // mine")
    with pytest.raises(OSError, match="it changed meanwhile"):
        write(removal, project.parent / "backups")
    assert path.read_text() == "{} // mine"


def test_block_is_found_after_an_editor_changed_the_line_breaks(project: Path) -> None:
    here = project_here(project, "holdlog", dict(os.environ))
    path = here.home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_bytes(b'model = "x"\r\n')
    write(plan(here, Choices(["codex"])).hosts[0], project.parent / "backups")
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    write(plan(here, Choices(["codex"], undo=True)).hosts[0], project.parent / "backups")
    assert path.read_bytes() == b'model = "x"\r\n'


def test_server_that_ends_without_a_word_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    found = probe([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
    assert found.problem == "it ended with exit code 3"


@pytest.mark.parametrize("client", CLIENTS)
def test_doctor_misses_nothing_in_the_files_that_init_writes(client: str, project: Path) -> None:
    here = project_here(project, "holdlog", dict(os.environ))
    before = configured(client, here)
    assert all(it.missing and it.problem is None for it in before)
    for change in plan(here, Choices([client])).hosts:
        write(change, project.parent / "backups")
    assert [it for it in configured(client, here) if it.missing or it.problem is not None] == []


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("codex", "home/.codex/config.toml", "mcp_servers = 5\n"),
        ("codex", "home/.codex/config.toml", "[mcp_servers]\nholdlog = 5\n"),
        ("cursor", "project/.cursor/mcp.json", '{"mcpServers": 5}'),
        ("cursor", "project/.cursor/mcp.json", '{"mcpServers": {"holdlog": []}}'),
        ("cursor", "project/.cursor/mcp.json", '{"mcpServers": {"holdlog": {"command": "", "args": 5}}}'),
    ],
)
def test_values_of_wrong_types_in_files_of_hosts_are_reported(client: str, name: str, text: str, project: Path) -> None:
    path = project.parent / name
    path.parent.mkdir()
    path.write_text(text)
    here = project_here(project, "holdlog", dict(os.environ))
    plan(here, Choices([client]))
    assert len(configured(client, here)) == 2
    line, starts = started(client, here)
    assert not starts
    assert "holdlog init" in line or "does not start" in line


@pytest.mark.check
def test_doctor_lists_missing_entries_and_observations(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = _doctor(capsys)
    assert code == 1
    assert [it["level"] for it in found] == ["bad", "bad", "bad", "warn"]
    assert "--live-test" not in found[-1]["text"]
    assert run_command(capsys, "init", "--client", "claude-code", "--yes")[0] == 0
    code, found, _ = _doctor(capsys)
    assert (code, [it["level"] for it in found]) == (0, ["ok", "ok", "ok", "warn"])
    assert found[-1]["text"].endswith("; to try one: holdlog doctor --client claude-code --live-test")
    hook_files = HookFiles(project / ".git" / "holdlog" / "state.db")
    note_observation(hook_files, "claude 2.1.319", obeyed=True)
    assert _doctor(capsys)[1][-1]["text"].startswith("guarded: claude 2.1.319 did not run a denied edit")
    note_observation(hook_files, "claude 2.1.319", obeyed=False)
    code, found, _ = _doctor(capsys)
    assert (code, found[-1]["level"]) == (1, "bad")
    assert found[-1]["text"].startswith("bypassed: claude 2.1.319 ran a denied edit")


def _doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]], str]:
    code, out, err = run_command(capsys, "doctor", "--client", "claude-code", "--json")
    return code, json.loads(out)["findings"], err


def test_live_test_needs_a_client_and_a_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "doctor", "--live-test")[0] == 2
    assert run_command(capsys, "doctor", "--live-test", "--client", "codex")[0] == 2


def printed(capsys: pytest.CaptureFixture[str], client: str) -> dict[str, Any]:
    """By name: the configuration files that init would create for a host."""
    code, out, _ = run_command(capsys, "init", "--client", client, "--print")
    assert code == 0
    read = {".json": json.loads, ".toml": tomllib.loads}
    found = {}
    for part in re.split(r"^(?:create|change) ", out, flags=re.MULTILINE)[1:]:
        name, text = part.partition(":")[0], "\n".join(re.findall(r"^    \+(.*)", part, re.MULTILINE))
        if Path(name).suffix in read:
            found[name] = read[Path(name).suffix](text)
    return found


def test_page_of_hosts_shows_what_init_writes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = HOSTS_PAGE.read_text()
    shown = [json.loads(it) for it in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    shown += [tomllib.loads(it) for it in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    claude, cursor, codex = (printed(capsys, client) for client in ("claude-code", "cursor", "codex"))
    hooks = claude.pop(SETTINGS)["hooks"]
    assert {"hooks": hooks} in shown
    for event, field in (("PreToolUse", "with the matcher `(.+?)`"), ("PostToolUse", "and `(.+?)` for `PostToolUse`")):
        hooks[event][0]["matcher"] = re.findall(field, page)[0]
    assert codex.pop(".codex/hooks.json") == {"hooks": hooks}
    for files_of_host in (claude, cursor, codex, printed(capsys, "vscode"), printed(capsys, "windsurf")):
        assert files_of_host
        assert [name for name, content in files_of_host.items() if content not in shown] == []
