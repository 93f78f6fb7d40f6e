"""The PostgreSQL schema, generated from the projections' tables. Text sorts by bytes, as in SQLite."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdlog.adapters.stores.event_log.codec import COLUMNS, REQUIRED
from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.sql.tables import (
    EVENTS_TABLE,
    LEASES,
    LOSSES,
    REFUSALS,
    SIDE_INDEXES,
    TABLES,
    VIEW_INDEXES,
    select_from,
)
from holdlog.domain.refusals import StoreError
from holdlog.projections.claims import SNAPSHOT_TABLES
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table
from holdlog.projections.store_log import STORE_LOG
from holdlog.projections.tree import TREE

MAJOR: Final = 4
"""Major version of this schema. A server refuses a store with another one. In version 1 writers locked the table of the
log; version 2 had log format 1 and no column `session` in `requests`; version 3 had no view `tickets`."""
MINOR: Final = 2
"""Minor version: each one only adds tables or indexes (see `ADDED`), so servers with different minor versions can share
a schema. A schema without a row `minor` in `meta` has version 0. 1: snapshots of the board. 2: facts about the log, and
roots of subtrees of its Merkle tree."""

TYPE_NAMES: Final = {str: "text", int: "bigint", bytes: "bytea"}
TYPES: Final = TYPE_NAMES | {str: 'text COLLATE "C"'}
_ARRAYS: Final = {str: "text[]", int: "bigint[]", bytes: "bytea[]"}
_TEXT: Final = TYPES[str]

_LEASE_NULLABLE: Final = ("principal", "session", "note", "receipt")


def require_major(found: str | None) -> None:
    """Raise StoreError for a store whose schema has another major version."""
    if found == str(MAJOR):
        return
    if found is not None and found.isdecimal() and int(found) < MAJOR:
        raise StoreError(
            f"the store has schema {found}, which is older than {MAJOR}; use the holdlog release that created it"
        )
    raise StoreError(f"the store has schema {found}, but this holdlog supports {MAJOR}; upgrade holdlog")


ADDED: Final[dict[str, int]] = {**{it.name: 1 for it in SNAPSHOT_TABLES}, STORE_LOG.name: 2, TREE.name: 2}
"""Tables and indexes added since minor version 0, with the version that added each."""


def minor_of(minor: str | None) -> int:
    """Parse the row `minor`. A text that is not a number counts as the current minor version."""
    return 0 if minor is None else int(minor) if minor.isdecimal() else MINOR


def is_behind(minor: str | None) -> bool:
    """Whether a store of our major version has an older minor version. Only then may a caller update the row `minor`,
    so that a newer version is never lowered."""
    return minor_of(minor) < MINOR


def added_since(minor: str | None) -> frozenset[str]:
    """The tables and indexes that a store of that minor version lacks, by name."""
    return frozenset(name for name, since in ADDED.items() if since > minor_of(minor))


def create_view(table: Table, name: str | None = None, kind: str = "TABLE") -> str:
    columns = ", ".join(f'"{column}" {TYPES[type_]}' for column, type_ in table.columns.items())
    key = ", ".join(_quoted(key_of(table)))
    return f'CREATE {kind} "{name or table.name}" ({columns}, PRIMARY KEY ({key}))'


def select_rows(table: Table, name: str | None = None) -> str:
    """Select the rows with the given keys. The statement takes one array per key column."""
    return f"{select_from(table, name)} WHERE {_has_key(table)}"


def _has_key(table: Table) -> str:
    key = key_of(table)
    given = ", ".join(f"%s::{_ARRAYS[kind]}" for kind in key.values())
    return f"({', '.join(_quoted(key))}) IN (SELECT * FROM unnest({given}))"


def drop_rows(table: Table, name: str | None = None) -> str:
    """Delete the rows with the given keys. The statement takes one array per key column."""
    return f'DELETE FROM "{name or table.name}" WHERE {_has_key(table)}'


def key_of(table: Table) -> dict[str, type]:
    """The key columns of a table, with their types."""
    return dict(list(table.columns.items())[: table.key])


class Insert(NamedTuple):
    """Inserts rows. `one` inserts a single row from its values, at about half the cost of `many`, which takes one array
    per column."""

    one: str
    many: str
    kinds: Sequence[type]

    def of(self, rows: Sequence[tuple[Any, ...]]) -> tuple[str, Sequence[Any]]:
        """The statement that inserts these rows, and its parameters."""
        return (self.one, rows[0]) if len(rows) == 1 else (self.many, arrays(self.kinds, rows))


def insert_into(table: str, types: Mapping[str, type], also: str = "") -> Insert:
    into = f'INSERT INTO "{table}" ({", ".join(_quoted(types))})'
    one = f"{into} VALUES ({', '.join(['%s'] * len(types))}){also}"
    parameters = ", ".join(f"%s::{_ARRAYS[kind]}" for kind in types.values())
    return Insert(one, f"{into} SELECT * FROM unnest({parameters}){also}", tuple(types.values()))


def put_into(table: str, types: Mapping[str, type], key: int) -> Insert:
    """Insert rows, replacing those with the same key: the first `key` columns."""
    if not key:
        return insert_into(table, types)
    names = _quoted(types)
    changes = ", ".join(f"{name} = excluded.{name}" for name in names[key:])
    action = f"UPDATE SET {changes}" if changes else "NOTHING"
    return insert_into(table, types, f" ON CONFLICT ({', '.join(names[:key])}) DO {action}")


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _columns(types: Mapping[str, type], required: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {TYPES[kind]}{' NOT NULL' if name in required else ''}" for name, kind in types.items())


CREATE: Final = (
    f"""CREATE TABLE {EVENTS_TABLE} (
    {_columns(COLUMNS, REQUIRED)},
    notification_id bigint NOT NULL UNIQUE,
    PRIMARY KEY (originator_id, originator_version))""",
    f"CREATE TABLE meta (name {_TEXT} PRIMARY KEY, value {_TEXT} NOT NULL)",
    f"""CREATE TABLE requests (principal {_TEXT} NOT NULL, request_id {_TEXT} NOT NULL, at bigint NOT NULL,
    fingerprint bytea NOT NULL, outcome {_TEXT} NOT NULL, session {_TEXT} NOT NULL DEFAULT '',
    PRIMARY KEY (principal, session, request_id))""",
    f"""CREATE TABLE refusals (id bigserial PRIMARY KEY, at bigint NOT NULL, code {_TEXT} NOT NULL,
    what {_TEXT} NOT NULL, by {_TEXT} NOT NULL, session {_TEXT})""",
    f"""CREATE TABLE leases ({
        _columns(LEASES.columns, tuple(it for it in LEASES.columns if it not in _LEASE_NULLABLE))
    }, PRIMARY KEY (resource, version))""",
    f"""CREATE TABLE losses ({_columns(LOSSES.columns, ("resource", "version", "why", "agent", "server", "at"))},
    PRIMARY KEY (resource, version))""",
    *map(create_view, TABLES),
    *(f"CREATE INDEX {it}" for it in (*SIDE_INDEXES, *VIEW_INDEXES)),
)

PUT: Final = {
    table.name: put_into(table.name, table.columns, table.key) for table in (*TABLES, LEASES, LOSSES, REFUSALS)
}
DROP: Final = {view.name: drop_rows(view) for view in VIEWS}
PUT_META: Final = "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
