"""Workspaces: the folders whose files are resources, and the one name of a file. Quick to import.

The files of a repository's main worktree, and those below a folder with `.holdlog`, have bare paths as names; those of
other worktrees `file://<worktree>/<path>`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from unicodedata import normalize

from holdlog.adapters.operating_system import location
from holdlog.adapters.operating_system.file_names import encode_path
from holdlog.domain.claims.resource import CUSTOM, FILE, check_claimable, check_resource
from holdlog.domain.names import MAX_NAME
from holdlog.domain.refusals import InvalidError, StoreError

MAIN: Final = "main"
"""The name of the default workspace, also in `file://main/<path>`."""
MAX_LISTED: Final = 10
"""Workspaces that a refusal lists."""
_NOT_IN_NAME: Final = rb"[^A-Za-z0-9._~!$&'()*+,;=@-]"
"""What the authority of a URI must not contain (RFC 3986, 3.2)."""
_LIST: Final = r"\s*[,;]"
_BRACES: Final = r"\{([^{},]*),[^{}]*\}"
_LINES: Final = r"(:L?\d+([:-]L?\d+)*|#L?\d+(C\d+)?(-L?\d+(C\d+)?)?| \(lines? [^()]*\))$"
"""A line number, or a range of lines, after a path."""


class Workspace(NamedTuple):
    """`root`: absolute, without links. `is_bare`: its files have bare paths as names. `folds`: its file system ignores
    case."""

    name: str
    root: str
    is_bare: bool = False
    folds: bool = False

    def find_path(self, absolute: str) -> str | None:
        """The path from the root, "" for the root itself; None if it is outside."""
        if absolute == self.root or absolute.startswith(f"{self.root}/"):
            return absolute[len(self.root) + 1 :]
        if self.folds and f"{absolute}/".casefold().startswith(f"{self.root}/".casefold()):
            return "/".join(absolute.split("/")[self.root.count("/") + 1 :])
        return None

    def fold_path(self, path: str) -> str:
        """The one form of a path of this workspace: NFC, and lower case if its file system folds case."""
        return normalize("NFC", path.casefold() if self.folds else path)


class Workspaces:
    """The workspaces around `start`, the folder to which bare paths are relative. `shares` says of the root of a linked
    worktree and a path in it whether that is one resource for all worktrees. `is_absolute`: outside of all workspaces,
    names of files are absolute paths, as the store belongs to no project. `common`: the folder that all worktrees of
    the repository share."""

    def __init__(
        self,
        start: str,
        known: Sequence[Workspace],
        shares: Callable[[str, str], bool] | None = None,
        is_absolute: bool = False,
        common: str = "",
    ) -> None:
        self.start = start
        self.known = sorted(known, key=lambda workspace: -workspace.root.count("/"))
        self._shares = shares
        self._is_absolute = is_absolute
        self.common = common

    def resolve(self, text: str, is_new: bool = False) -> str:
        """The name of a resource that a caller names; `is_new`: for a claim, which is refused if it protects nothing.
        Files in workspaces that are unknown (any more) keep their names, except in a claim. Raises ValueError, which
        says what to use instead."""
        if text.startswith(CUSTOM):
            return text
        try:
            name = check_claimable(text)
        except ValueError:
            if (odd := self._name_odd(text)) is not None:
                return odd
            if is_new:
                raise
            name = check_resource(text)
        path = os.path.join(self.start, name)
        if name.startswith(FILE):
            workspace, _, rest = name.removeprefix(FILE).partition("/")
            root = next((it.root for it in self.known if it.name == workspace), None)
            if root is None and workspace:
                if not is_new:
                    return name
                raise ValueError(f"must be in a known workspace ({self._list()}), or be custom://<name>")
            path = f"{root or ''}/{rest}"
        place = self._find(path)
        if place is None:
            if self.known:
                raise ValueError("must be inside a workspace; for anything else, use custom://<name>")
            return path if self._is_absolute else name
        resource = check_resource(self._prefix(*place) + place[0].fold_path(place[1]))
        if is_new:
            self._require_one_file(resource)
        return resource

    def name_file(self, path: str) -> str | None:
        """The resource of a file at an absolute path, whatever its name, or of a folder with `/` at its end; None
        outside of all workspaces."""
        try:
            place = self._find(os.path.normpath(path) + "/" * path.endswith("/"))
            if place is None:
                return encode_path(normalize("NFC", path)) if self._is_absolute and not self.known else None
            prefix = self._prefix(*place)
            return prefix + encode_path(place[0].fold_path(place[1]), MAX_NAME - len(prefix))
        except ValueError:
            return None

    def format_name(self, resource: str) -> str:
        """A name that `resolve` accepts for a resource: full, if bare paths are relative to another folder here."""
        default = next((it for it in self.known if it.is_bare), None)
        if "://" in resource or resource.startswith("/") or default is None or default.root == self.start:
            return resource
        return f"{FILE}{default.name}/{resource}"

    def list_elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The same path in all other workspaces: their names, and its resources there."""
        own, path = self._split(resource)
        if not own:
            return []
        others = {f"{self._prefix(it, path)}{path}": it.name for it in self.known if it not in own}
        return sorted((name, other) for other, name in others.items() if other != resource and len(other) <= MAX_NAME)

    def find_file(self, resource: str) -> str | None:
        """The absolute path of a resource, as far as its name is not encoded; None if it is in no known workspace."""
        own, path = self._split(resource)
        return f"{own[0].root}/{path}" if own else None

    def find_doubt(self, resource: str) -> str:
        """Why a claim probably protects nothing; empty if it protects a file. `folder`: its name without the slash does
        contain what is below it. `missing`: no such file exists, and probably none will: its folder is missing, too, or
        it is a bare word without slash or dot."""
        path = self.find_file(resource)
        if path is None or os.path.lexists(path.rstrip("/")):
            return "folder" if path is not None and path[-1] != "/" and os.path.isdir(path) else ""
        name = self._split(resource)[1]
        is_word = "/" not in name and "." not in name
        return "missing" if is_word or not os.path.isdir(os.path.dirname(path.rstrip("/"))) else ""

    # --- parts

    def _split(self, resource: str) -> tuple[list[Workspace], str]:
        """The workspaces of a resource, and its path there."""
        if resource.startswith((CUSTOM, "/")):
            return [], resource
        if not resource.startswith(FILE):
            return [it for it in self.known if it.is_bare], resource
        name, _, path = resource.removeprefix(FILE).partition("/")
        return [it for it in self.known if it.name == name], path

    def _prefix(self, workspace: Workspace, path: str) -> str:
        is_shared = self._shares is not None and not workspace.is_bare and self._shares(workspace.root, path)
        return "" if workspace.is_bare or is_shared else f"{FILE}{workspace.name}/"

    def _find(self, path: str) -> tuple[Workspace, str] | None:
        """The workspace of an absolute path and the path there. Links are followed, up to one that leads outside."""
        slash, head, tail = "/" * path.endswith("/"), path.rstrip("/"), ""
        while True:
            real = os.path.realpath(head) + tail
            for workspace in self.known:
                if (inside := workspace.find_path(real)) is not None:
                    if not inside:
                        raise ValueError("must name a file or a folder inside the workspace, such as src/")
                    return workspace, inside + slash
            head, _, name = head.rpartition("/")
            tail = f"/{name}{tail}"
            if not head:
                return None

    def _name_odd(self, text: str) -> str | None:
        """The name of an existing file that cannot be claimed by its own."""
        parts = text.split("/")
        if ".." in parts or all(part in ("", ".") for part in parts) or "\0" in text:
            return None
        path = os.path.join(self.start, text)
        return self.name_file(path) if os.path.lexists(path) else None

    def _require_one_file(self, resource: str) -> None:
        """Refuse lists and line ranges of existing files."""
        own, path = self._split(resource)

        def exists(part: str) -> bool:
            return part != "" and any(os.path.lexists(f"{workspace.root}/{part}") for workspace in own)

        first = re.split(_LIST, re.sub(_BRACES, r"\1", path), maxsplit=1)[0]
        whole = re.sub(_LINES, "", first)
        if path == whole or exists(path):
            return
        if first != path and (exists(first) or exists(whole)):
            raise ValueError("must be one file; pass the first as resource and the others in also")
        if first == path and exists(whole):
            raise ValueError(f"must be a whole file, such as {whole}: a range of lines protects nothing")

    def _list(self) -> str:
        names = sorted(workspace.name for workspace in self.known)
        return ", ".join(names[:MAX_LISTED]) + ", …" * (len(names) > MAX_LISTED) if names else "none here"


def find_workspaces(
    environ: Mapping[str, str],
    cwd: str,
    store: str,
    named: Sequence[str] = (),
    shares: Callable[[str, str], bool] | None = None,
) -> Workspaces:
    """The workspaces for a store, around CLAUDE_PROJECT_DIR or `cwd`. In a repository: the main worktree, which is the
    default, and the linked ones; elsewhere the nearest folder with `.holdlog`, or none. `named`: each `name=path` adds
    one, or names one. Raises InvalidError for `named`."""
    start, home = location.find_start(environ, cwd), location.find_home(environ)
    try:
        repository = location.find_repository(start, home)
    except StoreError:  # it is broken
        repository = None
    own = None if repository is not None else location.find_own_folder(start, home)
    default = location.find_main(repository) if repository is not None else own and os.path.dirname(own)
    names = _parse_named(named)
    if any(name == MAIN and root != default for root, name in names.items()) and default is not None:
        raise InvalidError(f"--workspace: must not use the name {MAIN}, which is that of the default workspace")
    called = {default: MAIN, **names} if default is not None else dict(names)
    for folder, root in location.list_linked(repository).items() if repository is not None else ():
        if root not in called:
            name = _encode_name(folder)
            called[root] = f"worktrees%2F{name}" if name in (*called.values(), MAIN) else name
    known = [Workspace(name, root, root == default, folds_case(root)) for root, name in called.items()]
    is_users = store == os.path.realpath(os.path.join(location.find_state_folder(environ), location.STORE_FILE))
    return Workspaces(start, known, shares, is_users, repository.common if repository is not None else "")


def folds_case(root: str) -> bool:
    """Whether the file system ignores case: a name that exists there also does in the other case."""
    for path in (f"{root}/.git", f"{root}/{location.OUR_FOLDER}", root):
        folder, name = os.path.split(path)
        if name.swapcase() != name and os.path.lexists(path):
            with suppress(OSError):
                return os.path.samefile(path, os.path.join(folder, name.swapcase()))
            return False
    return False


def _encode_name(folder: str) -> str:
    octets = folder.encode(errors="surrogateescape")
    return re.sub(_NOT_IN_NAME, lambda it: b"%%%02X" % it[0][0], octets).decode()


def _parse_named(options: Sequence[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for option in options:
        name, _, path = option.partition("=")
        if not name or not path.strip():
            raise InvalidError("--workspace: must be name=path")
        if _encode_name(name) != name or name in (".", ".."):
            raise InvalidError("--workspace: the name must have only letters a to z, digits, '-', '_' and '.'")
        root = os.path.realpath(os.path.expanduser(path))
        if name in names.values():
            raise InvalidError("--workspace: must not use a name twice")
        if not os.path.isdir(root) or root in ("/", os.path.realpath(os.path.expanduser("~"))):
            raise InvalidError("--workspace: the path must be a folder, and not / or the home folder")
        names[root] = name
    return names
