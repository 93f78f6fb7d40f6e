"""Ways around the guard that an attack found: commands whose changes were not reported, and acting as another agent."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.hosts import Session, repository, write
from tests.support.programs import HOLDLOG, environment, run

rest = pytest.mark.rest

OPENCODE = """
const {default: plugin} = await import(process.argv[1])
const {execSync} = await import("node:child_process")
const [folder, command] = process.argv.slice(2)
const host = await plugin.server({directory: folder})
const call = {tool: "bash", sessionID: "ses-2", callID: "c-1"}, args = {command, description: "d"}
await host["tool.execute.before"](call, {args})
execSync(command, {cwd: folder})
const output = {title: "", output: "done"}
await host["tool.execute.after"]({...call, args}, output)
console.log(output.output)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = repository(tmp_path / "repo")
    write(root / "Makefile", "all:\n\techo y > src/a.py\n\t@exit $(CODE)\n")
    return root


@pytest.fixture
def one(root: Path) -> Session:
    one = Session(root, "s-1")
    one.change("src/a.py", "x = 2\n")
    return one


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is missing")
def test_command_in_opencode_that_changed_a_held_file_is_reported_to_both(root, one):
    done = run("init", "--yes", "--client", "opencode", cwd=root)
    assert done.code == 0, done
    plugin = root / ".opencode/plugins/holdlog.mjs"
    plugin.write_text((root / ".opencode/plugins/holdlog.js").read_text())
    host = subprocess.run(
        ["node", "--input-type=module", "-e", OPENCODE, str(plugin), str(root), "make CODE=0"],
        cwd=root, env=environment({"PATH": f"{Path(HOLDLOG).parent}:/usr/bin:/bin"}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "src/a.py (held by claude-" in host.stdout
    assert "changed src/a.py" in one.pre("src/a.py")["additionalContext"]


def test_failed_command_in_claude_code_that_changed_a_held_file_is_reported_to_both(root, one):
    """Claude Code reports a command with another exit code than 0 as PostToolUseFailure alone."""
    assert run("init", "--yes", "--client", "claude-code", cwd=root).code == 0
    hooks = json.loads((root / ".claude/settings.local.json").read_text())["hooks"]
    given = {"tool_name": "Bash", "tool_use_id": "t-1", "tool_input": {"command": "make CODE=1"}}
    facts = {"session_id": "s-2", "cwd": str(root)}

    def report(event: str) -> str:
        """What the agent is shown by the hooks that the settings name for an event."""
        commands = [
            hook["command"]
            for group in hooks.get(event, ())
            if re.fullmatch(group["matcher"], "Bash")
            for hook in group["hooks"]
        ]
        text = json.dumps({**facts, "hook_event_name": event, **given})
        env = environment({"PATH": f"{Path(HOLDLOG).parent}:/usr/bin:/bin"})
        return "".join(
            subprocess.run(
                it, shell=True, input=text, cwd=root, env=env, capture_output=True, text=True, check=True
            ).stdout
            for it in commands
        )

    assert report("PreToolUse") == ""
    assert subprocess.run(["make", "CODE=1"], cwd=root, capture_output=True, check=False).returncode != 0
    assert "src/a.py (held by claude-" in report("PostToolUseFailure")
    assert "changed src/a.py" in one.pre("src/a.py")["additionalContext"]


AS_ANOTHER = [
    'echo \'{"session_id": "s-1", "cwd": "."}\' | holdlog hook session-end',
    "CLAUDE_CODE_SESSION_ID=s-1 holdlog release src/a.py",
    "export CODEX_THREAD_ID=s-1; holdlog release",
    "env CLAUDE_CODE_SESSION_ID=s-1 holdlog claim own.py",
    "holdlog revert --session s-1 --by claude-one --reason x",
]


def test_command_that_acts_in_the_conversation_of_another_is_denied(root, one):
    two = Session(root, "s-2")
    assert [it for it in AS_ANOTHER if two.denied(it) == ""] == []
    assert two.denied("CLAUDE_CODE_SESSION_ID=s-2 holdlog claim own.py") == "", "its own"
    assert two.denied("CLAUDE_CODE_SESSION_ID=s-1 holdlog status src/a.py") == "", "it only reads"


@pytest.mark.parametrize("command", ["rm .git/holdlog/state.db", "cp own.py .git/holdlog/state.db-wal"])
def test_person_must_agree_before_the_store_itself_is_changed(root, one, command):
    assert Session(root, "s-2").bash(command)["permissionDecision"] == "ask"
    edit = {"tool_name": "Write", "tool_input": {"file_path": str(root / ".git/holdlog/state.db")}}
    assert Session(root, "s-2").hook("PreToolUse", **edit)["permissionDecision"] == "ask"


STUBBED = ("prettier", "cargo", "npm", "mvn", "coverage", "uv", "markdownlint", "pytest")
READ_AS_HARMLESS = [
    *("prettier --check --write .", "cargo run -- --check", "npm run test:update", "mvn compile spotless:apply"),
    *("coverage run gen.py", "./gen.sh -v", "uv run - <<< x", "markdownlint -f src", "pytest --inline-snapshot=fix"),
    *("git commit -qm x own.py", "git apply --stat --apply p.diff", "tee /proc/self/cwd/src/a.py <<< x"),
    *("sed -n 1wsrc/a.py own.py", "sed '1e echo x > src/a.py' own.py", "awk 'BEGIN{\"tee src/a.py\" | getline}'"),
    *(
        "curl -s --dump-header src/a.py file:///etc/hostname",
        "history -w src/a.py",
        "git grep -O'tee src/a.py' x < own.py",
    ),
]
"""Commands that were taken for ones that change no file."""


@rest
@pytest.mark.parametrize("command", READ_AS_HARMLESS)
def test_command_that_looks_harmless_and_changed_a_held_file_is_denied_or_reported(root, one, tmp_path, command):
    two, programs = Session(root, "s-2"), tmp_path / "programs"
    write(root / "p.diff", "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x = 2\n+x = 3\n")
    write(root / "own.py", "x = 3\n")
    for path in (*(programs / name for name in STUBBED), root / "gen.sh", root / ".git/hooks/pre-commit"):
        write(path, "#!/bin/sh\necho by the program > src/a.py\n")
        path.chmod(0o755)
    if two.denied(command) == "":
        env = environment({"PATH": f"{programs}:/usr/bin:/bin"})
        subprocess.run(["bash", "-c", command], cwd=root, env=env, capture_output=True, check=False)
        assert (root / "src/a.py").read_text() != "x = 2\n", "the command changes it"
        assert "src/a.py (held by claude-" in two.bash(command, "PostToolUse").get("additionalContext", "")


@rest
def test_command_that_only_reads_is_not_compared(root, one):
    two = Session(root, "s-2")
    for command in (
        "sed -n 1,20p src/a.py",
        "prettier --check .",
        "npm run test",
        "pytest -q",
        "awk '{print $1}' own.py",
    ):
        assert two.denied(command) == ""
        write(root / "src/a.py", f"by = {command!r}\n")
        assert two.bash(command, "PostToolUse") == {}, command


@rest
def test_commands_at_once_of_a_host_without_ids_are_compared_with_what_the_first_one_found(root, one):
    two = Session(root, "s-2")
    assert two.bash("make CODE=0") == two.bash("sh other.sh") == {}
    subprocess.run(["make", "CODE=0"], cwd=root, check=True, capture_output=True)
    assert two.bash("sh third.sh") == {}, "it starts while the first one runs"
    assert "src/a.py (held by claude-" in two.bash("make CODE=0", "PostToolUse")["additionalContext"]


@rest
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mcp__fs__copy_file", {"source": "own.py", "destination": "src/a.py"}),
        ("mcp__fs__write_multiple_files", {"files": [{"path": "src/a.py", "content": "x"}]}),
        ("mcp__serena__replace_regex", {"relative_path": "src/a.py", "regex": "x", "repl": "y"}),
    ],
)
def test_unknown_tool_that_writes_a_file_is_warned_about(root, one, tool, arguments):
    assert run("init", "--yes", "--client", "claude-code", cwd=root).code == 0
    hooks = json.loads((root / ".claude/settings.local.json").read_text())["hooks"]
    assert re.fullmatch(hooks["PreToolUse"][0]["matcher"], tool)
    done = Session(root, "s-2").run("PreToolUse", tool_name=tool, tool_input=arguments)
    assert "seems to write a file" in done.out


@pytest.mark.parametrize("blank", [" ", "\n", "\u00a0", "\ufeff"])
def test_blanks_around_a_path_which_hosts_remove_are_no_way_around_the_guard(root, one, blank):
    two = Session(root, "s-2")
    assert "src/a.py is held by claude-" in two.edit(f"src/a.py{blank}")
    write(root / f"src/a.py{blank}", "another file\n")
    assert "src/a.py is held by claude-" in two.edit(f"src/a.py{blank}"), "a host may remove the blank or not"


@rest
def test_link_to_a_held_file_does_not_make_the_file_ones_own(root, one):
    (root / "link.py").symlink_to("src/a.py")
    denial = Session(root, "s-2").denied("git add -A")
    assert re.search(r"take in work of another session: src/a\.py \(claude-", denial)
    assert "src/a.py" not in denial.partition("Name only your own files")[2]
