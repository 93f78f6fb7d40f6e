"""Files that are not ours, or not whole, and files beside the store."""

import hashlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from holdlog import HoldlogError, StateStore, StoreError, UnavailableError
from holdlog.adapters.stores.sqlite import schema
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.recorder import uri_of
from tests.processes.conftest import Start
from tests.support.clock import Clock
from tests.support.commands import whole_log, write
from tests.support.processes.soundness import require_acknowledged, require_sound

PAGE = 4096


def database(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def killed_with_a_log(path: Path, *statements: str) -> None:
    """A database whose last writer was killed, with a write-ahead log that nobody moved into the file."""
    script = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA journal_mode = WAL')\n"
        "for statement in sys.argv[2:]: connection.execute(statement)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, path, *statements], check=True)


AGENTHOLD = ("CREATE TABLE state_records (namespace, key, value)", "CREATE TABLE state_history (namespace, key, value)")
FOREIGN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a text": (lambda path: path.write_text("dear diary\n" * 1000), "damaged or not a SQLite file"),
    "a short text": (lambda path: path.write_text("x"), "not a holdlog store"),
    "somebody's database": (lambda path: database(path, "CREATE TABLE t (a)"), "not a holdlog store"),
    "somebody's empty database": (lambda path: database(path, "PRAGMA application_id = 7"), "not a holdlog store"),
    "somebody's views": (lambda path: database(path, "CREATE VIEW v AS SELECT 1"), "not a holdlog store"),
    "somebody's log": (lambda path: killed_with_a_log(path, "CREATE TABLE t (a)"), "not a holdlog store"),
    "agenthold": (lambda path: database(path, *AGENTHOLD), "holdlog import --agenthold"),
    "agenthold, killed": (lambda path: killed_with_a_log(path, *AGENTHOLD), "holdlog import --agenthold"),
    "a newer major": (
        lambda path: database(
            path,
            f"PRAGMA application_id = {schema.APPLICATION_ID}",
            f"PRAGMA user_version = {(schema.MAJOR + 1) * schema.MINORS_PER_MAJOR}",
        ),
        "upgrade holdlog",
    ),
    "a newer major, killed": (
        lambda path: killed_with_a_log(
            path,
            f"PRAGMA application_id = {schema.APPLICATION_ID}",
            f"PRAGMA user_version = {(schema.MAJOR + 1) * schema.MINORS_PER_MAJOR}",
        ),
        "upgrade holdlog",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_file_of_another_program_is_refused_in_one_line_and_not_changed(path: Path, kind: str) -> None:
    make, expected = FOREIGN[kind]
    make(path)
    before = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in path.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(StoreError, match=expected) as refusal:
            StateStore(path)
        assert "\n" not in str(refusal.value)
    after = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in path.parent.iterdir()}
    before.pop("state.db-shm", None)  # SQLite's own shared memory, rebuilt by every reader
    after.pop("state.db-shm", None)
    assert after == before


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch(0o600)
    with StateStore(path) as store:
        store.set("n", "k", 1, updated_by="test")
    require_sound(path)


def test_folder_in_place_of_a_store_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match="use --db"):
        StateStore(path)
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


def test_store_below_a_missing_parent_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        StateStore(tmp_path / "no" / "such" / "state.db")
    assert not list(tmp_path.iterdir())


def test_read_only_folder_is_refused(tmp_path: Path, start: Start) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    folder = tmp_path / "locked"
    folder.mkdir(0o755)
    for above in (folder, *folder.parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    said = start("as_somebody_else", folder / "state.db").rest()
    assert said[0]["error"] == "StoreError"
    assert "cannot be written" in said[0]["message"]
    assert not list(folder.iterdir())


def damaged(path: Path) -> None:
    """A store of many pages, closed."""
    with StateStore(path) as store:
        for number in range(30):
            store.set("n", f"k{number}", "x" * 3000, updated_by="test")
            store.claim(f"src/{number}", agent="ann")


def each_call(store: StateStore) -> None:
    """Every kind of call: each answers or is refused."""
    calls: list[Callable[[], Any]] = [
        *(lambda number=number: store.get("n", f"k{number}").value for number in range(30)),
        lambda: store.list_keys("n"),
        lambda: store.list_namespaces(),
        *(lambda number=number: store.history("n", f"k{number}") for number in range(30)),
        lambda: store.export_namespace("n"),
        lambda: store.board(),
        lambda: store.status("src/1"),
        lambda: store.watch("n", "k1", 0, 0),
        lambda: store.wait("src/2", 0),
        lambda: store.claim("src/3", agent="bob"),
        lambda: store.release("src/4", agent="ann"),
        lambda: store.set("n", "k5", 1, updated_by="test"),
        lambda: store.set("n", "k5", 1, updated_by="test", expected_version=1, request_id="r"),
        lambda: store.delete("n", "k6", deleted_by="test"),
        lambda: store.clear_namespace("n", deleted_by="test"),
    ]
    for call in calls:
        _answered_or_refused(call)


@pytest.mark.check
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b'{"a'])
def test_store_with_damaged_pages_answers_or_refuses_and_never_crashes(path: Path, fill: bytes) -> None:
    damaged(path)
    whole = path.read_bytes()
    pages = len(whole) // PAGE
    assert pages > 40
    for page in range(0, pages, 1 if pages < 80 else 2):
        path.write_bytes(whole[: page * PAGE] + (fill * PAGE)[:PAGE] + whole[(page + 1) * PAGE :])
        _open_and_try(path)


def test_damage_found_twice_is_reported_with_what_to_keep(path: Path) -> None:
    damaged(path)
    with StateStore(path) as store:
        whole = path.read_bytes()
        path.write_bytes(whole[: 8 * PAGE] + b"\xff" * (len(whole) - 8 * PAGE))
        messages = []
        for number in range(30):
            with suppress(HoldlogError):
                store.get("n", f"k{number}")
                continue
            messages.append(refused(lambda number=number: store.get("n", f"k{number}")))
        path.write_bytes(whole)
    assert messages
    for message in messages:
        assert "found twice" in message
        assert "run `holdlog doctor`, and keep the file and its -wal before you restore a backup" in message


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(StoreError) as error:
        call()
    return str(error.value)


def test_truncated_store_answers_or_refuses_and_never_crashes(path: Path) -> None:
    damaged(path)
    whole = path.read_bytes()
    for length in (0, 1, 50, 99, 100, 101, 512, PAGE - 1, PAGE, PAGE + 1, len(whole) // 2, len(whole) - PAGE):
        path.write_bytes(whole[:length])
        _open_and_try(path)


def _open_and_try(path: Path) -> None:
    for left in ("-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    store = _answered_or_refused(lambda: StateStore(path))
    if store is not None:
        each_call(store)
        store.close()


def _answered_or_refused(call: Callable[[], Any]) -> Any:
    refusal = ""
    try:
        return call()
    except HoldlogError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None


def test_file_modes_are_private_and_git_ignores_the_holdlog_folder(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        path = tmp_path / ".holdlog" / "state.db"
        with StateStore(path) as store:
            store.set("n", "k", 1, updated_by="test")
            store.wait("src/", 0)
            for file in path.parent.iterdir():
                if file.name != ".gitignore":
                    assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600), file
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (path.parent / ".gitignore").read_text() == "*\n"
    finally:
        os.umask(old)


def test_two_paths_of_one_store_share_write_lock_and_notifications(path: Path, tmp_path: Path, start: Start) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = start("serve", link)
        worker.hear()
        worker.tell("wait src/ 45")
        worker.hear()
        store.release("src/", agent="ann")
        assert worker.hear(60)["answer"]["status"] == "available"
        worker.tell("set k")
        assert worker.hear()["version"] == 1
        assert store.get("n", "k").version == 1
    assert not list(tmp_path.glob("link.db?*"))


def test_builds_of_two_minor_versions_share_one_file(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        store.set("n", "older", 1, updated_by="test")
        newer = start("newer_minor", path)
        assert newer.hear()["version"] == 1
        store.set("n", "shared", "older", updated_by="test")
        assert store.get("n", "newer").value == 1
        newer.tell()
        assert newer.hear()["version"] == 2
        assert store.get("n", "shared").value == "newer"
        store.claim("src/", agent="ann")
        newer.tell()
        newer.rest()
    with StateStore(path) as store:
        assert store.set("n", "shared", "older", updated_by="test").version == 3
    require_sound(path)
    require_acknowledged(path, [said for said in newer.said if "version" in said])


def test_clock_that_is_set_back_never_sets_the_log_back(path: Path) -> None:
    clock = Clock()
    store, other = open_sqlite(path, clock), open_sqlite(path, clock)
    for step in (0.0, 5.0, -3600.0, 1.0, -1.0):
        clock.move(step)
        write(store, "k", step)
        write(other, "k", step)
    times = [recorded.envelope.at for recorded in whole_log(store)]
    assert times == sorted(times)
    store.close()
    other.close()
    require_sound(path)


def test_locked_file_is_not_reported_as_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateStore(path).close()
    monkeypatch.setattr("holdlog.adapters.stores.sqlite.opening.LOCK_TIMEOUT", 0.2)
    with closing(sqlite3.connect(uri_of(path), uri=True, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnavailableError, match="locked"):
            StateStore(path)


def test_reader_waits_for_a_process_that_briefly_locks_the_file(path: Path) -> None:
    """As the last one that closes does, or the first one after a crash."""
    with StateStore(path) as store:
        foreign = sqlite3.connect(uri_of(path), uri=True, isolation_level=None, check_same_thread=False)
        foreign.execute("PRAGMA locking_mode = EXCLUSIVE")
        foreign.execute("BEGIN EXCLUSIVE")
        closing_it = threading.Timer(0.2, foreign.close)
        closing_it.start()
        assert store.list_keys("n") == []
        closing_it.join()


def test_store_restored_from_a_backup_opens(path: Path, tmp_path: Path) -> None:
    with StateStore(path) as store:
        store.set("n", "k", 1, updated_by="test")
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    with StateStore(copy) as store:
        assert store.set("n", "k", 2, updated_by="test").version == 2
    require_sound(copy)


def test_file_with_two_hard_links_is_refused_through_both(path: Path, tmp_path: Path) -> None:
    # Each name would have a write-ahead log and a gate of its own, and writes through one would be lost to the other.
    StateStore(path).close()
    other = tmp_path / "other.db"
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(StoreError, match="names"):
            StateStore(name)
    other.unlink()
    StateStore(path).close()
