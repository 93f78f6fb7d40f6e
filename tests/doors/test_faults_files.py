"""Which files the library opens: those on a local disk that this user alone can change; others are refused in one line
that says what to do. A store that cannot be written can be read."""

import os
import subprocess
import sys

import pytest

import holdlog
from tests.support.programs import environment, python
from tests.support.soundness import require_sound

STRANGER = 65_534
SIDE_FILE = "state.db.lock"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts and files of others")


def refusal_of(path):
    with pytest.raises(holdlog.StoreError) as refusal:
        holdlog.StateStore(path)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.fixture
def closed(db):
    holdlog.StateStore(db).close()
    return db


def in_mounts(prepare, program, *arguments):
    """The lines of a program that sees other mounts: `prepare` is a shell command whose $0 is the first argument."""
    command = ["unshare", "-m", "sh", "-c", prepare + ' && exec "$@"', arguments[0], sys.executable, "-c", program]
    done = subprocess.run(
        [*command, *arguments], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


OPENS = """
import sys, holdlog
try:
    holdlog.StateStore(sys.argv[1]).close()
    print("opened")
except holdlog.StoreError as error:
    print(error)
"""


# --- where it is


@as_root
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_store_on_a_network_file_system_is_refused(tmp_path, kind):
    """The system's list of mounts says so of the folder."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path}/far\\040away rw - {kind} server:/ rw\n")
    (tmp_path / "far away").mkdir()
    here = f"mount --bind {mounts} /proc/$$/mountinfo"
    (line,) = in_mounts(here, OPENS, tmp_path / "far away/state.db")
    assert kind.removeprefix("fuse.") in line
    assert "local disk" in line
    assert list((tmp_path / "far away").iterdir()) == []
    assert in_mounts(here, OPENS, tmp_path / "near.db") == ["opened"]


@as_root
def test_file_that_is_mounted_alone_is_refused(closed):
    (line,) = in_mounts('mount --bind "$0" "$0"', OPENS, closed)
    assert str(closed) in line
    assert "mount its folder" in line


def test_windows_is_refused_in_one_line():
    program = (
        "import sys, sysconfig, asyncio, pydantic, holdlog; sysconfig.get_config_vars(); sys.platform = 'win32'\n"
        "try: holdlog.StateStore\nexcept ImportError as error: print(error)"
    )
    (line,) = python(program)
    assert "Windows" in line
    assert "WSL" in line


# --- whose it is


@pytest.mark.parametrize("name", ["state.db", SIDE_FILE])
def test_store_that_others_may_read_is_refused_until_its_mode_is_repaired(closed, name):
    closed.with_name(name).chmod(0o644)
    message = refusal_of(closed)
    assert str(closed) in message
    subprocess.run(message.partition("run: ")[2], shell=True, check=True)
    require_sound(closed)


@pytest.mark.parametrize("make", [lambda it, to: it.symlink_to(to), lambda it, _: os.mkfifo(it, 0o600)])
@pytest.mark.parametrize("name", ["state.db-wal", SIDE_FILE])
def test_link_or_pipe_in_place_of_a_side_file_is_refused(closed, tmp_path, make, name):
    (tmp_path / "target").write_text("precious")
    closed.with_name(name).unlink(missing_ok=True)
    make(closed.with_name(name), tmp_path / "target")
    assert name in refusal_of(closed)
    assert (tmp_path / "target").read_text() == "precious"


def test_folder_that_every_user_may_write_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    message = refusal_of(shared / "state.db")
    assert "every user" in message
    assert list(shared.iterdir()) == []
    shared.chmod(0o1777)
    holdlog.StateStore(shared / "state.db").close()


@as_root
@pytest.mark.parametrize("name", ["", "state.db", SIDE_FILE])
def test_file_or_folder_of_another_user_is_refused_with_its_owner(closed, name):
    os.chown(closed.parent / name, STRANGER, STRANGER)
    assert f"uid {STRANGER}" in refusal_of(closed)


# --- a store that can be read only

READS = """
import asyncio, sys, holdlog
async def read():
    # not on the event loop, as it may sleep
    reading = asyncio.ensure_future(holdlog.AsyncStateStore(sys.argv[1]).get("n", "k"))
    await asyncio.sleep(0)
    assert not reading.done()
    return (await reading).value
store = holdlog.StateStore(sys.argv[1])
print(store.get("n", "k").value, store.history("n", "k")[0].value, store.list_keys("n")[0].value, asyncio.run(read()))
print(store.watch("n", "k", 0).version, store.watch("n", "k", 1, timeout_seconds=0.1).status)
try: store.set("n", "k", 2, updated_by="ann")
except holdlog.UnavailableError as error: print(error)
store.close()
"""


@as_root
@pytest.mark.parametrize("state", ["closed", "crashed", "open"])
def test_store_on_a_read_only_mount_is_read_and_refuses_writes(tmp_path, worker, state):
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    process = worker("serve", folder / "state.db")
    process.hear()
    process.call("set", "n", "k", 1, updated_by="ann")
    if state == "crashed":
        process.kill()
    elif state == "closed":
        process.process.stdin.close()
        process.rest()
    before = sorted(folder.iterdir())
    read_only = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    reads, watches, refusal = in_mounts(read_only, READS, folder / "state.db")
    assert (reads, watches) == ("1 1 1 1", "1 timeout")
    assert "Read-only file system" in refusal
    assert sorted(folder.iterdir()) == before


# --- a lock file that is removed


def test_writes_go_on_when_the_file_of_the_write_lock_is_removed(db, worker):
    """The next process locks a new file, which the others do not know yet."""
    with holdlog.StateStore(db) as store:
        process = worker("serve", db)
        process.hear()
        for number in range(1, 30, 3):
            assert store.set("n", "k", 0, updated_by="ann").version == number
            db.with_name(SIDE_FILE).unlink(missing_ok=True)
            with holdlog.StateStore(db) as newer:
                assert newer.set("n", "k", 0, updated_by="cat").version == number + 1
            assert process.call("set", "n", "k", 0, updated_by="ben")["version"] == number + 2
    require_sound(db)
