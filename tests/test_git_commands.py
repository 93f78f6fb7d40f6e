"""What read_git reports about a command is what real git does to the dirty files of another session.

Each command runs in a copy of a prepared repository with dirty files of every kind; then contents, index and commits
are compared with the prediction.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from holdlog.adapters.hooks.dirty import list_stash, parse_config
from holdlog.adapters.hooks.git import GitAction, concerns, read_git
from holdlog.adapters.hooks.tools import GitCommand

pytestmark = [pytest.mark.rest]

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull),
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "ann"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "ann@example.org"),
    "GIT_EDITOR": "true",
    "LC_ALL": "C",
}
OTHERS = {
    "src/staged.py": "M ",
    "src/changed.py": " M",
    "src/it's [1].py": " M",
    "src/both.py": "MM",
    "src/added.py": "A ",
    "src/deleted.py": " D",
    "src/untracked.py": "??",
    "fresh/untracked.py": "??",
    "src/ignored.log": "!!",
    "build/ignored.o": "!!",
}
"""The files of the other session."""
STATES = {"staged": ("M ", "A "), "changed": (" M",), "loose": ("??", "!!"), "many": ("M ", " M", "??", "!!")}
"""States of the repository in which the other session has only files of some kinds."""
CLEAN = "src/clean.py"
MANY = {
    f"own/{number}.{('py', 'py', 'py', 'log')[number % 4]}": ("M ", " M", "??", "!!")[number % 4]
    for number in range(60)
}
"""Files of the caller in the state "many"."""
OWN = {
    "own/changed.py": " M",
    "own/it's [2].py": " M",
    "own/staged.py": "M ",
    "own/untracked.py": "??",
    "own/ignored.log": "!!",
}


class Command(NamedTuple):
    """`state`: of the repository. `folder`: where it runs. `may`: it may do more than it does here."""

    text: str
    state: str = "plain"
    folder: str = "."
    stdin: str = ""
    may: bool = False


def git(folder: Path, *arguments: str, stdin: str = "", checks: bool = True) -> bytes:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=ENVIRONMENT, input=stdin.encode(), capture_output=True, check=False
    )
    assert not checks or done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def commit(root: Path, message: str, **files: str) -> None:
    for path, text in files.items():
        write(root, path, text)
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)


def dirty_files(state: str) -> dict[str, str]:
    """The files of the other session in a state of the repository."""
    return {path: status for path, status in OTHERS.items() if status in STATES.get(state, OTHERS.values())}


def own_files(state: str) -> dict[str, str]:
    own = {path: status for path, status in OWN.items() if status in STATES.get(state, OTHERS.values())}
    return {**own, **MANY} if state == "many" else own


def make_dirty(root: Path, state: str) -> None:
    for path, status in {**dirty_files(state), **own_files(state)}.items():
        if status[0] in "MA":
            write(root, path, f"staged {path}\n")
            git(root, "add", path)
        if status[1] == "D":
            (root / path).unlink()
        elif status[1] != " ":
            write(root, path, f"dirty {path}\n")


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Prepared repositories by their state."""
    top = tmp_path_factory.mktemp("states")
    base = top / "plain" / "r"
    base.mkdir(parents=True)
    remote = top / "remote.git"
    git(base, "init", "-q", "-b", "main", "--template=")
    git(base, "config", "core.trustctime", "false")  # of copies
    git(base, "config", "core.checkstat", "minimal")
    tracked = [path for path, status in {**OTHERS, **OWN}.items() if status[0] not in "?!A"]
    files = {path: f"{path}\n" for path in [*tracked, CLEAN, "conflict.txt", "readme.md"]}
    commit(base, "first", **{".gitignore": "*.log\nbuild/\n"}, **files)
    git(base, "checkout", "-qb", "side")
    commit(base, "side", **{"conflict.txt": "side\n"})
    git(base, "checkout", "-qb", "more")
    commit(base, "more", **{"readme.md": "more\n"})
    git(base, "checkout", "-qb", "takes", "main")
    commit(base, "takes", **{"src/untracked.py": "takes\n"})
    git(base, "checkout", "-qb", "touches", "main")
    commit(base, "touches", **{"src/changed.py": "touches\n"})
    git(base, "checkout", "-q", "main")
    git(base, "format-patch", "-q", "-o", "../patches", "main..side")
    git(base, "branch", "docs/x.md")
    commit(base, "main", **{"conflict.txt": "main\n"})
    git(base, "clone", "-q", "--bare", "--template=", ".", str(remote))
    git(base, "remote", "add", "origin", str(remote))
    git(base, "fetch", "-q")
    git(base, "checkout", "-q", "-b", "upstream")
    commit(base, "upstream", **{"readme.md": "upstream\n"})
    git(base, "push", "-q", "origin", "upstream:main")
    git(base, "checkout", "-q", "main")
    git(base, "branch", "-q", "-D", "upstream")
    git(base, "branch", "-q", "--set-upstream-to", "origin/main")
    git(base, "repack", "-qad")
    starts = {
        "merging": ["merge", "side"],
        "picking": ["cherry-pick", "side"],
        "reverting": ["revert", "--no-edit", "main~1"],
        "rebasing": ["rebase", "side"],
        "applying": ["am", "-3", "../patches/0001-side.patch"],
        "bisecting": ["bisect", "start"],
    }
    states = {"plain": base}
    for state, start in starts.items():
        shutil.copytree(base.parent, top / state)
        states[state] = top / state / "r"
        if state == "reverting":
            commit(states[state], "again", **{"conflict.txt": "again\n"})
        git(states[state], *start, checks=False)
    for number in range(2):
        write(base, "readme.md", f"{number}\n")
        git(base, "stash")
    for state in STATES:
        shutil.copytree(base.parent, top / state)
        states[state] = top / state / "r"
    tracked = [path for path, status in MANY.items() if status in ("M ", " M")]
    commit(states["many"], "many", **{path: f"{path}\n" for path in tracked})
    for state, root in states.items():
        write(root, "../list", "src/changed.py\nsrc/both.py\n")
        make_dirty(root, state)
        git(root, "pack-refs", "--all")  # few files are copied fast
        for name in ("heads", "remotes"):
            shutil.rmtree(root / ".git/logs/refs" / name, ignore_errors=True)
        objects = root / ".git/objects"
        objects.rename(top / f"{state}-objects")  # which copies share
        write(root, ".git/objects/info/alternates", f"{top}/{state}-objects\n")
    return states


class Snapshot:
    """What is in the worktree, in the index and in HEAD of each file of the other session, and the stash."""

    def __init__(self, root: Path, state: str) -> None:
        self.root = root
        self.paths = dirty_files(state)
        self.worktree = {path: self._blob(root / path) for path in self.paths}
        self.index = self._blobs(git(root, "ls-files", "-s", "-z"), 1)
        output = git(root, "ls-tree", "-r", "-z", "HEAD", checks=False)
        self.head = self._blobs(output, 2) if output else {}  # on a branch without a commit
        log = root / ".git/logs/refs/stash"
        self.stash = [commit for commit, _ in list_stash(log.read_text())] if log.exists() else []

    @staticmethod
    def _blob(path: Path) -> str:
        """The object name of the file's content; empty if there is no file."""
        if not path.exists():
            return ""
        content = path.read_bytes()
        return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()

    def _blobs(self, output: bytes, column: int) -> dict[str, str]:
        lines = [line.partition("\t") for line in output.decode().split("\0") if line]
        blobs = {path: start.split()[column] for start, _, path in lines}
        return {path: blobs.get(path, "") for path in self.paths}


class Effects(NamedTuple):
    discards: frozenset[str]
    includes: frozenset[str]
    moves: frozenset[str]
    stash: frozenset[str]
    names: frozenset[str] = frozenset()


def list_dirty(action: GitAction) -> list[tuple[str, str]]:
    """Path and two letters of the files in the limits of the action."""
    untracked = "-unormal" if action.shallow else "-uall"
    arguments = ("status", "--porcelain", "-z", "--no-renames", "--ignored", untracked, "--", *action.pathspecs)
    entries = git(Path(action.folder), *action.options, *arguments).decode().split("\0")
    return [(entry[3:], entry[:2]) for entry in entries if entry and not entry.endswith("/")]


def predict(before: Snapshot, root: Path, actions: tuple[GitAction, ...]) -> Effects:
    """What `actions` concern, as a caller finds it with git status."""
    files: dict[str, set[str]] = {"discards": set(), "includes": set(), "moves": set()}
    entries, named = set[str](), set[str]()
    for action in actions:
        if action.stash:
            entries |= set(before.stash if action.stash == "*" else [before.stash[int(action.stash[7:-1])]])
        if action.kinds:
            listed = list_dirty(action)
            files[action.effect] |= {path for path, status in listed if concerns(action, status)}
            doubtful = [path for path, status in listed if status[0] in "?!A"]
            if action.tree and doubtful:
                arguments = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", action.tree, "--", *doubtful)
                files[action.effect] |= set(doubtful) & set(git(root, *arguments).decode().split("\0"))
        names = [os.path.relpath(name, root) for name in action.names]
        named |= {path for path in OTHERS for name in names if f"{path}/".startswith(f"{name}/")}
    limited = {effect: frozenset(paths & before.paths.keys()) for effect, paths in files.items()}
    return Effects(limited["discards"], limited["includes"], limited["moves"], frozenset(entries), frozenset(named))


def observe(before: Snapshot, after: Snapshot) -> Effects:
    """What a command did: files whose content is gone, that were taken in, or are changed without loss."""
    lost, included, touched = set[str](), set[str](), set[str]()
    for path in before.paths:
        content = before.worktree[path]
        if content != after.worktree[path]:
            (lost if content else touched).add(path)
        if before.index[path] != after.index[path]:
            (included if content and after.index[path] == content else touched).add(path)
        if after.head.get(path, before.head[path]) != before.head[path] and after.head[path] in (
            *(content, before.index[path]),
        ):
            included.add(path)
    entries = set(before.stash) - set(after.stash)
    return Effects(frozenset(lost), frozenset(included), frozenset(touched), frozenset(entries))


STDIN = {"": "", "y*": "y\n" * 99, "1": "1\n"}


def list_commands() -> list[Command]:
    lines = (Path(__file__).parent / "support" / "git.txt").read_text().splitlines()[1:]
    rows = (f"{line}\t".split("\t")[:5] for line in lines)
    return [Command(text, state, folder, STDIN[stdin], may == "may") for state, folder, may, text, stdin in rows]


@pytest.fixture
def root(command: Command, repositories: Mapping[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(repositories[command.state].parent, tmp_path / "copy")
    return tmp_path / "copy" / "r"


@cache
def prepared(root: Path, state: str) -> tuple[Snapshot, dict[str, str]]:
    return Snapshot(root, state), parse_config(git(root, "config", "--list", "-z"))


@pytest.mark.parametrize("command", list_commands(), ids=lambda it: f"{it.text}@{it.state}/{it.folder}")
def test_prediction_is_what_git_does_to_the_work_of_others(
    command: Command, root: Path, repositories: Mapping[str, Path]
) -> None:
    before, config = prepared(repositories[command.state], command.state)
    words, folder = shlex.split(command.text)[1:], os.path.normpath(root / command.folder)
    expected = predict(before, root, read_git(GitCommand(tuple(words), folder), lambda name: config.get(name, "")))
    git(Path(folder), *words, stdin=command.stdin, checks=False)
    effects = observe(before, Snapshot(root, command.state))
    changed = effects.discards | effects.includes | effects.moves
    assert effects.discards <= expected.discards | expected.names
    assert effects.includes <= expected.includes | expected.discards
    assert effects.moves <= expected.discards | expected.includes | expected.moves
    assert effects.stash == expected.stash
    assert command.may or expected.discards | expected.includes <= changed
