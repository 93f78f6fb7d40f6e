"""A projection is data about data: a table, and the row that the state of an aggregate has in it."""

from collections.abc import Mapping
from typing import NamedTuple

Cell = str | int | bytes | None


class Table(NamedTuple):
    """A view's table: `columns` by name with their types, in the order of a row; the first `key` identify it."""

    name: str
    columns: Mapping[str, type[str] | type[int] | type[bytes]]
    key: int


class Put(NamedTuple):
    """Write this row, in place of the one with the same key."""

    table: Table
    row: tuple[Cell, ...]
