"""Workspaces: the folder that contains a resource, and the canonical spelling under which it is stored."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final
from unicodedata import normalize
from urllib.parse import quote

from holdlog.adapters.operating_system.location import (
    LocationError,
    avoided_folders,
    expanded,
    has_store,
    own_location,
    resolved,
    start_folder,
)
from holdlog.adapters.operating_system.paths import Workspace, WorkspacePath, folds_case, followed, owner
from holdlog.adapters.operating_system.worktrees import Linked, Stamp, find_repository, stamp
from holdlog.domain.claims import resource as spelling
from holdlog.domain.claims.file_name import encode_path
from holdlog.domain.refusals import InvalidError

DEFAULT_NAME: Final = "main"
"""Displayed name of the default workspace, also in `file://main/<path>`; `--workspace` can change it."""

MAX_LISTED: Final = 10
"""How many workspaces a refusal lists."""

_ROOTS: Final = frozenset({".", "./", "/", ".\\", "\\"})
"""Spellings that mean everything."""
_ROOT_ITSELF: Final = "must name a file or a folder inside the workspace, such as src/main.py or src/"

_FILE: Final = "file://"
_CUSTOM: Final = "custom://"
_IN_NAME: Final = "!$&'()*+,;=@"
"""Characters that the authority of a URI may contain besides letters, digits and `-._~` (RFC 3986, 3.2)."""

_DRIVE: Final = re.compile(r"/?[A-Za-z]:/")
"""The beginning of an absolute path on Windows; the slash before it is that of `file:///C:/...`."""

_LIST: Final = re.compile(r"\s*[,;]")
"""Separators in a list of names."""
_LINES: Final = re.compile(r"(:L?\d+([:-]L?\d+)*|#L?\d+(C\d+)?(-L?\d+(C\d+)?)?)$")
"""A line number, or a range of lines, after a path."""

Known = tuple[Sequence[Workspace], Mapping[str, Stamp]]
"""Workspaces, the deepest roots first, and the folders whose stamps show that the workspaces may have changed."""


class Workspaces:
    """The workspaces around `start`, the folder to which bare paths are relative.

    `find` lists them. It runs again when a folder that it returned has changed, and before a refusal.
    """

    def __init__(self, start: str, find: Callable[[], Known]) -> None:
        self._start = start
        self._find = find
        self._known = find()

    def canonical(self, text: str) -> str:
        """The canonical spelling of a resource: the path in the default workspace, `file://<workspace>/<path>` in
        another, `custom://<name>` unchanged, as are names in a workspace that is not known (any more). Follows links as
        long as the result is in a workspace. If no workspace is known, paths stay unchanged. An existing file whose
        name cannot be claimed is spelled as by `file`. Raises ValueError; the message names the rule."""
        if self._is_odd_file(text) and (resource := self.file(text)) is not None:
            return resource
        return spelling.canonical(text) if self.is_gone(text) else self._canonical(text)

    def _canonical(self, text: str) -> str:
        if text in _ROOTS:
            raise ValueError(_ROOT_ITSELF)
        text = spelling.canonical(text)
        if text.startswith(_CUSTOM):
            return text
        try:
            return self._stored(text, self._fresh())
        except ValueError:
            self._known = self._find()  # the stamps do not show that a worktree was moved
            return self._stored(text, self._known[0])

    def _is_odd_file(self, text: str) -> bool:
        """Whether a path is that of an existing file whose name cannot be claimed."""
        try:
            spelling.claimable(text)
        except ValueError:
            parts = text.split("/")
            is_inside = any(part not in ("", ".") for part in parts) and ".." not in parts
            return is_inside and os.path.lexists(os.path.join(self._start, text))
        return False

    def claimable(self, text: str) -> str:
        """The canonical spelling for a new claim. Also refuses names that protect nothing, as `resource.claimable`
        does, and lists and line ranges of existing files. Raises ValueError, which says what to use instead."""
        spelling.require_well_formed(text)
        try:
            resource = spelling.claimable(self._canonical(text))
        except ValueError:
            if text not in _ROOTS:
                spelling.claimable(text)  # the error may name the exact character
            raise
        self._require_one_file(resource)
        return resource

    def file(self, path: str) -> str | None:
        """The canonical spelling of the file at a path, whatever its name, or of a folder with `/` at its end; None if
        it is in no workspace. Raises ValueError for the root of one."""
        slash = "/" if path.endswith("/") else ""
        path = os.path.normpath(os.path.join(self._start, path)).replace(os.sep, "/") + slash
        located = self._reached(path, self._fresh())
        if located is None:
            self._known = self._find()  # the stamps do not show that a worktree was moved
            located = self._reached(path, self._known[0])
        if located is None:
            return None if self._known[0] else spelling.canonical(encode_path(normalize("NFC", path)))
        if not located[1]:
            raise ValueError(_ROOT_ITSELF)
        return located[0].file(located[1])

    def shown(self, resource: str) -> str:
        """Spell a stored resource so that `canonical` accepts it: as `file://<workspace>/<path>` if bare paths are
        relative to another folder than the default workspace's root."""
        if "://" in resource or resource.startswith("/"):
            return resource
        default = next((workspace for workspace in self._fresh() if workspace.bare), None)
        if default is None or default.root == self._start:
            return resource
        return f"{_FILE}{default.name}/{resource}"

    def is_folder(self, resource: str) -> bool:
        """Whether a stored resource names an existing folder, without the slash that means everything below it."""
        roots, path = self._locations(resource)
        return not path.endswith("/") and any(os.path.isdir(f"{root}/{path}") for root in roots)

    def is_nested(self, resource: str) -> bool:
        """Whether a stored resource is in a repository with its own store inside a workspace, such as a submodule."""
        roots, path = self._locations(resource)
        parts = path.split("/")[:-1]
        folders = (f"{root}/{'/'.join(parts[:end])}" for root in roots for end in range(1, len(parts) + 1))
        return any(os.path.lexists(f"{folder}/.git") and has_store(Path(folder)) for folder in folders)

    def is_gone(self, text: str) -> bool:
        """Whether a name is that of a file in a workspace that is not known (any more), such as a removed worktree."""
        name, _, path = text.removeprefix(_FILE).partition("/")
        if not text.startswith(_FILE) or not name or not path.strip("/"):
            return False
        if any(it.name == name for it in self._fresh()):
            return False
        self._known = self._find()
        return all(it.name != name for it in self._known[0])

    def is_missing(self, resource: str, given: str) -> bool:
        """Whether a stored resource does not exist and probably never will: its parent folder is missing, too, or its
        path, as given or as stored, is a bare word without slash or dot."""
        roots, path = self._locations(resource)
        files = [f"{root}/{path.rstrip('/')}" for root in roots]
        if not files or any(os.path.lexists(file) for file in files):
            return False
        is_word = any("/" not in name and "." not in name for name in (path, spelling.canonical(given)))
        return is_word or not any(os.path.isdir(os.path.dirname(file)) for file in files)

    def covers(self, folder: str) -> bool:
        """Whether an absolute path is in a workspace, links followed."""
        return self._owner(folder) is not None

    def with_root(self, folder: str) -> Workspace | None:
        """The workspace whose root is an absolute folder, links followed."""
        found = self._owner(folder)
        return found[0] if found is not None and not found[1] else None

    def elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The same path in every other workspace, as (workspace name, resource), for a stored resource."""
        known = self._fresh()
        own = [workspace for workspace in known if workspace.bare]
        path = resource
        if resource.startswith(_FILE):
            name, _, path = resource.removeprefix(_FILE).partition("/")
            own = [workspace for workspace in known if workspace.name == name]
        if not own or path.startswith((_CUSTOM, "/")):
            return []
        found: dict[str, str] = {resource: ""}
        for workspace in known:
            # Nobody can have claimed a name that is too long there.
            with suppress(ValueError):
                found.setdefault(workspace.resource(path), workspace.name)
        return sorted((name, other) for other, name in found.items() if name)

    def _owner(self, folder: str) -> WorkspacePath | None:
        return owner(Path(os.path.realpath(folder)).as_posix(), self._fresh())

    def _locations(self, resource: str) -> tuple[list[str], str]:
        """The roots of the known workspaces that contain a stored resource, and its path there."""
        name, path = "", resource
        if resource.startswith(_FILE):
            name, _, path = resource.removeprefix(_FILE).partition("/")
        elif resource.startswith((_CUSTOM, "/")):
            return [], path
        return [it.root for it in self._fresh() if (it.name == name if name else it.is_bare(path))], path

    def _require_one_file(self, resource: str) -> None:
        roots, path = self._locations(resource)

        def exists(part: str) -> bool:
            return part != "" and any(os.path.lexists(f"{root}/{part}") for root in roots)

        first = _LIST.split(path, maxsplit=1)[0]
        whole = _LINES.sub("", first)
        if path == whole or exists(path):
            return
        if first != path and (exists(first) or exists(whole)):
            raise ValueError("must be one file; pass the first as resource and the others in also")
        if first == path and exists(whole):
            raise ValueError("must be a whole file; a line range protects nothing, so leave out the line numbers")

    def _fresh(self) -> Sequence[Workspace]:
        for folder, before in self._known[1].items():
            if stamp(folder) != before:
                self._known = self._find()
                break
        return self._known[0]

    def located(self, text: str) -> WorkspacePath | None:
        """The workspace of a resource, or of any absolute path, and its path there; None for `custom://<name>`, and if
        no workspace is known. Follows links. Raises ValueError."""
        if os.path.isabs(text) and (reached := self._reached(text.replace(os.sep, "/"), self._fresh())):
            return reached
        text = spelling.canonical(text)
        found = None if text.startswith(_CUSTOM) else self._located(text, self._fresh())
        return None if isinstance(found, str) else found

    def _stored(self, text: str, known: Sequence[Workspace]) -> str:
        found = self._located(text, known)
        return found if isinstance(found, str) else found[0].resource(found[1])

    def _located(self, text: str, known: Sequence[Workspace]) -> WorkspacePath | str:
        """The workspace and the path there, or the path if no workspace is known."""
        path, base = text, self._start
        if not (known or text.startswith(_FILE)):
            return text
        if text.startswith(_FILE):
            name, _, path = text.removeprefix(_FILE).partition("/")
            base = _root(name, known) if name else ""
        if absolute := not base or path.startswith("/") or _DRIVE.match(path) is not None:
            path = path.lstrip("/") if _DRIVE.match(path) else "/" + path.lstrip("/")
        if not known:
            return spelling.canonical(path)
        found = self._reached(path, known, "" if absolute else base)
        if found is None or _DRIVE.match(found[1]):  # reading `C:/x` back would give a drive
            raise ValueError("must be inside a workspace; for anything else, use custom://<name>")
        if not found[1]:
            raise ValueError(_ROOT_ITSELF)
        return found

    def _reached(self, path: str, known: Sequence[Workspace], base: str = "") -> WorkspacePath | None:
        """The workspace and the path there to which a path leads, empty for its root. `base`: the folder of a relative
        one."""
        full = path.rstrip("/")
        if base:
            found = followed(base, full, known)
        elif lexical := owner(full, known):
            found = followed(lexical[0].root, lexical[1], known)
        else:
            drive, rest = os.path.splitdrive(full)
            found = followed(drive, rest.removeprefix("/"), known)
        if found is None or not found[1] or not path.endswith("/"):
            return found
        return found[0], f"{found[1]}/"


def find_workspaces(
    environ: Mapping[str, str],
    cwd: Path,
    named: Sequence[str] = (),
    across_worktrees: bool = False,
    folds: Callable[[str], bool] | None = None,
    shares: Callable[[str, str, bool], bool] | None = None,
) -> Workspaces:
    """The workspaces around `CLAUDE_PROJECT_DIR` or `cwd`, starting where `find_store` does.

    In a git repository: the main worktree, which is the default, and the linked ones under the names of their folders
    in `<common>/worktrees/`, percent-encoded; a name that is already used gets the prefix `worktrees%2F`. A bare
    repository has no default. Elsewhere: the nearest folder upwards with a `.holdlog/`, or none. `named`: each
    `name=path` adds a workspace or renames one. `across_worktrees`: all worktrees share the bare names. `folds`:
    whether the file system of a root ignores case. `shares`: whether a path is one resource for all worktrees: called
    with the root of its worktree, the path, and whether case is ignored. Raises InvalidError for `named`,
    LocationError.
    """
    start, avoided = start_folder(environ, cwd), avoided_folders(environ)
    repository = find_repository(start, avoided)
    own = None if repository else own_location(start, avoided)
    default = repository.main if repository else own.parent if own else None
    default = None if default in avoided else default
    names = _named(named, environ, cwd)
    if any(root in avoided or root == root.parent for root in names):
        raise InvalidError("--workspace: must not be the home folder or /")
    reserved = {DEFAULT_NAME} if default else set[str]()
    if reserved & {name for root, name in names.items() if root != default}:
        raise InvalidError(f"--workspace: must not use the name {DEFAULT_NAME}, which is that of the default workspace")
    folding = cache(folds or folds_case)

    def find() -> Known:
        linked = repository.linked() if repository else Linked({}, {})
        called = {default: DEFAULT_NAME, **names} if default else dict(names)
        for folder, root in linked.roots.items():
            if root not in called and root not in avoided and root != root.parent:
                name = quote(os.fsencode(folder), safe=_IN_NAME)
                called[root] = f"worktrees%2F{name}" if name in {*called.values(), *reserved} else name
        bare = {default, *(linked.roots.values() if across_worktrees else ())}
        known = []
        for root, name in called.items():
            text, folded = root.as_posix(), folding(root.as_posix())
            is_shared = None
            if shares is not None and root in linked.roots.values():
                is_shared = partial(_is_shared, shares, text, folded)
            known.append(Workspace(name, text, root in bare, folded, is_shared))
        return sorted(known, key=lambda workspace: -workspace.root.count("/")), linked.seen

    return Workspaces(start.as_posix().rstrip("/"), find)


def _is_shared(shares: Callable[[str, str, bool], bool], root: str, folds: bool, path: str) -> bool:
    return shares(root, path, folds)


def _named(options: Sequence[str], environ: Mapping[str, str], cwd: Path) -> dict[Path, str]:
    names: dict[Path, str] = {}
    for option in options:
        name, _, path = option.partition("=")
        if not name or not path.strip():
            raise InvalidError("--workspace: must be name=path")
        if quote(name, safe=_IN_NAME, errors="replace") != name or name in (".", ".."):
            raise InvalidError("--workspace: the name must have only letters a to z, digits, '-', '_' and '.'")
        if name in names.values():
            raise InvalidError("--workspace: must not use a name twice")
        try:
            root = resolved(cwd / expanded(path, environ))
        except (LocationError, ValueError):
            root = None
        if root is None or not os.path.isdir(root):
            raise InvalidError("--workspace: the path must be a folder")
        names[root] = name
    return names


def _root(name: str, known: Sequence[Workspace]) -> str:
    for workspace in known:
        if workspace.name == name:
            return workspace.root
    names = sorted(workspace.name for workspace in known)
    listed = f"{', '.join(names[:MAX_LISTED])}{', …' if len(names) > MAX_LISTED else ''}" if names else "none here"
    raise ValueError(f"must start with a known workspace ({listed}); if it is not a path, use custom://<name>")
