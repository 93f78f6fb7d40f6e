"""The recorder over PostgreSQL. Events are inserted as one array per column."""

from collections.abc import Sequence
from typing import Any, Final

from psycopg.sql import SQL, Identifier

from holdlog.adapters.stores.event_log.codec import COLUMNS, EncodedEvent
from holdlog.adapters.stores.postgres.schema import insert_into
from holdlog.adapters.stores.postgres.target import DatabaseTarget
from holdlog.adapters.stores.sql.recorder import LogRecorder, Units
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.projections.projection import Row

_INSERT_EVENTS: Final = insert_into(EVENTS_TABLE, COLUMNS | {"notification_id": int})
_RESTORE_EVENTS: Final = f"COPY {EVENTS_TABLE} (notification_id, {', '.join(COLUMNS)}) FROM STDIN"


class PostgresEventRecorder(LogRecorder):
    """The log in PostgreSQL. The writer, who holds the log's lock, assigns positions; unlike those of a sequence, they
    have no gaps."""

    def __init__(self, target: DatabaseTarget, units: Units | None = None) -> None:
        super().__init__(units)
        self.channel_name = channel_of(target.schema)
        # VACUUM and ANALYZE lock the log's own table, which would delay every write; so lock this small one.
        self.lock = SQL("LOCK TABLE {}.meta IN EXCLUSIVE MODE").format(Identifier(target.schema)).as_string()
        """Statement that locks out other writers. The transaction bounds the wait for it."""
        self.notify = SQL("NOTIFY {}").format(Identifier(self.channel_name)).as_string()
        """Statement that wakes all processes at the commit."""

    def _insert(self, events: Sequence[EncodedEvent], unit: Any) -> Sequence[int]:
        last: int = unit.position()
        positions = range(last - len(events) + 1, last + 1)
        rows = [(*event[1:], position) for event, position in zip(events, positions, strict=True)]
        unit.connection.execute(*_INSERT_EVENTS.of(rows), prepare=True)
        return positions

    def restore(self, rows: Sequence[Row], unit: Any) -> None:
        with unit.connection.cursor() as cursor, cursor.copy(_RESTORE_EVENTS) as copying:
            for row in rows:
                copying.write_row(row)

    def digest_at(self, position: int, unit: Any) -> bytes | None:
        """The digest of the event at a position."""
        found = self.select_notifications(position, 1, position, unit=unit)
        return found[0].digest if found else None


def channel_of(schema: str) -> str:
    """The channel on which commits are notified (LISTEN)."""
    return f"{schema}_log"
