"""Operating system facts: clocks, boot id, file system types, owners of file locks.

Standard library only and quick to import: the hook's fast path uses it. Linux is tested; macOS and Windows are written
from their manuals and untested. If the system does not provide a fact, the result is empty, never an exception.
"""

import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MACOS_COMMAND_SECONDS = 5.0

_REMOTE = ("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "ncp", "ncpfs", "afs", "coda")
_WEB = ("webdav", "davfs", "davfs2", "sshfs", "rclone", "s3fs", "gcsfuse", "juicefs")
_GUEST = ("virtiofs", "9p", "drvfs", "vboxsf", "prl_fs", "vmhgfs", "vmhgfs-fuse", "fakeowner", "grpcfuse", "osxfs")
_CLUSTER = ("ceph", "ceph-fuse", "glusterfs", "lustre", "beegfs", "gpfs", "gfs2", "ocfs2", "orangefs", "pvfs2")
_NETWORK = frozenset((*_REMOTE, *_WEB, *_GUEST, *_CLUSTER))

Device = tuple[int, int]
"""Major and minor number of a device."""


class Mount(NamedTuple):
    """One line of /proc/self/mountinfo, or of the output of `mount` on macOS (device unknown: None)."""

    point: str
    fs_type: str
    device: Device | None


def now() -> int:
    """Wall clock, microseconds since 1970 in UTC. It may jump, also backwards."""
    return time.time_ns() // 1000


def steady() -> int:
    """Microseconds of a clock that never goes backwards, has one value in all processes of a boot, and stops while the
    machine sleeps (on systems other than Linux and macOS it may run on in sleep). Compare only within one
    `boot_id()`."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    if sys.platform == "darwin":
        return time.clock_gettime_ns(time.CLOCK_UPTIME_RAW) // 1000
    return time.monotonic_ns() // 1000


def elapsed() -> int:
    """Microseconds since some past moment; keeps running while the machine sleeps, if the system has such a clock."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def boot_id() -> str:
    """A text that changes with every boot of the kernel, "" if the machine provides none."""
    if sys.platform == "linux":
        return _proc("/proc/sys/kernel/random/boot_id").strip()
    if sys.platform == "darwin":
        return _macos_output("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid").strip()
    return ""


def file_system(path: Path) -> str:
    """Type of the file system (`ext4`, `nfs4`, ...) that holds `path` or its nearest existing parent, "" if unknown."""
    mount = _mount(path)
    return mount.fs_type if mount else ""


def is_mount_point(path: Path) -> bool:
    """Whether something is mounted at exactly this path; a single file can be (`docker -v file:file`). Linux only."""
    mount = _mount(path) if sys.platform == "linux" else None
    return mount is not None and mount.point == str(path)


def is_network(fs_type: str) -> bool:
    """Whether files of this type may be shared with another kernel: SQLite's WAL needs memory that all its users share,
    which network, cluster and host-to-guest file systems lack or fake (sqlite.org/wal.html). Unknown types count as
    local."""
    return fs_type.lower().removeprefix("fuse.") in _NETWORK


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts in /proc/self/mountinfo (proc_pid_mountinfo(5)), in its order. Skips malformed lines."""
    mounts = []
    for line in text.splitlines():
        mount, separator, origin = line.partition(" - ")
        fields, kinds = mount.split(" "), origin.split(" ")
        if separator and len(fields) >= 5 and (device := _device(fields[2])):
            mounts.append(Mount(_unescaped(fields[4]), _unescaped(kinds[0]), device))
    return mounts


def parse_mount_output(text: str) -> list[Mount]:
    """The mounts that `mount` prints on macOS: `<what> on <point> (<type>, <options>)`."""
    found = re.finditer(r"^.*? on (/.*) \(([^,()]+)[^()]*\)$", text, re.MULTILINE)
    return [Mount(match[1], match[2], None) for match in found]


def mount_of(path: str, device: Device | None, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that holds the absolute, resolved `path`. Among mounts above it, prefers those on `device` (a mount may
    be hidden under a later one), then the deepest, then the last mounted. None if none is above it."""
    best: Mount | None = None
    for mount in mounts:
        if PurePosixPath(path).is_relative_to(mount.point) and (
            best is None or _nearness(mount, device) >= _nearness(best, device)
        ):
            best = mount
    return best


def network_namespace() -> int:
    """Inode of this process's network namespace, equal for processes that share loopback. 0 if there are none."""
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


def process_name(pid: int) -> str | None:
    """Short name of a process, printable characters only; None if it has exited or cannot be determined. A process
    chooses its own name: display it, never decide by it."""
    name = "".join(character for character in _proc(f"/proc/{pid:d}/comm") if character.isprintable())
    return name.strip() or None


def _mount(path: Path) -> Mount | None:
    try:
        resolved = os.path.realpath(path)
        if sys.platform == "linux":
            return mount_of(resolved, _device_of_nearest(resolved), parse_mountinfo(_proc("/proc/self/mountinfo")))
        if sys.platform == "darwin":
            return mount_of(resolved, None, parse_mount_output(_macos_output("/sbin/mount")))
    except (OSError, ValueError):
        return None
    return None


def _device_of_nearest(resolved: str) -> Device | None:
    if sys.platform == "win32":
        return None
    for folder in (resolved, *map(str, PurePosixPath(resolved).parents)):
        try:
            number = os.stat(folder).st_dev
        except OSError:
            continue
        return os.major(number), os.minor(number)
    return None


def _nearness(mount: Mount, device: Device | None) -> tuple[bool, int]:
    return device is not None and mount.device == device, len(mount.point)


def _device(text: str) -> Device | None:
    major, _, minor = text.partition(":")
    try:
        return int(major), int(minor)
    except ValueError:
        return None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _proc(name: str) -> str:
    try:
        return os.fsdecode(Path(name).read_bytes())
    except OSError:
        return ""


def _macos_output(*command: str) -> str:
    import subprocess  # only macOS needs this import

    try:
        done = subprocess.run(command, capture_output=True, timeout=MACOS_COMMAND_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return os.fsdecode(done.stdout)
