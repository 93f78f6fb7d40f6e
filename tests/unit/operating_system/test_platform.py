"""What the machine gives: parsers as pure functions of text, and clocks with real processes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdlog.adapters.operating_system import platform as host

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")

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
