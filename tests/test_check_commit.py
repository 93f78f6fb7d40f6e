"""`holdlog check` and `holdlog commit` as processes, with what hooks would have recorded."""

import hashlib
import re

import pytest

from holdlog.domain.claims.commands import Call, Release
from holdlog.domain.moment import Caller
from tests.support.hosts import commit_policy, git, write
from tests.support.programs import HOLDLOG, run
from tests.test_guard import Sides
from tests.test_guard import root as root
from tests.test_guard import sides as sides

OF_ONE = {"CLAUDE_CODE_SESSION_ID": "one"}


def check(sides: Sides, *words: str, **env: str):
    return run("check", *words, cwd=sides.root, env=env)


def test_check_names_holders_of_files_and_writes_nothing(sides):
    sides.edit("one", "src/a.py")
    head = sides.engine.store.read("SELECT MAX(position) FROM events", {})
    done = check(sides, "src/a.py", "own.py", "--agent", "bob")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("holdlog: src/a.py: held by claude-one for ")
    assert "holdlog claim src/a.py --agent bob --wait 50" in done.err
    (held,) = check(sides, "src/", "--agent", "bob", "--json").json["files"]
    assert (held["path"], held["blocks"], held["held_by"]) == ("src/", True, "claude-one")
    assert check(sides, "src", "--agent", "bob").code == 1
    assert check(sides, "own.py", "--agent", "bob").out == "ok: no other session holds this\n"
    assert check(sides, "src/a.py", CLAUDE_CODE_SESSION_ID="one").code == 0
    assert check(sides, "src/a.py", "--agent", "claude-one/sub").code == 0
    assert sides.engine.store.read("SELECT MAX(position) FROM events", {}) == head


def test_unknown_caller_is_warned(sides):
    sides.edit("one", "src/a.py")
    done = check(sides, "src/a.py")
    assert (done.code, done.err.count("\n")) == (0, 2)
    assert "warning: src/a.py: held by claude-one" in done.err
    assert "HOLDLOG_AGENT" in done.err
    assert check(sides, "--staged", "src/a.py").code == check(sides).code == 2


def test_check_of_staged_files_includes_both_names_of_a_rename(sides, root):
    sides.edit("one", "src/a.py")
    git(root, "mv", "src/a.py", "moved.py")
    done = check(sides, "--staged", "--agent", "bob")
    assert (done.code, "leave it out: git restore --staged src/a.py" in done.err) == (1, True)
    outside = run("check", "--staged", cwd=root.parent)
    assert (outside.code, outside.err.count("\n")) == (2, 1)


def test_policy_decides_what_a_held_file_and_one_for_people_mean(sides, root):
    commit_policy(root, "[paths]\n'src/' = 'warn'\n'own.py' = 'human'\n")
    sides.edit("one", "src/a.py")
    done = check(sides, "src/a.py", "--agent", "bob")
    assert (done.code, "holdlog.toml only warns" in done.err) == (0, True)
    done = check(sides, "own.py", "--agent", "bob")
    assert (done.code, "only a person may change it (holdlog.toml)" in done.err) == (1, True)
    write(root / "holdlog.toml", "git = 'no'\n")
    assert "holdlog.toml: git: must be one of" in check(sides, "own.py", "--agent", "bob").err


def test_commit_contains_what_the_session_changed_and_nothing_else(sides, root):
    sides.edit("one", "src/a.py", "by one\n")
    sides.edit("one", "new.py", "by one\n")
    sides.edit("two", "src/b.py", "by two\n")
    write(root / "own.py", "by a person\n")
    git(root, "add", "src/b.py", "own.py")
    staged = git(root, "diff", "--cached", "--raw", "--no-abbrev")
    done = run("commit", "-m", "message", cwd=root, env=OF_ONE)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"committed {git(root, 'rev-parse', 'HEAD')[:10]} on main: ")
    assert re.search(r"^left out: src/b.py \(held by claude-two for .*own.py \(not of this session\)", done.out, re.M)
    assert git(root, "show", "--format=%s", "--name-only", "HEAD").split() == ["message", "new.py", "src/a.py"]
    assert git(root, "diff", "--cached", "--raw", "--no-abbrev") == staged
    for path, problem in (("src/b.py", "held by claude-two"), ("own.py", "no hook of this"), ("src/a.py", "nothing")):
        refused = run("commit", "-m", "m", path, cwd=root, env=OF_ONE)
        assert (refused.code, refused.err.count("\n"), problem in refused.err) == (1, 1, True), refused
    assert run("commit", "-m", "m", "src", "--agent", "claude-two", cwd=root).code == 0


def test_file_that_a_command_of_another_changed_is_committed_by_the_session_that_held_it_then(sides, root):
    sides.edit("two", "src/b.py", "by two\n")
    sides.engine.run(Release("claude-two"), Caller("two"))
    sides.edit("one", "src/b.py")
    sides.edit("one", "src/a.py", "by one\n")
    write(root / "src/a.py", "formatted\n")
    change = ("src/a.py", hashlib.sha256(b"formatted\n").hexdigest())
    sides.engine.run(Call("claude-two", changes=(change,)), Caller("two"))
    done = run("commit", "-m", "message", "--agent", "claude-one", cwd=root)
    assert (done.code, done.err) == (0, "")
    assert "left out: src/b.py (changed" in done.out
    assert git(root, "show", "--format=", "--name-only", "HEAD").split() == ["src/a.py"]


def test_git_hook_of_a_commit_knows_whose_files_they_are(sides, root):
    sides.edit("one", "src/a.py", "by one\n")
    write(root / ".git/hooks/pre-commit", f"#!/bin/sh\n{HOLDLOG} check --staged\n")
    (root / ".git/hooks/pre-commit").chmod(0o755)
    done = run("commit", "-m", "m", "--agent", "claude-one", cwd=root)
    assert (done.code, done.err) == (0, "")


def test_failed_commit_leaves_no_new_files_in_the_index(sides, root):
    sides.edit("one", "new.py", "by one\n")
    write(root / ".git/hooks/pre-commit", "#!/bin/sh\necho no >&2\nexit 1\n")
    (root / ".git/hooks/pre-commit").chmod(0o755)
    before = git(root, "status", "--porcelain")
    done = run("commit", "-m", "m", cwd=root, env=OF_ONE)
    assert (done.code, done.err.splitlines()[0], "nothing was committed" in done.err) == (1, "no", True)
    assert git(root, "status", "--porcelain") == before


@pytest.mark.parametrize("words", [("commit",), ("commit", "-m", "m"), ("commit", "-m", "m", "--agent", "eve")])
def test_commit_without_message_or_session_is_refused(sides, words):
    assert (run(*words, cwd=sides.root).code, run(*words, cwd=sides.root).err.count("\n")) == (2, 1)


def test_commit_is_refused_during_a_merge(sides, root):
    sides.edit("one", "src/a.py", "by one\n")
    write(root / ".git/MERGE_HEAD", git(root, "rev-parse", "HEAD"))
    assert "partial commit during a merge" in run("commit", "-m", "m", cwd=root, env=OF_ONE).err
