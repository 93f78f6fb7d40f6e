"""One text for both databases. Statements are written for PostgreSQL, with named parameters (`:name`), `ANY(:names)`
for a list, and positions in the log in the column `notification_id`; each database gets a translation."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, Protocol

from holdlog.projections.projection import Row, Table

Parameters = Mapping[str, object]
NONE: Final[Parameters] = {}
ALL: Final = sys.maxsize
"""A limit that never applies, and a version and a position above all others."""

_PARAMETER: Final = re.compile(r"(?<!:):(\w+)")
_IN_SQLITE: Final = (
    ("IS NOT DISTINCT FROM", "IS"),
    ("LEAST(", "MIN("),
    ("GREATEST(", "MAX("),
    ("strpos(", "instr("),
    ("notification_id", "rowid"),
)


class Statements(Protocol):
    """Runs statements of this folder on a connection."""

    def rows(self, statement: str, parameters: Parameters) -> list[Row]:
        """Run a statement and return its rows."""

    def rows_in(self, statement: str, names: Sequence[object], parameters: Parameters = NONE) -> list[Row]:
        """Run a statement with a list `:names`, of any length."""

    def stream(self, statement: str, parameters: Parameters) -> Iterator[Row]:
        """Run a statement and yield its rows, which may be too many for memory."""


class PendingStatements(Statements, Protocol):
    """Runs statements in a transaction; may defer those that return nothing until the next read or the commit."""

    def later(self, statement: str, parameters: Parameters) -> None:
        """Run a statement that returns nothing."""

    def changes(self, statement: str, parameters: Parameters) -> bool:
        """Run a statement now; return whether it changed any row."""

    def put(self, table: Table, rows: list[Row]) -> None:
        """Insert rows, replacing those with the same keys."""


@cache
def for_postgres(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement)


@lru_cache(4096)
def for_sqlite(statement: str, names: int = 0) -> str:
    """`names`: how many there are in the list `:names`; they become the parameters `:name0`, `:name1` and so on."""
    for ours, theirs in _IN_SQLITE:
        statement = statement.replace(ours, theirs)
    return statement.replace("= ANY(:names)", f"IN ({', '.join(f':name{number}' for number in range(names))})")


def bound(limit: int) -> int:
    """The limit of a statement; below 0 = all rows."""
    return ALL if limit < 0 else limit


def beyond(prefix: str) -> str | None:
    """The first text after all that start with the prefix; None if there is none."""
    rest = prefix.rstrip(chr(sys.maxunicode))
    if not rest:
        return None
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)
