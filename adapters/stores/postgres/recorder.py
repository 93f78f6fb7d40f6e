"""The library's recorder over PostgreSQL: its log with our additional columns, inserted as one array per column."""

from collections.abc import Sequence
from typing import Any

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import ConnectionPool, PostgresApplicationRecorder, PostgresDatastore
from psycopg import Connection
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Identifier

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.postgres.schema import INSERT_EVENTS, PUT
from holdlog.adapters.stores.postgres.target import DatabaseTarget
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.projections.projection import Put


class OpenedPostgresDatastore(PostgresDatastore):
    """The pool for reads through the library, opened by the first one; the store's other connections are separate."""

    def __init__(self, target: DatabaseTarget) -> None:
        super().__init__("", "", "", "", "", schema=target.schema, originator_id_type="text")
        self.pool = ConnectionPool(
            target.url,
            connection_class=Connection[DictRow],
            kwargs={"row_factory": dict_row},
            min_size=1,
            open=False,
            configure=self.after_connect_func(),
        )

    def register_type_adapters(self) -> None:
        """Register nothing: events are inserted as arrays of columns, not of a composite type."""


class PostgresEventRecorder(PostgresApplicationRecorder):
    """Records events. The writer, who holds the log's lock, assigns positions; unlike those of a sequence, they have no
    gaps."""

    def __init__(self, target: DatabaseTarget) -> None:
        super().__init__(OpenedPostgresDatastore(target), events_table_name=EVENTS_TABLE)
        self.channel_name = channel_of(target.schema)
        # VACUUM and ANALYZE lock the log's own table, which would delay every write; so lock this small one.
        self.lock = SQL("LOCK TABLE {}.meta IN EXCLUSIVE MODE").format(Identifier(target.schema)).as_string()
        """Statement that locks out other writers. The transaction bounds the wait for it."""
        self._notify = SQL("NOTIFY {}").format(Identifier(self.channel_name)).as_string()

    def _insert_events(
        self,
        curs: Any,
        stored_events: Sequence[StoredEvent],
        *,
        sealed: Sequence[EncodedEvent] = (),
        puts: Sequence[Put] = (),
        first: int = 0,
        **_: Any,
    ) -> None:
        rows = [(*event, first + number) for number, event in enumerate(sealed)]
        curs.execute(*INSERT_EVENTS.of(rows), prepare=True)
        found: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {}
        for table, row in puts:
            found.setdefault(table.name, {})[row[: table.key]] = row  # one statement writes a row once
        for name, of_view in found.items():
            curs.execute(*PUT[name].of(list(of_view.values())), prepare=True)

    def _notify_channel(self, curs: Any) -> None:
        curs.execute(self._notify)


def channel_of(schema: str) -> str:
    """The channel on which commits are notified (LISTEN)."""
    return f"{schema}_log"
