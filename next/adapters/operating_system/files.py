"""Files that only this user may access, and the file systems under them. Where the system does not provide a fact, a
check passes."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from holdlog.domain.refusals import StoreError

FILE_MODE: Final = 0o600
SIDE_FILES: Final = ("-wal", "-shm", "-journal", ".lock")
"""Endings of the files next to a store: those of SQLite, and the write lock."""
_NETWORK: Final = (
    *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "ncp", "ncpfs", "afs", "coda"),
    *("webdav", "davfs", "davfs2", "sshfs", "rclone", "s3fs", "gcsfuse", "juicefs"),
    *("virtiofs", "9p", "drvfs", "vboxsf", "prl_fs", "vmhgfs", "vmhgfs-fuse", "fakeowner", "grpcfuse", "osxfs"),
    *("ceph", "ceph-fuse", "glusterfs", "lustre", "beegfs", "gpfs", "gfs2", "ocfs2", "orangefs", "pvfs2"),
)
"""File systems that another kernel may share, without the memory that a WAL needs (https://www.sqlite.org/wal.html)."""
_WITHOUT_OWNERS: Final = ("vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk")
"""File systems that give every file the owner and mode of their mount."""
CANNOT_WRITE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
"""How a system refuses to write a file: to another user, in a sandbox, on a read-only file system."""


class Mount(NamedTuple):
    """Where a file system is mounted; its type, such as `ext4`."""

    point: str = ""
    kind: str = ""
    device: str = ""


def open_private(path: str, flags: int = 0) -> int:
    """Open a file for reading and writing, creating it with mode 0600 whatever the umask; never follows a link, which
    somebody may have planted. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, FILE_MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & FILE_MODE != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_usable(path: str) -> None:
    """Require that a store can be at this path, which has no links: on a local disk, in a folder that no other user can
    change, under one name, with files that are this user's. Raises StoreError."""
    mount, folder = find_mount(path), os.path.dirname(path)
    try:
        os.stat(folder)
        entries = _list_entries(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"the folder {show(folder)} does not exist; create it, or use another path") from None
    except OSError as error:
        raise StoreError(explain(path, error.errno, "read")) from None
    if mount.kind.lower().removeprefix("fuse.") in _NETWORK:
        raise StoreError(
            f"{show(path)} is on a network file system ({mount.kind}), where SQLite's write-ahead log corrupts; use a"
            " path on a local disk, or PostgreSQL"
        )
    for name, status in entries.items():
        _require_plain(name, status)
    if path in entries and entries[path].st_nlink > 1:
        raise StoreError(f"{show(path)} has {entries[path].st_nlink} names (hard links), whose logs differ; keep one")
    if mount.point == path:
        raise StoreError(f"{show(path)} is mounted as a single file, without its write-ahead log; mount its folder")
    if mount.kind not in _WITHOUT_OWNERS:
        _require_safe_folder(folder)
        if strangers := [name for name, status in entries.items() if status.st_uid != os.geteuid()]:
            owner = describe_user(entries[strangers[0]].st_uid)
            raise StoreError(
                f"{show(strangers[0])} belongs to {owner}, and you are {describe_user(os.geteuid())}; work as {owner},"
                f" or, if you trust what that user wrote, run: {_commands(strangers, 'go-rwx')}"
            )


def explain_exposed(path: str) -> str | None:
    """Why other users may read or write the store or its side files, in one line; None if they may not."""
    exposed = {name: status for name, status in _list_entries(path).items() if status.st_mode & 0o077}
    if not exposed or find_mount(path).kind in _WITHOUT_OWNERS:
        return None
    name, status = next(iter(exposed.items()))
    mode, commands = stat.S_IMODE(status.st_mode), _commands(list(exposed), "go-rwx")
    return f"{show(name)} is open to other users (mode {mode:04o}); run: {commands}"


def explain_read_only(path: str) -> str | None:
    """Why this process cannot write an existing store, in one line; None if it can. SQLite writes in its folder."""
    for name in (path, f"{path}.lock", os.path.dirname(path)):
        if os.path.lexists(path) and os.path.lexists(name) and not os.access(name, os.W_OK, effective_ids=True):
            is_mounted_so = os.statvfs(name).f_flag & os.ST_RDONLY
            return explain(name, errno.EROFS if is_mounted_so else errno.EACCES)
    return None


def explain(path: str, code: int | None, verb: str = "written") -> str:
    """Why a path cannot be written or read, in one line, and what to do: never another store, which nobody else
    uses."""
    problem = f"{show(path)} cannot be {verb} ({os.strerror(code or 0)})"
    if code not in CANNOT_WRITE:
        return problem
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    status, user = os.stat(path, follow_symlinks=False), os.geteuid()
    if code != errno.EROFS and status.st_uid != user:
        owner = describe_user(status.st_uid)
        return f"{problem}: {show(path)} belongs to {owner}, and you are {describe_user(user)}; ask {owner} for access"
    if code != errno.EROFS and status.st_mode & FILE_MODE != FILE_MODE:
        return f"{problem}; run: chmod u+rwX {_quote([path])}"
    return f"{problem}; in a sandbox, allow access to {show(path)}"


def show(path: str) -> str:
    """A path for a message of one line."""
    return "".join(character if character.isprintable() else "?" for character in path)


def describe_user(number: int) -> str:
    """A user, as `ann (uid 1000)`."""
    import pwd

    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:  # a container may have users without names
        return f"uid {number}"


def find_mount(path: str) -> Mount:
    """The file system that has, or would have, a path without links. A mount may be hidden under a later one, so the
    path's own device comes first; then the deepest, then the last."""
    best, closest = Mount(), (False, 0)
    try:
        number = os.stat(path if os.path.lexists(path) else os.path.dirname(path)).st_dev
        for mount in _read_mounts():
            closeness = (mount.device == f"{os.major(number)}:{os.minor(number)}", len(mount.point))
            if closeness >= closest and f"{path}/".startswith(mount.point.rstrip("/") + "/"):
                best, closest = mount, closeness
    except (OSError, ValueError):
        return Mount()
    return best


def _read_mounts() -> Iterator[Mount]:
    if sys.platform == "darwin":  # untested
        import re
        import subprocess

        text = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False).stdout
        for match in re.finditer(r"^.*? on (/.*) \(([^,()]+)[^()]*\)$", text, re.MULTILINE):
            yield Mount(match[1], match[2])
        return
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # proc(5)
        for line in file:
            fields, _, kinds = line.partition(" - ")
            _, _, device, _, point = fields.split(" ")[:5]
            for escape in ("\\040", "\\011", "\\012", "\\134"):
                point = point.replace(escape, chr(int(escape[1:], 8)))
            yield Mount(point, kinds.partition(" ")[0], device)


def _list_entries(path: str) -> dict[str, os.stat_result]:
    """The store and its side files, as far as they exist."""
    entries = {}
    for name in (path, *(path + ending for ending in SIDE_FILES)):
        with suppress(FileNotFoundError):
            entries[name] = os.lstat(name)
    return entries


def _require_plain(path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise StoreError(f"{show(path)} is a symbolic link, which holdlog does not follow; remove it")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe blocks
        kind = "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
        raise StoreError(f"{show(path)} {kind}; use another path")


def _require_safe_folder(folder: str) -> None:
    """No other user may rename files in it: that could replace the store."""
    status = os.stat(folder)
    if status.st_uid not in (os.geteuid(), 0):
        problem = f"belongs to {describe_user(status.st_uid)}"
    elif status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        problem = f"can be written by every user (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    commands = _commands([folder], "go-w")
    raise StoreError(f"{show(folder)} {problem}; use a path in a folder of your own, or run: {commands}")


def _commands(paths: list[str], change: str) -> str:
    """What makes these paths this user's own."""
    user = os.geteuid()
    sudo = "" if user == 0 or all(os.lstat(it).st_uid == user for it in paths) else "sudo "
    return f"{sudo}chown {user} {_quote(paths)} && {sudo}chmod {change} {_quote(paths)}"


def _quote(paths: list[str]) -> str:
    import shlex

    return " ".join(shlex.quote(show(it)) for it in paths)
