"""Where a store may be: on a local file system, in files and a folder that no other user can change. Where the system
does not report a fact, its check passes."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.files import explain, quote, show
from holdlog.domain.refusals import StoreError

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


class Mount(NamedTuple):
    """Where a file system is mounted; its type, such as `ext4`."""

    point: str = ""
    kind: str = ""
    device: str = ""


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
            raise StoreError(
                f"{show(strangers[0])} belongs to uid {entries[strangers[0]].st_uid}, and you are uid {os.geteuid()};"
                f" work as its owner, or, if you trust it, run as root: chown {os.geteuid()} {quote(strangers)}"
            )


def explain_exposed(path: str) -> str | None:
    """Why other users may read or write the store or its side files, in one line; None if they may not."""
    exposed = {name: status for name, status in _list_entries(path).items() if status.st_mode & 0o077}
    if not exposed or find_mount(path).kind in _WITHOUT_OWNERS:
        return None
    name, status = next(iter(exposed.items()))
    mode = stat.S_IMODE(status.st_mode)
    return f"{show(name)} is open to other users (mode {mode:04o}); run: chmod go-rwx {quote(list(exposed))}"


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
        raise StoreError(f"{show(folder)} belongs to uid {status.st_uid}; use a path in a folder of your own")
    if status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        raise StoreError(
            f"{show(folder)} can be written by every user (mode {stat.S_IMODE(status.st_mode):04o}); use a path in a"
            f" folder of your own, or run: chmod go-w {quote([folder])}"
        )
