"""Workspaces: which folder a resource is in, and the one spelling under which it is stored."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdlog.adapters.operating_system.location import (
    LocationError,
    avoided_folders,
    expanded,
    own_place,
    resolved,
    start_folder,
)
from holdlog.adapters.operating_system.paths import Workspace, folds_case, followed, owner
from holdlog.adapters.operating_system.worktrees import Linked, Stamp, find_repository, stamp
from holdlog.domain.claims import resource as spelling
from holdlog.domain.refusals import InvalidError

DEFAULT_NAME: Final = "main"
"""Name of the default workspace for people, and in `file://main/<path>`; `--workspace` may give it another."""

MAX_TOLD: Final = 10
"""Workspaces that a refusal names."""

_ROOTS: Final = frozenset({".", "./", "/", ".\\", "\\"})
"""What means all that there is."""
_ROOT_ITSELF: Final = "must name a file or a folder inside the workspace, such as src/main.py or src/"

_FILE: Final = "file://"
_CUSTOM: Final = "custom://"
_IN_NAME: Final = "!$&'()*+,;=@"
"""What the authority of a URI may hold besides letters, digits and `-._~` (RFC 3986, 3.2)."""

_DRIVE: Final = re.compile(r"/?[A-Za-z]:/")
"""How an absolute path begins on Windows; the slash before it is that of `file:///C:/...`."""

_LIST: Final = re.compile(r"\s*[,;]")
"""What separates the names of a list."""
_LINES: Final = re.compile(r"(:L?\d+([:-]L?\d+)*|#L?\d+(C\d+)?(-L?\d+(C\d+)?)?)$")
"""How a line, or a range of lines, is written behind a path."""

Known = tuple[Sequence[Workspace], Mapping[str, Stamp]]
"""Workspaces, the deepest roots first, and the folders which tell by their stamps that there may be others now."""


class Workspaces:
    """The workspaces around `start`, the folder from which bare paths are read.

    `look` lists them; it is asked again when a folder that it named has changed, and before a refusal.
    """

    def __init__(self, start: str, look: Callable[[], Known]) -> None:
        self._start = start
        self._look = look
        self._known = look()

    def canonical(self, text: str) -> str:
        """The one spelling of a resource: the path in the default workspace, `file://<workspace>/<path>` in another,
        `custom://<name>` untouched. Links are followed as long as that ends in a workspace. Where no workspace is
        known, paths stay as they are. Raises ValueError; the message names the rule.
        """
        if text in _ROOTS:
            raise ValueError(_ROOT_ITSELF)
        text = spelling.canonical(text)
        if text.startswith(_CUSTOM):
            return text
        try:
            return self._stored(text, self._fresh())
        except ValueError:
            self._known = self._look()  # a worktree that was moved shows nowhere
            return self._stored(text, self._known[0])

    def claimable(self, text: str) -> str:
        """As `canonical`, for a new claim: refuses names that protect nothing, as `resource.claimable` does, and lists
        and line ranges of files that exist. Raises ValueError, which says what to use instead."""
        spelling.require_well_formed(text)
        try:
            resource = spelling.claimable(self.canonical(text))
        except ValueError:
            if text not in _ROOTS:
                spelling.claimable(text)  # may name the very character
            raise
        self._require_one_file(resource)
        return resource

    def shown(self, resource: str) -> str:
        """How to tell a stored resource, so that `canonical` takes it back: where a bare path is read from another
        folder than the default workspace's root, it is told as `file://<workspace>/<path>`."""
        if "://" in resource or resource.startswith("/"):
            return resource
        default = next((workspace for workspace in self._fresh() if workspace.bare), None)
        if default is None or default.root == self._start:
            return resource
        return f"{_FILE}{default.name}/{resource}"

    def is_folder(self, resource: str) -> bool:
        """Whether a stored resource is the name of a folder that exists, without the slash that means all below it."""
        roots, path = self._places(resource)
        return not path.endswith("/") and any(os.path.isdir(f"{root}/{path}") for root in roots)

    def is_missing(self, resource: str, given: str) -> bool:
        """Whether nothing exists under a stored resource and nothing is likely to: its parent folder is missing, too,
        or its path, as given or as stored, is a bare word without slash or dot."""
        roots, path = self._places(resource)
        files = [f"{root}/{path.rstrip('/')}" for root in roots]
        if not files or any(os.path.lexists(file) for file in files):
            return False
        is_word = any("/" not in name and "." not in name for name in (path, spelling.canonical(given)))
        return is_word or not any(os.path.isdir(os.path.dirname(file)) for file in files)

    def elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The same path in every other workspace, as (its name, resource there), for a resource as it is stored."""
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
            # What is too long there, nobody can have claimed.
            with suppress(ValueError):
                found.setdefault(workspace.resource(path), workspace.name)
        return sorted((name, other) for other, name in found.items() if name)

    def _places(self, resource: str) -> tuple[list[str], str]:
        """The roots of the known workspaces that a stored resource is in, and its path there."""
        name, path = "", resource
        if resource.startswith(_FILE):
            name, _, path = resource.removeprefix(_FILE).partition("/")
        elif resource.startswith((_CUSTOM, "/")):
            return [], path
        return [it.root for it in self._fresh() if (it.name == name if name else it.bare)], path

    def _require_one_file(self, resource: str) -> None:
        roots, path = self._places(resource)

        def exists(part: str) -> bool:
            return part != "" and any(os.path.lexists(f"{root}/{part}") for root in roots)

        first = _LIST.split(path, maxsplit=1)[0]
        whole = _LINES.sub("", first)
        if path == whole or exists(path):
            return
        if first != path and (exists(first) or exists(whole)):
            raise ValueError("must name one file: name the first as resource and the others with also")
        if first == path and exists(whole):
            raise ValueError("must name the whole file: a line range protects nothing, so leave out the line numbers")

    def _fresh(self) -> Sequence[Workspace]:
        for folder, before in self._known[1].items():
            if stamp(folder) != before:
                self._known = self._look()
                break
        return self._known[0]

    def _stored(self, text: str, known: Sequence[Workspace]) -> str:
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
        full, slash = path.rstrip("/"), "/" if path.endswith("/") else ""
        if not absolute:
            place = followed(base, full, known)
        elif lexical := owner(full, known):
            place = followed(lexical[0].root, lexical[1], known)
        else:
            drive, rest = os.path.splitdrive(full)
            place = followed(drive, rest.removeprefix("/"), known)
        if place is None or _DRIVE.match(place[1] + slash):  # whoever read `C:/x` again would take it for a drive
            raise ValueError("must lie inside a workspace; name what lies outside custom://<name>")
        if not place[1]:
            raise ValueError(_ROOT_ITSELF)
        return place[0].resource(place[1] + slash)


def find_workspaces(
    environ: Mapping[str, str],
    cwd: Path,
    named: Sequence[str] = (),
    across_worktrees: bool = False,
    folds: Callable[[str], bool] | None = None,
) -> Workspaces:
    """The workspaces around `CLAUDE_PROJECT_DIR` or `cwd`, as `find_store` starts.

    In a git repository: the main worktree, which is the default, and the linked ones under the names of their folders
    in `<common>/worktrees/`, percent-encoded; where such a name is taken it begins with `worktrees%2F`. A bare
    repository has no default. Elsewhere: the nearest folder upwards with a `.holdlog/`, or none. `named`: each
    `name=path` adds a workspace or renames one. `across_worktrees`: all worktrees share the bare names. `folds`:
    whether the file system of a root folds case. Raises InvalidError for `named`, LocationError.
    """
    start, avoided = start_folder(environ, cwd), avoided_folders(environ)
    repository = find_repository(start, avoided)
    own = None if repository else own_place(start, avoided)
    default = repository.main if repository else own.parent if own else None
    default = None if default in avoided else default
    names = _named(named, environ, cwd)
    if any(root in avoided or root == root.parent for root in names):
        raise InvalidError("--workspace: must not make the home folder or / a workspace")
    reserved = {DEFAULT_NAME} if default else set[str]()
    if reserved & {name for root, name in names.items() if root != default}:
        raise InvalidError(f"--workspace: must not give the name {DEFAULT_NAME}, which the default workspace has")
    folding = cache(folds or folds_case)

    def look() -> Known:
        linked = repository.linked() if repository else Linked({}, {})
        called = {default: DEFAULT_NAME, **names} if default else dict(names)
        for folder, root in linked.roots.items():
            if root not in called and root not in avoided and root != root.parent:
                name = quote(os.fsencode(folder), safe=_IN_NAME)
                called[root] = f"worktrees%2F{name}" if name in {*called.values(), *reserved} else name
        bare = {default, *(linked.roots.values() if across_worktrees else ())}
        known = [Workspace(called[it], it.as_posix(), it in bare, folding(it.as_posix())) for it in called]
        return sorted(known, key=lambda workspace: -workspace.root.count("/")), linked.seen

    return Workspaces(start.as_posix().rstrip("/"), look)


def _named(options: Sequence[str], environ: Mapping[str, str], cwd: Path) -> dict[Path, str]:
    names: dict[Path, str] = {}
    for option in options:
        name, _, path = option.partition("=")
        if not name or not path.strip():
            raise InvalidError("--workspace: must be name=path")
        if quote(name, safe=_IN_NAME, errors="replace") != name or name in (".", ".."):
            raise InvalidError("--workspace: the name must be of letters a to z, digits, '-', '_' and '.'")
        if name in names.values():
            raise InvalidError("--workspace: must not give one name twice")
        try:
            root = resolved(cwd / expanded(path, environ))
        except (LocationError, ValueError):
            root = None
        if root is None or not os.path.isdir(root):
            raise InvalidError("--workspace: the path must lead to a folder")
        names[root] = name
    return names


def _root(name: str, known: Sequence[Workspace]) -> str:
    for workspace in known:
        if workspace.name == name:
            return workspace.root
    names = sorted(workspace.name for workspace in known)
    told = f"{', '.join(names[:MAX_TOLD])}{', …' if len(names) > MAX_TOLD else ''}" if names else "none here"
    raise ValueError(f"must begin with a known workspace ({told}); name what is no path custom://<name>")
