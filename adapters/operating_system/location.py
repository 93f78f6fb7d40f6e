"""Finds the store of a folder, and the worktrees of its repository, by reading files only, without a git process
(gitrepository-layout(5), git-worktree(1))."""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.files import explain, show
from holdlog.domain.refusals import InvalidError, StoreError

STORE_FILE: Final = "state.db"
OUR_FOLDER: Final = ".holdlog"
FOLDER_MODE: Final = 0o700
MAX_POINTER_BYTES: Final = 64 * 1024
"""Limit for a file that contains one line: `.git`, `commondir`, and that of a variable."""
MAX_CONFIG: Final = 1024 * 1024
_SETTING: Final = r'\s*(?:\[([^]]*)\])?\s*(?:([A-Za-z][\w-]*)\s*(?:=\s*("[^"]*"|[^#;]*))?)?'
"""A line of a configuration: section, name, value, each of which may be missing (git-config(1), Syntax)."""
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
"""The only errors that mean that nothing exists there. Any other hides a store that others use."""


class Repository(NamedTuple):
    """A worktree: the folder with its `.git`, its own git folder, and the one that all worktrees share."""

    folder: str
    git_folder: str
    common: str


def find_store(db: str | None, environ: Mapping[str, str], cwd: str) -> str:
    """The place of the store: `:memory:`, a URL, or the absolute path of a file, links resolved.

    `db` decides if given. Otherwise, starting from `CLAUDE_PROJECT_DIR` if that folder exists, else from `cwd`: the git
    repository's common folder (one store for all its worktrees), else the nearest `.holdlog/` upwards, else the user's
    state folder. A repository or `.holdlog/` directly in `/` or in the home folder is ignored, and so are `GIT_DIR` and
    the like: a git hook must find the same store as every other process. Creates nothing. Raises StoreError.
    """
    if db is not None:
        return db if db == ":memory:" or is_url(db) else _check_file(db, cwd)
    start, home = find_start(environ, cwd), find_home(environ)
    repository = find_repository(start, home)
    if repository is not None:
        return os.path.join(repository.common, "holdlog", STORE_FILE)
    return os.path.realpath(os.path.join(find_own_folder(start, home) or find_state_folder(environ), STORE_FILE))


def prepare_folder(place: str, environ: Mapping[str, str]) -> None:
    """Create the folder of a store, mode 0700, if it is missing, and a `.gitignore` in a `.holdlog/` that has none.
    Only that last folder is created, except under the user's state folder. Raises StoreError."""
    if place == ":memory:" or is_url(place):
        return
    folder = os.path.dirname(place)
    try:
        if not os.path.isdir(folder):
            parent = os.path.dirname(folder)
            if not os.path.isdir(parent):
                if folder != os.path.realpath(find_state_folder(environ)):
                    return  # opening it says what is missing
                os.makedirs(parent, FOLDER_MODE, exist_ok=True)
            with suppress(FileExistsError):  # another process was faster
                os.mkdir(folder, FOLDER_MODE)
                os.chmod(folder, FOLDER_MODE)  # the umask may have cleared bits
        if os.path.basename(folder) == OUR_FOLDER:
            with suppress(OSError), open(os.path.join(folder, ".gitignore"), "x", encoding="ascii") as file:
                file.write("*\n")
    except OSError as error:
        raise StoreError(explain(folder, error.errno, "created")) from None


def find_start(environ: Mapping[str, str], cwd: str) -> str:
    """The folder in which the agent works, without links."""
    # A variable passed into a container may name a folder of the host; then the working folder is more reliable.
    project = os.path.join(cwd, environ.get("CLAUDE_PROJECT_DIR") or ".")
    return os.path.realpath(project if os.path.isdir(project) else cwd)


def find_home(environ: Mapping[str, str]) -> str | None:
    """The home folder, which is never a project."""
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.realpath(home) if os.path.isabs(home) else None


def find_repository(start: str, home: str | None) -> Repository | None:
    """The innermost worktree around a folder, ignoring one directly in the home folder or in `/`. Raises StoreError for
    a `.git` file whose target is missing."""
    for folder in go_up(start, home):
        repository = read_repository(folder)
        if repository is not None and repository.common not in (home, os.path.dirname(repository.common)):
            return repository
    return None


def find_top(folder: str) -> str | None:
    """The nearest folder upwards that has a `.git`, whatever it leads to."""
    return next((it for it in go_up(folder, None) if os.path.lexists(f"{it}/.git")), None)


def go_up(start: str, home: str | None) -> Iterator[str]:
    """A folder and those around it, but for the home folder and `/`."""
    while start != (parent := os.path.dirname(start)):
        if start != home:
            yield start
        start = parent


def find_own_folder(start: str, home: str | None) -> str | None:
    """The nearest `.holdlog/` upwards. Raises StoreError."""
    folders = (os.path.join(folder, OUR_FOLDER) for folder in go_up(start, home))
    return next((folder for folder in folders if stat.S_ISDIR(_read_mode(folder))), None)


def find_state_folder(environ: Mapping[str, str]) -> str:
    """The user's folder for what is not in a project. Raises StoreError if there is no home folder."""
    # The XDG specification says to ignore a relative path.
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = find_home(environ)
        if home is None:
            raise StoreError("there is no home folder; set HOME, or use --db with a path")
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "holdlog")


def read_repository(folder: str) -> Repository | None:
    """The repository whose `.git` is in `folder` (gitrepository-layout(5)), None if there is none.

    Like git, ignores a folder that is not a repository and rejects a file whose target is missing (StoreError). Unlike
    git, rejects a folder that it may not read: the repository may have a store.
    """
    entry = os.path.join(folder, ".git")
    mode = _read_mode(entry)
    if stat.S_ISDIR(mode):
        common = _find_common(entry)
        return Repository(folder, os.path.realpath(entry), common) if _is_repository(entry, common) else None
    if not stat.S_ISREG(mode):
        return None
    pointer = read_pointer(entry)
    if not pointer.startswith("gitdir: "):
        raise _describe_broken(entry, "is not what git writes")
    git_folder = os.path.join(folder, pointer.removeprefix("gitdir: "))
    common = _find_common(git_folder)
    if not _is_repository(git_folder, common):
        raise _describe_broken(entry, "does not lead to a git repository")
    return Repository(folder, os.path.realpath(git_folder), common)


def find_main(repository: Repository) -> str | None:
    """The root of the repository's main worktree; None for a bare one. As git: `core.worktree`, none if `core.bare`,
    else the folder that contains `.git`."""
    if repository.git_folder == repository.common:
        return repository.folder
    core = _read_core(repository.common)
    if core.get("worktree") and os.path.isdir(named := os.path.realpath(f"{repository.common}/{core['worktree']}")):
        return named
    if core.get("bare", "false").lower() in ("", "true", "yes", "on", "1"):
        return None
    return os.path.dirname(repository.common) if os.path.basename(repository.common) == ".git" else None


def list_linked(repository: Repository) -> dict[str, str]:
    """The roots of the linked worktrees, by the names of their folders in the common one. The given one counts where
    it is, even if git has recorded another place."""
    roots, below = {}, f"{repository.common}/worktrees"
    with suppress(OSError):
        for name in sorted(os.listdir(below)):
            entry = f"{below}/{name}"
            if entry == repository.git_folder:
                roots[name] = repository.folder
                continue
            with suppress(StoreError):  # removed, or git is creating it
                root = os.path.realpath(os.path.dirname(os.path.join(entry, read_pointer(f"{entry}/gitdir"))))
                linked = read_repository(root)
                if linked is not None and linked.git_folder == entry:
                    roots[name] = root
    return roots


def read_pointer(entry: str) -> str:
    """The single line of a file in which git stores a path. Raises StoreError."""
    try:
        with open(entry, "rb") as file:
            content = file.read(MAX_POINTER_BYTES + 1)
    except OSError as error:
        raise _describe_broken(entry, f"cannot be read ({error.strerror})") from None
    if len(content) > MAX_POINTER_BYTES or b"\0" in content:
        raise _describe_broken(entry, "is not what git writes")
    return os.fsdecode(content).rstrip("\r\n")


def read_variable(setting: str, path: str | None = None) -> str | None:
    """The text of HOLDLOG_…, or of the file that HOLDLOG_…_FILE names, else of `path`. Raises InvalidError."""
    name = f"HOLDLOG_{setting.upper()}"
    path = os.environ.get(f"{name}_FILE") or path
    if not path or os.environ.get(name):
        return os.environ.get(name) or ("" if setting == "tool_prefix" and name in os.environ else None)
    try:
        with open(os.path.expanduser(path), "rb") as file:
            text = file.read(MAX_POINTER_BYTES).decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidError(f"{name}_FILE: cannot be read ({why})") from None
    if not text or "\n" in text:
        raise InvalidError(f"{name}_FILE: must contain exactly one line")
    return text


def is_url(place: str) -> bool:
    """Whether the text is meant as a database URL, even with slashes missing: it may contain a password."""
    return "://" in place or place.startswith(("postgresql:", "postgres:"))


def mask_password(text: str) -> str:
    """A text, such as a store's place, without the password of a URL."""
    bare = re.sub(r"(\w+:/*[^:/@\s]*):[^\s]*@", r"\1@", text)  # up to the last @, encoded or not
    return re.sub(r"([?&]\w*(?:password|secret)=)[^&\s]*", r"\1", bare)


def _check_file(text: str, cwd: str) -> str:
    if not text.strip():
        raise StoreError(f"--db is empty; pass a file, such as --db ./{OUR_FOLDER}/{STORE_FILE}")
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise StoreError(f"--db contains a control character; pass a file, such as ./{OUR_FOLDER}/{STORE_FILE}")
    path = os.path.realpath(os.path.join(cwd, os.path.expanduser(text)))
    mode = _read_mode(path)
    if stat.S_ISDIR(mode) or (not mode and text.endswith("/")):
        raise StoreError(f"--db {show(path)} is a folder; pass a file in it: {show(os.path.join(path, STORE_FILE))}")
    if mode and not stat.S_ISREG(mode):
        raise StoreError(f"--db {show(path)} is not a regular file; pass another file")
    return path


def _find_common(git_folder: str) -> str:
    """The common git folder, which a worktree's git folder names in `commondir`; otherwise its own."""
    entry = os.path.join(git_folder, "commondir")
    pointer = read_pointer(entry) if stat.S_ISREG(_read_mode(entry)) else "."
    return os.path.realpath(os.path.join(git_folder, pointer))


def _is_repository(git_folder: str, common: str) -> bool:
    # HEAD may be a symbolic link to a branch without commits.
    parts = (os.path.join(common, part) for part in ("objects", "refs"))
    return os.path.lexists(os.path.join(git_folder, "HEAD")) and all(stat.S_ISDIR(_read_mode(part)) for part in parts)


def _read_core(common: str) -> dict[str, str]:
    """The settings of section `core`; the later file overrides the earlier; `include` is not followed."""
    settings, section = dict[str, str](), ""
    for name in ("config", "config.worktree"):
        try:
            with open(f"{common}/{name}", "rb") as file:
                lines = os.fsdecode(file.read(MAX_CONFIG)).split("\n")
        except OSError:
            continue
        for match in filter(None, (re.match(_SETTING, line) for line in lines)):
            if match[1] is not None:
                section = match[1].strip().lower()
            if match[2] and section == "core":
                settings[match[2].lower()] = (match[3] or "").strip().strip('"').replace("\\\\", "\\")
    return settings


def _describe_broken(entry: str, problem: str) -> StoreError:
    return StoreError(f"{show(entry)} {problem}; repair the repository, or pass a path with --db")


def _read_mode(path: str) -> int:
    """`st_mode` of the path's target; 0 if it does not exist. Raises StoreError if the system does not say."""
    try:
        return os.stat(path).st_mode
    except ValueError:  # a null byte
        return 0
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise StoreError(explain(path, error.errno, "read")) from None
