"""Full disks, I/O errors, and files that are missing, replaced, damaged, foreign or not writable: each refusal is one
line that names its cause, nothing that was acknowledged is lost, and the process writes on."""

import errno
import hashlib
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

import holdlog
from tests.support.faults import CUT, LOCK, NAME, READ, SHIM, SYNC, WRITE
from tests.support.programs import HOLDLOG, environment
from tests.support.soundness import require_acknowledged, require_sound, values_of
from tests.support.waiting import until
from tests.support.work import CLAIMS

PAGE = 4096
ROOT = os.geteuid() == 0


def rest(*values):
    return pytest.param(*values, marks=pytest.mark.rest)


def outcomes(lines):
    """Of the calls of a story, opening and closing included."""
    for line in lines:
        yield next((line[name] for name in ("opening", "claim", "release", "closing", "read") if name in line), line)


def require_honest(lines, kind):
    """Every failure is `unavailable` in one line, or `StoreError` where files cannot be made; the refused calls."""
    refused = [it for it in outcomes(lines) if "error" in it and it["error"] != "NotFoundError"]
    for it in refused:
        assert it["error"] == "UnavailableError" or (kind in (NAME, READ, LOCK) and it["error"] == "StoreError"), it
        assert "\n" not in it["message"]
        assert "damaged" not in it["message"], "one failed read is no damage"
    return refused


def require_refused_is_absent(path, lines):
    with holdlog.StateStore(path) as store:
        require_acknowledged(store, [it for it in lines if it.get("tried") is not None])
        for line in lines:
            if "error" in line and line.get("tried") is not None and not line["in_doubt"]:
                keys = ("a", "b") if line["key"] == "both" else (line["key"],)
                assert not any(line["tried"] in values_of(store, key).values() for key in keys), line


@SHIM
@pytest.mark.parametrize(
    ("kind", "error", "step"),
    [
        (SYNC, errno.EIO, 2),
        (WRITE, errno.ENOSPC, 11),
        *(rest(kind, error, 2) for kind in (WRITE, NAME, CUT, LOCK) for error in (errno.ENOSPC, errno.EIO)),
        rest(SYNC, errno.ENOSPC, 1),
        pytest.param(READ, errno.EIO, 1, marks=pytest.mark.rest),
    ],
)
def test_one_failing_system_call_is_at_most_one_refusal_that_is_true(faults, worker, tmp_path, kind, error, step):
    path = tmp_path / "store" / "state.db"
    forks = worker("forks", path, env=faults.env)
    forks.hear()
    refusals = doubtful = 0
    for number in range(1, 400, step):
        faults.arm(kind, error, number, number)
        lines, status = forks.story(f"story {number}")
        assert status == 0
        refused = require_honest(lines, kind)
        assert len(refused) <= 1, "the calls after the fault go well"
        require_refused_is_absent(path, lines)
        refusals += len(refused)
        doubtful += sum(it["in_doubt"] for it in refused)
        if faults.count < number:
            break
    assert faults.count < number, "the story makes more calls"
    assert refusals or kind in (NAME, CUT), "the faults did not strike"
    assert doubtful or kind != SYNC
    require_sound(path)


@SHIM
def test_write_in_doubt_is_resolved_by_its_request_id(faults, worker, tmp_path):
    path = tmp_path / "store" / "state.db"
    forks = worker("forks", path, env=faults.env)
    forks.hear()
    forks.story("first")
    doubtful = 0
    for number in range(1, 5):
        faults.arm(SYNC, errno.EIO, number, number)
        lines, _ = forks.story(f"story {number}")
        for line in lines:
            if line.get("in_doubt") and "request_id" in line:
                doubtful += 1
                with holdlog.StateStore(path) as store:
                    options = {"updated_by": line["tried"], "request_id": line["request_id"]}
                    again = store.set("n", "k", line["tried"], **options)
                    written = [version for version, it in values_of(store, "k").items() if it == line["tried"]]
                    assert written == [again.version]
    assert doubtful


@SHIM
def test_full_disk_refuses_writes_and_serves_reads_until_there_is_space(faults, worker, tmp_path):
    path = tmp_path / "store" / "state.db"
    process = worker("serve", path, env=faults.env)
    process.hear()
    assert process.call("set", "n", "k", 1, updated_by="ann")["version"] == 1
    faults.arm(WRITE | NAME, errno.ENOSPC)
    for _ in range(3):
        refused = process.call("set", "n", "k", 2, updated_by="ann")
        assert (refused["error"], refused["in_doubt"]) == ("UnavailableError", False)
        assert "free some space" in refused["message"]
        assert refused["retry_after"] > 0
        assert process.call("get", "n", "k")["value"] == 1
        if CLAIMS:
            assert process.call("status", "a.md")["status"] == "available"
    faults.disarm()
    assert process.call("set", "n", "k", 3, updated_by="ann")["version"] == 2
    require_sound(path)


# --- files that are not ours, or not whole


def database(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


HOLDLOG_FILE = f"PRAGMA application_id = {0x686C6F67}"
LOG_OF_01 = "CREATE TABLE stored_events (notification_id INTEGER PRIMARY KEY, originator_id TEXT, topic TEXT)"
FOREIGN = {
    "text": lambda path: path.write_text("dear diary\n" * 1000),
    "one byte": lambda path: path.write_text("x"),
    "database": lambda path: database(path, "CREATE TABLE t (a)"),
    "empty database": lambda path: database(path, "PRAGMA application_id = 7"),
    "views": lambda path: database(path, "CREATE VIEW v AS SELECT 1"),
    "agenthold": lambda path: database(path, "CREATE TABLE state_records (namespace, key, value)"),
    "newer": lambda path: database(path, HOLDLOG_FILE, "PRAGMA user_version = 99000"),
    "folder": lambda path: path.mkdir(),
}


def hashes(folder):
    """Without SQLite's shared memory, which every reader makes again."""
    files = (it for it in folder.iterdir() if it.is_file() and not it.name.endswith("-shm"))
    return {it.name: hashlib.sha256(it.read_bytes()).digest() for it in files}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_or_newer_file_is_refused_in_one_line_and_not_changed(db, what):
    FOREIGN[what](db)
    before = hashes(db.parent)
    for _ in range(2):
        with pytest.raises(holdlog.StoreError) as refusal:
            holdlog.StateStore(db)
        assert "\n" not in str(refusal.value)
    assert hashes(db.parent) == before


@pytest.mark.parametrize("door", ["library", "command"])
def test_file_of_release_01_is_refused_in_one_line_and_not_changed(db, command, door):
    database(db, HOLDLOG_FILE, LOG_OF_01, "PRAGMA user_version = 4002")
    before = hashes(db.parent)
    if door == "library":
        with pytest.raises(holdlog.StoreError) as refusal:
            holdlog.StateStore(db)
        text = str(refusal.value)
    else:
        done = command("list")
        assert done.code != 0
        text = done.err.removesuffix("\n")
    assert "\n" not in text
    assert "0.1" in text
    assert "move" in text
    assert hashes(db.parent) == before


@pytest.mark.rest
def test_command_refuses_a_foreign_file_in_one_line(db, command):
    FOREIGN["text"](db)
    done = command("get", "n", "k")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert str(db) in done.err


def test_empty_file_becomes_a_store_and_a_missing_folder_is_refused(db, tmp_path):
    db.touch(0o600)
    require_sound(db)
    with pytest.raises(holdlog.StoreError):
        holdlog.StateStore(tmp_path / "no" / "such" / "state.db")
    assert not (tmp_path / "no").exists()


def test_file_with_two_hard_links_is_refused_through_both(db, tmp_path):
    holdlog.StateStore(db).close()
    other = tmp_path / "other.db"
    os.link(db, other)
    for name in (db, other):
        with pytest.raises(holdlog.StoreError):
            holdlog.StateStore(name)
    other.unlink()
    holdlog.StateStore(db).close()


def test_symbolic_link_is_the_same_store(db, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(db)
    with holdlog.StateStore(db) as store, holdlog.StateStore(link) as linked:
        assert store.set("n", "k", 1, updated_by="ann").version == 1
        assert linked.set("n", "k", 2, updated_by="ann").version == 2
        assert store.get("n", "k").value == 2
    assert not list(tmp_path.glob("link.db?*"))


def fill(path):
    """A store of many pages."""
    with holdlog.StateStore(path) as store:
        for number in range(40):
            store.set("n", f"k{number}", "x" * 3000, updated_by="test")
            if CLAIMS:
                store.claim(f"src/{number}", agent="ann")


def attempt(call, store):
    """The message of its refusal."""
    try:
        call(store)
    except holdlog.HoldlogError as error:
        return str(error)
    return ""


CALLS_OF_CLAIMS = (
    lambda store: store.status("src/1"),
    lambda store: store.wait("src/2", 0),
    lambda store: store.claim("src/3", agent="bob"),
    lambda store: store.release("src/4", agent="ann"),
)


def try_each_call(path):
    """Each call has a result or is refused in one line: no other exception, no crash."""
    for left in ("-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    calls = (
        *(lambda store, number=number: store.get("n", f"k{number}") for number in range(0, 30, 7)),
        lambda store: store.list_keys("n"),
        lambda store: store.list_namespaces(),
        lambda store: store.history("n", "k3"),
        lambda store: store.export_namespace("n"),
        lambda store: store.events(),
        *(CALLS_OF_CLAIMS if CLAIMS else ()),
        lambda store: store.set("n", "k5", 1, updated_by="test", request_id="r"),
        lambda store: store.delete("n", "k6", deleted_by="test"),
        lambda store: store.clear_namespace("n", deleted_by="test"),
    )
    with suppress(holdlog.HoldlogError), holdlog.StateStore(path) as store:
        for call in calls:
            assert "\n" not in attempt(call, store)


@pytest.mark.parametrize("share", [0.15, rest(1.0)])
def test_damaged_store_responds_or_refuses_and_never_crashes(db, share):
    fill(db)
    whole, dice = db.read_bytes(), random.Random()
    pages = len(whole) // PAGE
    assert pages > 40
    for page in dice.sample(range(pages), round(pages * share)):
        bad = (dice.choice((b"\0", b"\xff", b'{"a')) * PAGE)[:PAGE]
        db.write_bytes(whole[: page * PAGE] + bad + whole[(page + 1) * PAGE :])
        try_each_call(db)
    for length in (0, 1, 99, 100, 512, PAGE - 1, PAGE, PAGE + 1, len(whole) // 2, len(whole) - PAGE):
        db.write_bytes(whole[:length])
        try_each_call(db)


@pytest.mark.rest
def test_doctor_finds_an_overwritten_page(db, command):
    fill(db)
    assert command("doctor").code == 0
    whole = db.read_bytes()
    db.write_bytes(whole[: 8 * PAGE] + b"\xff" * (len(whole) - 8 * PAGE))
    done = command("doctor")
    assert done.code == 1
    assert "Traceback" not in done.out + done.err


# --- files that are deleted or replaced while a store is open


def refuses(store):
    try:
        return not store.set("n", "k", 2, updated_by="test")
    except holdlog.UnavailableError:
        return True


def test_store_file_deleted_or_replaced_at_runtime_is_refused_and_never_read(db, tmp_path):
    other = tmp_path / "other.db"
    with holdlog.StateStore(other) as replacement:
        replacement.set("n", "k", "another world", updated_by="test")
    with holdlog.StateStore(db) as store:
        store.set("n", "k", 1, updated_by="test")
        for left in db.parent.glob("state.db*"):
            if left.is_file():
                left.unlink()
        for replace in (False, True):
            if replace:
                other.replace(db)
            until(lambda: refuses(store))  # files are looked at ten times a second
            with pytest.raises(holdlog.UnavailableError, match=r"deleted|replaced"):
                store.set("n", "k", 2, updated_by="test")
            assert db.exists() is replace
            with suppress(holdlog.HoldlogError):
                assert store.get("n", "k").value != "another world"
    with holdlog.StateStore(db) as store:
        assert store.get("n", "k").value == "another world"


# --- a store that may be read but not written


@pytest.mark.rest
@pytest.mark.skipif(not ROOT, reason="only root makes mounts")
@pytest.mark.parametrize("state", ["closed", "crashed"])
def test_everything_that_reads_works_where_the_store_cannot_be_written(tmp_path, worker, state):
    path = tmp_path / "s" / ".holdlog" / "state.db"
    process = worker("serve", path_of(path))
    process.hear()
    process.call("set", "n", "k", 1, updated_by="ann")
    process.call("claim", "custom://a", agent="ann")
    if state == "crashed":
        process.kill()
    elif state == "closed":
        process.process.stdin.close()
        process.rest()
    before = sorted(path.parent.rglob("*"))
    reads = ("get n k", "list n", "history n k", "status custom://a", "log", "doctor")
    ran = {words: on_read_only_mount(path, words) for words in reads}
    assert {words: it.stderr for words, it in ran.items() if it.returncode} == {}
    assert ran["get n k"].stdout == "1\n"
    assert "ann" in ran["status custom://a"].stdout + ran["status custom://a"].stderr
    for words in ("set n k 2 --version 1", "claim custom://b --agent bob"):
        refused = on_read_only_mount(path, words)
        assert refused.returncode != 0
        assert "Read-only file system" in refused.stdout + refused.stderr
    assert sorted(path.parent.rglob("*")) == before


def path_of(path: Path) -> Path:
    path.parent.mkdir(parents=True, mode=0o700)
    return path


def on_read_only_mount(path, words):
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mount, path.parent, HOLDLOG, *words.split(), "--db", path]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_folder_that_may_not_be_written_is_refused_with_its_name(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(0o755)
    for above in (folder, *folder.parents):
        above.chmod(above.stat().st_mode | 0o011)
    program = (
        "import os, sys, holdlog; holdlog.StateStore(':memory:').close(); os.setgid(65534); os.setuid(65534)\n"
        "try: holdlog.StateStore(sys.argv[1])\n"
        "except holdlog.StoreError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder / "state.db"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert str(folder) in done.stdout
    assert list(folder.iterdir()) == []
