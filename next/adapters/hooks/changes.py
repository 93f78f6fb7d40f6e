"""What shell commands did that nobody could know beforehand: files that other sessions hold are compared before and
after, and so are HEAD and git's stash.

`list_marks` returns what a command finds, as texts that a store keeps in its table `files` until the command has ended.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.hooks.describe import list_names, shorten
from holdlog.adapters.hooks.dirty import GitFailedError, ask_git, digest_file, locate, read_head, read_stash
from holdlog.adapters.hooks.guard import Reading
from holdlog.adapters.hooks.works import Work, Works
from holdlog.adapters.operating_system.location import find_top
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.stores.sql import STASHED
from holdlog.domain.claims.holder import Who

MAX_FILES: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of a file that is compared."""
MAX_EXAMINED: Final = 1_000
"""Files below a folder that is held."""
STASH: Final = "stash:"
"""Begins the mark of a repository's stash, and the name under which a store keeps whose an entry is."""
_HEAD: Final = "head:"
_MISSING: Final = "-"
_TEXTS: Final = {
    "changed": ("changed", ""),
    "committed": ("got into a commit", ": unfinished work of others, so do not push it"),
}


class Difference(NamedTuple):
    """What happened to a file that another session holds. `verb`: changed or committed. `sha256`: of its content now,
    None if it is missing."""

    resource: str
    who: Who
    verb: str
    sha256: str | None


class After(NamedTuple):
    """`stashed`: the commits of new entries of the stash."""

    differences: tuple[Difference, ...] = ()
    stashed: tuple[str, ...] = ()


def list_marks(reading: Reading, works: Works, workspaces: Workspaces, folder: str) -> dict[str, str]:
    """What a command finds that may change files of others or make an entry of a stash; empty: nothing is to be
    compared. `folder`: where the agent works."""
    marks = {}
    if reading.targets.reports:
        paths = islice(_list_watched(works, workspaces), MAX_FILES)
        marks = {resource: digest_file(path) or _MISSING for resource, path, _ in paths}
        root = find_top(folder)
        if marks and root is not None:
            with suppress(GitFailedError):
                marks[_HEAD + root] = read_head(root)
    for action in reading.actions:
        if action.name.startswith("git stash") and action.kinds:
            with suppress(GitFailedError):
                repository = locate(action.folder, action.options)
                if repository is not None:
                    marks[STASH + repository.common] = next((it for it, _ in read_stash(repository.common)), "")
    return marks


def compare(marks: Mapping[str, str], since: float, works: Works, workspaces: Workspaces) -> After:
    """What is different after a command. `since`: when the marks were made, in seconds since 1970. What its holder's
    hooks have recorded since is no difference."""
    differences, stashed, heads = list[Difference](), list[str](), dict[str, str]()
    changes = works.read_changes([name for name in marks if not name.startswith((STASH, _HEAD))])
    watched = {resource: (path, work) for resource, path, work in _list_watched(works, workspaces)}
    for name, mark in marks.items():
        if name.startswith(STASH):
            entries = [commit for commit, _ in read_stash(name.removeprefix(STASH))]
            stashed += entries[: entries.index(mark)] if mark in entries else entries if not mark else []
        elif name.startswith(_HEAD):
            heads[name.removeprefix(_HEAD)] = mark
        elif name in watched:
            path, work = watched[name]
            sha256, change = digest_file(path), changes.get(name)
            is_known = change is not None and change.at >= since and change.sha256 == sha256
            if (sha256 or _MISSING) != mark and not is_known:
                differences.append(Difference(name, work.who, "changed", sha256))
    for root, commit in heads.items():
        committed = _list_committed_since(root, commit)
        for resource, (path, work) in watched.items():
            if path in committed and resource in marks:
                differences.append(Difference(resource, work.who, "committed", digest_file(path)))
    return After(tuple(differences), tuple(stashed))


def describe(differences: Sequence[Difference], workspaces: Workspaces) -> str:
    """What the agent is shown whose command ran; empty if there is nothing."""
    texts = []
    for verb, (change, remedy) in _TEXTS.items():
        names = [
            f"{shorten(workspaces.spell(it.resource))} (held by {shorten(it.who.agent)})"
            for it in differences
            if it.verb == verb
        ]
        texts += [f"{list_names(names)} {change} while your command ran{remedy}"] if names else []
    return f"holdlog: {'; '.join(texts)}. Do not change it again: the holder goes on with it." if texts else ""


def read_stashed(reader: Reader) -> dict[str, Who]:
    """Who made entries of stashes, by their commits."""
    return {name.removeprefix(STASH): Who(agent, session) for name, agent, session in reader.read(STASHED, {})}


def _list_watched(works: Works, workspaces: Workspaces) -> Iterator[tuple[str, str, Work]]:
    """The files that live sessions of others hold: resource, path and holder."""
    for work in works.list_held():
        path = workspaces.find_file(work.resource) if work.is_live else None
        if path is None:
            continue
        for below in [path] if not path.endswith("/") else islice(_walk(path), MAX_EXAMINED):
            resource = work.resource if below == path else workspaces.name_file(below)
            if resource is not None and _size(below) <= MAX_BYTES:
                yield resource, below, work


def _walk(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in sorted(names))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # it is missing, which is compared, too


def _list_committed_since(root: str, commit: str) -> set[str]:
    """The files that differ between a commit and HEAD."""
    with suppress(GitFailedError):
        if commit and read_head(root) != commit:
            listed = ask_git(root, (), "diff", "--name-only", "-z", "--no-renames", commit, "HEAD") or b""
            return {os.path.join(root, os.fsdecode(name)) for name in listed.split(b"\0") if name}
    return set()
