"""A store of an older schema becomes one of this schema: whole, with a backup, whatever kills or refuses it."""

import itertools
import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdlog import HoldlogError, StateStore, StoreError, UnavailableError
from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.event_log import rebuild as rebuilding
from holdlog.adapters.stores.event_log.codec import COLUMNS, FORMAT_COLUMNS
from holdlog.adapters.stores.sqlite import migrating, schema
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from tests.processes.conftest import Start
from tests.support.older import SCHEMA_1, SCHEMA_2, SCHEMA_3, lay
from tests.support.processes.soundness import require_sound
from tests.support.processes.strace import STRACE, Strace
from tests.support.slow import slow

FIXTURES = {1: SCHEMA_1, 2: SCHEMA_2, 3: SCHEMA_3}
VERSIONS = {1: 1000, 2: 2002, 3: 3001}
OF_SCHEMA_1 = pytest.mark.parametrize("old", [1], indirect=True)
OF_SCHEMA_2 = pytest.mark.parametrize("old", [2], indirect=True)
OF_SCHEMA_1_OR_2 = pytest.mark.parametrize("old", [1, 2], indirect=True)
MOMENTS = [
    *itertools.product((1, 2, 3), ("backup begun", "folding", "swapped")),
    *itertools.product((1, 2), ("backup made", "tables made")),  # schema 3 needs no new tables of its own
]
KILLED = int(signal.SIGKILL)
OURS = schema.MAJOR * schema.MINORS_PER_MAJOR + schema.MINOR


@pytest.fixture(params=[1, 2, 3])
def old(request: pytest.FixtureRequest) -> int:
    """The major schema of the store."""
    return int(request.param)


@pytest.fixture
def path(tmp_path: Path, old: int) -> Path:
    """A store of schema `old`, as that build wrote it."""
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    return lay(folder / "state.db", FIXTURES[old])


def engine(path: Path) -> None:
    StateStore(path).close()


def ask(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


def log(path: Path) -> list[Any]:
    columns = ", ".join(list(COLUMNS)[: -len(FORMAT_COLUMNS)])
    return ask(path, f"SELECT rowid, {columns} FROM stored_events ORDER BY rowid")


def made(path: Path) -> list[Any]:
    """All tables and indexes, without the blanks of the statements that made them."""
    rows = ask(path, "SELECT type, name, sql FROM sqlite_schema ORDER BY name")
    return [(*what, statement and "".join(statement.split())) for *what, statement in rows]


def version(path: Path) -> int:
    return int(ask(path, "PRAGMA user_version")[0][0])


def backups(path: Path) -> list[str]:
    return sorted(it.name for it in path.parent.glob("state.db.backup-*"))


def require_whole_backup(backup: Path, old: int) -> None:
    """It opens as the store that the build before knew, and has all of its log and views."""
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert ask(backup, "PRAGMA journal_mode") == [("delete",)], "one file is all of it"
    assert ask(backup, "PRAGMA integrity_check") == [("ok",)]
    assert (version(backup), ask(backup, "PRAGMA application_id")) == (VERSIONS[old], [(schema.APPLICATION_ID,)])
    with closing(sqlite3.connect(":memory:")) as fixture:
        fixture.executescript(FIXTURES[old].read_text())
        for table in ("stored_events", "current", "claims", "meta", "requests", "refusals"):
            question = f"SELECT * FROM {table}"
            assert ask(backup, question) == fixture.execute(question).fetchall()


def require_migrated(path: Path, before: list[Any]) -> None:
    assert version(path) == OURS
    assert log(path)[: len(before)] == before
    require_sound(path)
    assert [found for found in examine(path) if found.level == "bad"] == []
    assert {found.name: found.level for found in examine(path)}["schema"] == "ok"


# --- what it becomes


@OF_SCHEMA_1
def test_migrated_store_reads_as_before(path: Path) -> None:
    before = log(path)
    old = {
        (it[0], it[1]): it for it in ask(path, "SELECT namespace, key, version, live, value, updated_by FROM current")
    }
    held = ask(path, "SELECT resource, holder, granted FROM claims WHERE holder IS NOT NULL")
    store = open_sqlite(path)
    with store.snapshot() as reader:
        for (namespace, key), row in old.items():
            record = reader.record(namespace, key)
            found = (namespace, key, record.version, int(record.live), record.value.text, record.updated_by)
            assert found == row
            assert record.expires_at is None
            versions = [it.envelope.version for it in reader.history(record.stream, None, -1)]
            assert versions == list(range(record.version, 0, -1))
        grants = [(it.resource, grant.agent, grant.version) for it in reader.claims(None, -1) for grant in it.grants]
        assert grants == held
        assert reader.position() == len(before)
    store.close()
    require_migrated(path, before)


@OF_SCHEMA_1
def test_migrated_store_continues_where_it_was(path: Path) -> None:
    with StateStore(path) as store:
        assert store.set("n", "key 1", "again", updated_by="ann", expected_version=0).version == 5
        assert store.set("n", "key 2", 1, updated_by="ann", expected_version=4, ttl_seconds=60).version == 5
        assert store.release("src/a.py", agent="bob").status == "released"
        assert [past.event_type for past in store.history("n", "key 2", limit=3)] == ["write", "write", "delete"]
        assert store.status("custom://merge").status == "available"
    require_sound(path)


def test_migrated_tables_and_indexes_equal_those_of_a_new_store(path: Path, tmp_path: Path) -> None:
    engine(path)
    engine(tmp_path / "new.db")
    assert made(path) == made(tmp_path / "new.db")


@pytest.mark.parametrize("page", [1, 5, 24, 25])
def test_migration_folds_the_log_in_pages(path: Path, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", page)
    before = log(path)
    engine(path)
    require_migrated(path, before)


def test_empty_store_is_migrated_too(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for table in ("stored_events", "current", "claims"):
            connection.execute(f"DELETE FROM {table}")
        connection.commit()
    engine(path)
    assert version(path) == OURS
    require_sound(path)


# --- the backup


def test_migration_backup_is_the_store_as_it_was(path: Path, old: int) -> None:
    engine(path)
    assert backups(path) == [f"state.db.backup-{old}"]
    require_whole_backup(path.with_name(f"state.db.backup-{old}"), old)


def test_migration_backup_replaces_no_file(path: Path, old: int) -> None:
    for name in (f"state.db.backup-{old}", f"state.db.backup-{old}.2"):
        path.with_name(name).write_text("mine")
    engine(path)
    assert backups(path) == [f"state.db.backup-{old}", f"state.db.backup-{old}.2", f"state.db.backup-{old}.3"]
    assert path.with_name(f"state.db.backup-{old}").read_text() == "mine"
    require_whole_backup(path.with_name(f"state.db.backup-{old}.3"), old)


@OF_SCHEMA_1
def test_migration_backup_contains_the_write_ahead_log(path: Path, old: int, tmp_path: Path) -> None:
    """As after a crash of the build before."""
    with closing(sqlite3.connect(path)) as writing:
        writing.execute("UPDATE current SET value = '7' WHERE key = 'key 0'")
        writing.commit()
        folder = tmp_path / "crashed"
        folder.mkdir(0o700)
        for suffix in ("", "-wal"):
            shutil.copy(path.with_name(path.name + suffix), folder / f"state.db{suffix}")
    crashed = folder / "state.db"
    engine(crashed)
    assert ask(folder / f"state.db.backup-{old}", "SELECT value FROM current WHERE key = 'key 0'") == [("7",)]
    require_sound(crashed)


def test_store_is_migrated_once(path: Path, old: int) -> None:
    for _ in range(3):
        engine(path)
    assert backups(path) == [f"state.db.backup-{old}"]


def test_restored_backup_is_migrated_again_and_kept_once(path: Path, old: int) -> None:
    engine(path)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(path.with_name(f"state.db.backup-{old}"), path)
    engine(path)
    assert backups(path) == [f"state.db.backup-{old}"]
    require_sound(path)


@OF_SCHEMA_1
def test_backup_of_an_earlier_state_is_not_mistaken_for_the_current_one(path: Path, old: int) -> None:
    shutil.copy(path, path.with_name(f"state.db.backup-{old}"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM stored_events WHERE rowid = 24")
        connection.execute("DELETE FROM current WHERE namespace = 'last' AND key = 'l'")
        connection.commit()
    engine(path)
    assert backups(path) == [f"state.db.backup-{old}", f"state.db.backup-{old}.2"]


# --- who is told


@OF_SCHEMA_1
def test_command_line_prints_one_line_when_it_migrates_and_only_then(path: Path) -> None:
    def get() -> tuple[str, str]:
        command = [sys.executable, "-m", "holdlog", "get", "last", "k", "--db", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout, done.stderr

    told = f"holdlog: migrated the store {path} from schema 1 to 4; the backup of the old store is {path}.backup-1\n"
    assert get() == ("2\n", told)
    assert get() == ("2\n", "")


def test_library_logs_a_migration_and_prints_nothing(
    path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "holdlog"):
        engine(path)
    assert [record.levelname for record in caplog.records if "migrated the store" in record.message] == ["INFO"]
    assert capfd.readouterr() == ("", "")


def test_doctor_announces_a_migration_and_does_not_run_it(path: Path) -> None:
    before = path.read_bytes()
    found = {finding.name: finding for finding in examine(path)}
    assert "that opens the store migrates it" in found["schema"].text
    assert [finding for finding in found.values() if finding.level == "bad"] == []
    assert path.read_bytes() == before
    assert backups(path) == []


# --- others at the same time


@pytest.mark.check
def test_one_of_two_concurrent_openers_migrates(path: Path, old: int, start: Start) -> None:
    before = log(path)
    workers = [start("forks", path, "flock", 200) for _ in range(4)]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.tell("1")
    versions: list[int] = []
    for worker in workers:
        while "status" not in (said := worker.hear()):
            assert "opening" not in said, said
            versions += [said["version"]] if "version" in said else []
        assert said["status"] == 0
    assert sorted(versions) == list(range(1, 13))
    require_migrated(path, before)
    assert backups(path) == [f"state.db.backup-{old}"]
    require_whole_backup(path.with_name(f"state.db.backup-{old}"), old)


def test_reader_of_the_previous_build_does_not_block_a_migration(path: Path) -> None:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        count = reader.execute("SELECT COUNT(*) FROM current").fetchone()
        engine(path)
        assert reader.execute("SELECT COUNT(*) FROM current").fetchone() == count
        reader.execute("COMMIT")
        named = "SELECT namespace, key, version, live, value, updated_by, updated_at, digest FROM current"
        assert (len(reader.execute(named).fetchall()),) == count
    require_sound(path)


# --- killed

MIGRATE_AND_STOP = """
import sys
from holdlog import StateStore
from holdlog.adapters.stores.sqlite import migrating
from holdlog.adapters.stores.sqlite.shadow_tables import SqliteTables
where, path = sys.argv[1:]
module, name = {"backup begun": (migrating, "_reserve"), "backup made": (migrating, "_migrate_tables"),
                "tables made": (migrating, "_migrate_tables"), "folding": (SqliteTables, "put"),
                "swapped": (SqliteTables, "swap")}[where]
real = getattr(module, name)

def stop(*arguments):
    if not where.startswith("backup"):
        real(*arguments)
    print("here", flush=True)
    sys.stdin.readline()

setattr(module, name, stop)
StateStore(path)
"""


@contextmanager
def stopped(where: str, path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that migrates, and stands still somewhere in the middle."""
    with subprocess.Popen(
        [sys.executable, "-c", MIGRATE_AND_STOP, where, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "here\n"
            yield process
        finally:
            process.kill()


@pytest.mark.check
@pytest.mark.parametrize(("old", "where"), MOMENTS, indirect=["old"])
def test_killed_migration_changes_nothing_and_the_next_opener_migrates(path: Path, old: int, where: str) -> None:
    before = log(path)
    for _ in range(2):
        with stopped(where, path) as process:
            process.kill()
            process.wait()
        assert version(path) == VERSIONS[old]
        assert ask(path, "SELECT COUNT(*) FROM sqlite_schema WHERE name LIKE '%rebuilt'") == [(0,)]
        assert log(path) == before
    engine(path)
    require_migrated(path, before)
    assert backups(path) == [f"state.db.backup-{old}"], "one backup is enough, and half ones are cleared away"
    require_whole_backup(path.with_name(f"state.db.backup-{old}"), old)


@pytest.mark.check
def test_processes_that_open_during_a_migration_wait_and_see_who_runs_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdlog.adapters.stores.sqlite import opening

    monkeypatch.setattr(opening, "LOCK_TIMEOUT", 0.2)
    with stopped("folding", path) as process, pytest.raises(UnavailableError, match=f"process {process.pid}"):
        StateStore(path)


@pytest.mark.check
@STRACE
@pytest.mark.parametrize("call", [*slow("pwrite64"), "fdatasync", "ftruncate", "unlink", "rename"])
def test_migration_killed_at_every_system_call_loses_nothing(path: Path, old: int, start: Start, call: str) -> None:
    before = log(path)
    faults = Strace(start, path, call, "signal=KILL")
    template = {it.name: it.read_bytes() for it in path.parent.iterdir() if it.is_file()}
    for number in faults.numbers():
        for left in path.parent.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        for name, content in template.items():
            path.with_name(name).touch(0o600)
            path.with_name(name).write_bytes(content)
        _, status = faults.strike(number)
        assert log(path)[: len(before)] == before
        assert version(path) in (VERSIONS[old], OURS)
        require_sound(path)  # opens it: the next one finishes
        require_migrated(path, before)
        whole = [name for name in backups(path) if path.with_name(name).stat().st_size]
        assert len(whole) == 1, whole
        require_whole_backup(path.with_name(whole[0]), old)
        if status == 0:
            break
        assert status & 0x7F == KILLED
    assert status == 0, "there were more calls than the test strikes"
    assert number > 1, "the kills did not strike"


# --- refused


def test_read_only_file_is_not_migrated_and_stays_unchanged(path: Path, start: Start) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    for above in (path.parent, *path.parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    path.parent.chmod(0o777)
    path.chmod(0o444)
    before = path.read_bytes()
    (said,) = start("as_somebody_else", path).rest()
    assert said["error"] == "StoreError"
    assert "\n" not in said["message"]
    assert path.read_bytes() == before
    assert backups(path) == []


def limited(path: Path, size: int) -> dict[str, Any]:
    """What a process says that opens the store and may not make a file larger than so many bytes."""
    script = (
        "import resource, signal, sys; from holdlog import StateStore, HoldlogError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "try: StateStore(sys.argv[1])\n"
        "except HoldlogError as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60, check=False)
    return {"out": done.stdout, "err": done.stderr, "code": done.returncode}


@pytest.mark.check
@OF_SCHEMA_1_OR_2
@pytest.mark.parametrize(
    "kept",
    [pytest.param(False, marks=pytest.mark.slow, id="for the backup"), pytest.param(True, id="for the views")],
)
def test_migration_on_a_full_disk_changes_nothing(path: Path, old: int, kept: bool) -> None:
    with closing(sqlite3.connect(path)) as connection:  # of this boot: else there is a second thing to write
        connection.execute("UPDATE meta SET value = ? WHERE name = 'boot_id'", (platform.boot_id(),))
        connection.commit()
    if kept:  # by an attempt that was killed
        with stopped("backup made", path):
            pass
    before, before_backups = log(path), backups(path)
    views = ask(path, "SELECT * FROM current"), ask(path, "SELECT * FROM claims")
    refused = 0
    for most in range(4096, 60 * 4096, 4096):
        said = limited(path, most)
        assert said["code"] == 0, said
        if said["out"] == "":
            break
        refused += 1
        kind, _, line = said["out"].partition(" ")
        assert kind == "UnavailableError", said
        assert line.count("\n") == 1
        assert version(path) == VERSIONS[old]
        assert (log(path), (ask(path, "SELECT * FROM current"), ask(path, "SELECT * FROM claims"))) == (before, views)
        assert backups(path) == before_backups, "what is no use is cleared away, where space is short"
    assert refused > 2, "the limits struck"
    require_migrated(path, before)


def test_migration_of_an_unreadable_log_changes_nothing(path: Path, old: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE stored_events SET topic = 'Unheard' WHERE rowid = 5")
        connection.commit()
    before = log(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"schema [123] and cannot be migrated to 4 .*unknown topic.*unchanged"):
            StateStore(path)
    assert (version(path), log(path), backups(path)) == (VERSIONS[old], before, [])


def test_interrupted_migration_changes_nothing(path: Path, old: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = log(path)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migrating, "rebuild_within", interrupted)
        with pytest.raises(KeyboardInterrupt):
            StateStore(path)
    assert version(path) == VERSIONS[old]
    engine(path)
    require_migrated(path, before)
    assert backups(path) == [f"state.db.backup-{old}"]


def test_migration_of_a_store_locked_by_another_program_fails_unchanged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdlog.adapters.stores.sqlite import opening

    monkeypatch.setattr(opening, "LOCK_TIMEOUT", 0.2)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HoldlogError, match="locked"):
            StateStore(path)
        other.execute("ROLLBACK")
    assert backups(path) == []
