"""Locates the store by reading files only (no git process).

Standard library only and quick to import: the hook's fast path uses it.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.platform import file_system, is_network

STORE_FILE = "state.db"
OUR_FOLDER = ".holdlog"
FOLDER_MODE = 0o700
MAX_POINTER_BYTES = 64 * 1024
"""Limit for a `.git` file and a `commondir` file, each of which contains one path."""
CANNOT_WRITE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""How a system refuses to write an existing file: to another user, in a sandbox, on a read-only file system."""
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL})
"""The only errors that mean that nothing exists there. Any other hides a store that others use."""


class GitFolders(NamedTuple):
    """A worktree: the folder with its `.git`, its own git folder, and the one that all its siblings share."""

    folder: Path
    git_folder: Path
    common: Path


class LocationError(ValueError):
    """The store has no usable location. The message is one line with what to do."""


def find_store(db: str | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Absolute path of the SQLite file, symbolic links resolved (all processes must use the same name for its side
    files).

    `db` (the `--db` option) or `HOLDLOG_DB` decides if given. Otherwise, starting from `CLAUDE_PROJECT_DIR` if that
    folder exists, else from `cwd`: the git repository's common folder (one store for all its worktrees), else the
    nearest `.holdlog/` upwards, else the user's state folder. A repository or `.holdlog/` directly in `/` or in the
    home folder is ignored. `GIT_DIR` and related variables are ignored: a git hook must find the same store as every
    other process. Creates nothing; the caller must already have handled URLs and `:memory:`. Raises LocationError.
    """
    explicit = db if db is not None else environ.get("HOLDLOG_DB") or None
    if explicit is not None:
        return _explicit(explicit, "--db" if db is not None else "HOLDLOG_DB", environ, cwd)
    start = start_folder(environ, cwd)
    avoided = avoided_folders(environ)
    git = find_git(start, avoided)
    location = (git.common / "holdlog" if git else own_location(start, avoided)) or state_location(environ)
    return resolved(location / STORE_FILE)


def prepare_folder(path: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Create the folder of the store `path`, mode 0700, if it is missing, and a `.gitignore` in a `.holdlog/` that has
    none. Only that last folder is created, except under the user's state folder, which may be missing as a whole.
    Existing folders keep their modes. Raises LocationError."""
    folder = path.parent
    try:
        for missing in _to_create(folder, environ):
            _make(missing)
        if folder.name == OUR_FOLDER:
            _ignore_in_git(folder)
    except OSError as error:
        advice = "" if error.errno in CANNOT_WRITE else "; use --db with another path"
        raise LocationError(f"folder {explain(folder, 'prepared', error)}{advice}") from error


def is_there(path: Path) -> bool:
    """Whether there is anything at the path. Raises LocationError if the system does not say."""
    return _status(path, os.lstat) is not None


def explain(path: Path, verb: str, error: OSError) -> str:
    """Explain in one line why an existing path cannot be `verb` (read, written): whose it is, and what to do. The
    advice is never another store, which nobody else uses."""
    problem = f"{shown(path)} cannot be {verb} ({_why(error)})"
    entry = next((it for it in (path, *path.parents) if os.path.lexists(it)), path)
    sandbox = (
        f"in a sandbox, allow {'writes' if verb in ('written', 'created', 'prepared') else 'access'} to {shown(entry)}"
    )
    if error.errno not in CANNOT_WRITE:
        return problem
    if error.errno == errno.EROFS or not hasattr(os, "geteuid"):
        return f"{problem}; {sandbox}"
    status, user = os.lstat(entry), os.geteuid()
    if status.st_uid != user:
        owner = user_name(status.st_uid)
        return f"{problem}: {shown(entry)} belongs to {owner}, and you are {user_name(user)}; ask {owner} for access"
    rights = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
    if status.st_mode & rights != rights:
        import shlex  # only a refusal needs it

        change = f"u+{'rwx' if rights == 0o700 else 'rw'} {shlex.quote(shown(entry))}"
        return f"{problem}: its mode is {stat.S_IMODE(status.st_mode):04o}; run: chmod {change}"
    return f"{problem}; {sandbox}"


def user_name(uid: int) -> str:
    """Describe a user, as `ann (uid 1000)`."""
    try:
        import pwd

        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except (ImportError, KeyError):  # a container may have users without names
        return f"uid {uid}"


def require_local(path: Path, fs_type: str | None = None) -> None:
    """Raise LocationError if `path` is, or would be, on a network file system. `fs_type`: its type if known."""
    kind = file_system(path) if fs_type is None else fs_type
    if is_network(kind):
        raise LocationError(
            f"{shown(path)} is on a network file system ({kind}), where SQLite's WAL corrupts; "
            "use --db with a path on a local disk, or PostgreSQL"
        )


def shown(path: Path | str) -> str:
    """Format a path for a one-line message: unprintable characters become `?`."""
    return "".join(character if character.isprintable() else "?" for character in str(path))


def _explicit(text: str, option: str, environ: Mapping[str, str], cwd: Path) -> Path:
    if not text.strip():
        raise LocationError(f"{option} is empty; pass a file, such as {option} ./{OUR_FOLDER}/{STORE_FILE}")
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise LocationError(f"{option} contains a control character; pass a file, such as ./{OUR_FOLDER}/{STORE_FILE}")
    path = resolved(cwd / expanded(text, environ))
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFDIR if text.endswith(("/", os.sep)) else stat.S_IFREG
    except OSError as error:
        advice = "" if error.errno in CANNOT_WRITE else "; pass another file"
        raise LocationError(f"{option}: {explain(path, 'read', error)}{advice}") from error
    if stat.S_ISDIR(mode):
        raise LocationError(f"{option} {shown(path)} is a folder; pass a file in it: {shown(path / STORE_FILE)}")
    if not stat.S_ISREG(mode):
        raise LocationError(f"{option} {shown(path)} is not a regular file; pass another file")
    return path


def expanded(text: str, environ: Mapping[str, str]) -> Path:
    """Expand a leading `~` to that home folder. Raises LocationError."""
    path = Path(text)
    if path.parts[:1] == ("~",):
        return _home(environ).joinpath(*path.parts[1:])
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise LocationError(
            f"{shown(path.parts[0])} is not the home of a known user; pass ./{shown(text)} or the absolute path"
        ) from error


def start_folder(environ: Mapping[str, str], cwd: Path) -> Path:
    """The folder in which the agent works: `CLAUDE_PROJECT_DIR` if that is a folder here, else `cwd`; resolved."""
    # A variable passed into a container may name a folder of the host; then the working folder is more reliable.
    project = environ.get("CLAUDE_PROJECT_DIR")
    if project and os.path.isdir(cwd / project):
        return resolved(cwd / project)
    return resolved(cwd)


def avoided_folders(environ: Mapping[str, str]) -> set[Path]:
    """Folders that are never a project: the home folder."""
    try:
        return {resolved(_home(environ))}
    except LocationError:
        return set()  # no home folder: only the state folder needs one, and checks again


def project_root(environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The root of the worktree in which the agent works, else the folder with the nearest `.holdlog/` upwards. Raises
    LocationError."""
    start, avoided = start_folder(environ, cwd), avoided_folders(environ)
    git = find_git(start, avoided)
    own = None if git else own_location(start, avoided)
    return git.folder if git else own.parent if own else None


def find_git(start: Path, avoided: set[Path]) -> GitFolders | None:
    """The nearest worktree upwards of `start`, ignoring one directly in an avoided folder or in `/`.

    Raises LocationError for a `.git` file whose target is missing.
    """
    for folder in _upwards(start, avoided):
        location = git_folders(folder)
        if location is not None and location.common not in avoided and location.common != location.common.parent:
            return location
    return None


def own_location(start: Path, avoided: set[Path]) -> Path | None:
    """The nearest `.holdlog/` upwards of `start`. Raises LocationError."""
    for folder in _upwards(start, avoided):
        if stat.S_ISDIR(_mode(folder / OUR_FOLDER)):
            return folder / OUR_FOLDER
    return None


def state_location(environ: Mapping[str, str]) -> Path:
    """The user's folder for what is not in a project. Raises LocationError if there is no home folder."""
    # The XDG specification says to ignore a relative path.
    configured = environ.get("XDG_STATE_HOME", "")
    state = Path(configured) if os.path.isabs(configured) else _home(environ) / ".local" / "state"
    return state / "holdlog"


def _upwards(start: Path, avoided: set[Path]) -> Iterator[Path]:
    for folder in (start, *start.parents):
        if folder not in avoided and folder != folder.parent:
            yield folder


def git_folders(folder: Path) -> GitFolders | None:
    """The repository whose `.git` is in `folder` (gitrepository-layout(5)), None if there is none.

    Like git, ignores a folder that is not a repository and rejects a file whose target is missing (LocationError).
    Unlike git, rejects a folder that it may not read: the repository may have a store.
    """
    entry = folder / ".git"
    mode = _mode(entry)
    if stat.S_ISDIR(mode):
        common = _common_of(entry)
        return GitFolders(folder, resolved(entry), common) if _is_repository(entry, common) else None
    if not stat.S_ISREG(mode):
        return None
    pointer = pointer_in(entry)
    if not pointer.startswith("gitdir: "):
        raise _broken(entry, "is not what git writes")
    git_folder = entry.parent / pointer.removeprefix("gitdir: ")
    common = _common_of(git_folder)
    if not _is_repository(git_folder, common):
        raise _broken(entry, "does not lead to a git repository")
    return GitFolders(folder, resolved(git_folder), common)


def has_store(root: Path) -> bool:
    """Whether a folder is the root of a repository with a store."""
    try:
        git = git_folders(root)
    except LocationError:
        return False
    return git is not None and os.path.lexists(git.common / "holdlog" / STORE_FILE)


def _common_of(git_folder: Path) -> Path:
    """The common git folder, which a worktree's git folder names in `commondir`. A repository's or submodule's is its
    own."""
    entry = git_folder / "commondir"
    return resolved(git_folder / pointer_in(entry)) if stat.S_ISREG(_mode(entry)) else resolved(git_folder)


def _is_repository(git_folder: Path, common: Path) -> bool:
    # HEAD may be a symbolic link to a branch without commits.
    return is_there(git_folder / "HEAD") and all(stat.S_ISDIR(_mode(common / part)) for part in ("objects", "refs"))


def pointer_in(entry: Path) -> str:
    """The single line of a file in which git stores a path. Raises LocationError."""
    try:
        with entry.open("rb") as file:
            content = file.read(MAX_POINTER_BYTES + 1)
    except OSError as error:
        raise _broken(entry, f"cannot be read ({_why(error)})") from error
    if len(content) > MAX_POINTER_BYTES or b"\0" in content:
        raise _broken(entry, "is not what git writes")
    return os.fsdecode(content).rstrip("\r\n")


def _broken(entry: Path, problem: str) -> LocationError:
    return LocationError(f"{shown(entry)} {problem}; repair the repository, or pass a path with --db")


def _to_create(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    missing = []
    for level in (folder, *folder.parents):
        mode = _mode(level)
        if stat.S_ISDIR(mode):
            break
        if mode:
            raise LocationError(f"{shown(level)} is not a folder; use --db with a path in a folder")
        missing.append(level)
    if len(missing) > 1 and folder != resolved(state_location(environ)):
        raise LocationError(f"folder {shown(missing[1])} does not exist; create it, or use --db with another path")
    return missing[::-1]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        folder.mkdir(FOLDER_MODE, exist_ok=True)  # another process may have created it; raises for a file
    else:
        folder.chmod(FOLDER_MODE)  # the umask may have cleared bits


def _ignore_in_git(folder: Path) -> None:
    try:
        with (folder / ".gitignore").open("x", encoding="ascii") as file:
            file.write("*\n")
    except OSError:  # it exists, or the store is read-only here
        return


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    try:
        return Path(home) if home else Path.home()
    except RuntimeError as error:
        raise LocationError("there is no home folder; set HOME, or use --db with a path") from error


def resolved(path: Path) -> Path:
    """The absolute path without symbolic links. Raises LocationError."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise LocationError(f"{shown(path)} cannot be resolved; use --db with another path") from error


def _mode(path: Path) -> int:
    """`st_mode` of the path's target; 0 if it does not exist. Raises LocationError if the system does not say."""
    status = _status(path, os.stat)
    return 0 if status is None else status.st_mode


def _status(path: Path, read: Callable[[Path], os.stat_result]) -> os.stat_result | None:
    try:
        return read(path)
    except ValueError:  # a null byte
        return None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise LocationError(explain(path, "read", error)) from error


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def is_url(location: str) -> bool:
    """Whether the text is meant as a database URL, even with slashes missing: it may contain a password."""
    return "://" in location or location.startswith(("postgresql:", "postgres:"))


def without_password(location: Path | str) -> str:
    """Format a store's location for people, without its password."""
    if isinstance(location, Path):
        return str(location)
    bare = re.sub(r"^(\w+:/*[^:/@]*):.*@", r"\1@", location, flags=re.DOTALL)  # up to the last @, encoded or not
    return re.sub(r"([?&]\w*(?:password|secret)=)[^&]*", r"\1", bare)
