"""Files and folders that only this user may access (docs/decisions/0032-private-files.md).

On a system without numeric users (Windows), only links and types are checked.
"""

import errno
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from holdlog.adapters.operating_system.location import shown, user_name
from holdlog.adapters.operating_system.platform import file_system
from holdlog.domain.refusals import StoreError

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
"""Flag for `os.open`: a planted symbolic link must not redirect to another file."""

_SUFFIXES: Final = ("-wal", "-shm", "-journal", ".gate", ".bells", ".sessions", ".spaces", ".hooks")
"""Name suffixes of files and folders next to a store. Those of relays and backups vary; they are checked where they are
used."""
_WITHOUT_OWNERS: Final = frozenset({"vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk"})
"""File systems that give every file the owner and mode of their mount: chown and chmod have no effect there."""


class _Entry(NamedTuple):
    path: Path
    status: os.stat_result

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.st_mode)


def require_own(path: Path) -> None:
    """Require that the store `path`, its folder and its side files belong to this user, and that no side file is a
    symbolic link, a pipe or a device. Raises StoreError."""
    _require_safe_folder(path.parent, "" if os.path.lexists(path) else "use --db with a path in a folder of your own, ")
    entries = list(_entries(path))
    for entry in entries:
        if entry.path != path:
            _require_no_link(entry)
        _require_plain(entry)
    _require_mine([entry for entry in entries if not _is_mine(entry)])


def why_open(path: Path) -> StoreError | None:
    """The error to raise if others may read or write the store `path` or its side files; None if they may not."""
    return _why_open([entry for entry in _entries(path) if _is_open(entry)])


def make_private_folder(folder: Path) -> None:
    """Create a folder of side files if it is missing. Raises OSError, and StoreError in the same cases as
    `require_private`."""
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        require_private(folder)
    else:
        folder.chmod(FOLDER_MODE)  # the umask may have cleared bits


def require_private(path: Path) -> None:
    """Require that only this user can access `path`. Raises StoreError for a symbolic link, another user's file, and a
    file that others may access. A missing path is accepted."""
    if (entry := _entry(path)) is not None:
        _require_no_link(entry)
        _require_mine([entry] if not _is_mine(entry) else [])
        if (refusal := _why_open([entry] if _is_open(entry) else [])) is not None:
            raise refusal


def is_private(path: Path) -> bool:
    """Whether `require_private` accepts the path."""
    try:
        require_private(path)
    except StoreError:
        return False
    return True


def open_private(path: Path, flags: int) -> int:
    """Open a side file, creating it with mode 0600 whatever the umask; does not follow a link. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | NOFOLLOW, FILE_MODE)
    try:
        if _has_users() and stat.S_IMODE(os.fstat(descriptor).st_mode) & FILE_MODE != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def new_private_file(path: Path, replaces: bool = False) -> Iterator[BinaryIO]:
    """A new file with mode 0600. It appears at `path`, complete and synced, when the block ends without an error.
    Raises FileExistsError if there is anything at `path`, which `replaces` replaces instead; OSError."""
    from tempfile import mkstemp

    if not replaces and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    descriptor, partial = mkstemp(prefix=".holdlog-", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        try:
            (os.replace if replaces else os.link)(partial, path)  # a link never replaces a file
        except FileExistsError:
            raise
        except OSError:  # this file system has no hard links
            os.rename(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    with suppress(OSError):  # Windows cannot open folders
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _entries(path: Path) -> Iterator[_Entry]:
    for suffix in ("", *_SUFFIXES):
        if (entry := _entry(path.with_name(path.name + suffix))) is not None:
            yield entry


def _entry(path: Path) -> _Entry | None:
    try:
        return _Entry(path, os.lstat(path))
    except OSError:
        return None


def _require_safe_folder(folder: Path, other: str) -> None:
    """Require that no other user may rename files in the folder: they could replace the store. `other`: what else a
    user can do if there is no store yet."""
    try:
        entry = _Entry(folder, os.stat(folder))
    except OSError:
        return
    if not _is_mine(entry) and entry.status.st_uid != 0:
        problem = f"belongs to another user {_users(entry)}"
    elif _has_users() and entry.mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        problem = f"can be written by every user (mode {entry.mode:04o})"
    else:
        return
    if not _lacks_owners(folder):
        name = shlex.quote(shown(folder))
        raise StoreError(
            f"{shown(folder)} {problem}; {other or _as_owner(entry)}or run: "
            f"{_sudo([entry])}chown {os.geteuid()} {name} && {_sudo([entry])}chmod go-w {name}"
        )


def _require_no_link(entry: _Entry) -> None:
    if stat.S_ISLNK(entry.status.st_mode):
        raise StoreError(f"{shown(entry.path)} is a symbolic link, which holdlog does not follow; remove it")


def _require_plain(entry: _Entry) -> None:
    """Opening a pipe blocks."""
    if not (stat.S_ISREG(entry.status.st_mode) or stat.S_ISDIR(entry.status.st_mode)):
        raise StoreError(f"{shown(entry.path)} is neither a file nor a folder; remove it")


def _require_mine(strangers: Sequence[_Entry]) -> None:
    if strangers and not _lacks_owners(strangers[0].path):
        raise StoreError(
            f"{shown(strangers[0].path)} belongs to another user {_users(strangers[0])}; "
            f"{_as_owner(strangers[0])}or, if you trust what that user wrote, run: {_commands(strangers)}"
        )


def _why_open(entries: Sequence[_Entry]) -> StoreError | None:
    if not entries or _lacks_owners(entries[0].path):
        return None
    name, mode = shown(entries[0].path), entries[0].mode
    return StoreError(f"{name} is open to other users (mode {mode:04o}); run: {_commands(entries)}")


def _commands(entries: Sequence[_Entry]) -> str:
    """The two commands that correct all entries."""
    names = " ".join(shlex.quote(shown(entry.path)) for entry in entries)
    return f"{_sudo(entries)}chown -R {os.geteuid()} {names} && {_sudo(entries)}chmod -R go-rwx {names}"


def _sudo(entries: Sequence[_Entry]) -> str:
    return "" if os.geteuid() == 0 or all(map(_is_mine, entries)) else "sudo "


def _users(entry: _Entry) -> str:
    return f"(uid {entry.status.st_uid}; you are uid {os.geteuid()})"


def _as_owner(entry: _Entry) -> str:
    return "" if _is_mine(entry) else f"work as {user_name(entry.status.st_uid)}, "


def _is_mine(entry: _Entry) -> bool:
    return not _has_users() or entry.status.st_uid == os.geteuid()


def _is_open(entry: _Entry) -> bool:
    return _has_users() and entry.mode & 0o077 != 0


def _lacks_owners(path: Path) -> bool:
    return file_system(path) in _WITHOUT_OWNERS


def _has_users() -> bool:
    return hasattr(os, "geteuid")
