"""What the machine gives: parsers as pure functions of text, clocks and locks with real processes."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdlog.adapters.operating_system import platform as host

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")

WAL_WRITE_LOCK = 120

MOUNTINFO = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw
41 22 0:51 / /home/ann/team\040share\011\134\043 rw shared:9 master:2 - nfs4 files:/team rw,vers=4.2
42 22 0:60 / /mnt/hidden rw - nfs files:/hidden rw
43 22 8:17 / /mnt rw - xfs /dev/sdb1 rw
44 22 0:70 / /auto rw - autofs auto rw
45 44 0:71 / /auto rw - cifs //files/auto rw
46 22 0:80 /@work /work rw - btrfs /dev/vdb rw,subvol=/@work
47 22 254:0 /srv/one.db /jail/one.db rw - ext4 /dev/vda rw
a line of another shape
"""

LOCKS = """1: POSIX  ADVISORY  READ 100 fe:00:5000 124 124
2: POSIX  ADVISORY  WRITE 200 fe:00:5000 120 120
2: -> POSIX  ADVISORY  WRITE 300 fe:00:5000 120 120
3: FLOCK  ADVISORY  READ 400 fe:00:6000 0 EOF
4: FLOCK  ADVISORY  WRITE 500 fe:00:6000 0 EOF
5: POSIX  ADVISORY  WRITE 600 00:50:5000 100 EOF
6: OFDLCK ADVISORY  WRITE -1 fe:00:7000 0 EOF
7: POSIX  ADVISORY  WRITE 0 fe:00:8000 120 120
8: LEASE  ACTIVE    READ 700 <none>:0 0 EOF
"""
DISK = (0xFE, 0)
SUBVOLUME = (0, 0x50)

HOLD_FLOCK = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""

HOLD_WRITE_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
print("let go", flush=True)
sys.stdin.readline()
"""


@contextmanager
def process(script: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A real child that runs `script`; it ends when its stdin does."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield child


def says(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def kind_of(path: str, device: tuple[int, int] | None = None) -> str | None:
    mount = host.mount_of(path, device, host.parse_mountinfo(MOUNTINFO))
    return mount.fs_type if mount else None


def owner(inode: int, *devices: tuple[int, int], offset: int | None = None) -> int | None:
    return host.owner_among(list(host.parse_locks(LOCKS)), inode, devices, offset)


def test_current_time_is_the_wall_clock_in_microseconds():
    before = time.time_ns() // 1000
    assert before <= host.now() <= time.time_ns() // 1000


def test_steady_clock_is_the_same_in_all_processes():
    before = host.steady()
    with process("from holdlog.adapters.operating_system.platform import steady; print(steady())") as child:
        there = float(says(child))
    assert before <= there <= host.steady()


@linux
def test_boot_id_is_that_of_the_kernel():
    assert len(host.boot_id()) == 36
    assert host.boot_id() == host.boot_id()


def test_mount_of_a_path_is_the_deepest_one_above_it():
    assert kind_of("/etc/passwd") == "ext4"
    assert kind_of("/dev/shm/x/y") == "tmpfs"
    assert kind_of("/dev/shmoo") == "ext4"


def test_octal_escapes_of_mount_points_are_decoded():
    assert kind_of("/home/ann/team share\t\\#/state.db") == "nfs4"


def test_device_number_decides_between_stacked_mounts():
    assert kind_of("/mnt/hidden/state.db", device=(8, 17)) == "xfs"
    assert kind_of("/mnt/hidden/state.db", device=(0, 60)) == "nfs"


def test_later_mount_of_one_point_is_on_top():
    assert kind_of("/auto/state.db") == "cifs"


def test_mount_of_an_unknown_device_is_the_deepest_one():
    assert kind_of("/work/state.db", device=(0, 99)) == "btrfs"


def test_single_file_can_be_a_mount_point():
    assert kind_of("/jail/one.db", device=(254, 0)) == "ext4"


def test_missing_mount_table_gives_no_answer():
    assert host.mount_of("/x", None, host.parse_mountinfo("")) is None


def test_macos_mount_output_is_parsed():
    text = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//ann@files/team on /Volumes/team (new) (smbfs, nodev, nosuid, mounted by ann)\n"
        "map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)\n"
    )
    mounts = host.parse_mount_output(text)
    assert [(mount.point, mount.fs_type) for mount in mounts] == [
        ("/", "apfs"),
        ("/Volumes/team (new)", "smbfs"),
        ("/System/Volumes/Data/home", "autofs"),
    ]


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "fuse.vmhgfs-fuse", "drvfs", "NFS", "ceph"]
)
def test_ambiguous_file_system_type_counts_as_network(kind: str):
    assert host.is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs", "fuseblk", "NTFS", ""])
def test_local_or_unknown_file_system_type_is_not_network(kind: str):
    assert not host.is_network(kind)


@linux
def test_missing_file_is_on_the_file_system_of_its_nearest_parent(tmp_path: Path):
    assert host.file_system(tmp_path / "not" / "yet" / "state.db") == host.file_system(tmp_path) != ""
    assert host.file_system(Path("/proc/self/nothing")) == "proc"


def test_path_that_cannot_exist_has_no_file_system():
    assert host.file_system(Path("nul\0byte")) == ""


def test_writer_at_a_byte_is_found_and_not_readers_or_waiters():
    assert owner(5000, DISK, offset=WAL_WRITE_LOCK) == 200
    assert owner(5000, DISK, offset=124) is None
    assert owner(5000, DISK, offset=121) is None


def test_lock_to_the_end_of_the_file_covers_all_that_follows():
    assert owner(5000, SUBVOLUME, offset=WAL_WRITE_LOCK) == 600
    assert owner(5000, SUBVOLUME, offset=99) is None


def test_flock_counts_only_without_an_offset_and_exclusive_ones_first():
    assert owner(6000, DISK) == 500
    assert owner(6000, DISK, offset=WAL_WRITE_LOCK) is None


def test_first_device_that_knows_the_inode_decides():
    assert owner(5000, (0, 0x99), SUBVOLUME, offset=WAL_WRITE_LOCK) == 600
    assert owner(5000, DISK, SUBVOLUME, offset=WAL_WRITE_LOCK) == 200
    assert owner(5000, (0, 0x99)) is None


def test_pid_of_another_namespace_is_unknown():
    assert owner(7000, DISK) is None
    assert owner(8000, DISK, offset=WAL_WRITE_LOCK) is None


@linux
def test_process_that_holds_a_flock_is_named_until_it_ends(tmp_path: Path):
    gate = tmp_path / "state.db.gate"
    with process(HOLD_FLOCK, gate) as child:
        assert says(child) == "held"
        assert host.lock_owner(gate) == child.pid
        assert host.lock_owner(gate, WAL_WRITE_LOCK) is None
        assert host.process_name(child.pid)
    assert host.lock_owner(gate) is None
    assert host.process_name(child.pid) is None


@linux
def test_process_that_writes_to_sqlite_is_named_until_it_commits(tmp_path: Path):
    db, shm = tmp_path / "state.db", tmp_path / "state.db-shm"
    with sqlite3.connect(db) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t(x)")
    with process(HOLD_WRITE_LOCK, db) as child:
        assert says(child) == "held"
        assert host.lock_owner(shm, WAL_WRITE_LOCK) == child.pid
        go_on(child)
        assert says(child) == "let go"
        assert host.lock_owner(shm, WAL_WRITE_LOCK) is None
    connection.close()


@linux
def test_looking_up_a_lock_owner_keeps_the_locks_of_this_process(tmp_path: Path):
    db, shm = tmp_path / "state.db", tmp_path / "state.db-shm"
    connection = sqlite3.connect(db, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    assert host.lock_owner(shm, WAL_WRITE_LOCK) == os.getpid()
    assert host.lock_owner(db) == os.getpid()
    assert host.lock_owner(shm, WAL_WRITE_LOCK) == os.getpid()
    connection.close()


def test_missing_file_has_no_lock_owner(tmp_path: Path):
    assert host.lock_owner(tmp_path / "nothing") is None
    assert host.lock_owner(Path("nul\0byte")) is None


@linux
def test_processes_of_one_machine_share_the_network_namespace():
    with process("import os; print(os.stat('/proc/self/ns/net').st_ino)") as child:
        assert int(says(child)) == host.network_namespace() > 0


@linux
def test_process_name_cannot_contain_control_characters():
    script = "open('/proc/self/comm', 'w').write('a\\n\\x1b[31mb\\u202ec'); print('ready', flush=True); input()"
    with process(script) as child:
        assert says(child) == "ready"
        assert host.process_name(child.pid) == "a[31mbc"
        go_on(child)


@linux
def test_unknown_pid_has_no_process_name():
    assert host.process_name(0) is None
    assert host.process_name(-1) is None
