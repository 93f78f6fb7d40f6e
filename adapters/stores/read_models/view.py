"""The view database of the read models: a private SQLite file, one process at a time."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from eventsourcing.persistence import PersistenceError, Tracking
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore, SQLiteTrackingRecorder

from holdlog.adapters.operating_system.location import CANNOT_WRITE, LocationError, prepare_folder, shown
from holdlog.adapters.operating_system.private import open_private, require_own, require_private, why_open
from holdlog.adapters.operating_system.write_lock import WriteLock
from holdlog.adapters.stores.read_models import tables
from holdlog.adapters.stores.read_models.tables import NO_PRINCIPAL
from holdlog.adapters.stores.sql.text import beyond
from holdlog.adapters.stores.sqlite.recorder import uri_of
from holdlog.domain.claims.resource import covering
from holdlog.domain.refusals import StoreError
from holdlog.projections.activity import ActivityRow
from holdlog.projections.collisions import Blocker, CollisionRow, RecordedHold, RecordedTicket

LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for another command that reads the same log."""


class ReadModelView(SQLiteTrackingRecorder):
    """The rows of the read models, and the position in the log that they have reached."""

    _cursor: SQLiteCursor | None = None

    def construct_create_table_statements(self) -> list[str]:
        return [*super().construct_create_table_statements(), *tables.CREATE]

    @contextmanager
    def transaction(self) -> Iterator[SQLiteCursor]:
        """All that is written in the block, in one transaction; an inner block joins the outer one."""
        if self._cursor is not None:
            yield self._cursor
            return
        with self.datastore.transaction(commit=True) as cursor:
            self._cursor = cursor
            try:
                yield cursor
            finally:
                self._cursor = None

    def reach(self, tracking: Tracking, digest: bytes) -> None:
        """Note the position and the digest of an event. Raises the library's IntegrityError if it was noted before."""
        with self.transaction() as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(tables.PUT_REACHED, (digest,))

    def reached(self, application_name: str) -> tuple[int, bytes]:
        """The position and the digest of the last event. Empties tables of another log or of another version."""
        with self.transaction() as cursor:
            cursor.execute(tables.READ_VERSION)
            is_known = cursor.fetchone()[0] == tables.VERSION
            position = self._max_tracking_id(application_name, cursor) if is_known else None
            if position is None:
                self.clear()
                return 0, b""
            cursor.execute(tables.SELECT_REACHED)
            return position, bytes(cursor.fetchone()[0])

    def clear(self) -> None:
        """Remove all rows and positions."""
        with self.transaction() as cursor:
            for statement in (*tables.DROP, *tables.CREATE, tables.SET_VERSION):
                cursor.execute(statement)
            cursor.execute(tables.FORGET_POSITIONS, (self.table_migration_identifier,))

    # --- what the projection writes, within a transaction

    def _execute(self, statement: str, values: Sequence[object]) -> None:
        with self.transaction() as cursor:
            cursor.execute(statement, tuple(values))

    def count(self, agent: str, principal: str | None, hour: int, topic: str) -> None:
        self._execute(tables.COUNT, (agent, principal or NO_PRINCIPAL, hour, topic))

    def hold(self, hold: RecordedHold) -> None:
        self._execute(tables.PUT_HOLD, hold)

    def end_hold(self, resource: str, version: int | None) -> None:
        """`version` None: all holds of the resource."""
        if version is None:
            self._execute(tables.END_HOLDS, (resource,))
        else:
            self._execute(tables.END_HOLD, (resource, version))

    def queue(self, ticket: RecordedTicket, behind: Sequence[Blocker], at: int) -> None:
        queued, waiter = (ticket.resource, ticket.version), (ticket.agent, ticket.principal or NO_PRINCIPAL)
        self._execute(tables.PUT_TICKET, ticket)
        for resource, agent, principal in behind:
            self._execute(tables.PUT_COLLISION, (*queued, resource, *waiter, agent, principal or NO_PRINCIPAL, at))

    def unqueue(self, resource: str, ticket: int, at: int | None, granted: bool) -> None:
        """`at`: microseconds UTC; None: unknown."""
        self._execute(tables.END_TICKET, (resource, ticket))
        self._execute(tables.END_COLLISIONS, (at, int(granted), resource, ticket))

    def holds_at(self, resources: Sequence[str]) -> list[RecordedHold]:
        """The holds that overlap these resources."""
        return [RecordedHold(*row) for row in self._overlapping("holds", resources)]

    def tickets_at(self, resources: Sequence[str]) -> list[RecordedTicket]:
        """The tickets that overlap these resources, by the resource in whose queue they are."""
        return [RecordedTicket(*row) for row in self._overlapping("tickets", resources)]

    # --- what commands read

    def activity(self, first_hour: int, last_hour: int, agent: str | None) -> list[ActivityRow]:
        """Newest hour first. `agent`: only this one and its sub-agents."""
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(tables.SELECT_ACTIVITY, {"first": first_hour, "last": last_hour, "agent": agent})
            rows = [ActivityRow(*row) for row in cursor.fetchall()]
        return [row._replace(principal=row.principal or None) for row in rows]

    def collisions(
        self, since: int, until: int, resource: str | None, agent: str | None, limit: int
    ) -> list[CollisionRow]:
        """The most frequent first. `since`, `until`: microseconds UTC; `resource`: what overlaps it; `agent`: this one
        or its sub-agents, as waiter or as the one in front."""
        covers = "\n".join(("", *covering(resource or ""), ""))
        values = {
            "since": since,
            "until": until,
            "resource": resource,
            "covers": covers,
            "agent": agent,
            "limit": limit,
        }
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(tables.SELECT_COLLISIONS, values)
            rows = [CollisionRow(*row) for row in cursor.fetchall()]
        return [
            row._replace(principal=row.principal or None, behind_principal=row.behind_principal or None) for row in rows
        ]

    def _overlapping(self, table: str, resources: Sequence[str]) -> list[sqlite3.Row]:
        names = list(dict.fromkeys(name for resource in resources for name in covering(resource)))
        found: dict[tuple[str, int], sqlite3.Row] = {}
        with self.transaction() as cursor:
            cursor.execute(tables.select_named(table, len(names)), names)
            rows = cursor.fetchall()
            for resource in resources:
                if resource.endswith("/"):
                    cursor.execute(tables.select_below(table), (resource, beyond(resource)))
                    rows += cursor.fetchall()
        for row in rows:
            found[row["resource"], row["version"]] = row
        return list(found.values())


@contextmanager
def open_view(path: Path) -> Iterator[ReadModelView]:
    """Open the file, create it if it is missing, and exclude other processes while the block runs.

    Raises StoreError, whose message says what to do; UnavailableError if another process takes too long.
    """
    try:
        prepare_folder(path)
        require_private(path)
        require_own(path)
        lock = WriteLock(path.with_name(path.name + ".gate"))
    except LocationError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise StoreError(f"{shown(path.parent)} cannot be written ({error.strerror})") from None
        with _view_in(SQLiteDatastore(":memory:")) as view:  # counted from the whole log, and forgotten
            yield view
        return
    try:
        lock.acquire(time.monotonic() + LOCK_TIMEOUT)
        try:
            with _opened(path) as view:
                yield view
        except (PersistenceError, sqlite3.Error) as error:
            raise StoreError(f"{shown(path)}: {error}; if you remove the file, it is rebuilt from the log") from error
        finally:
            lock.release()
    finally:
        lock.close()


@contextmanager
def _opened(path: Path) -> Iterator[ReadModelView]:
    with suppress(FileExistsError):
        os.close(open_private(path, os.O_RDWR | os.O_EXCL))  # SQLite would create it with the mode of the umask
    if (exposed := why_open(path)) is not None:
        raise exposed
    with _view_in(SQLiteDatastore(uri_of(path))) as view:
        yield view


@contextmanager
def _view_in(datastore: SQLiteDatastore) -> Iterator[ReadModelView]:
    try:
        view = ReadModelView(datastore)
        view.create_table()
        yield view
    finally:
        datastore.close()
