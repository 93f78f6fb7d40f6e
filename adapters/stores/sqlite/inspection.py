"""One snapshot of a store in a file, for the doctor."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Final

from holdlog.adapters.stores.sql.inspection import SqlInspection
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.adapters.stores.sqlite.schema import select_row, tables_there
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Row, Table


class SqliteInspection(SqlInspection):
    """`connection`: in a read transaction, with `any_text` as `text_factory`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SqliteReader(connection, SqliteEventRecorder(), 0))
        self._connection = connection

    def views(self) -> set[str]:
        return tables_there(self._connection)

    def rows_of(self, view: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        select = _SELECT_ROW[view.name]
        found = ((key, self._connection.execute(select, key).fetchone()) for key in keys)
        return {key: row for key, row in found if row is not None}


any_text: Final = partial(str, encoding="utf-8", errors="surrogateescape")
"""A `text_factory` that also reads invalid UTF-8; the result then differs from any valid text."""


_SELECT_ROW: Final = {view.name: select_row(view) for view in VIEWS}
