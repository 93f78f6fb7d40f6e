"""What uncertain commands did to the work of others, as hooks notice it afterwards: what got into the index or into a
commit, in this process, with real git."""

import json
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.notes import HookFiles
from tests.surfaces.hooks import test_git_guard
from tests.surfaces.hooks.test_git_guard import Terminals
from tests.unit.operating_system.test_workspaces import worktree

sides = test_git_guard.sides


def text_of(output: dict[str, object]) -> str:
    return str(output.get("additionalContext", ""))


def news(sides: Terminals, session: str = "s-1") -> str:
    """What the agent of a session learns with its next call."""
    return text_of(sides.bash(session, "ls"))


UNCERTAIN = [
    "git add $(git ls-files -m) && git commit -m x",
    "git ls-files -m | xargs git add; git commit -m x",
    "git ls-files -m | xargs git stage && git commit -qm x",
    "git commit -m x $(git ls-files -m)",
    "git add --pathspec-from-file=f && git commit -m x",
    "git apply --cached p && git commit -m x",
    "git apply --index p; git commit -m x",
    "git -C src add $X && git -C src commit -m x",
    "git update-index --add src/a.py && git commit -m x",
    "for f in $(git ls-files -m); do git add $f; done; git commit --amend --no-edit",
]


@pytest.mark.parametrize("command", UNCERTAIN)
def test_commit_of_what_only_a_shell_knows_counts_as_one_of_all(sides: Terminals, command: str) -> None:
    sides.write("own.py", "x = 3\n")
    sides.write("new.py", "x = 3\n")
    assert sides.denied("s-2", command) == ""
    sides.edit("s-1", "src/a.py", "x = 2\n")
    reason = sides.denied("s-2", command)
    assert "a.py (claude-" in reason
    assert reason.endswith("A person can run this in a terminal.")
    assert sides.denied("s-1", command) == ""


@pytest.mark.parametrize(
    "command",
    [
        "git add $(git ls-files -m)",
        "git add own.py && git commit -m x",
        "git add $X && git commit --only -m x -- own.py",
        "git commit -m x -- own.py && git add $X",
        'git commit -m "$(cat message)" -- own.py',
        "git stash list $X && git commit -m x",
    ],
)
def test_commit_that_cannot_take_in_work_of_others_is_not_denied(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.denied("s-2", command) == ""


SCRIPT = "git add -A\ngit commit -qm x\n"


def test_commit_inside_a_script_is_reported_to_both(sides: Terminals) -> None:
    sides.write("run.sh", SCRIPT)
    sides.edit("s-1", "src/a.py", "x = 2\n")
    text = text_of(sides.run("s-2", "bash run.sh"))
    assert "src/a.py (held by claude-" in text
    assert "got into a commit while your command ran" in text
    text = news(sides)
    assert "a command of another session took src/a.py (by claude-" in text
    assert text.endswith("into a commit.")
    assert news(sides) == ""
    assert sides.run("s-2", "bash run.sh || true") == {}


def test_file_that_an_uncertain_command_stages_is_reported_to_both(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.edit("s-1", "src/new.py", "x = 2\n")
    text = text_of(sides.run("s-2", "git add $(git ls-files -m) && git ls-files -mo | xargs git add"))
    assert "src/a.py (held by claude-" in text
    assert "src/new.py (held by claude-" in text
    assert "got into the index while your command ran" in text
    assert "a command of another session staged src/a.py (by claude-" in news(sides)
    assert sides.run("s-2", "git status; make || true") == {}


def test_file_that_its_holder_staged_before_a_command_is_not_reported(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.git("add", "src/a.py")
    sides.write("run.sh", "touch own.py src/b.py; git status; git add own.py run.sh; git commit -qm x -- own.py")
    sides.write("own.py", "x = 3\n")
    assert sides.run("s-2", "bash run.sh") == {}
    sides.write("src/a.py", "x = 3\n")
    sides.write("run.sh", SCRIPT)
    assert "got into a commit" in text_of(sides.run("s-2", "bash run.sh"))


def test_commit_in_a_linked_worktree_with_packed_refs_is_noticed(sides: Terminals) -> None:
    linked = worktree(sides.root, "../linked")
    sides.git("switch", "-qc", "topic", folder=linked)
    sides.git("pack-refs", "--all")
    tool = {"tool_name": "Edit", "tool_input": {"file_path": str(linked / "src/b.py")}}
    sides.hook("s-1", "PreToolUse", folder=linked, **tool)
    (linked / "src/b.py").write_text("x = 3\n")
    sides.hook("s-1", "PostToolUse", folder=linked, **tool)
    (linked / "run.sh").write_text(SCRIPT)
    assert sides.run("s-2", "make || true") == {}
    text = text_of(sides.run("s-2", "bash run.sh", folder=linked))
    assert "src/b.py (held by claude-" in text
    assert "got into a commit" in text


def test_commit_on_an_unborn_branch_is_noticed(sides: Terminals) -> None:
    sides.git("switch", "-q", "--orphan", "fresh")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.write("run.sh", SCRIPT)
    assert "got into a commit" in text_of(sides.run("s-2", "bash run.sh"))


def test_pulled_and_checked_out_commits_are_not_those_of_a_command(sides: Terminals, tmp_path: Path) -> None:
    sides.git("clone", "-q", str(sides.root), str(tmp_path / "other"), folder=tmp_path)
    sides.git("config", "user.name", "ann", folder=tmp_path / "other")
    sides.git("config", "user.email", "ann@example.com", folder=tmp_path / "other")
    (tmp_path / "other/src/b.py").write_text("x = 9\n")
    old = "2020-01-01T00:00:00Z"
    subprocess.run(
        ["git", "commit", "-qam", "theirs"],
        cwd=tmp_path / "other",
        check=True,
        env={"PATH": "/usr/bin:/bin", "GIT_COMMITTER_DATE": old, "GIT_AUTHOR_DATE": old},
    )
    sides.git("remote", "add", "origin", str(tmp_path / "other"))
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.write("run.sh", "git pull -q --ff-only origin $(git -C . branch --show-current)\n")
    assert sides.run("s-2", "bash run.sh") == {}
    assert (sides.root / "src/b.py").read_text() == "x = 9\n"


@pytest.mark.parametrize("command", ["git commit -qm x -- src/a.py", "holdlog commit -m x"])
def test_commit_that_its_holder_makes_meanwhile_is_not_that_of_a_command(
    sides: Terminals, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-2", "make") == {}
    assert sides.run("s-1", command) == {}
    assert sides.git("log", "--format=%s", "-1") == "x\n"
    assert sides.bash("s-2", "make", "PostToolUse") == {}
    assert news(sides) == ""


def test_file_that_its_holder_stages_meanwhile_is_not_that_of_a_command(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-2", "make") == {}
    assert sides.run("s-1", "git add src/a.py") == {}
    assert sides.bash("s-2", "make", "PostToolUse") == {}
    assert sides.bash("s-2", "make") == {}
    sides.write("src/a.py", "x = 3\n")
    sides.git("add", "src/a.py")
    assert "got into the index" in text_of(sides.bash("s-2", "make", "PostToolUse"))


def test_committed_file_is_not_reported_when_a_script_commits_again(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.git("commit", "-qam", "a person")
    sides.write("run.sh", f"echo >> own.py\n{SCRIPT}git commit -q --amend -m y\n")
    assert sides.run("s-2", "bash run.sh") == {}


def test_clean_file_that_a_script_changes_and_commits_is_only_changed(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.git("commit", "-qam", "a person")
    sides.git("pack-refs", "--all")
    sides.write("run.sh", f"echo > src/a.py\n{SCRIPT}")
    text = text_of(sides.run("s-2", "bash run.sh"))
    assert "src/a.py (held by claude-" in text
    assert "changed while" in text
    assert "commit" not in text


def test_script_that_commits_while_nobody_else_works_is_silent(sides: Terminals) -> None:
    sides.edit("s-2", "src/a.py", "x = 2\n")
    sides.write("run.sh", SCRIPT)
    assert sides.run("s-2", "bash run.sh") == {}


READ_OTHERWISE = [
    "git clone -q . ../o && cp ../o/src/*.py src/",
    "ln -s src s2 && rm s2/a.py",
    "IFS=,; x=src/a.py,lib/b.py; rm $x",
    "pytest -q --junitxml=src/a.py lib",
    "curl -s --stderr src/a.py file:///x",
    "sort --outpu src/a.py lib/b.py",
    "git -c diff.external='rm -f src/a.py;true' diff",
    "GIT_EDITOR='rm src/a.py;true' git commit --allow-empty",
]


@pytest.mark.parametrize("command", READ_OTHERWISE)
def test_commands_that_a_shell_may_read_otherwise_are_compared(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.bash("s-2", command)
    sides.write("src/a.py", "x = 3\n")  # as the command may do
    assert "src/a.py (held by claude-" in text_of(sides.bash("s-2", command, "PostToolUse"))


@pytest.mark.parametrize(
    "command",
    [
        "D=src; f=a; echo z > $D/$f.py",
        "D=src; for f in a new; do rm $D/$f.py; done",
        "D=src f=a; git checkout -- $D/$f.py",
        "sed --in-pl s/1/2/ src/a.py",
        "git config clean.requireForce false && git clean -d",
    ],
)
def test_other_spellings_are_denied(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.edit("s-1", "src/new.py", "x = 2\n")
    assert sides.bash("s-2", command).get("permissionDecision") == "deny"


def let_leases_end(sides: Terminals) -> None:
    """As after 300 s without a call: nothing is held any more."""
    with sqlite3.connect(sides.store) as connection:
        connection.execute("UPDATE leases SET deadline = 1, present_until = 0")


@pytest.mark.parametrize("name", ["src/a.py", "src/new.py", "src/caf\xe9%20y.py", "src/\u2060x.py"])
@pytest.mark.parametrize(
    "command",
    ["find src -name '*.py' -delete", 'ls -d src/* | while read -r f; do rm "$f"; done'],
)
def test_last_change_of_a_live_session_is_watched_after_its_lease(sides: Terminals, name: str, command: str) -> None:
    sides.edit("s-1", name, "x = 2\n")
    let_leases_end(sides)
    text = text_of(sides.run("s-2", command))
    assert "(changed by claude-" in text
    assert "a command of another session changed src/" in news(sides)
    assert not (sides.root / name).exists()


def test_change_that_was_committed_is_nobodys_loss(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    let_leases_end(sides)
    sides.git("commit", "-qam", "second")
    sides.write("run.sh", "echo x = 3 > src/a.py\n")
    assert sides.run("s-2", "bash run.sh") == {}
    assert news(sides) == ""
    sides.edit("s-1", "src/a.py", "x = 4\n")
    let_leases_end(sides)
    sides.write("run.sh", "echo x = 3 > src/a.py; git commit -qam third\n")
    assert "src/a.py (changed by claude-" in text_of(sides.run("s-2", "bash run.sh"))


def test_last_change_of_an_ended_session_is_not_watched(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.hook("s-1", "SessionEnd", reason="other")
    assert sides.run("s-2", "find src -name a.py -delete") == {}


def test_last_change_that_got_into_a_commit_after_its_lease_is_reported(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    let_leases_end(sides)
    sides.write("run.sh", SCRIPT)
    assert "src/a.py (changed by claude-" in text_of(sides.run("s-2", "bash run.sh"))
    assert "into a commit" in news(sides)


EDITS = {
    "Write": {"file_path": "src/a.py"},
    "Bash": {"command": "rm src/a.py"},
    "apply_patch": {"command": "*** Begin Patch\n*** Delete File: src/a.py\n*** End Patch"},
}


@pytest.mark.parametrize("tool", EDITS)
def test_edit_over_the_last_change_of_another_session_informs_both(sides: Terminals, tool: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    let_leases_end(sides)
    call = {"tool_name": tool, "tool_input": EDITS[tool]}
    output = sides.raw({**PRE, "session_id": "s-2", "cwd": str(sides.root), **call})
    assert "permissionDecision" not in json.dumps(output)
    text = json.dumps(output)
    assert "src/a.py has uncommitted changes of claude-" in text
    assert " s ago" in text
    assert "another session changes src/a.py (by " in news(sides)
    assert sides.raw({**PRE, "session_id": "s-2", "cwd": str(sides.root), **call}) == {}
    assert news(sides) == ""


PRE = {"hook_event_name": "PreToolUse"}


@pytest.mark.parametrize("event", ["commit", "end", "own", "denied"])
def test_edit_over_what_is_nobodys_work_is_silent(sides: Terminals, event: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    let_leases_end(sides)
    if event == "commit":
        sides.git("commit", "-qam", "second")
    elif event == "end":
        sides.hook("s-1", "SessionEnd", reason="other")
    elif event == "denied":
        sides.edit("s-3", "src/b.py", "x = 2\n")
        assert "src/b.py is held by" in sides.denied("s-2", "rm src/a.py src/b.py")
        assert news(sides) == ""
        return
    session = "s-1" if event == "own" else "s-2"
    assert sides.bash(session, "rm src/a.py") == {}


LASTING = [
    "make & ",
    "(sleep 5; make)& disown",
    "nohup make > /dev/null 2>&1",
    "setsid -f make",
    "tmux new-session -d 'make'",
    "bash -c 'make &'",
]


def start(sides: Terminals, command: str, **given: object) -> None:
    """An uncertain command whose call ends at once."""
    sides.edit("s-1", "src/a.py", "x = 2\n")
    tool = {"tool_name": "Bash", "tool_input": {"command": command, **given}}
    assert sides.hook("s-2", "PreToolUse", **tool) == {}
    assert sides.hook("s-2", "PostToolUse", **tool) == {}


@pytest.mark.parametrize("command", LASTING)
def test_command_in_the_background_is_compared_at_each_later_call(sides: Terminals, command: str) -> None:
    start(sides, command)
    assert sides.run("s-2", "true $X; make || true") == {}
    sides.write("src/a.py", "x = 3\n")
    assert "src/a.py (held by claude-" in text_of(sides.run("s-2", "make || true"))
    assert "a command of another session changed src/a.py" in news(sides)
    assert sides.run("s-2", "make || true") == {}
    sides.write("src/a.py", "x = 4\n")
    assert "src/a.py (held by claude-" in text_of(sides.run("s-2", "make || true"))


@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_command_in_the_background_is_compared_at_the_end(sides: Terminals, event: str) -> None:
    start(sides, "make", run_in_background=True)
    sides.hook("s-2", "Stop")
    assert news(sides) == ""
    sides.write("src/a.py", "x = 3\n")
    sides.hook("s-2", event, reason="other")
    assert "a command of another session changed src/a.py" in news(sides)
    if event == "Stop":
        text = text_of(sides.hook("s-2", "UserPromptSubmit", prompt="go on"))
        assert "your command in the background reached src/a.py (of claude-" in text
        sides.hook("s-2", "Stop")
        assert news(sides) == ""
        sides.git("commit", "-qam", "x")
        sides.hook("s-2", "Stop")
        assert "took src/a.py" in news(sides)
    sides.hook("s-2", "SessionEnd", reason="other")
    assert not any(HookFiles(sides.store).read(it).before for it in HookFiles(sides.store).all_sessions())
    assert list(HookFiles(sides.store).folder.glob("*.index")) == []


def test_command_in_the_foreground_is_compared_once(sides: Terminals) -> None:
    start(sides, "make 2>&1 && make &> log")
    sides.write("src/a.py", "x = 3\n")
    sides.hook("s-2", "Stop")
    assert sides.run("s-2", "make || true") == {}
    assert news(sides) == ""


def test_recorded_change_is_not_that_of_a_command_in_the_background(sides: Terminals) -> None:
    start(sides, "make &")
    sides.edit("s-1", "src/a.py", "x = 3\n")
    sides.hook("s-2", "Stop")
    assert sides.run("s-2", "make || true") == {}
    assert news(sides) == ""


def prepare(sides: Terminals) -> None:
    """A patch, a commit on another branch and an entry of the stash, which change src/b.py."""
    sides.write("src/b.py", "x = 7\n")
    (sides.root / ".git" / "p").write_text(sides.git("diff"))
    sides.git("stash")
    sides.git("switch", "-qc", "side")
    sides.git("stash", "apply")
    sides.git("commit", "-qam", "side")
    sides.git("switch", "-q", "-")


WRITING = [
    "git apply .git/p",
    "git apply < .git/p",
    "git apply --index .git/p",
    "patch -p1 < .git/p",
    "cd src && patch -p2 < ../.git/p",
    "git cherry-pick -n side",
    "git stash pop",
    "git stash apply",
    "git merge --squash side",
    "git merge --no-ff --no-commit side",
    "git cherry-pick side && git revert -n HEAD",
]


@pytest.mark.parametrize("command", WRITING)
def test_file_that_git_apply_and_the_like_write_belongs_to_their_agent(sides: Terminals, command: str) -> None:
    prepare(sides)
    sides.write("own.py", "x = 3\n")
    os.utime(sides.root / "own.py", (1, 1))
    sides.run("s-2", command)
    reason = sides.denied("s-3", "git reset --hard")
    assert "src/b.py (claude-" in reason
    assert "work of another session: src/b.py" in reason
    assert sides.denied("s-2", "git reset --hard") == ""
    engine = open_holdlog(sides.store)
    changes = engine.read(engine.requests.questions.file_changes("src/b.py")).changes
    engine.close()
    assert [it.by_command for it in changes] == [True]


def test_file_that_another_session_writes_during_git_apply_stays_its_work(sides: Terminals) -> None:
    prepare(sides)
    assert sides.bash("s-2", "git apply .git/p") == {}
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.git("apply", ".git/p")
    sides.bash("s-2", "git apply .git/p", "PostToolUse")
    reason = sides.denied("s-3", "git reset --hard")
    assert "src/a.py (claude-6a840b" in reason
    assert "src/b.py (claude-450222" in reason


def test_file_that_a_script_writes_belongs_to_nobody(sides: Terminals) -> None:
    sides.write("run.sh", "echo > src/b.py\n")
    sides.run("s-2", "git stash list; git diff; bash run.sh")
    assert sides.denied("s-3", "git reset --hard") == ""
