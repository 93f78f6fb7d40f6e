"""Shell commands as hooks see them: what changes a held file, and git commands over the uncommitted work of others."""

import json
import re
import subprocess

import pytest

from tests.support.hosts import Session, commit_policy, git, held, repository, run_hook, write
from tests.support.programs import HOLDLOG, environment, run

rest = pytest.mark.rest


FEW = ["sed -i s/a/b/ src/a.py", "cd src && rm a.py", "cat > src/a.py <<'EOF'\nx = 1\nEOF"]
CERTAIN = [
    "sed -i 's/^y.*$/z = [0-9]/' src/a.py",
    "perl -pi -e 's/f(x)/b/' src/a.py",
    "cat <<EOF | tee -a ./src//a.py\nx\nEOF",
    "mv own.py src/a.py",
    'patch -p1 <<\'EOF\'\n--- "a/src/\\141.py"\n+++ "b/src/\\141.py"\n@@ -1 +1 @@\n-x = 1\n+x = 2\nEOF',
    "rm -rf src",
    "# fix\nX=1 sudo sed -i '$d' src/a.py\npytest -q",
    "bash -c 'sed -i s/a/b/ src/a.py' 2>&1 | tail -5",
    "if true; then truncate -s 0 src/a.py; fi",
    "sed -i s/a/b/ src/*.py",
    "git mv 'app/[id].py' src/a.py",
    "git restore --staged --worktree src/a.py",
    "git checkout HEAD -- src/a.py",
]
"""Commands that certainly change src/a.py (also field cases 10 and 12)."""
UNCONCERNED = [
    "sed -n 1,20p src/a.py | grep x; git diff src/a.py",
    "echo 'sed -i s/a/b/ src/a.py'; wc -l src/a.py > ../count",
    'echo "rm src/a.py" > notes.txt',
    "cp src/a.py ../backup.py; rm -rf build; python -m pytest src -q",
]


@pytest.mark.parametrize("commands", [FEW, pytest.param(CERTAIN, marks=rest)], ids=["few", "all"])
def test_command_that_certainly_changes_a_held_file_is_denied(one, two, commands):
    assert one.edit("src/a.py") == ""
    assert [it for it in commands if "src/a.py is held by claude-" not in two.denied(it)] == []


@rest
def test_command_that_does_not_change_a_held_file_runs_silently(root, one, two):
    assert one.edit("src/a.py") == ""
    assert [it for it in UNCONCERNED if two.bash(it) != {}] == []
    assert {*held(root)} <= {"src/a.py", "notes.txt", "build", "build/"}


@rest
def test_uncertain_command_that_changed_a_held_file_is_reported_to_both(root, one, two):
    write(root / "Makefile", "all:\n\techo y > src/a.py\n")
    one.change("src/a.py", "x = 2\n")
    one.change("src/b.py", "x = 2\n")
    text = two.shell("make")["additionalContext"]
    assert ("src/a.py (held by claude-" in text, "src/b.py" in text) == (True, False)
    assert "changed src/a.py" in one.pre("src/a.py")["additionalContext"]
    assert one.pre("src/a.py") == {}
    assert two.shell("make") == {}, "it changed nothing"
    assert "src/b.py (held" in two.shell("ln -s src link && rm link/b.py")["additionalContext"], (
        "a path of its own making"
    )
    assert two.shell("find src -name none -exec sed -i s/a/b/ {} +") == {}


def test_patch_with_a_name_that_is_not_utf8_claims_its_other_files(one, two):
    names = '--- "a/\\377.py"\n+++ "b/\\377.py"', "--- a/src/b.py\n+++ b/src/b.py"
    text = "".join(f"{it}\n@@ -1 +1 @@\n-x = 1\n+x = 2\n" for it in names)
    assert one.denied(f"patch -p1 <<'EOF'\n{text}EOF") == ""
    assert "src/b.py is held" in two.denied("rm src/b.py")


@rest
def test_edit_of_another_sub_agent_while_a_command_runs_is_not_its_change(two):
    """Both belong to one conversation."""
    first, second = two.agent("a-1"), two.agent("a-2")
    second.change("src/a.py", "x = 2\n")
    assert first.denied("make") == ""
    second.change("src/a.py", "x = 3\n")
    assert first.bash("make", "PostToolUse") == {}


TAKING = [
    *("git stash", "git reset --hard", "git add -A && git commit -m x"),
    *("git checkout -- .", "git checkout -f", "git commit -am x", "git add src", "git clean -fd"),
    *("git -C src stash", "cd src && git reset --hard"),
]


@pytest.mark.parametrize("commands", [TAKING[:1], pytest.param(TAKING[1:], marks=rest)], ids=["few", "rest"])
def test_git_command_over_uncommitted_work_of_another_session_is_denied(root, one, two, commands):
    one.change("src/a.py", "x = 2\n")
    write(root / "src/new.py", "x = 2\n")
    one.change("src/new.py", "x = 2\n")
    write(root / "own.py", "x = 3\n")
    for command in commands:
        reason = two.denied(command)
        assert "a.py" in reason or "new.py" in reason, command
        assert "claude-" in reason, command
        assert reason.endswith("A person can run this in a terminal."), command
    assert one.bash(commands[0]) == {}, "its own work"


@rest
def test_denial_of_a_git_command_names_the_rest_which_may_be_taken(root, one, two):
    one.change("src/a.py", "x = 2\n")
    write(root / "own.py", "x = 3\n")
    assert "own.py" in two.denied("git stash")
    assert two.bash("git stash push -- own.py") == {}
    assert "own.py" in two.denied("git add -A")
    assert two.bash("git add own.py && git commit --only -m x -- own.py") == {}
    for command in ("git status", "git diff", "git log", "git stash list", "git push", "git restore src/b.py"):
        assert two.bash(command) == {}, command


@rest
def test_work_of_people_and_of_ended_sessions_denies_nothing(root, one, two):
    write(root / "own.py", "x = 3\n")
    assert one.edit("src/b.py") == "", "held, and as committed"
    assert [it for it in TAKING if it != "git add src" and two.denied(it)] == []
    one.change("src/a.py", "x = 2\n")
    assert two.denied("git stash") != ""
    one.end()
    assert two.denied("git stash") == ""
    text = two.bash("git commit -am x")["additionalContext"]
    assert "changes of an ended session: src/a.py (claude-" in text
    one.hook("SessionStart", source="resume")
    assert two.denied("git stash") != ""


@rest
def test_moving_head_below_work_of_others_is_a_warning(root, one, two):
    git(root, "branch", "side")
    assert two.bash("git switch side") == {}
    one.change("src/a.py", "x = 2\n")
    output = two.bash("git switch side")
    assert ("permissionDecision" in output, "src/a.py (claude-" in output["additionalContext"]) == (False, True)


@rest
@pytest.mark.parametrize(
    "command",
    ["git switch -q side", "git reset -q --hard side", "git checkout side -- .", 'git merge -q side && python3 -c ""'],
)
def test_git_command_that_changed_a_held_file_is_reported_to_both(root, one, two, command):
    """One whose holder has not changed it yet: nothing is lost, so the command runs."""
    git(root, "switch", "-qc", "side")
    write(root / "src/b.py", "side\n")
    git(root, "commit", "-qam", "side")
    git(root, "switch", "-q", "main")
    assert one.edit("src/b.py") == ""
    text = two.shell(command)["additionalContext"]
    assert ("src/b.py (held by claude-" in text, "changed while" in text, "commit" in text) == (True, True, False)
    assert re.search("claude-.* changed src/b.py", one.pre("src/b.py")["additionalContext"])


@rest
def test_edit_that_began_after_the_check_of_a_commit_is_reported_once_it_is_committed(root, one, two):
    write(root / "own.py", "x = 3\n")
    command = "git add -A && git commit -qm x"
    for name in ("src/a.py", "src/b.py"):
        assert two.denied(command) == ""
        one.change(name, "half\n")
        subprocess.run(["sh", "-c", command], cwd=root, env=environment(), check=True)
        text = two.bash(command, "PostToolUse")["additionalContext"]
        assert (name in text, "got into a commit" in text, text.count("(held by")) == (True, True, 1)


@rest
def test_stash_entry_belongs_to_the_session_that_made_it(root, one, two, tmp_path):
    write(root / "own.py", "x = 3\n")
    git(root, "stash")
    one.change("src/a.py", "x = 2\n")
    one.shell("git stash")
    for command in ("git stash pop", "git stash drop stash@{0}", "git stash clear"):
        assert "stash@{0} (claude-" in two.denied(command), command
    assert two.denied("git stash drop stash@{1}") == ""
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert "stash@{0}" in Session(tmp_path / "tree", "s-3").denied("git stash pop"), "worktrees share the stash"
    assert one.bash("git stash pop") == {}
    one.end()
    assert two.denied("git stash pop") == ""


@rest
def test_worktree_of_a_live_session_is_not_removed(root, two, tmp_path):
    git(root, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "tree"))
    assert two.bash("git worktree remove ../tree") == {}
    one = Session(tmp_path / "tree", "s-1")
    one.change("src/b.py", "x = 3\n")
    for command in ("git worktree remove --force ../tree", "rm -rf ../tree"):
        assert "claude-" in two.denied(command), command
    assert "src/b.py" in two.denied("git -C ../tree stash")
    assert "src/b.py" not in two.denied("git stash")
    one.end()
    assert two.bash("git worktree remove --force ../tree") == {}


@rest
@pytest.mark.parametrize("mode", ["warn", "off"])
def test_policy_relaxes_the_guard_of_git(root, one, two, mode):
    commit_policy(root, f'git = "{mode}"\n')
    one.change("src/a.py", "x = 2\n")
    output = two.bash("git stash")
    assert "permissionDecision" not in output
    assert ("src/a.py" in output.get("additionalContext", "")) is (mode == "warn")


@rest
def test_git_that_cannot_be_asked_leaves_the_command_unguarded_and_says_so(root, one, tmp_path):
    one.change("src/a.py", "x = 2\n")
    write(tmp_path / "bin/git", "#!/bin/sh\nexit 3\n")
    (tmp_path / "bin/git").chmod(0o755)
    facts = {"session_id": "s-2", "cwd": str(root), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    given = {**facts, "tool_input": {"command": "git stash"}}
    done = run_hook(given, cwd=root, env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    output = json.loads(done.out)["hookSpecificOutput"]
    assert ("permissionDecision" in output, "is not guarded" in output["additionalContext"]) == (
        False,
        True,
    )


# --- what agents and git hooks run


@rest
def test_commit_contains_what_the_session_changed_and_nothing_else(root, one, two):
    one.change("src/a.py", "by one\n")
    one.change("new.py", "by one\n")
    two.change("src/b.py", "by two\n")
    write(root / "own.py", "by a person\n")
    git(root, "add", "src/b.py", "own.py")
    staged = git(root, "diff", "--cached", "--raw", "--no-abbrev")
    done = run("commit", "-m", "message", cwd=root, env={"CLAUDE_CODE_SESSION_ID": "s-1"})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"committed {git(root, 'rev-parse', 'HEAD')[:10]} on main: ")
    assert "left out: src/b.py (held by claude-" in done.out
    assert git(root, "show", "--format=%s", "--name-only", "HEAD").split() == ["message", "new.py", "src/a.py"]
    assert git(root, "diff", "--cached", "--raw", "--no-abbrev") == staged
    dirty = run("claims", "--dirty", cwd=root).out
    assert re.search(r"^src/b\.py +M +claude-", dirty, re.MULTILINE)
    assert "src/a.py" not in dirty
    refused = run("commit", "-m", "m", "src/b.py", cwd=root, env={"CLAUDE_CODE_SESSION_ID": "s-1"})
    assert (refused.code, refused.err.count("\n"), "src/b.py" in refused.err) == (1, 1, True)
    assert run("commit", "-m", "m", "src/b.py", cwd=root, env={"CLAUDE_CODE_SESSION_ID": "s-2"}).code == 0


@rest
def test_check_blocks_a_commit_of_another_sessions_file_and_not_of_its_own(root, one, two):
    write(root / ".git/hooks/pre-commit", f"#!/bin/sh\n{HOLDLOG} check --staged || exit 1\n")
    (root / ".git/hooks/pre-commit").chmod(0o755)
    one.change("src/a.py", "x = 2\n")
    two.change("src/b.py", "x = 2\n")
    git(root, "add", "src/a.py", "src/b.py")

    def commit(*words: str, **env: str) -> tuple[int, str]:
        command = ["git", "commit", "-qm", "x", *words]
        done = subprocess.run(command, cwd=root, env=environment(env), capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, error = commit(CLAUDE_CODE_SESSION_ID="s-1")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith("holdlog: src/b.py: held by claude-")
    assert commit("src/a.py", CLAUDE_CODE_SESSION_ID="s-1") == (0, "")
    code, error = commit()
    assert (code, "warning: src/b.py: held by claude-" in error) == (0, True), "a person is warned"


def test_hook_of_git_knows_the_agent_whose_host_started_git(root, one):
    write(root / ".git/hooks/pre-commit", f"#!/bin/sh\n{HOLDLOG} check --staged || exit 1\n")
    (root / ".git/hooks/pre-commit").chmod(0o755)
    one.change("src/a.py", "x = 2\n")
    command = ["git", "commit", "-qam", "x"]
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_check_blocks_a_staged_rename_of_a_held_file(root, one):
    assert one.edit("src/a.py") == ""
    git(root, "mv", "src/a.py", "moved.py")
    blocked = run("check", "--staged", "--agent", "bob", cwd=root)
    assert (blocked.code, "src/a.py: held by claude-" in blocked.err) == (1, True), blocked


@rest
def test_check_of_paths_names_holders_and_writes_nothing(root, one):
    assert one.edit("src/a.py") == ""
    before = run("log", "--json", cwd=root).out
    blocked = run("check", "src/a.py", "own.py", "--agent", "bob", cwd=root)
    assert (blocked.code, blocked.out, blocked.err.count("\n")) == (1, "", 1)
    assert "src/a.py: held by claude-" in blocked.err
    (held_file,) = run("check", "src/", "--agent", "bob", "--json", cwd=root).json["files"]
    assert (held_file["path"], held_file["blocks"]) == ("src/", True)
    assert run("check", "own.py", "--agent", "bob", cwd=root).code == 0
    assert run("log", "--json", cwd=root).out == before
    assert run("check", "--staged", cwd=root.parent).code == 2


def test_check_without_a_store_warns_and_creates_none(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    git(root, "rm", "-q", "--cached", "own.py")
    done = run("check", "--staged", "--agent", "bob", cwd=root)
    assert (done.code, done.out, done.err.count("\n"), "nothing was checked" in done.err) == (0, "", 1, True)
    assert not (root / ".git/holdlog").exists()
