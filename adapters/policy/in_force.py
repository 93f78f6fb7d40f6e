"""The `holdlog.toml` that is in force in a folder: the one of its commit HEAD, so that an edit relaxes nothing before a
person has committed it; without git, the file."""

import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.location import (
    GitFolders,
    LocationError,
    avoided_folders,
    git_folders,
    pointer_in,
    project_root,
)
from holdlog.adapters.operating_system.paths import Workspace, WorkspacePath
from holdlog.adapters.policy.policy import DEFAULT_RULE, FILE, MAX_BYTES, PathRule, Policy, PolicyError, parse_policy

GIT_SECONDS: Final = 1.5
"""Hooks end after 4 s at the latest."""
MAX_EXAMINED: Final = 10_000
"""Files and folders below a folder."""
EXAMINE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 30.0
"""After git could not be asked."""

Locate = Callable[[str], WorkspacePath | None]
"""Finds the workspace of a path, and raises ValueError for a path in none."""
_Stamp = tuple[object, ...]


class PolicyInForce(NamedTuple):
    """`content`: of the file in force; None: there is none. `problem`: why `policy` is the default one although there
    is a file, in one line."""

    policy: Policy
    content: bytes | None = None
    problem: str | None = None

    @property
    def notice(self) -> str | None:
        """That the file is not in force, with its line only: the rest of `problem` may quote the file."""
        return self.problem and f"{self.problem.partition(': ')[0]} is not in force, so the defaults apply"


class FolderRule(NamedTuple):
    """The rule for a folder and what is below it. `below`: the first path below it that only a person may change,
    relative to it; that of a folder ends with `/`. `is_complete`: whether everything below the folder was examined."""

    rule: PathRule
    below: str = ""
    is_complete: bool = True


_known: dict[str, tuple[_Stamp, float, PolicyInForce]] = {}
"""By folder: what is in force, its stamp, and until when, on the monotonic clock."""


def policy_at(root: str | Path) -> PolicyInForce:
    """What is in force in a worktree, or in a folder without git. Asks git once for each commit. Never raises."""
    key = str(root)
    git = git_folder_of(root)
    stamp = _stamp(Path(root), git)
    before = _known.get(key)
    if before is not None and before[0] == stamp and time.monotonic() < before[1]:
        return before[2]
    try:
        content = _read_file(Path(root) / FILE) if git is None else committed(git, FILE)
    except (OSError, subprocess.SubprocessError) as error:
        why = "took too long" if isinstance(error, subprocess.TimeoutExpired) else "failed"
        problem = f"{FILE}: is not in force: {'git' if git else 'the file'} {why}"
        is_used = os.path.lexists(Path(root) / FILE)  # else nobody misses it
        found = PolicyInForce(Policy(), None, problem if is_used else None)
        _known[key] = (stamp, time.monotonic() + RETRY_SECONDS, found)
        return found
    found = _parsed(content)
    _known[key] = (stamp, float("inf"), found)
    return found


def rule_of(locate: Locate, path: str) -> tuple[Policy, PathRule]:
    """The rule for a path, and the policy in force in the worktree that contains it. Never raises."""
    found = _located(locate, path)
    if found is None:
        return Policy(), DEFAULT_RULE
    workspace, inside = found
    policy = policy_at(workspace.root).policy
    return policy, policy.rule(inside, workspace.folds)


def rule_below(locate: Locate, folder: str) -> FolderRule:
    """The strictest rule for an absolute folder and what is below it. Never raises."""
    found = _located(locate, f"{folder}/")
    return FolderRule(DEFAULT_RULE) if found is None else rule_in(*found, folder)


def rule_in(workspace: Workspace, inside: str, folder: str) -> FolderRule:
    """As `rule_below`, for an absolute folder whose path in a workspace is known: empty for the root."""
    policy = policy_at(workspace.root).policy
    rule = policy.rule(inside, workspace.folds)
    if rule.mode == "human" or not any(it.mode == "human" for it in policy.rules):
        return FolderRule(rule)
    until = time.monotonic() + EXAMINE_SECONDS
    for examined, below in enumerate(_entries(folder)):
        if examined >= MAX_EXAMINED or time.monotonic() >= until:
            return FolderRule(rule, is_complete=False)
        human = policy.rule(f"{inside}{below}", workspace.folds)
        if human.mode == "human":
            return FolderRule(human, below)
    return FolderRule(rule)


def _entries(folder: str) -> Iterator[str]:
    """The paths of the files and folders below a folder, relative to it; those of folders end with `/`."""
    for path, folders, files in os.walk(folder):
        start = path.removeprefix(folder).replace(os.sep, "/").lstrip("/")
        for name in (*files, *(f"{it}/" for it in folders)):
            yield f"{start}/{name}" if start else name


def _located(locate: Locate, path: str) -> WorkspacePath | None:
    try:
        return locate(path)
    except ValueError:
        return None


def is_across_worktrees(root: str, path: str, folds: bool) -> bool:
    """Whether a path in the worktree with a root is one resource for all worktrees. Never raises."""
    return policy_at(root).policy.rule(path, folds).across_worktrees


def project_policy(environ: Mapping[str, str], cwd: Path) -> tuple[Path | None, PolicyInForce]:
    """The root of the project in which the agent works, and what is in force there. Never raises."""
    try:
        root = project_root(environ, cwd)
    except LocationError:
        root = None
    return root, PolicyInForce(Policy()) if root is None else policy_at(root)


def head_of(root: str | Path) -> str | None:
    """The short name of the commit HEAD; None without one."""
    git = git_folder_of(root)
    try:
        text = "" if git is None else _git(git, "rev-parse", "--short", "--verify", "--quiet", "HEAD").decode().strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return text or None


def uncommitted_policy(root: str | Path) -> PolicyInForce | None:
    """What the file in a worktree would put in force; None if it is that of the commit HEAD, and without git."""
    if git_folder_of(root) is None:
        return None
    try:
        content = _read_file(Path(root) / FILE)
    except OSError:
        content = None
    return None if content == policy_at(root).content else _parsed(content)


def committed(git: GitFolders, name: str) -> bytes | None:
    """A file at the root of the commit HEAD; None if it has none. Raises OSError, SubprocessError."""
    found = _git(git, "cat-file", "--batch", given=f"HEAD:{name}\n".encode())
    header, _, rest = found.partition(b"\n")
    words = header.split()
    if len(words) != 3 or words[1] != b"blob":
        return None
    return rest[: int(words[2])]


def _git(git: GitFolders, *words: str, given: bytes = b"") -> bytes:
    """The output of git. Its environment names no other repository, no replaced objects and no server to ask. Raises
    OSError, SubprocessError."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", f"--git-dir={git.git_folder}", *words]
    done = subprocess.run(
        command, input=given, capture_output=True, cwd=git.folder, env=environ, timeout=GIT_SECONDS, check=True
    )
    return done.stdout


def _parsed(content: bytes | None) -> PolicyInForce:
    if content is None:
        return PolicyInForce(Policy())
    try:
        return PolicyInForce(parse_policy(content), content)
    except PolicyError as error:
        return PolicyInForce(Policy(), content, str(error))


def git_folder_of(root: str | Path) -> GitFolders | None:
    """The git folders of a worktree's root; None without git."""
    try:
        return git_folders(Path(root))
    except LocationError:
        return None


def _stamp(root: Path, git: GitFolders | None) -> _Stamp:
    """Changes with each commit and checkout: git replaces a file whenever it changes a reference."""
    if git is None:
        return (_status(root / FILE),)
    files = [git.git_folder / "HEAD", git.common / "packed-refs", git.common / "reftable" / "tables.list"]
    files.append(git.git_folder / "reftable" / "tables.list")
    try:
        head = pointer_in(git.git_folder / "HEAD")
    except LocationError:
        head = ""
    if head.startswith("ref: "):
        files.append(git.common / head.removeprefix("ref: "))
    return (head, *map(_status, files))


def _status(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read_file(path: Path) -> bytes | None:
    """Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def workspace_options(root: Path | None, policy: Policy, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The workspaces of a policy, as `--workspace` spells them: those whose folders exist here."""
    found, avoided = [], avoided_folders(environ)
    for name, path in policy.workspaces.items():
        folder = Path(os.path.realpath((root or Path()) / os.path.expanduser(path)))
        if os.path.isdir(folder) and folder not in avoided and folder != folder.parent:
            found.append(f"{name}={folder}")
    return tuple(found)
