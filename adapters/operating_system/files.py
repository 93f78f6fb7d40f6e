"""Files that only this user may access, and why one cannot be read or written."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

FILE_MODE: Final = 0o600
CANNOT_WRITE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
"""How a system refuses to write a file: to another user, in a sandbox, on a read-only file system."""


def is_missing(path: str) -> bool:
    """False if it cannot be known: opening the file will raise the reason."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def open_private(path: str, flags: int = 0) -> int:
    """Open a file for reading and writing, creating it with mode 0600 whatever the umask; never follows a link, which
    another user may have planted. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, FILE_MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & FILE_MODE != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def create_private(path: str) -> Iterator[str]:
    """The name of an empty file with mode 0600, which gets the name `path` when the block has written all of it: a
    crash leaves no half of it there, and no file of another is replaced. Raises OSError."""
    part = f"{path}.{os.urandom(4).hex()}.part"
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    os.close(open_private(part, os.O_EXCL))
    try:
        yield part
        sync(part)
        try:
            os.link(part, path)
        except FileExistsError:
            raise
        except OSError:  # some file systems have no links
            os.rename(part, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    sync(os.path.dirname(path) or ".")


def sync(path: str) -> None:
    """Make a file or folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(path: str) -> bool:
    """Whether the disk of a file has less than the 32 kB that SQLite needs to open its write-ahead log."""
    disk = os.statvfs(os.path.dirname(path) or ".")
    return disk.f_bavail * disk.f_frsize < 32_768


def explain_read_only(path: str) -> str | None:
    """Why this process cannot write an existing store, in one line; None if it can. SQLite writes in its folder."""
    for name in (path, f"{path}.lock", os.path.dirname(path)):
        if os.path.lexists(path) and os.path.lexists(name) and not os.access(name, os.W_OK, effective_ids=True):
            is_mounted_so = os.statvfs(name).f_flag & os.ST_RDONLY
            return explain(name, errno.EROFS if is_mounted_so else errno.EACCES)
    return None


def explain(path: str, code: int | None, verb: str = "written") -> str:
    """Why a path cannot be written or read, in one line, and what to do: never to use another store, which would be
    empty."""
    problem = f"{show(path)} cannot be {verb} ({os.strerror(code or 0)})"
    if code not in CANNOT_WRITE:
        return problem
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    status, user = os.stat(path, follow_symlinks=False), os.geteuid()
    if code != errno.EROFS and status.st_uid != user:
        return (
            f"{problem}: {show(path)} belongs to uid {status.st_uid}, and you are uid {user}; ask its owner for access"
        )
    if code != errno.EROFS and status.st_mode & FILE_MODE != FILE_MODE:
        return f"{problem}; run: chmod u+rwX {quote([path])}"
    return f"{problem}; in a sandbox, allow access to {show(path)}"


def format_duration(seconds: float) -> str:
    """How long something lasts, never negative."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def escape(text: str, allowed: str = "\n") -> str:
    """Escape, as in JSON, all characters that a terminal could interpret, except those in `allowed`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in allowed else json.dumps(each)[1:-1] for each in text)


def show(path: str) -> str:
    """A path for a message of one line."""
    return "".join(character if character.isprintable() else "?" for character in path)


def quote(paths: list[str]) -> str:
    """Paths as arguments of a shell command."""
    import shlex

    return " ".join(shlex.quote(show(path)) for path in paths)
