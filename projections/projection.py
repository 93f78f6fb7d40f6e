"""Describes a projection: a table, and a row with the state of an aggregate."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Row = tuple[Any, ...]
Cell = str | int | bytes | None


class Table(NamedTuple):
    """A view's table. `columns`: types by name, in row order; the first `key` columns identify a row."""

    name: str
    columns: Mapping[str, type[str] | type[int] | type[bytes]]
    key: int


class Put(NamedTuple):
    """Write this row, replacing the one with the same key."""

    table: Table
    row: tuple[Cell, ...]

    @property
    def key(self) -> tuple[Cell, ...]:
        return self.row[: self.table.key]


class Drop(NamedTuple):
    """Remove the row with this key, if there is one."""

    table: Table
    key: tuple[Cell, ...]


RowChange = Put | Drop
