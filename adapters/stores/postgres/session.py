"""Registers this process among those that share a database, by a lock that lasts as long as its connection, and
receives the notifications of their commits there."""

import os
import re
import secrets
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from holdlog.adapters.operating_system.liveness import Liveness, Process
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.stores.postgres.connection import Connection, connect, readable
from holdlog.adapters.stores.postgres.faults import refusal_of
from holdlog.adapters.stores.postgres.recorder import channel_of
from holdlog.adapters.stores.postgres.store import FIRST_PAUSE, LAST_PAUSE, PostgresStore
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError

POLL_EVERY: Final = 1.0
"""Seconds between polls without a notification, while a waiter exists."""
JOIN_SECONDS: Final = 5.0


class PostgresLiveness(Liveness):
    """Liveness by one connection in a separate thread, opened by the first waiter or claim, and again whenever it is
    lost.

    The process's name is that of an advisory lock, which the database releases with the connection; so other processes
    know which ones are alive. Calls `wake` for each commit of any process, and after each new connection.
    """

    def __init__(self, store: PostgresStore, wake: Callable[[], None], what: str = "python") -> None:
        """Open no connection yet: the first waiter or claim does. `what`: a description of this process, for people who
        list connected processes."""
        self.name = f"pg-{secrets.token_hex(7)}"
        self.session = ""  # session id, for processes that share one
        self._what = what
        self._store = store
        self._wake = wake
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._there = threading.Event()
        self._error: HoldlogError | None = None
        self._ended = False
        self._ends: tuple[int, int] = (-1, -1)

    def start(self) -> None:
        with self._starting:
            if self._thread is None and not self._ended:
                self._ends = os.pipe()
                self._thread = threading.Thread(target=self._run, name="holdlog-postgres", daemon=True)
                self._thread.start()

    def join(self) -> str:
        """Connect. Raises UnavailableError if the database does not answer: other processes could not see that this one
        is alive."""
        if not self._there.is_set():
            if self._ended:
                raise StoreError.closed()
            self.start()
            if not self._there.wait(JOIN_SECONDS):
                raise self._error or UnavailableError("the database does not respond; try again")
        return self.name

    def _lives(self, server: str) -> bool:
        if server == self.name:
            return True
        number = _number(server)
        if number is None:
            return False
        with self._store.reader() as reader:
            return bool(reader.connection.execute(f"SELECT 1 {_HELD}", (number >> 32, number & 0xFFFFFFFF)).fetchall())

    def others_of(self, session: str) -> list[str]:
        with self._store.reader() as reader:
            found = _connected(reader.connection, _number_of_session(self._store.target.schema, session))
        return [server for server, *_ in found if server != self.name]

    def processes(self) -> list[Process]:
        with self._store.reader() as reader:
            found = _connected(reader.connection, _number_of(self._store.target.schema))
        return [_process(server, host, named) for server, host, _, named in found]

    def close(self) -> None:
        with self._starting:
            thread, self._thread, self._ended = self._thread, None, True
        if thread is not None:
            os.write(self._ends[1], b"x")
            thread.join()
            for end in self._ends:
                os.close(end)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._ended:
            try:
                connection = connect(self._store.target)
            except psycopg.Error as error:
                self._error = refusal_of(error)
            else:
                with suppress(psycopg.Error), connection:
                    self._listen(connection)
                    pause = FIRST_PAUSE
                self._there.clear()
            if not self._ended:
                readable([self._ends[0]], pause)
                pause = min(2 * pause, LAST_PAUSE)

    def _listen(self, connection: Connection) -> None:
        number = _number(self.name) or 0
        # A connection that only this side knows to be lost may still hold the lock, for hours.
        connection.execute(_END_OLD, (number >> 32, number & 0xFFFFFFFF))
        schema = self._store.target.schema
        names = (number, _number_of(schema), _number_of_session(schema, self.session))
        connection.execute("SELECT set_config('application_name', %s, false)", (_described(self._what),))
        connection.execute(
            "SELECT pg_advisory_lock(%s), pg_advisory_lock_shared(%s), pg_advisory_lock_shared(%s)", names
        )
        channel = sql.Identifier(channel_of(self._store.target.schema))
        connection.execute(sql.SQL("LISTEN {}").format(channel))
        self._there.set()
        self._wake()  # notifications may have been missed
        while not self._ended:
            if connection.fileno() in readable([connection.fileno(), self._ends[0]], POLL_EVERY):
                connection.execute("SELECT 1")  # reads pending notifications; fails if the connection is lost
            self._wake()


class DatabaseNotifier(ProcessNotifier):
    """Notifies this process directly; the database notifies other processes of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.session: PostgresLiveness | None = None

    @contextmanager
    def listen(self, wake: Callable[[], None]) -> Iterator[None]:
        with super().listen(wake):
            if self.session is not None:
                self.session.start()
            yield


class ConnectedSession(NamedTuple):
    """A connected session. `host`: an address; `started`: when its connection was made. The database shows both only to
    its own user."""

    server: str
    host: str
    started: str


def connected(connection: Connection, schema: str) -> list[ConnectedSession]:
    """The sessions of a store, the oldest first. Raises psycopg.Error."""
    return [ConnectedSession(*row[:3]) for row in _connected(connection, _number_of(schema))]


def _connected(connection: Connection, number: int) -> list[tuple[str, str, str, str]]:
    """Server, host, start and name of the connections that share the lock of this number."""
    rows = connection.execute(_SELECT_CONNECTED, (number >> 32, number & 0xFFFFFFFF)).fetchall()
    return [(f"pg-{high << 32 | low:014x}", *rest) for high, low, *rest in rows]


def _described(what: str) -> str:
    """Description of this process for the name of its connection, which the database shows to others and cuts after 63
    bytes."""
    try:
        folder = os.getcwd()
    except OSError:  # the folder was removed
        folder = ""
    head = f"holdlog {os.getpid()} {what[:20]} in "
    ascii_folder = folder.encode("ascii", "replace").decode()
    space = 63 - len(head)
    return head + (ascii_folder if len(ascii_folder) <= space else "..." + ascii_folder[3 - space :])


def _process(server: str, host: str, named: str) -> Process:
    found = re.fullmatch(r"holdlog ([0-9]{1,9}) (.{0,40}?) in (.*)", named)
    pid, program, folder = found.groups() if found else ("0", "", "")
    return Process(server, int(pid), program, folder, host)


def _number_of(schema: str) -> int:
    """Number of a lock that all sessions of a store share, by which the doctor identifies them."""
    return (2 << 32) + zlib.crc32(f"holdlog session {schema}".encode())


def _number_of_session(schema: str, session: str) -> int:
    """Number of a lock that the processes of one session share."""
    return (3 << 32) + zlib.crc32(f"holdlog session {schema} {session}".encode())


def _number(server: str) -> int | None:
    kind, _, number = server.partition("-")
    with suppress(ValueError):
        return int(number, 16) if kind == "pg" else None
    return None


_HELD: Final = """FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = %s AND objid = %s"""
"""Holders of the advisory lock of a number, given as its two halves."""
_END_OLD: Final = f"SELECT pg_terminate_backend(pid) {_HELD} AND pid <> pg_backend_pid()"
_SELECT_CONNECTED: Final = """SELECT own.classid::bigint, own.objid::bigint,
    CASE WHEN backend_start IS NULL THEN '?' ELSE COALESCE(host(client_addr), 'a socket') END,
    COALESCE(to_char(backend_start, 'YYYY-MM-DD HH24:MI:SSOF'), '?'), COALESCE(application_name, '')
    FROM pg_locks AS shared JOIN pg_locks AS own USING (pid, locktype, database) LEFT JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND shared.objsubid = 1 AND shared.mode = 'ShareLock' AND shared.classid = %s AND shared.objid = %s
    AND own.objsubid = 1 AND own.mode = 'ExclusiveLock' ORDER BY backend_start, pid"""
