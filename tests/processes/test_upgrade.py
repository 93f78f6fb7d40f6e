"""A store of release 0.1 is upgraded, in a file and in PostgreSQL, also while a process of that release uses it."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import psycopg
import pytest

from holdlog import SealedError, StateStore, StoreError, UnavailableError, copy
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.compose import examine
from holdlog.adapters.nats.payload import text_of
from holdlog.adapters.operating_system import platform
from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.event_log.sealing import Seal, file_triggers, schema_triggers
from holdlog.adapters.stores.postgres import migrating
from holdlog.adapters.stores.postgres.catalog import TABLES
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.target import database_target
from holdlog.adapters.stores.sql.tables import KEPT, SESSION_SALT
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.migrating import BEFORE_UPGRADE
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.schema import MAJOR
from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.claims.lease import Lease
from holdlog.domain.commands import RecordsChanged
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition, Merge, Transact
from holdlog.domain.value import Json
from tests.support.clock import SECOND, Clock
from tests.support.commands import put, run, whole_log
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.older import NOW, SCHEMA_2, STEADY, lay, lay_in_postgres
from tests.support.processes.soundness import require_sound

ROOT: Final = Path(__file__).parents[2]
NEWER: Final = {"tickets", "store_log", *(table.name for table in KEPT)}
"""Tables that schema 2 did not have."""
RELEASE_0_1: Final = "b21ac65"


@pytest.fixture(params=["file", "schema"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A store of schema 2, as release 0.1 wrote it."""
    if request.param == "schema":
        url = str(request.getfixturevalue("postgres"))
        lay_in_postgres(url)
        return InDatabase(url)
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    found = InFile(lay(folder / "state.db", SCHEMA_2))
    found.run(f"UPDATE meta SET value = '{platform.boot_id()}' WHERE name = 'boot_id'")  # else it is as after a reboot
    return found


@pytest.fixture
def in_postgres(postgres: str) -> InDatabase:
    lay_in_postgres(postgres)
    return InDatabase(postgres)


@contextmanager
def engine(kind: Kind, clock: Clock | None = None) -> Iterator[Store]:
    """`clock`: as at the end of the fixture."""
    clock = clock or Clock(NOW, STEADY)
    if isinstance(kind.place, Path):
        store: Store = open_sqlite(kind.place, clock, clock.steady)
    else:
        store = open_postgres(kind.place)
    with closing(store):
        yield store


def major(kind: Kind) -> int:
    if isinstance(kind, InFile):
        return int(kind.ask("PRAGMA user_version")[0][0]) // 1000
    return int(kind.ask("SELECT value FROM meta WHERE name = 'major'")[0][0])


def everything(kind: Kind) -> dict[str, Any]:
    """All rows of the tables of schema 2, by table."""
    return {name: sorted(kind.ask(f'SELECT * FROM "{name}"'), key=repr) for name in sorted(TABLES - NEWER)}


def require_upgraded(kind: Kind) -> None:
    assert major(kind) == MAJOR
    require_sound(kind.place)
    assert kind.bad() == {}
    assert kind.look()["schema"].level == "ok"


# --- what becomes of it


def test_upgrade_keeps_the_log_and_adds_principals_to_the_view(kind: Kind) -> None:
    named = f"{kind.position}, originator_id, originator_version, topic, state, at, principal, reason, digest, payload"
    before = kind.ask(f"SELECT {named} FROM stored_events ORDER BY {kind.position}")
    with engine(kind):
        pass
    require_upgraded(kind)
    assert kind.ask(f"SELECT {named} FROM stored_events ORDER BY {kind.position}") == before
    found = kind.ask("SELECT namespace, key, principal FROM current ORDER BY namespace, key")
    assert found == [
        ("a", "x", None),
        ("a", "y", None),
        ("m/ü", "gone", "token:ci"),
        ("m/ü", "k", "eva"),
        ("n", "guarded", None),
        ("n", "key 0", None),
        ("n", "long", "eva"),
        ("n", "short", "eva"),  # it has ended: who wrote it, not who noticed
    ]


def test_upgrade_ends_the_sessions_of_all_leases_and_keeps_deadlines(kind: Kind) -> None:
    columns = "resource, version, deadline, length, heard, note"
    before = kind.ask(f"SELECT {columns} FROM leases ORDER BY resource, version")
    with engine(kind) as store, store.reader() as reader:
        now = reader.at
        leases: list[Lease] = reader.leases.of(["src/a.py", "custom://merge", "docs/", "offered.py"])
    assert kind.ask(f"SELECT {columns} FROM leases ORDER BY resource, version") == before
    assert len(leases) == 6
    assert {it.server for it in leases} == {""}
    assert {it.session for it in leases} == {*hashed(kind, "p-1", "p-2", "p-3", "h-1", "p-5"), BEFORE_UPGRADE}
    assert all(0 < now - it.ended_at + SECOND < 100 * SECOND for it in leases)
    assert all(it.last_seen_at == it.last_call_at and it.receipt is None for it in leases)
    waits = next(it for it in leases if it.kind == "waits")
    assert 0 < waits.waiting_until < waits.deadline


def hashed(kind: Kind, *sessions: str) -> list[str]:
    """As a process of this release with the same session is known, which therefore finds its claims and losses."""
    [(salt,)] = kind.ask("SELECT value FROM meta WHERE name = 'session_salt'")
    return [Identity(salt).session("process", session) for session in sessions]


def test_upgrade_assigns_losses_without_a_session_to_the_time_before_it(kind: Kind) -> None:
    with engine(kind):
        pass
    sessions = {"hal": hashed(kind, "p-4")[0], "gus": BEFORE_UPGRADE, "kim": BEFORE_UPGRADE}
    assert dict(kind.ask("SELECT agent, session FROM losses")) == sessions


def test_upgrade_remembers_requests_of_the_older_release(kind: Kind) -> None:
    if isinstance(kind, InDatabase):
        kind.run(f"UPDATE requests SET at = {time.time_ns() // 1000}")
    patch = Merge(namespace="n", key="key 0", patch=Json.of({"more": [1, 2.5, True, None, "x\ny"]}), max_bytes=10000)
    command = Transact(operations=(patch,), by="ann")
    with engine(kind) as store, store.transaction(time.monotonic() + 5) as transaction:
        outcome = handle(command, Caller(request_id="r-1", correlation_id="c"), transaction)
    assert isinstance(outcome, RecordsChanged)
    assert outcome.position == 3
    assert len(kind.ask("SELECT 1 FROM stored_events")) == 48


def test_upgrade_gives_each_store_a_salt_once(kind: Kind) -> None:
    salts = []
    for _ in range(2):
        with engine(kind) as store, store.reader() as reader:
            salts.append(reader.meta(SESSION_SALT))
    assert salts[0] == salts[1]
    assert len(bytes.fromhex(salts[0] or "")) == 32


def test_upgraded_store_continues_where_it_was(kind: Kind) -> None:
    with engine(kind):
        pass
    with StateStore(kind.place) as store:
        assert store.set("n", "key 0", "again", updated_by="ann", expected_version=3).version == 4
        assert store.set("a", "x", 1, updated_by="ann", expected_version=0).version == 3
        assert store.claim("custom://deploy", agent="zoe").status == "claimed"
        assert [it.version for it in store.history("n", "key 0")] == [4, 3, 2, 1]
    require_upgraded(kind)


@pytest.mark.parametrize("column", ["agents.model", "claims.past", "threads.parent", "tokens.space"])
def test_upgrade_adds_missing_view_columns_and_fills_them_from_the_log(in_postgres: InDatabase, column: str) -> None:
    """As where a view had fewer columns in the older release."""
    view, _, name = column.partition(".")
    in_postgres.run(f"ALTER TABLE {view} DROP COLUMN {name}")
    with engine(in_postgres):
        pass
    require_upgraded(in_postgres)


def test_upgrade_corrects_view_rows_that_now_read_differently(in_postgres: InDatabase) -> None:
    in_postgres.doctored("UPDATE claims SET grants = '[[1,\"x\",null,\"exclusive\",7]]' WHERE resource = 'src/a.py'")
    with engine(in_postgres):
        pass
    require_upgraded(in_postgres)


@pytest.mark.parametrize("minor", [0, 1])
def test_store_of_an_earlier_minor_version_is_upgraded(kind: Kind, minor: int) -> None:
    gone = ["threads", "thread_items", "thread_data", *(["tokens"] if minor == 0 else [])]
    for table in gone:
        kind.run(f"DROP TABLE {table}")
    kind.run("DELETE FROM stored_events WHERE originator_id LIKE 'thread:%'")
    if minor == 0:
        kind.run("DROP INDEX leases_principal")
    if isinstance(kind, InFile):
        kind.run(f"PRAGMA user_version = {2000 + minor}")
    else:
        kind.run(f"UPDATE meta SET value = '{minor}' WHERE name = 'minor'")
    assert kind.look()["schema"].level == "warn"
    with engine(kind):
        pass
    if minor == 0:
        kind.rebuilt()  # the tokens of the fixture, which a build of that minor had not
    kind.run("DELETE FROM meta WHERE name = 'rebuild'")
    require_upgraded(kind)


def test_doctor_announces_an_upgrade_and_changes_nothing(kind: Kind) -> None:
    before = everything(kind)
    assert f"migrates it to {MAJOR}" in kind.look()["schema"].text
    assert kind.bad() == {}
    assert everything(kind) == before


def test_sealed_store_stays_sealed_after_an_upgrade_and_can_still_move(kind: Kind, tmp_path: Path) -> None:
    target = tmp_path / "moved" / "state.db"
    target.parent.mkdir(0o700)
    seal = Seal(NOW, STEADY, str(target))
    kind.run(f"INSERT INTO meta VALUES ('sealed', '{seal.text}')")
    statements = file_triggers(seal.line) if isinstance(kind, InFile) else schema_triggers(f"'{seal.line}'")
    for statement in statements:
        kind.run(statement)
    with engine(kind):
        pass
    assert major(kind) == MAJOR
    assert {row[0] for row in kind.ask("SELECT server FROM leases")} == {""}
    with StateStore(kind.place) as store, pytest.raises(SealedError):
        store.set("n", "k", 1, updated_by="ann")
    with pytest.raises((sqlite3.Error, psycopg.Error), match="was sealed"):
        kind.run(
            "INSERT INTO leases SELECT 'new', 1, kind, agent, principal, session, server, deadline, length, told,"
            " present_until, heard, position, note, receipt, seen, ended_at FROM leases LIMIT 1"
        )
    assert kind.run("UPDATE leases SET heard = 7")[0] in (0, -1), "renewals are passed over"
    assert copy(kind.place, target, seal=True).kept_id
    moved = InFile(target)
    for name in ("store_id", SESSION_SALT):
        question = f"SELECT value FROM meta WHERE name = '{name}'"
        assert moved.ask(question) == kind.ask(question)
    require_sound(target)


# --- refused and killed, in PostgreSQL (test_migration.py: in a file)

MIGRATE_AND_STOP: Final = """
import sys
from holdlog import StateStore
from holdlog.adapters.stores.postgres import migrating
where, url = sys.argv[1:]
real = getattr(migrating, where)

def stop(*arguments):
    real(*arguments)
    print("here", flush=True)
    sys.stdin.readline()

setattr(migrating, where, stop)
StateStore(url)
print("done", flush=True)
"""


@contextmanager
def stopped(where: str, place: object) -> Iterator["subprocess.Popen[str]"]:
    """A process that migrates, and stops after a step."""
    with subprocess.Popen(
        [sys.executable, "-c", MIGRATE_AND_STOP, where, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "here\n"
            yield process
        finally:
            process.kill()


@pytest.mark.check
@pytest.mark.parametrize("where", ["fold_within", "take_over_within"])
def test_killed_upgrade_changes_nothing_and_the_next_opener_upgrades(in_postgres: InDatabase, where: str) -> None:
    before = everything(in_postgres)
    with stopped(where, in_postgres.place) as process:
        process.kill()
        process.wait()
    assert everything(in_postgres) == before
    with engine(in_postgres):
        pass
    require_upgraded(in_postgres)


@pytest.mark.check
def test_one_of_two_concurrent_openers_upgrades(in_postgres: InDatabase) -> None:
    with stopped("take_over_within", in_postgres.place) as process:
        versions: list[int] = []

        def write() -> None:
            with StateStore(in_postgres.place) as store:
                versions.append(store.set("n", "new", 1, updated_by="ann").version)

        other = threading.Thread(target=write)
        other.start()
        process.communicate("go on\n")
        other.join()
    assert process.returncode == 0
    assert versions == [1]
    require_upgraded(in_postgres)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE stored_events SET topic = 'Unheard' WHERE notification_id = 5", "unknown topic"),
        ("DELETE FROM stored_events WHERE notification_id = 2", "events are missing"),
    ],
)
def test_upgrade_of_an_unreadable_log_changes_nothing(in_postgres: InDatabase, damage: str, reason: str) -> None:
    in_postgres.doctored(damage)
    before = everything(in_postgres)
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"schema 2 and cannot be migrated to 4 .*{reason}.*unchanged"):
            open_postgres(str(in_postgres.place))
    assert everything(in_postgres) == before


def test_upgrade_blocked_by_a_reader_is_unavailable_and_changes_nothing(
    in_postgres: InDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "LOCK_SECONDS", 0.2)
    before = everything(in_postgres)
    with in_postgres.connect() as reader, reader.transaction():
        reader.execute("SELECT * FROM current").fetchall()
        with pytest.raises(UnavailableError, match=r"cannot be migrated to 4 .*unchanged") as refused:
            open_postgres(str(in_postgres.place))
    assert "\n" not in str(refused.value)
    assert everything(in_postgres) == before
    with engine(in_postgres):
        pass
    require_upgraded(in_postgres)


def test_upgrade_by_a_user_who_does_not_own_the_tables_is_refused_in_one_line(in_postgres: InDatabase) -> None:
    before = everything(in_postgres)
    place = database_target(str(in_postgres.place))
    role = f"guest_{place.schema}"
    with psycopg.connect(place.url, autocommit=True) as connection:
        for statement in (
            f'CREATE ROLE "{role}" LOGIN',
            f'GRANT USAGE ON SCHEMA "{place.schema}" TO "{role}"',
            f'GRANT ALL ON ALL TABLES IN SCHEMA "{place.schema}" TO "{role}"',
        ):
            connection.execute(statement)  # type: ignore[call-overload]
        try:
            url = f"{in_postgres.place}&options=-crole%3D{role}"
            with pytest.raises(StoreError, match=r"cannot be migrated to 4 .*permission denied.*unchanged"):
                open_postgres(url)
        finally:
            connection.execute(f'DROP OWNED BY "{role}"')  # type: ignore[call-overload]
            connection.execute(f'DROP ROLE "{role}"')  # type: ignore[call-overload]
    assert everything(in_postgres) == before


# --- while a process of release 0.1 uses it

OLDER_PROCESS: Final = """
import json, sys
from holdlog import StateStore, HoldlogError
assert sys.argv[2] in StateStore.__init__.__code__.co_filename
store = StateStore(sys.argv[1])

def answer(call):
    try:
        print(json.dumps({"ok": str(call())}), flush=True)
    except HoldlogError as error:
        print(json.dumps({"error": type(error).__name__, "line": str(error)}), flush=True)

answer(lambda: store.set("n", "old", 1, updated_by="old").version)
answer(lambda: store.claim("old.py", agent="old").status)
for line in sys.stdin:
    answer(lambda: store.set("n", "old", 2, updated_by="old").version)
    answer(lambda: store.claim("old too.py", agent="old").status)
    answer(lambda: store.release("old.py", agent="old").status)
    answer(lambda: store.get("n", "old").version)
answer(lambda: StateStore(sys.argv[1]))
"""


@pytest.fixture(scope="session")
def release_0_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real code of release 0.1, to be put on the import path. Its last commit is not in a shallow clone."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=zip", RELEASE_0_1, "domain", "projections", "adapters"],
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        pytest.skip(f"the commit {RELEASE_0_1} of release 0.1 is not in this clone")
    folder = tmp_path_factory.mktemp("release") / "holdlog"
    with ZipFile(BytesIO(archive.stdout)) as files:
        files.extractall(folder)
    for file in (folder / "adapters" / "package").iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder.parent


@contextmanager
def older_process(release: Path, place: object) -> Iterator[Callable[[], dict[str, Any]]]:
    """What it says, line by line; a line to it makes it try again."""
    with subprocess.Popen(
        [sys.executable, "-c", OLDER_PROCESS, str(place), str(release)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(release)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def hear() -> dict[str, Any]:
            assert process.stdout is not None
            heard: dict[str, Any] = json.loads(process.stdout.readline())
            return heard

        hear.process = process  # type: ignore[attr-defined]
        try:
            yield hear
        finally:
            process.kill()


def test_running_process_of_release_0_1_is_refused_and_changes_nothing(release_0_1: Path, kind: Kind) -> None:
    with older_process(release_0_1, kind.place) as hear:
        process = hear.process  # type: ignore[attr-defined]
        assert hear() == {"ok": "1"}
        assert hear() == {"ok": "claimed"}
        with StateStore(kind.place) as store:
            assert store.get("n", "old").version == 1
            assert store.status("old.py").status == "claimed"
            before = everything(kind)
            process.stdin.write("again\n")
            process.stdin.flush()
            for _ in range(3):
                refused = hear()
                assert refused["error"] == "StoreError"
                assert refused["line"] == "the store has schema 4, this holdlog knows 2; upgrade holdlog"
            assert hear() == {"ok": "1"}, "reading goes on"
            process.stdin.close()
            assert hear()["line"] == "the store has schema 4, this holdlog knows 2; upgrade holdlog"
            process.wait()
            assert everything(kind) == before
            assert store.set("n", "old", 2, updated_by="ann", expected_version=1).version == 2
    require_upgraded(kind)


READ_A_MESSAGE: Final = """
import json, sys
from holdlog.adapters.nats import payload
assert sys.argv[1] in payload.__file__
found = payload.read(sys.stdin.read())
print(json.dumps([found.id, found.type, found.position, found.reason, found.data]))
"""


def test_subscriber_of_release_0_1_reads_messages_of_this_release(release_0_1: Path) -> None:
    with closing(open_memory()) as store:
        run(store, AcquireClaim(resource="a.py", agent="ann"), Caller(session="s-1"))
        guard = (FencingCondition(resource="a.py", version=1),)
        caller = Caller(session="s-1", reason="issue 7")
        run(store, Transact(operations=(put("k", {"n": 1}, 0),), by="ann", guard=guard), caller)
        message = text_of("4b0c3a5e-0000-4000-8000-000000000001", whole_log(store)[-1])
    done = subprocess.run(
        [sys.executable, "-c", READ_A_MESSAGE, str(release_0_1)],
        input=message,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(release_0_1)},
        check=True,
    )
    name, kind, position, reason, data = json.loads(done.stdout)
    assert (name, kind, position, reason) == ("record:n/k@1", "holdlog.ValueWritten", 2, "issue 7")
    assert (data["key"], data["value"], data["by"]) == ("k", {"n": 1}, "ann")
    assert (data["based_on"], data["guard"]) == (0, [{"resource": "a.py", "version": 1}])


def begin_as_0_1(connection: sqlite3.Connection) -> None:
    """Copied from `SqliteTransaction.begin` and `require_major` of release 0.1."""
    connection.execute("BEGIN IMMEDIATE")
    major = connection.execute("PRAGMA user_version").fetchone()[0] // 1000
    if major > 2:
        raise StoreError(f"the store has schema {major}, this holdlog knows 2; upgrade holdlog")


AHEAD_OF_0_1: Final = """PREPARE ahead (text[], text[], text[]) AS SELECT 1, pg_current_xact_id()::text,
    (SELECT value FROM meta WHERE name = 'major'), (SELECT value FROM meta WHERE name = 'sealed'),
    last.notification_id, last.at,
    ARRAY(SELECT DISTINCT agent FROM leases WHERE agent = ANY($1)), record.*
    FROM (VALUES (1)) AS one
    LEFT JOIN (SELECT notification_id, at FROM stored_events ORDER BY notification_id DESC LIMIT 1) AS last ON true
    LEFT JOIN (SELECT "namespace", "key", "version", "live", "value", "updated_by", "updated_at", "digest", "expires_at"
    FROM "current" WHERE (namespace, key) IN (SELECT * FROM unnest($2, $3))) AS record ON true"""
"""As `PostgresTransaction` of release 0.1 prepares it."""


def test_connection_opened_as_by_release_0_1_finds_the_newer_schema(kind: Kind) -> None:
    if isinstance(kind.place, Path):
        with closing(sqlite3.connect(kind.place, isolation_level=None)) as older:
            begin_as_0_1(older)
            older.execute("COMMIT")
            with engine(kind):
                with pytest.raises(StoreError, match="schema 4"):
                    begin_as_0_1(older)
                older.execute("ROLLBACK")
                assert older.execute("SELECT live, value, expires_at FROM current WHERE key = 'key 0'").fetchall()
        return
    place = database_target(kind.place)
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f'SET search_path TO "{place.schema}"')  # type: ignore[call-overload]
        connection.execute(AHEAD_OF_0_1)
        majors = []
        for _ in range(2):
            with connection.transaction():
                connection.execute("LOCK TABLE meta IN EXCLUSIVE MODE")
                rows = connection.execute("EXECUTE ahead('{ann}', '{n}', '{key 0}')").fetchall()
                assert rows[0][7:9] == ("n", "key 0")
                majors.append(rows[0][2])
            with engine(kind):
                pass
        assert majors == ["2", "4"]


def test_examining_a_store_of_an_older_schema_names_what_to_do(kind: Kind) -> None:
    found = {it.name: it for it in examine(kind.place, lambda done, total: None)}
    assert found["schema"].text.startswith("2")
