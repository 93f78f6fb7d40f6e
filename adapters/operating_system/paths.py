"""Paths in workspaces: where a path leads once its links are followed, and how to spell that."""

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdlog.domain.claims import resource as spelling
from holdlog.domain.claims.file_name import encode_path
from holdlog.domain.names import MAX_NAME


class Workspace(NamedTuple):
    """A workspace. `root`: absolute and resolved, with `/` between its parts. `bare`: its resources are stored as bare
    paths. `folds`: its file system ignores case. `shares`: whether a path is one resource in all worktrees of the
    repository, stored as a bare path, too."""

    name: str
    root: str
    bare: bool = False
    folds: bool = False
    shares: Callable[[str], bool] | None = None

    def path_of(self, absolute: str) -> str | None:
        """The path from the root to an absolute path: "" for the root itself, None if it is outside."""
        if absolute.startswith(self.root + "/"):
            return absolute[len(self.root) + 1 :]
        if not self.folds and absolute.isascii():
            return "" if absolute == self.root else None
        parts, depth = absolute.split("/"), self.root.count("/") + 1
        same = self._key("/".join(parts[:depth])) == self._key(self.root)
        return "/".join(parts[depth:]) if same else None

    def resource(self, path: str) -> str:
        """The stored spelling of a path below the root. Raises ValueError."""
        path = self._key(path)
        return spelling.canonical(self._start(path) + path)

    def file(self, path: str) -> str:
        """The stored spelling of a file's path below the root, encoded where a resource must not have such a name.
        Raises ValueError."""
        path = self._key(path)
        start = self._start(path)
        return spelling.canonical(start + encode_path(path, MAX_NAME - len(start)))

    def _start(self, path: str) -> str:
        return "" if self.is_bare(path) else f"file://{self.name}/"

    def is_bare(self, path: str) -> bool:
        """Whether a path is stored as a bare path."""
        return self.bare or (self.shares is not None and self.shares(path))

    def _key(self, text: str) -> str:
        if self.folds:
            text = text.casefold()
        return text if text.isascii() else unicodedata.normalize("NFC", text)


WorkspacePath = tuple[Workspace, str]
"""A workspace and a path in it, "" for its root."""


def owner(absolute: str, known: Sequence[Workspace]) -> WorkspacePath | None:
    """The first of `known` that contains an absolute path; links are not followed."""
    for workspace in known:
        path = workspace.path_of(absolute)
        if path is not None:
            return workspace, path
    return None


def followed(base: str, path: str, known: Sequence[Workspace]) -> WorkspacePath | None:
    """Where a path leads from a resolved folder. If that is outside, the last point before it left a workspace."""
    real, segments = base, path.split("/") if path else []
    left: tuple[WorkspacePath, list[str]] | None = None
    for index, segment in enumerate(segments):
        step = f"{real}/{segment}"
        try:
            linked = stat.S_ISLNK(os.lstat(step).st_mode)
        except OSError:  # a missing path is not a link
            real = "/".join((real, *segments[index:]))
            break
        if linked and (target := _target(step)) is not None:
            inside = owner(real, known)
            left = (inside, segments[index:]) if inside else left
            step = target
        real = step
    found = owner(real, known)
    if found is None and left is not None:
        (workspace, beginning), rest = left
        return workspace, "/".join((beginning, *rest) if beginning else rest)
    return found


def _target(link: str) -> str | None:
    """The final target of a link; None for a loop."""
    try:
        os.stat(link)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
    return os.path.realpath(link).replace(os.sep, "/").rstrip("/")


def folds_case(root: str) -> bool:
    """Whether the file system ignores case: a name in the folder, or else the folder's name, also resolves in swapped
    case. Writes nothing."""
    for folder in (root, os.path.dirname(root)):
        try:
            names = set(os.listdir(folder))
        except OSError:
            continue
        for name in sorted(names if folder == root else {os.path.basename(root)}):
            if name.isascii() and name.swapcase() not in names:
                return os.path.lexists(os.path.join(folder, name.swapcase()))
    return False
