"""Git repositories and their worktrees, by reading files (gitrepository-layout(5)), and where a store is. Quick to
import; starts no process."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.files import explain, show
from holdlog.domain.refusals import StoreError

STORE_FILE: Final = "state.db"
OUR_FOLDER: Final = ".holdlog"
MAX_POINTER: Final = 64 * 1024
"""Bytes of a file with one path, such as `.git`."""
MAX_CONFIG: Final = 1024 * 1024
_SETTING: Final = re.compile(r'\s*(?:\[([^]]*)\])?\s*(?:([A-Za-z][\w-]*)\s*(?:=\s*("[^"]*"|[^#;]*))?)?')
"""A line of a configuration: section, name, value, each of which may be missing (git-config(1), Syntax)."""


class Worktree(NamedTuple):
    """`root`: with its `.git`; `git`: its own git folder; `common`: that of all worktrees of the repository. All are
    absolute, without links."""

    root: str
    git: str
    common: str

    @property
    def store(self) -> str:
        """Where the store of the repository is, if it has one."""
        return os.path.realpath(f"{self.common}/holdlog/{STORE_FILE}")


def find_worktree(folder: str) -> Worktree | None:
    """The innermost worktree around a folder without links. Raises StoreError for a broken one."""
    for around in _list_upwards(folder):
        if (worktree := read_worktree(around)) is not None:
            return worktree
    return None


def read_worktree(root: str) -> Worktree | None:
    """The worktree whose `.git` is in a folder; None if there is none. As git does, ignores a folder that is no
    repository and refuses a file whose target is missing. Raises StoreError."""
    entry = f"{root}/.git"
    if not os.path.lexists(entry):
        return None
    if os.path.isdir(entry):
        worktree = Worktree(root, os.path.realpath(entry), _find_common(entry))
        return worktree if _is_repository(worktree) else None
    pointer = _read_pointer(entry)
    if not pointer.startswith("gitdir: "):
        raise _refuse(entry, "is not what git writes")
    git = os.path.realpath(os.path.join(root, pointer.removeprefix("gitdir: ")))
    worktree = Worktree(root, git, _find_common(git))
    if not _is_repository(worktree):
        raise _refuse(entry, "does not lead to a git repository")
    return worktree


def find_main(worktree: Worktree) -> str | None:
    """The root of the repository's main worktree; None for a bare one. As git: `core.worktree`, none if `core.bare`,
    else the folder that contains `.git`."""
    if worktree.git == worktree.common:
        return worktree.root
    core = _read_core(worktree.common)
    if core.get("worktree") and os.path.isdir(named := os.path.realpath(f"{worktree.common}/{core['worktree']}")):
        return named
    if core.get("bare", "false").lower() in ("", "true", "yes", "on", "1"):
        return None
    return os.path.dirname(worktree.common) if os.path.basename(worktree.common) == ".git" else None


def list_linked(worktree: Worktree) -> dict[str, str]:
    """The roots of the linked worktrees, by the names of their folders in the common one. The given one counts where
    it is, even if git has recorded another place."""
    roots, below = {}, f"{worktree.common}/worktrees"
    with suppress(OSError):
        for name in sorted(os.listdir(below)):
            entry = f"{below}/{name}"
            if entry == worktree.git:
                roots[name] = worktree.root
                continue
            with suppress(StoreError):  # removed, or git is creating it
                root = os.path.realpath(os.path.dirname(os.path.join(entry, _read_pointer(f"{entry}/gitdir"))))
                found = read_worktree(root)
                if found is not None and found.git == entry:
                    roots[name] = root
    return roots


# --- stores


def find_start(environ: Mapping[str, str], folder: str) -> str:
    """The folder in which the agent works, without links: CLAUDE_PROJECT_DIR if that is one here, else `folder`."""
    project = os.path.join(folder, environ.get("CLAUDE_PROJECT_DIR") or "")
    return os.path.realpath(project if os.path.isdir(project) else folder)


def locate_store(environ: Mapping[str, str], start: str) -> str:
    """The path of the store for a folder without links, or the URL in HOLDLOG_DB: that variable, the repository around
    (one store for all of its worktrees), the nearest `.holdlog`, the user's state folder. Creates nothing. Raises
    StoreError."""
    named = environ.get("HOLDLOG_DB")
    if named:
        return named if "://" in named or named == ":memory:" else os.path.realpath(os.path.expanduser(named))
    if (worktree := find_worktree(start)) is not None:
        return worktree.store
    own = find_own_folder(start)
    return os.path.realpath(f"{own}/{OUR_FOLDER}/{STORE_FILE}" if own else locate_common_store(environ))


def locate_common_store(environ: Mapping[str, str]) -> str:
    """The store for what is in no project."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # as the XDG specification says
        state = os.path.expanduser("~/.local/state")
    return os.path.realpath(f"{state}/holdlog/{STORE_FILE}")


def find_own_folder(start: str) -> str | None:
    """The nearest folder with a `.holdlog` in it."""
    return next((folder for folder in _list_upwards(start) if os.path.isdir(f"{folder}/{OUR_FOLDER}")), None)


def prepare_folder(store: str) -> None:
    """Create the folder of a store with mode 0700, and a `.gitignore` in a `.holdlog`. Raises StoreError."""
    folder = os.path.dirname(store)
    try:
        if not os.path.isdir(folder):
            if folder == os.path.dirname(locate_common_store(os.environ)):
                os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
            with suppress(FileExistsError):  # another process may have created it
                os.mkdir(folder, 0o700)
                os.chmod(folder, 0o700)  # the umask may have cleared bits
        if os.path.basename(folder) == OUR_FOLDER:
            with suppress(FileExistsError), open(f"{folder}/.gitignore", "x") as file:
                file.write("*\n")
    except FileNotFoundError:
        raise StoreError(f"the folder {show(os.path.dirname(folder))} does not exist; create it") from None
    except OSError as error:
        raise StoreError(explain(folder, error.errno, "created")) from None


# --- parts


def _list_upwards(folder: str) -> Iterator[str]:
    """A folder and those around it, except the user's home and `/`, which are no projects."""
    home = os.path.realpath(os.path.expanduser("~"))
    while (above := os.path.dirname(folder)) != folder:
        if folder != home:
            yield folder
        folder = above


def _find_common(git: str) -> str:
    """A worktree's own git folder names the common one; that of a repository or submodule is its own."""
    entry = f"{git}/commondir"
    return os.path.realpath(os.path.join(git, _read_pointer(entry)) if os.path.isfile(entry) else git)


def _is_repository(worktree: Worktree) -> bool:
    has_parts = all(os.path.isdir(f"{worktree.common}/{part}") for part in ("objects", "refs"))
    return has_parts and os.path.lexists(f"{worktree.git}/HEAD")  # may be a link to a branch without commits


def _read_pointer(entry: str) -> str:
    try:
        with open(entry, "rb") as file:
            content = file.read(MAX_POINTER + 1)
    except OSError as error:
        raise StoreError(explain(entry, error.errno, "read")) from None
    if len(content) > MAX_POINTER or b"\0" in content:
        raise _refuse(entry, "is not what git writes")
    return os.fsdecode(content).rstrip("\r\n")


def _read_core(common: str) -> dict[str, str]:
    """The settings of section `core`; the later file overrides the earlier; `include` is not followed."""
    settings, section = dict[str, str](), ""
    for name in ("config", "config.worktree"):
        try:
            with open(f"{common}/{name}", "rb") as file:
                lines = os.fsdecode(file.read(MAX_CONFIG)).split("\n")
        except OSError:
            continue
        for match in filter(None, map(_SETTING.match, lines)):
            if match[1] is not None:
                section = match[1].strip().lower()
            if match[2] and section == "core":
                settings[match[2].lower()] = (match[3] or "").strip().strip('"').replace("\\\\", "\\")
    return settings


def _refuse(entry: str, problem: str) -> StoreError:
    return StoreError(f"{show(entry)} {problem}; repair the repository, or pass a path with --db")
