"""One snapshot of a store in PostgreSQL, for the doctor."""

from collections.abc import Sequence
from typing import Final

from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.catalog import SELECT_SIZE, tables_there
from holdlog.adapters.stores.postgres.connection import Connection
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import key_of, select_rows
from holdlog.adapters.stores.postgres.transaction import PostgresReader
from holdlog.adapters.stores.sql.inspection import SqlInspection
from holdlog.adapters.stores.sql.text import NONE
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Row, Table


class PostgresInspection(SqlInspection):
    """`connection`: in a transaction with one snapshot."""

    def __init__(self, connection: Connection, recorder: PostgresEventRecorder) -> None:
        super().__init__(PostgresReader(connection, recorder, 0))
        self._connection = connection

    def views(self) -> set[str]:
        return tables_there(self._connection)

    def rows_of(self, view: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        if not keys:
            return {}
        kinds = list(key_of(view).values())
        return {row[: view.key]: row for row in self._connection.execute(_SELECT_ROWS[view.name], arrays(kinds, keys))}

    def size(self) -> int:
        """Bytes of all tables with their indexes."""
        return int(self._unit.rows(SELECT_SIZE, NONE)[0][0])


_SELECT_ROWS: Final = {view.name: select_rows(view) for view in VIEWS}
