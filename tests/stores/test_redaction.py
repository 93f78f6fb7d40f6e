"""Redacted texts are in no file of a store, whatever kills the redaction; what cannot be done is named."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.api.redaction.responses import RedactionResult
from holdlog.adapters.api.validation import caller
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.redacting import finish, redact
from holdlog.adapters.stores.sqlite.backup import back_up
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.agent import Register
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim
from holdlog.domain.message import Caller
from holdlog.domain.record import Merge, Transact
from holdlog.domain.refusals import InapplicableError, InvalidError, StoreError
from holdlog.domain.threads.commands import Append, ChangeData, NewMessage, StartThread
from holdlog.domain.value import Json
from tests.support.commands import HERE, drop, put, transact
from tests.support.older import SCHEMA_1, lay

SECRET = "ghp_" + "aB3" * 12
"""Not a real one, and not in one piece, so that scanners of repositories do not report it."""
IN_SCHEMA_1 = 'it\'s \\"ö\\" 日本'.encode()
"""A text of many values of the fixture, as stored."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    return folder / "state.db"


@contextmanager
def opened(path: Path) -> Iterator[Engine]:
    engine = open_holdlog(path)
    try:
        yield engine
    finally:
        engine.close()


def redact_all(engine: Engine, *positions: int) -> list[RedactionResult]:
    """Redact the texts at positions, then all others that the responses list."""
    results, reason = [], caller(engine.caller, reason="leaked")
    due = [(position, "payload") for position in positions]
    while due:
        position, field = due.pop()
        found = redact(engine, engine.requests.redactions.of_events([position], field), "boss", reason)
        assert not found.unfinished
        results.append(found)
        if not due:
            due = [(it.position, it.field) for it in found.also_in]
    return results


def files_with(folder: Path, text: bytes) -> list[str]:
    """The files in a folder, and below it, that contain a text."""
    return sorted(it.name for it in folder.rglob("*") if it.is_file() and text in it.read_bytes())


def bad(path: Path) -> dict[str, str]:
    return {it.name: it.text for it in examine(path) if it.level == "bad"}


def write_everywhere(engine: Engine) -> None:
    """Write the secret wherever an agent can write a text, and change or delete some of it."""
    requests = Caller(session="here", request_id="r-1", reason=f"because of {SECRET}")
    merged = Merge(namespace="n", key="c", patch=Json.of({"token": SECRET, "more": [SECRET]}), max_bytes=10_000)
    for command, who in (
        (transact(put("a", SECRET), put("b", {"deep": [{"token": SECRET}]})), HERE),
        (transact(put("a", 1), put("b", "x" * 9_000), drop("b")), HERE),
        (Transact(operations=(merged,), by="ann"), requests),
        (AcquireClaim(resource="src/a.py", agent="ann", note=f"uses {SECRET}"), HERE),
        (ReleaseClaim(resource="src/a.py", agent="ann", note=SECRET), HERE),
        (AcquireClaim(resource="src/b.py", agent="ann", note=SECRET), HERE),
        (Register(agent="ann", purpose=f"rotate {SECRET}"), HERE),
        (StartThread(thread="t", by="ann", data={"k": Json.of(SECRET)}), HERE),
        (Append(thread="t", by="ann", items=(NewMessage(value=Json.of({"text": SECRET})),)), HERE),
        (ChangeData(thread="t", by="ann", written={"k": Json.of(2), "l": Json.of([SECRET])}), HERE),
    ):
        engine.writer.run(command, who)


def test_redacted_text_is_in_no_file_of_the_store(path: Path) -> None:
    with opened(path) as engine:
        write_everywhere(engine)
        assert files_with(path.parent, SECRET.encode())
        results = redact_all(engine, 1)
        assert files_with(path.parent, SECRET.encode()) == []
        assert results[-1].also_in == []
    assert files_with(path.parent, SECRET.encode()) == []
    assert bad(path) == {}


def test_views_and_log_agree_after_redactions_of_every_kind(path: Path) -> None:
    with opened(path) as engine:
        write_everywhere(engine)
        redact_all(engine, 1)
        with engine.store.reader() as reader:
            (held,) = reader.leases.of(["src/b.py"])
            assert held.note is None
            (profile,) = reader.agents(["ann"])
            assert profile.purpose is None
            past = reader.claim("src/a.py").past
            assert past is not None
            assert past.note is None
    assert bad(path) == {}
    assert {it.name for it in examine(path) if it.level == "warn"} <= {"sqlite", "permissions"}


def test_repeated_request_reports_that_its_value_was_redacted(path: Path) -> None:
    with opened(path) as engine:
        write = engine.requests.transactions.update("n", "k", "ann", append=SECRET)
        who = Caller(request_id="r-1")
        assert engine.write(write, who).value == [SECRET]
        redact_all(engine, 1)
        again = engine.write(write, who)
        assert (again.version, again.value, again.redacted) == (1, None, True)


def test_function_does_not_update_a_redacted_value(path: Path) -> None:
    with StateStore(path) as store:
        store.update("n", "k", lambda value: [SECRET], updated_by="ann", request_id="r-1")
        store.set("n", "other", 1, updated_by="ann")
        with opened(path) as engine:
            redact_all(engine, 1)
        with pytest.raises(InapplicableError, match="redacted"):
            store.update("n", "k", lambda value: [value], updated_by="ann")
        store.set("n", "k", 2, updated_by="ann")
        again = store.update("n", "k", lambda value: [value], updated_by="ann", request_id="r-1")
        assert (again.version, again.value, again.redacted) == (1, None, True)


def test_rebuild_of_a_redacted_store_gives_the_same_views(path: Path) -> None:
    from tests.support.kinds import InFile

    with opened(path) as engine:
        write_everywhere(engine)
        redact_all(engine, 1)
    kind = InFile(path)
    before = kind.views()
    kind.rebuilt()
    assert kind.views() == before


# --- stores of release 0.1, and their backups


def migrated(path: Path) -> None:
    lay(path, SCHEMA_1)
    open_sqlite(path).close()


def test_redacted_text_of_a_migrated_store_is_in_no_backup_of_the_migration(path: Path) -> None:
    migrated(path)
    assert files_with(path.parent, IN_SCHEMA_1) == ["state.db", "state.db.backup-1"]
    with opened(path) as engine:
        (first, *_) = [it.position for it in _containing(engine, "日本")]
        results = redact_all(engine, first)
    assert files_with(path.parent, IN_SCHEMA_1) == []
    assert [it.rewritten for it in results][-1] == [str(path.with_name("state.db.backup-1"))]
    assert bad(path) == {}
    assert bad(path.with_name("state.db.backup-1")) == {}


def test_store_restored_from_a_rewritten_backup_needs_the_redaction_again(path: Path) -> None:
    migrated(path)
    with opened(path) as engine:
        redact_all(engine, next(it.position for it in _containing(engine, "日本")))
    backup = path.with_name("state.db.backup-1")
    restored = path.with_name("restored.db")
    shutil.copy(backup, restored)
    with opened(restored) as engine:
        missing = [it for it in _log(engine) if it.redacted]
    assert list(bad(restored)) == ["redactions"]
    with opened(restored) as engine:
        redact_all(engine, *(it.envelope.position for it in missing))
    assert bad(restored) == {}


def test_reason_of_an_event_of_release_0_1_is_not_redacted(path: Path) -> None:
    migrated(path)
    with opened(path) as engine:
        position = next(it.envelope.position for it in _log(engine) if it.envelope.caller.reason)
        with pytest.raises(InvalidError, match="wrote this event"):
            redact(
                engine, engine.requests.redactions.of_events([position], "reason"), "boss", caller(reason="it leaked")
            )
    assert bad(path) == {}


def _log(engine: Engine) -> list:  # type: ignore[type-arg]
    with engine.store.reader() as reader:
        return reader.log(0, -1)


def _containing(engine: Engine, text: str) -> list:  # type: ignore[type-arg]
    from holdlog.domain.store_log import SearchText

    with engine.store.reader() as reader:
        return [it for it in reader.containing(SearchText(text, within=True), 100) if it.payload is not None]


# --- what cannot be done is named


def test_backup_next_to_the_store_is_named(path: Path) -> None:
    with opened(path) as engine:
        engine.writer.run(transact(put("a", SECRET)), HERE)
    backup = Path(back_up(path, path.parent, 1).backup)
    with opened(path) as engine:
        (result,) = redact_all(engine, 1)
    assert [str(backup.name) in line for line in result.remaining] == [True]
    assert files_with(path.parent, SECRET.encode()) == [backup.name]
    backup.unlink()
    with opened(path) as engine:
        assert finish(engine).remaining == []


def test_backup_that_others_can_read_is_named_and_a_damaged_one_is_ignored(path: Path) -> None:
    with opened(path) as engine:
        engine.writer.run(transact(put("a", SECRET)), HERE)
        engine.store.scrub()  # so that the file has it
    for name, mode in (("state.db.backup-1", 0o644), ("state.db.backup-2", 0o600), ("other.backup", 0o600)):
        path.with_name(name).write_bytes(b"no database")
        path.with_name(name).chmod(mode)
    path.with_name("link.backup").symlink_to("missing")
    with opened(path) as engine:
        (result,) = redact_all(engine, 1)
    assert [line.partition(" ")[0].rpartition("/")[2] for line in result.remaining] == [
        "link.backup",
        "state.db.backup-1",
    ]
    assert result.unfinished == []


@pytest.mark.check
def test_backup_that_cannot_be_rewritten_leaves_the_redaction_unfinished(path: Path) -> None:
    migrated(path)
    backup = path.with_name("state.db.backup-1")
    with closing(sqlite3.connect(backup, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with opened(path) as engine:
            query = engine.requests.redactions.of_events([1])
            result = redact(engine, query, "boss", caller(engine.caller, reason="leaked"))
        assert [backup.name in line for line in result.unfinished] == [True]
    with opened(path) as engine:
        done = finish(engine)
    assert (done.rewritten, done.unfinished) == ([str(backup)], [])


@pytest.mark.check
def test_reader_of_an_earlier_state_delays_the_end_of_a_redaction(path: Path) -> None:
    with opened(path) as engine:
        engine.writer.run(transact(put("a", SECRET)), HERE)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT COUNT(*) FROM stored_events").fetchone()
            reason = caller(engine.caller, reason="leaked")
            result = redact(engine, engine.requests.redactions.of_values("n", ["a@1"]), "boss", reason)
            assert ["holdlog redact --finish" in line for line in result.unfinished] == [True]
            assert "redaction" in {it.name for it in examine(path) if it.level == "warn"}
            other.execute("COMMIT")
        assert finish(engine).unfinished == []
        assert files_with(path.parent, SECRET.encode()) == []
    assert "redaction" not in {it.name for it in examine(path)}


@pytest.mark.parametrize("damage", ["salt = NULL", "salt = 'text'", "salt = x'00'"])
def test_text_without_its_salt_is_not_redacted(path: Path, damage: str) -> None:
    with opened(path) as engine:
        engine.writer.run(transact(put("a", SECRET)), HERE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE stored_events SET {damage}")
        connection.commit()
    with opened(path) as engine, pytest.raises(StoreError, match="event 1 was changed"):
        redact_all(engine, 1)


IS_LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)  # WAL_NSHM: who has the store open shares this byte
    except OSError:
        print("locked")
"""


def test_redaction_keeps_the_locks_of_its_process_on_the_files_of_the_store(path: Path) -> None:
    back_up_beside(path)
    with opened(path) as engine:
        engine.writer.run(transact(put("b", SECRET)), HERE)
        redact_all(engine, 2)
        shared = path.with_name("state.db-shm")
        found = subprocess.run(
            [sys.executable, "-c", IS_LOCKED, str(shared)], capture_output=True, text=True, check=True
        )
        assert found.stdout == "locked\n"


WRITER = """
import sys
from holdlog import StateStore
with StateStore(sys.argv[1]) as store:
    for number in range(200):
        store.set("w", f"k{number % 20}", str(number) * 500, updated_by="ann")
"""


@pytest.mark.check
def test_processes_write_while_others_redact_and_nothing_is_lost(path: Path) -> None:
    with opened(path) as engine:
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
            for version in range(1, 21):
                engine.writer.run(transact(put("a", SECRET)), HERE)
                reason = caller(engine.caller, reason="leaked")
                redact(engine, engine.requests.redactions.of_values("n", [f"a@{version}"]), "boss", reason)
        assert writer.returncode == 0
        assert finish(engine).unfinished == []
        assert files_with(path.parent, SECRET.encode()) == []
        assert len(_log(engine)) == 200 + 2 * 20
    assert bad(path) == {}


def back_up_beside(path: Path) -> None:
    with opened(path) as engine:
        engine.writer.run(transact(put("a", 1)), HERE)
    back_up(path, path.parent, 1)


KILLED = """
import os, signal, sys
from itertools import count
from pathlib import Path
import shutil
from holdlog.adapters.api.validation import caller
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.runtime.redacting import redact

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
PARTS = ("runtime/redacting.py", "domain/redaction.py", "sql/redaction.py", "sqlite/scrubbing.py", "sqlite/files.py")
lines = kill_at = 0

def each_line(frame, event, argument):
    global lines
    lines += event == "line"
    if lines == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return each_line

def each_call(frame, event, argument):
    return each_line if frame.f_code.co_filename.endswith(PARTS) else None

for kill_at in count(1, int(sys.argv[3])):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    if (child := os.fork()) == 0:
        engine = open_holdlog(folder / "state.db")
        sys.settrace(each_call)
        query = engine.requests.redactions.of_events([1], "payload")
        redact(engine, query, "boss", caller(engine.caller, reason="leaked"))
        sys.settrace(None)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("step", [79, pytest.param(3, marks=pytest.mark.check)])
def test_killed_redaction_leaves_nothing_or_is_finished_later(path: Path, step: int) -> None:
    migrated(path)
    _require_older_and_newer(path)
    work = path.parent.parent / "work"
    line = [sys.executable, "-c", KILLED, str(path.parent), str(work), str(step)]
    outcomes = []
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for _ in count():
                if (status := int(process.stdout.readline())) == 0:
                    break
                assert status == -9
                outcomes.append(_after_kill(work / path.name))
                process.stdin.write("\n")
                process.stdin.flush()
        finally:
            process.kill()
    assert set(outcomes) == {"nothing", "finished"}


def _require_older_and_newer(path: Path) -> None:
    """The first event of the fixture, and another text in the same file, so that there is something to lose."""
    with opened(path) as engine:
        engine.writer.run(transact(put("other", "stays")), HERE)


def _after_kill(path: Path) -> str:
    assert bad(path) == {}
    with opened(path) as engine:
        is_redacted = _log(engine)[0].redacted
        assert [finding.name for finding in examine(path) if finding.name == "redaction"] == (
            ["redaction"] if is_redacted else []
        ) or not _unfinished(engine)
        if not is_redacted:
            return "nothing"
        finish(engine)
        with engine.store.reader() as reader:
            (texts,) = reader.texts(_log(engine)[0].envelope.stream, [1])
        assert texts.payload is None
    return "finished"


def _unfinished(engine: Engine) -> bool:
    with engine.store.reader() as reader:
        return bool(reader.meta("redaction"))
