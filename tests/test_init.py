"""How `holdlog init` changes files of others, and removes again what it added."""

import json
import re
import subprocess

import pytest

from holdlog.adapters.hooks.clients import CLIENTS, Project
from holdlog.adapters.hooks.edits import HASH, CommentedError, Entry, Originals, Target, plan_edit, write
from tests.support.programs import run

SERVER = Entry(("mcpServers", "holdlog"), {"command": "holdlog", "args": []})
HOOK = Entry(("hooks", "Stop"), {"hooks": [{"type": "command", "command": "holdlog hook"}]}, True)
OTHER = {"hooks": [{"type": "command", "command": "beep"}]}


def target(path, *entries, **more):
    return Target(str(path), "is set up", entries, **more)


class Setup:
    """A file that init changes."""

    def __init__(self, tmp_path, name, *entries, **more):
        self.path = tmp_path / name
        self.target = target(self.path, *entries, **more)
        self.originals = Originals(str(tmp_path))

    def change(self, undo=False):
        """Returns whether there was something to do."""
        edit = plan_edit(self.target, undo, self.originals.texts.get(str(self.path)))
        if edit is not None:
            self.originals.note(edit)
            write(edit)
        return edit is not None

    def text(self):
        return self.path.read_bytes().decode() if self.path.exists() else None


@pytest.fixture
def setup(tmp_path):
    return lambda name, *entries, **more: Setup(tmp_path, name, *entries, **more)


BEFORE = [
    None,
    '{\n\t"note": 1,\n\t"mcpServers": {},\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}\n',
    json.dumps({"mcpServers": {"x": {}}, "hooks": {"Stop": [OTHER]}}, indent=4),
    '\ufeff{\r\n  "a": "é",\r\n  "mcpServers": {},\r\n  "hooks": {\r\n    "Stop": []\r\n  }\r\n}\r\n',
]


@pytest.mark.parametrize("before", BEFORE)
def test_undo_restores_the_file_byte_by_byte(setup, before):
    file = setup(".deep/plugins/a.json", SERVER, HOOK)
    if before is not None:
        file.path.parent.mkdir(parents=True)
        file.path.write_bytes(before.encode())
    assert file.change()
    assert json.loads(file.text().removeprefix("\ufeff"))["mcpServers"]["holdlog"] == SERVER.value
    assert not file.change(), "it is set up already"
    assert file.change(undo=True)
    assert file.text() == before
    assert not file.change(undo=True)
    assert file.path.parent.parent.exists() == (before is not None)


def test_undo_keeps_what_a_person_added_since_and_empty_containers(setup):
    file = setup("a.json", SERVER, HOOK)
    file.path.write_text('{"mcpServers": {}, "hooks": {"Stop": []}}')
    file.change()
    content = json.loads(file.text())
    content["hooks"]["Stop"].append(OTHER)
    file.path.write_text(json.dumps(content | {"env": {"A": "1"}}))
    file.change(undo=True)
    assert json.loads(file.text()) == {"mcpServers": {}, "hooks": {"Stop": [OTHER]}, "env": {"A": "1"}}


def test_hook_with_another_path_of_holdlog_is_replaced_and_a_server_of_a_person_stays(setup):
    file = setup("a.json", SERVER, HOOK)
    old = {"hooks": [{"type": "command", "command": "'/opt/my tools/holdlog' hook", "timeout": 9}]}
    mine = {"command": "uvx", "args": ["holdlog"]}
    file.path.write_text(json.dumps({"mcpServers": {"holdlog": mine}, "hooks": {"Stop": [OTHER, old]}}))
    file.change()
    assert json.loads(file.text()) == {"mcpServers": {"holdlog": mine}, "hooks": {"Stop": [OTHER, HOOK.value]}}
    file.change(undo=True)
    assert json.loads(file.text()) == {"mcpServers": {"holdlog": mine}, "hooks": {"Stop": [OTHER]}}


def test_server_with_another_path_of_holdlog_is_replaced(setup):
    file = setup("a.json", SERVER)
    file.path.write_text(json.dumps({"mcpServers": {"holdlog": {"command": "/old/bin/holdlog", "args": []}}, "a": 1}))
    file.change()
    assert json.loads(file.text()) == {"mcpServers": {"holdlog": SERVER.value}, "a": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": [', "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('{"mcpServers": []}', "its mcpServers is not an object"),
        ('{"hooks": {"Stop": {}}}', "its Stop is not a list"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_file_that_cannot_be_edited_is_refused(setup, text, problem):
    file = setup("a.json", SERVER, HOOK)
    file.path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        file.change()
    assert file.text() == text


@pytest.mark.parametrize("text", ['{\n  // mine\n  "a": 1\n}', '{"a": 1,}', '/* mine */ {"a": 1}'])
def test_entry_for_a_file_with_comments_is_printed(setup, text):
    file = setup("a.json", SERVER)
    file.path.write_text(text)
    with pytest.raises(CommentedError, match=re.escape(json.dumps({"mcpServers": {"holdlog": SERVER.value}}))):
        file.change()
    file.path.write_text(f"{text} // holdlog")
    assert not file.change()


def test_block_and_line_are_added_once_and_removed(setup):
    toml = setup("config.toml", block='[mcp_servers.holdlog]\ncommand = "holdlog"')
    toml.path.write_text("# mine\nmodel = 'x'")
    assert (toml.change(), toml.change()) == (True, False)
    assert toml.text() == (
        "# mine\nmodel = 'x'\n\n# begin holdlog\n[mcp_servers.holdlog]\ncommand = \"holdlog\"\n# end holdlog\n"
    )
    toml.path.write_text(toml.text() + "# more\n")
    assert (toml.change(undo=True), toml.text()) == (True, "# mine\nmodel = 'x'\n# more\n")
    hook = setup("pre-commit", line="holdlog check --staged || exit 1")
    hook.path.write_text("#!/bin/sh\nmake test\n")
    hook.change()
    line = "holdlog check --staged || exit 1  # holdlog: is set up"
    assert hook.text() == f"#!/bin/sh\n{line}\nmake test\n"
    assert (hook.change(), hook.change(undo=True), hook.text()) == (False, True, "#!/bin/sh\nmake test\n")


def test_server_of_a_person_in_toml_stays_and_bad_toml_is_refused(setup):
    toml = setup("config.toml", block="[mcp_servers.holdlog]\ncommand = 'holdlog'", comment=HASH)
    toml.path.write_text("[mcp_servers.holdlog]\ncommand = 'mine'\n")
    assert not toml.change()
    toml.path.write_text("[mcp_servers\n")
    with pytest.raises(ValueError, match="Expected"):
        toml.change()


def test_file_that_changed_meanwhile_and_links_are_respected(setup, tmp_path):
    file = setup("a.json", SERVER)
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "real.json").chmod(0o600)
    file.path.symlink_to("real.json")
    edit = plan_edit(file.target, undo=False)
    assert edit is not None
    (tmp_path / "real.json").write_text('{"a": 1}')
    with pytest.raises(Exception, match="it changed meanwhile"):
        write(edit)
    assert file.change()
    assert file.path.is_symlink()
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", CLIENTS)
def test_each_host_is_set_up_and_undone(name, tmp_path):
    project = Project(str(tmp_path / "root"), str(tmp_path / "home"), "/opt/my tools/holdlog")
    for undo in (False, True):
        for each in CLIENTS[name].targets(project):
            edit = plan_edit(each, undo)
            assert edit is not None
            write(edit)
            assert undo or each.has_all(edit.after)
    assert [it for it in tmp_path.rglob("*") if it.is_file()] == []


def test_print_shows_the_changes_and_neither_asks_nor_writes(tmp_path):
    (tmp_path / ".mcp.json").write_text('{\n  "mcpServers": {}\n}\n')
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    before = sorted(tmp_path.rglob("*"))
    words = ("init", "--client", "claude-code", "--yes", "--print")
    done = run(*words, cwd=tmp_path, env={"HOME": str(tmp_path), "HOLDLOG_DB": ""})
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^change \.mcp\.json: .*\n(.*\n)+\+ .*\"holdlog\": \{", done.out, re.MULTILINE)
    assert done.out.splitlines()[-1] == "nothing was written"
    assert sorted(tmp_path.rglob("*")) == before
