"""The `holdlog.toml` that is in force in a worktree: that of its commit HEAD, so that an edit relaxes nothing before a
person has committed it; without git, the file."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.location import Repository, read_repository
from holdlog.adapters.policy.globs import is_match
from holdlog.domain.refusals import StoreError

FILE: Final = "holdlog.toml"
GIT_SECONDS: Final = 1.5
"""A hook has 5 s."""
RETRY_SECONDS: Final = 30.0
"""Between attempts to run git."""
MAX_BYTES: Final = 256 * 1024


class PathRule(NamedTuple):
    """What applies to a path. `mode`: others' edits of a held file are blocked or warned about, or only a person may
    change it. `across_worktrees`: it is one resource for all. `glob`: the one that matches; None: a default."""

    mode: str
    across_worktrees: bool = False
    glob: str | None = None


DEFAULT_RULE: Final = PathRule("block")
OWN_RULE: Final = PathRule("human")
"""That of `holdlog.toml` itself: an agent must not relax its guard."""


class Policy(NamedTuple):
    """What a `holdlog.toml` says. `stale_reads`, `git`: what happens to an edit of a file that has changed since it was
    read, and to a git command that would take others' work away or in. `content`: of the file in force; None: there
    is none. `problem`: why the default one is in force although there is a file, in one line."""

    rules: tuple[PathRule, ...] = ()
    stale_reads: str = "warn"
    git: str = "deny"
    content: bytes | None = None
    problem: str | None = None

    @property
    def notice(self) -> str | None:
        """That the file is not in force, and not why: `problem` may quote the file."""
        return self.problem and f"{FILE} is not in force, so the defaults apply"

    def find_rule(self, path: str) -> PathRule:
        """The rule of a path from the root of the worktree, with `/` at its end for all below a folder: that of the
        last glob that matches. Never raises."""
        matching = (rule for rule in reversed(self.rules) if rule.glob and is_match(rule.glob, path))
        return next(matching, OWN_RULE if path == FILE else DEFAULT_RULE)


_known: dict[str, tuple[object, float, Policy]] = {}
"""By folder: a stamp of HEAD and file, until when it counts by the monotonic clock, and what is in force."""


def read_policy(root: str) -> Policy:
    """What is in force in a worktree, or in a folder without git. Asks git once for each commit. Never raises."""
    try:
        worktree = read_repository(root)
    except StoreError:
        worktree = None
    stamp = _stamp(root, worktree)
    known = _known.get(root)
    if known is not None and stamp is not None and known[0] == stamp and time.monotonic() < known[1]:
        return known[2]
    until = float("inf")
    try:
        content = read_file(root) if worktree is None else _read_committed(worktree)
        policy = Policy() if content is None else _parse(content)
    except (OSError, ValueError) as error:
        why = "git took too long" if isinstance(error, TimeoutError) else str(error)
        policy = Policy(problem=f"{FILE}: is not in force: {why}")
        until = time.monotonic() + RETRY_SECONDS
    _known[root] = stamp, until, policy
    return policy


def find_rule_below(root: str, path: str) -> tuple[PathRule, str]:
    """The strictest rule for a folder with this path from the root and what is below it, and the first path below it
    that only a person may change. Never raises."""
    policy = read_policy(root)
    rule = policy.find_rule(f"{path}/" if path else "")
    if rule.mode != "human" and any(it.mode == "human" for it in policy.rules):
        for below in _walk(os.path.join(root, path)):
            human = policy.find_rule(f"{path}/{below}" if path else below)
            if human.mode == "human":
                return human, below
    is_own = not path and policy.find_rule(FILE) == OWN_RULE and os.path.lexists(f"{root}/{FILE}")
    return (OWN_RULE, FILE) if is_own else (rule, "")


def is_shared(root: str, path: str) -> bool:
    """Whether a path is one resource in all worktrees."""
    return read_policy(root).find_rule(path).across_worktrees


def read_uncommitted(root: str) -> Policy | None:
    """What the file in a worktree would put in force; None if it is that of the commit HEAD."""
    try:
        content = read_file(root)
    except OSError:
        content = None
    return None if content is None or content == read_policy(root).content else _parse(content)


def read_file(root: str) -> bytes | None:
    """The content of the file; None if there is none. Raises OSError."""
    path = f"{root}/{FILE}"
    if not os.path.isfile(path):  # opening a pipe blocks
        return None
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _parse(content: bytes) -> Policy:
    from holdlog.adapters.policy.policy import PolicyError, parse_policy  # slow to import

    try:
        return parse_policy(content)._replace(content=content)
    except PolicyError as error:
        return Policy(content=content, problem=str(error))


def _read_committed(worktree: Repository) -> bytes | None:
    """The file of the commit HEAD; None if it has none: git does not run where neither worktree nor index has one, as a
    process takes longer than the rest of a hook. Its environment names no other repository, no replaced objects and no
    server. Raises OSError, ValueError."""
    if not os.path.lexists(f"{worktree.folder}/{FILE}"):
        with suppress(FileNotFoundError), open(f"{worktree.git_folder}/index", "rb") as file:
            if FILE.encode() not in file.read():
                return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0"}
    import subprocess  # slow to import

    words = ["git", f"--git-dir={worktree.git_folder}", "cat-file", "--batch"]
    options = {"capture_output": True, "cwd": worktree.folder, "env": environment, "timeout": GIT_SECONDS}
    try:
        done = subprocess.run(words, input=f"HEAD:{FILE}\n".encode(), check=True, **options)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    except subprocess.CalledProcessError as error:
        problem = error.stderr.decode(errors="backslashreplace").partition("\n")[0]
        raise OSError(f"git failed: {problem}") from None
    header, _, rest = done.stdout.partition(b"\n")
    words = header.split()
    return rest[: int(words[2])] if len(words) == 3 and words[1] == b"blob" else None


def _stamp(root: str, worktree: Repository | None) -> object:
    """Changes with each commit and checkout, which git logs; None: nobody knows."""
    path = f"{root}/{FILE}"
    try:
        status = os.stat(path if worktree is None else f"{worktree.git_folder}/logs/HEAD")
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size, os.path.lexists(path)


def _walk(folder: str) -> Iterator[str]:
    """The paths of the files and folders below a folder; those of folders end with `/`."""
    for path, folders, files in os.walk(folder):
        start = path.removeprefix(folder).lstrip("/")
        for name in (*files, *(f"{it}/" for it in folders)):
            yield f"{start}/{name}" if start else name
