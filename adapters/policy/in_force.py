"""The `holdlog.toml` that is in force in a worktree: that of its commit HEAD, so that an edit relaxes nothing before a
person has committed it; without git, the file."""

import os
import re
import time
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.location import Repository, read_repository
from holdlog.domain.refusals import StoreError

MAX_GLOB: Final = 1_000
"""Characters."""
_ANY_FOLDERS: Final = "**"
_REST: Final = ""
"""Matches one part or none."""


def is_match(glob: str, path: str) -> bool:
    """Whether a glob matches a path from the root of its worktree; a path with `/` at its end means everything below a
    folder. The time grows with the product of both lengths at most."""
    patterns, parts = _compile(glob), unicodedata.normalize("NFC", path).split("/")
    at = part = 0
    resume: tuple[int, int] | None = None
    while part < len(parts):
        pattern = patterns[at] if at < len(patterns) else None
        if pattern == _ANY_FOLDERS:
            at, resume = at + 1, (at, part)
        elif pattern is not None and _is_part(pattern, parts[part]):
            at, part = at + 1, part + 1
        elif resume is not None:  # the last `**` takes one part more
            resume = (resume[0], resume[1] + 1)
            at, part = resume[0] + 1, resume[1]
        else:
            return False
    return at == len(patterns)


def _is_part(pattern: "str | re.Pattern[str]", part: str) -> bool:
    return isinstance(pattern, str) or (part != "" and pattern.fullmatch(part) is not None)


@lru_cache(4096)
def _compile(glob: str) -> "list[str | re.Pattern[str]]":
    """A pattern for each part. A glob without `/`, but at its end, matches in every folder."""
    parts = unicodedata.normalize("NFC", glob).split("/")
    is_anchored = len(parts) > 2 or (len(parts) == 2 and parts[1] != "")
    if parts[0] == "":  # a glob that begins with `/`
        parts = parts[1:] or [""]
    patterns = [_ANY_FOLDERS if part == "**" else _translate(part) for part in parts]
    if parts[-1] in ("", "**"):  # at the end, both mean everything below
        patterns[-1:] = [_ANY_FOLDERS, _REST]
    return [*([] if is_anchored else [_ANY_FOLDERS]), *patterns]


def _translate(part: str) -> "str | re.Pattern[str]":
    """Only `*` and `?` are special: brackets occur in the names of routes."""
    stars = re.sub(r"\*+", "*", part)
    return re.compile(re.escape(stars).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


FILE: Final = "holdlog.toml"
GIT_SECONDS: Final = 1.5
"""A hook has 5 s."""
MAX_EXAMINED: Final = 10_000
"""Files and folders below a folder."""
EXAMINE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 30.0
"""After git could not be asked."""
MAX_BYTES: Final = 256 * 1024


class PathRule(NamedTuple):
    """What applies to a path. `mode`: others' edits of a held file are blocked or warned about, or only a person may
    change it. `across_worktrees`: it is one resource for all. `glob`: the one that matches; None: a default."""

    mode: str
    across_worktrees: bool = False
    glob: str | None = None

    @property
    def source(self) -> str:
        """Where the rule is written. The glob is not shown: it is text of the repository."""
        return FILE


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


class FolderRule(NamedTuple):
    """The rule for a folder and what is below it. `below`: the first path below it that only a person may change.
    `is_complete`: whether everything below the folder was examined."""

    rule: PathRule
    below: str = ""
    is_complete: bool = True


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


def find_rule_below(root: str, path: str) -> FolderRule:
    """The strictest rule for a folder with this path from the root, and what is below it. Never raises."""
    policy = read_policy(root)
    rule = policy.find_rule(f"{path}/" if path else "")
    if rule.mode == "human" or not any(it.mode == "human" for it in policy.rules):
        is_own = not path and policy.find_rule(FILE) == OWN_RULE and os.path.lexists(f"{root}/{FILE}")
        return FolderRule(OWN_RULE, FILE) if is_own else FolderRule(rule)
    until = time.monotonic() + EXAMINE_SECONDS
    for examined, below in enumerate(_walk(os.path.join(root, path))):
        if examined >= MAX_EXAMINED or time.monotonic() >= until:
            return FolderRule(rule, is_complete=False)
        human = policy.find_rule(f"{path}/{below}" if path else below)
        if human.mode == "human":
            return FolderRule(human, below)
    return FolderRule(rule)


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
    """The file of the commit HEAD; None if it has none: git is not asked where neither worktree nor index has one, as a
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
