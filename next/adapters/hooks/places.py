"""In which stores a call of a hook is answered: a file belongs to the innermost repository around it that uses holdlog,
wherever the agent works. Quick to import."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from holdlog.adapters.hooks.calls import HookCall, InputError
from holdlog.adapters.operating_system.files import is_missing
from holdlog.adapters.operating_system.location import (
    OUR_FOLDER,
    STORE_FILE,
    find_home,
    find_own_folder,
    find_start,
    is_url,
    read_repository,
)
from holdlog.adapters.policy.in_force import FILE
from holdlog.domain.refusals import StoreError

MAX_FOLDERS: Final = 2_000
"""Folders below one that is changed in which worktrees are looked for."""


class Place(NamedTuple):
    """A repository that uses holdlog, or a folder with `.holdlog`: its store, and its root."""

    store: str
    root: str


class Places:
    """Finds the place of a file. Looks at each folder once."""

    def __init__(self, environ: Mapping[str, str], folder: str) -> None:
        """`folder`: in which the agent works. Raises StoreError, InputError."""
        self._home = find_home(environ)
        self._start = find_start(environ, folder)
        self._known: dict[str, Place | None] = {}
        self.named = _read_named(environ, folder)
        """Where the user has said that the store is."""
        self.own = self.find(self._start)

    def find(self, folder: str) -> Place | None:
        """The place of a folder without links."""
        if self.named is not None:
            is_used = is_url(self.named) or not is_missing(self.named)
            return Place(self.named, self._start) if is_used else None
        passed = list[str]()
        while folder not in self._known:
            passed.append(folder)
            place, above = self._at(folder), os.path.dirname(folder)
            if place is not None or above == folder:
                self._known[folder] = place or self._find_without_git(passed[0])
            else:
                folder = above
        self._known |= dict.fromkeys(passed, self._known[folder])
        return self._known[folder]

    def split(self, call: HookCall) -> dict[Place, list[str]]:
        """The paths of a call by their places; the agent's own place is the first."""
        parts: dict[Place, list[str]] = {} if self.own is None else {self.own: []}
        for path in (it for given in call.targets.paths for it in self._expand(given)):
            place = self.find(os.path.dirname(os.path.realpath(path))) or (self.own if self.named else None)
            if place is not None:
                parts.setdefault(place, []).append(path)
        for command in call.targets.git:
            if (place := self.find(os.path.realpath(command.folder))) is not None:
                parts.setdefault(place, [])
        return parts

    def _at(self, folder: str) -> Place | None:
        """The repository with this root, if it uses holdlog. A broken one is part of the repository around it."""
        if folder == self._home or not os.path.lexists(f"{folder}/.git"):
            return None
        try:
            repository = read_repository(folder)
        except StoreError:
            return None
        if repository is None or repository.common in (self._home, os.path.dirname(repository.common)):
            return None
        store = os.path.realpath(f"{repository.common}/holdlog/{STORE_FILE}")
        return Place(store, folder) if not is_missing(store) or os.path.isfile(f"{folder}/{FILE}") else None

    def _find_without_git(self, folder: str) -> Place | None:
        own = find_own_folder(folder, self._home)
        root = own and os.path.dirname(own)
        store = f"{root}/{OUR_FOLDER}/{STORE_FILE}"
        return Place(os.path.realpath(store), root) if root and not is_missing(store) else None

    def _expand(self, path: str) -> Iterator[str]:
        """The path; for a folder, also what is in the roots of worktrees inside, which have no names themselves: who
        removes the folder removes their files."""
        if os.path.islink(path) or not os.path.isdir(path):
            yield path
            return
        root = path.rstrip("/")
        if self._at(root) is None and (self.own is None or self.own.root != root):
            yield path
        else:
            yield from _list_entries(root)
        for examined, (folder, folders, files) in enumerate(os.walk(root)):
            if examined >= MAX_FOLDERS:
                return
            if folder != root and ".git" in (*folders, *files) and self._at(folder) is not None:
                yield from _list_entries(folder)
            folders[:] = [it for it in folders if it != ".git"]


def _list_entries(root: str) -> Iterator[str]:
    with suppress(OSError):
        yield from (f"{root}/{name}" for name in sorted(os.listdir(root)) if name not in (".git", OUR_FOLDER))


def _read_named(environ: Mapping[str, str], folder: str) -> str | None:
    named = environ.get("HOLDLOG_DB")
    if not named and (file := environ.get("HOLDLOG_DB_FILE")):
        try:
            with open(file) as opened:
                named = opened.read().strip()
        except OSError as error:
            raise InputError(f"HOLDLOG_DB_FILE cannot be read ({error.strerror})") from None
    if not named or named == ":memory:":
        return None
    return named if is_url(named) else os.path.realpath(os.path.join(folder, os.path.expanduser(named)))
