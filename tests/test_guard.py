"""Git commands that affect the work of other sessions, with real git and a store: denials and warnings."""

import hashlib
import os
import subprocess
import time

import pytest

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import Conversation
from holdlog.adapters.hooks.guard import Source, Verdict, guard_command, read_call
from holdlog.adapters.hooks.ownership import Ownership
from holdlog.adapters.hooks.shell import read_shell
from holdlog.adapters.hooks.shell_calls import ShellCall, compare, describe, list_marks, read_stashed
from holdlog.adapters.operating_system.processes import identify_process
from holdlog.adapters.operating_system.workspaces import find_workspaces
from holdlog.adapters.stores.sql import END_CONVERSATION, PUT_CONVERSATION
from holdlog.domain.claims.commands import Acquire, Call, Release
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.moment import Caller
from tests.support.hosts import commit_policy, git, repository, store_of, write
from tests.support.programs import environment


class Sides:
    """Sessions `one` and `two` in a repository, as hooks record them."""

    def __init__(self, root, place=None):
        self.root = root
        self.engine = open_engine(place or store_of(root))
        self.stashed = {}
        self.host = identify_process(os.getpid())
        for name in ("one", "two"):
            self.begin(name)

    def begin(self, name):
        row = Conversation(name, "", f"claude-{name}", self.host, self.engine.store.steady(), {}, False, ())
        with self.engine.write_alone():
            self.engine.store.execute(PUT_CONVERSATION, row.encode())

    def end(self, name):
        self.engine.run(Release(f"claude-{name}"), Caller(name))
        with self.engine.write_alone():
            self.engine.store.execute(END_CONVERSATION, {"session": name})

    def workspaces(self, folder):
        return find_workspaces({}, str(folder), str(store_of(self.root)))

    def edit(self, name, path, text=None, folder=None, agent=None):
        """Claim a file, and change it unless `text` is None."""
        agent, folder = agent or f"claude-{name}", folder or self.root
        resource = self.workspaces(folder).name_file(f"{folder}/{path}")
        assert self.engine.run(Acquire(resource, agent), Caller(name, host=self.host)).status != "busy"
        if text is not None:
            write(folder / path, text)
            digest = hashlib.sha256(text.encode()).hexdigest()
            self.engine.run(Call(agent, changes=((resource, digest),)), Caller(name))

    def guard(self, name, command, folder=None, agent=None):
        folder = str(folder or self.root)
        who = HolderId(agent or f"claude-{name}", name)
        reading = read_call(read_shell(command, folder))
        source = Source(Ownership(self.engine.store, who, self.host), self.workspaces(folder), self.stashed)
        return guard_command(reading, folder, lambda _: source)

    def denied(self, *words, **options):
        return self.guard(*words, **options).denial

    def run(self, name, command):
        """Run an uncertain command with what its hooks do before and after it."""
        folder, since = str(self.root), time.time()
        reading = read_call(read_shell(command, folder))
        look = lambda: Ownership(self.engine.store, HolderId(f"claude-{name}", name), self.host)  # noqa: E731
        marks = list_marks(reading, look(), self.workspaces(folder), folder)
        subprocess.run(["sh", "-c", command], cwd=folder, env=environment(), check=True, capture_output=True)
        return compare(marks, since, look(), self.workspaces(folder)) if marks else None


@pytest.fixture
def root(tmp_path):
    return repository(tmp_path / "repo")


@pytest.fixture
def sides(root):
    sides = Sides(root)
    yield sides
    sides.engine.close()


TAKING = [
    *("git stash", "git reset --hard", "git checkout -- .", "git checkout -f", "git add -A && git commit -m x"),
    *("git commit -am x", "git add src", "git clean -fd", "git -C src stash", "cd src && git reset --hard"),
    *("git clean -fdx", "git stash -u", "bash -c 'git stash'", "git submodule foreach true; git restore ."),
]


@pytest.mark.parametrize("command", TAKING)
def test_command_over_dirty_files_of_a_live_session_is_denied(sides, command):
    sides.edit("one", "src/a.py", "x = 2\n")
    sides.edit("one", "src/new.py", "x = 2\n")
    write(sides.root / "own.py", "x = 3\n")
    reason = sides.denied("two", command)
    assert "a.py" in reason or "new.py" in reason
    assert "(claude-one, for " in reason
    assert reason.endswith("A person can run this in a terminal.")
    assert sides.guard("one", command) == Verdict()
    sides.end("one")
    assert sides.denied("two", command) == ""
    sides.begin("one")
    assert sides.denied("two", command) != ""


SILENT = ["git status", "git diff", "git log", "git stash list", "git commit -m x", "git push", "git restore src/b.py"]


@pytest.mark.parametrize("command", SILENT)
def test_command_that_concerns_nothing_of_others_is_silent(sides, command):
    sides.edit("one", "src/a.py", "x = 2\n")
    assert sides.guard("two", command) == Verdict()


def test_denial_names_the_files_that_the_agent_may_take(sides):
    sides.edit("one", "src/a.py", "x = 2\n")
    write(sides.root / "own.py", "x = 3\n")
    assert "Name only your own files: own.py (" in sides.denied("two", "git stash")
    assert sides.guard("two", "git stash push -- own.py") == Verdict()
    assert "Name only your own files: own.py (" in sides.denied("two", "git add -A")
    assert sides.guard("two", "git add own.py && git commit --only -m x -- own.py") == Verdict()
    write(sides.root / "src/own.py", "x = 3\n")
    reason = sides.denied("two", "cd src; git add -A")
    assert "src/a.py (claude-one" in reason
    assert "src/own.py" in reason


def test_held_and_committed_files_and_those_of_a_person_deny_nothing(sides, root):
    sides.edit("one", "src/b.py")
    write(root / "own.py", "x = 3\n")
    sides.edit("one", "src/a.py", "x = 2\n")
    git(root, "commit", "-qm", "x", "src/a.py")
    sides.engine.run(Release("claude-one", "src/a.py"), Caller("one"))
    write(root / "src/a.py", "x = 4\n")
    assert [it for it in TAKING if it != "git add src" and sides.guard("two", it) != Verdict()] == []


@pytest.mark.parametrize("name", ["fresh/deep/x.py", "fresh/caf\xe9 \u26a0\ufe0f.md", "fresh/a%b [c].py"])
def test_untracked_file_of_another_session_is_guarded_in_its_folder(sides, name):
    sides.edit("one", name, "x = 2\n")
    write(sides.root / "fresh/own.py", "x = 3\n")
    for command in ("git clean -fd", "git stash -u", "git add -A", "git add fresh", f"git add '{name}'"):
        assert "work of another session: fresh/" in sides.denied("two", command), command
    assert sides.guard("two", "git stash") == sides.guard("two", "git add fresh/own.py") == Verdict()


def test_ignored_folder_with_a_file_of_another_session_is_guarded(sides, root):
    write(root / ".git/info/exclude", "build/\n")
    sides.edit("one", "build/out/x.o", "x\n")
    assert "build/out/x.o" in sides.denied("two", "git clean -fdx")
    assert sides.denied("two", "git clean -fd") == ""


def test_cleaning_takes_no_files_that_guard_the_agents(sides, root):
    write(root / ".git/info/exclude", ".claude/\n")
    write(root / ".claude/settings.local.json", '{"hooks": "holdlog hook"}')
    reason = sides.denied("one", "git clean -fdx")
    assert "would take away files that guard the agents: .claude/" in reason
    assert sides.denied("one", "git clean -fd") == ""


def test_moving_head_below_work_of_others_is_a_warning(sides, root):
    git(root, "branch", "side")
    assert sides.guard("two", "git switch side") == Verdict()
    sides.edit("one", "src/a.py", "x = 2\n")
    denial, (warning,) = sides.guard("two", "git switch side")
    assert (denial, "runs below uncommitted work of another session: src/a.py (claude-one" in warning) == ("", True)
    assert "git worktree add" in warning


def test_commit_names_changes_of_an_ended_session_that_it_takes_in(sides):
    sides.edit("one", "src/a.py", "x = 2\n")
    sides.end("one")
    denial, (warning,) = sides.guard("two", "git commit -am x")
    assert (denial, "takes in changes of an ended session: src/a.py (claude-one" in warning) == ("", True)


def test_held_file_that_another_program_changed_is_still_the_work_of_its_holder(sides):
    sides.edit("one", "src/a.py", "x = 2\n")
    change = Call("claude-two", changes=(("src/a.py", hashlib.sha256(b"x =  2\n").hexdigest()),))
    write(sides.root / "src/a.py", "x =  2\n")
    sides.engine.run(change, Caller("two"))
    assert [it for it in ("git add src/a.py", "git commit -am x") if sides.guard("one", it) != Verdict()] == []
    assert "src/a.py (claude-one" in sides.denied("two", "git commit -am x")
    sides.engine.run(Release("claude-one"), Caller("one"))
    sides.edit("one", "src/a.py")
    assert "src/a.py (claude-two" in sides.denied("one", "git stash"), "changed before the claim"


def test_work_of_a_killed_host_is_guarded_while_its_claims_last(sides):
    own, host = sides.host, subprocess.Popen(["sleep", "600"])
    sides.host = identify_process(host.pid)
    sides.begin("one")
    sides.edit("one", "src/a.py", "x = 2\n")
    host.kill()
    host.wait()
    sides.host = own
    assert "src/a.py (claude-one" in sides.denied("two", "git stash")
    sides.engine.run(Release("claude-one"), Caller("one"))
    assert sides.denied("two", "git stash") == ""


def test_agent_and_its_sub_agents_are_one_party_but_for_what_these_hold(sides):
    sides.edit("one", "src/a.py", "x = 2\n")
    assert sides.denied("one", "git stash", agent="claude-one/sub") == ""
    sides.edit("one", "src/b.py", "x = 2\n", agent="claude-one/sub")
    assert "src/b.py" in sides.denied("one", "git stash")
    sides.engine.run(Release("claude-one/sub"), Caller("one"))
    assert sides.denied("one", "git stash") == ""
    assert "src/b.py" in sides.denied("two", "git stash")


def test_worktree_of_a_live_session_is_not_removed(sides, root, tmp_path):
    tree = tmp_path / "tree"
    git(root, "worktree", "add", "-q", "-b", "topic", str(tree))
    removing = [
        "git worktree remove --force ../tree",
        "git worktree remove tree",
        "rm -rf ../tree",
    ]
    assert [it for it in removing if sides.guard("two", it) != Verdict()] == []
    sides.edit("one", "src/b.py", "x = 3\n", folder=tree)
    assert [it for it in removing if "(claude-one" not in sides.denied("two", it)] == []
    assert "src/b.py" in sides.denied("two", "git -C ../tree stash")
    assert sides.denied("two", "git stash") == ""
    git(root, "worktree", "add", "-q", "-b", "inner", "build/trees/x")
    sides.edit("one", "src/a.py", folder=root / "build/trees/x")
    assert "build/trees/x (claude-one" in sides.denied("two", "rm -rf build")
    sides.end("one")
    assert [it for it in (*removing, "rm -rf build") if sides.guard("two", it) != Verdict()] == []


def test_stash_entry_belongs_to_the_session_that_made_it(sides, root):
    write(root / "own.py", "x = 3\n")
    git(root, "stash")
    write(root / "own.py", "x = 4\n")
    git(root, "stash")
    sides.stashed = {git(root, "rev-parse", "stash@{0}").strip(): HolderId("claude-one", "one")}
    for command in ("git stash pop", "git stash drop stash@{0}", "git stash clear"):
        assert "stash@{0} (claude-one, for " in sides.denied("two", command), command
    assert sides.denied("two", "git stash drop stash@{1}") == ""
    assert sides.denied("one", "git stash pop") == ""
    write(root / "own.py", "x = 5\n")
    assert sides.denied("two", "git stash && git stash pop") == ""
    sides.end("one")
    assert sides.denied("two", "git stash pop") == ""


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("off", 0)])
def test_policy_relaxes_the_guard_of_git(sides, root, mode, warnings):
    commit_policy(root, f'git = "{mode}"\n')
    sides.edit("one", "src/a.py", "x = 2\n")
    verdict = sides.guard("two", "git stash")
    assert (verdict.denial, len(verdict.warnings)) == ("", warnings)


def test_git_that_cannot_be_asked_leaves_the_command_unguarded_and_says_so(sides, tmp_path, monkeypatch):
    sides.edit("one", "src/a.py", "x = 2\n")
    write(tmp_path / "bin/git", "#!/bin/sh\nexit 3\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    denial, (warning,) = sides.guard("two", "git stash")
    assert (denial, "this git command is not guarded" in warning) == ("", True)


def test_cleaning_by_force_removes_no_worktree_in_which_another_session_works(sides, root):
    write(root / ".git/info/exclude", ".claude/\n")
    inside = [
        (".claude/worktrees/x", "git clean -ffdx"),
        ("trees/y", "git clean -ffd"),
        ("trees/y", "git clean -ff trees"),
    ]
    for number, (name, _) in enumerate(inside[:2]):
        git(root, "worktree", "add", "-q", "-b", f"topic-{number}", name)
    assert [it for _, it in inside if sides.guard("two", it) != Verdict()] == []
    for name, command in inside:
        sides.edit("one", "src/b.py", "x = 3\n", folder=root / name)
        assert f"work of another session: {name} (claude-one" in sides.denied("two", command)
        assert sides.denied("one", command) == ""
    assert sides.denied("two", "git clean -ffd src") == sides.denied("two", "git clean -fdx trees") == ""
    assert sides.denied("two", "git clean -ffd -e trees") == sides.denied("two", "git clean -ff") == ""


def test_paths_that_git_commands_name_are_targets(root):
    reading = read_call(read_shell("git mv src/a.py b.py; git rm own.py; git apply x.diff", str(root)))
    assert reading.targets.paths == (f"{root}/src/a.py", f"{root}/b.py", f"{root}/own.py")
    assert reading.targets.reports


def test_uncertain_command_that_changes_or_commits_what_others_hold_is_reported(sides, root):
    write(root / "Makefile", "all:\n\techo y > src/a.py\nship:\n\tgit commit -qm x src/a.py\n")
    sides.edit("one", "src/a.py", "x = 2\n")
    sides.edit("one", "src/b.py", "x = 2\n")
    assert sides.run("one", "make") is None, "nothing of others"
    write(root / "src/a.py", "x = 2\n")
    (difference,) = sides.run("two", "make").differences
    assert difference == ("src/a.py", HolderId("claude-one", "one"), "changed", hashlib.sha256(b"y\n").hexdigest())
    text = describe([difference], sides.workspaces(root))
    assert "src/a.py (held by claude-one) changed while your command ran" in text
    assert sides.run("two", "make").differences == ()
    assert [it.verb for it in sides.run("two", "make ship").differences] == ["committed"]
    assert sides.run("two", "make -n && sleep 0").differences == ()


def test_change_that_the_hooks_of_its_holder_recorded_meanwhile_is_not_that_of_the_command(sides, root):
    sides.edit("one", "src/a.py", "x = 2\n")
    folder, since = str(root), time.time()
    ownership = Ownership(sides.engine.store, HolderId("claude-two", "two"), sides.host)
    marks = list_marks(read_call(read_shell("make", folder)), ownership, sides.workspaces(root), folder)
    sides.edit("one", "src/a.py", "x = 3\n")
    assert compare(marks, since, ownership, sides.workspaces(root)).differences == ()


def test_new_stash_entries_are_found(sides, root):
    write(root / "own.py", "x = 3\n")
    assert sides.run("two", "git stash").stashed == (git(root, "rev-parse", "stash@{0}").strip(),)
    assert sides.run("two", "git stash").stashed == ()


@pytest.mark.xdist_group("postgres")
def test_works_in_a_database_are_guarded(root, postgres):
    sides = Sides(root, postgres)
    try:
        sides.edit("one", "src/a.py", "x = 2\n")
        sides.edit("one", "fresh/x.py", "x = 2\n")
        assert "src/a.py (claude-one" in sides.denied("two", "git stash")
        assert "fresh/x.py (claude-one" in sides.denied("two", "git clean -fd")
        call = ShellCall(
            sides.engine,
            HolderId("claude-two", "two"),
            Caller("two", host=sides.host),
            sides.workspaces(root),
            postgres,
        )
        call.note(read_call(read_shell("make; git stash", str(root))), str(root), "c-1")
        write(root / "src/a.py", "x = 3\n")
        git(root, "stash")
        assert "src/a.py (held by claude-one)" in call.compare("c-1")
        assert call.compare("c-1") == ""
        sides.stashed = read_stashed(sides.engine.store)
        assert "stash@{0} (claude-two" in sides.denied("one", "git stash pop")
    finally:
        sides.engine.close()
