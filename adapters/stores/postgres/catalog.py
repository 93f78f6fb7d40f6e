"""Finds out which of the tables and indexes of this version exist in a database."""

import re
from typing import Final

from holdlog.adapters.stores.postgres.connection import Connection
from holdlog.adapters.stores.postgres.schema import CREATE, TYPE_NAMES
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.projections.fold import VIEWS

_MADE: Final = [(*match.groups(), it) for it in CREATE if (match := re.match(r'CREATE (TABLE|INDEX) "?(\w+)"?', it))]
assert len(_MADE) == len(CREATE)

MADE: Final = {name: statement for _, name, statement in _MADE}
"""Statements that make tables and indexes, by name."""
TABLES: Final = frozenset(name for kind, name, _ in _MADE if kind == "TABLE")
INDEXES: Final = {name: statement for kind, name, statement in _MADE if kind == "INDEX"}
KEYS: Final = frozenset({f"{name}_pkey" for name in TABLES} | {f"{EVENTS_TABLE}_notification_id_key"})
"""Unique indexes, by PostgreSQL's names: without them writers fail, or nothing protects the log."""
OF_VIEWS: Final = {
    name: it for name, it in INDEXES.items() if any(re.search(rf"\bON {view.name}\b", it) for view in VIEWS)
}
"""Indexes of views, with the statements that make them."""

_SELECT_COLUMNS: Final = """SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""
IN_SCHEMA: Final = "relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
"""Not `::regnamespace`, which folds and splits a name as if it were an unquoted identifier."""
SELECT_SIZE: Final = f"""SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
    WHERE {IN_SCHEMA} AND relkind = 'r'"""
"""Bytes of all tables with their indexes."""
_SELECT_INDEXES: Final = f"""SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid
    WHERE {IN_SCHEMA} AND indisvalid"""


def tables_there(connection: Connection) -> set[str]:
    rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {name for (name,) in rows}


def columns_there(connection: Connection, table: str) -> dict[str, str]:
    """The columns of a table, with their types; none if it is missing."""
    return dict(connection.execute(_SELECT_COLUMNS, (f'"{table}"',)).fetchall())


def indexes_there(connection: Connection) -> set[str]:
    return {name for (name,) in connection.execute(_SELECT_INDEXES)}


def views_to_replace(connection: Connection) -> frozenset[str]:
    """Views whose table is missing, or lacks a column or its key."""
    indexes = indexes_there(connection)
    replaced = set()
    for view in VIEWS:
        found = set(columns_there(connection, view.name).items())
        columns = {(name, TYPE_NAMES[kind]) for name, kind in view.columns.items()}
        if f"{view.name}_pkey" not in indexes or not columns <= found:
            replaced.add(view.name)
    return frozenset(replaced)
