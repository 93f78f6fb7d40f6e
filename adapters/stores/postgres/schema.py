"""The PostgreSQL schema, made from the projections' tables. Text sorts by bytes, as it does in SQLite."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdlog.adapters.stores.schema import EVENT_COLUMNS, EVENTS_TABLE
from holdlog.domain.claims.lease import Lease, Loss
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table

MAJOR: Final = 1
"""Of the tables here; servers of another major version are refused."""

_TYPES: Final = {str: 'text COLLATE "C"', int: "bigint", bytes: "bytea"}
_ARRAYS: Final = {str: "text[]", int: "bigint[]", bytes: "bytea[]"}
_TEXT: Final = _TYPES[str]

EVENT_TYPES: Final = {
    "originator_id": str,
    "originator_version": int,
    "topic": str,
    "state": bytes,
    "at": int,
    "principal": str,
    "session": str,
    "request_id": str,
    "reason": str,
    "correlation_id": str,
    "digest": bytes,
    "salt": bytes,
    "payload": str,
    "payload_hash": bytes,
}
assert tuple(EVENT_TYPES) == EVENT_COLUMNS

_LEASE_TYPES: Final = dict.fromkeys(Lease._fields, str) | dict.fromkeys(
    ("version", "deadline", "length", "told", "present_until", "heard", "position"), int
)
_LOSS_TYPES: Final = dict.fromkeys(Loss._fields, str) | dict.fromkeys(("version", "at"), int)


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as one list per column, as statements with `unnest` take them."""
    return [list(column) for column in zip(*rows, strict=True)]


def create_view(table: Table) -> str:
    columns = ", ".join(f'"{column}" {_TYPES[kind]}' for column, kind in table.columns.items())
    return f'CREATE TABLE "{table.name}" ({columns}, PRIMARY KEY ({_key(table)}))'


def put_statement(table: Table) -> str:
    """Insert rows, given as one array per column, or replace what stands under their keys."""
    names = [f'"{column}"' for column in table.columns]
    rest = names[table.key :]
    return (
        f'INSERT INTO "{table.name}" ({", ".join(names)}) SELECT * FROM unnest({_arrays(table.columns.values())})'
        f" ON CONFLICT ({_key(table)}) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}"
    )


def _key(table: Table) -> str:
    return ", ".join(f'"{column}"' for column in list(table.columns)[: table.key])


def _arrays(kinds: Iterable[type]) -> str:
    return ", ".join(f"%s::{_ARRAYS[kind]}" for kind in kinds)


def _columns(types: Mapping[str, type], required: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {_TYPES[kind]}{' NOT NULL' if name in required else ''}" for name, kind in types.items())


CREATE: Final = (
    f"""CREATE TABLE {EVENTS_TABLE} (
    {_columns(EVENT_TYPES, ("originator_id", "originator_version", "topic", "state", "at", "digest"))},
    notification_id bigint NOT NULL UNIQUE,
    PRIMARY KEY (originator_id, originator_version))""",
    f"CREATE TABLE meta (name {_TEXT} PRIMARY KEY, value {_TEXT} NOT NULL)",
    f"""CREATE TABLE requests (principal {_TEXT} NOT NULL, request_id {_TEXT} NOT NULL, at bigint NOT NULL,
    fingerprint bytea NOT NULL, outcome {_TEXT} NOT NULL, PRIMARY KEY (principal, request_id))""",
    "CREATE INDEX requests_at ON requests (at)",
    f"""CREATE TABLE refusals (id bigserial PRIMARY KEY, at bigint NOT NULL, code {_TEXT} NOT NULL,
    what {_TEXT} NOT NULL, by {_TEXT} NOT NULL, session {_TEXT})""",
    f"""CREATE TABLE leases ({
        _columns(_LEASE_TYPES, tuple(it for it in Lease._fields if it not in ("principal", "session", "note")))
    }, PRIMARY KEY (resource, version))""",
    "CREATE INDEX leases_deadline ON leases (deadline)",
    "CREATE INDEX leases_agent ON leases (agent)",
    "CREATE INDEX leases_present ON leases (present_until) WHERE present_until > 0",
    f"""CREATE TABLE losses ({_columns(_LOSS_TYPES, ("resource", "version", "why", "agent", "server", "at"))},
    PRIMARY KEY (resource, version))""",
    *map(create_view, VIEWS),
    "CREATE INDEX current_due ON current (expires_at) WHERE expires_at IS NOT NULL AND live = 1",
    "CREATE INDEX claims_active ON claims (resource) WHERE held > 0 OR waiting > 0",
    "CREATE INDEX claims_waiting ON claims (resource) WHERE waiting > 0",
)

PUT: Final = {table.name: put_statement(table) for table in VIEWS}
INSERT_EVENTS: Final = (
    f"INSERT INTO {EVENTS_TABLE} ({', '.join(EVENT_COLUMNS)}, notification_id)"
    f" SELECT * FROM unnest({_arrays([*EVENT_TYPES.values(), int])})"
)
SELECT_EVENTS: Final = f"SELECT notification_id, {', '.join(EVENT_COLUMNS)} FROM {EVENTS_TABLE}"
PUT_LEASES: Final = (
    f"INSERT INTO leases ({', '.join(Lease._fields)}) SELECT * FROM unnest({_arrays(_LEASE_TYPES.values())})"
    " ON CONFLICT (resource, version) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in Lease._fields[2:])
)
PUT_LOSSES: Final = (
    f"INSERT INTO losses ({', '.join(Loss._fields)}) SELECT * FROM unnest({_arrays(_LOSS_TYPES.values())})"
    " ON CONFLICT (resource, version) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in Loss._fields[2:])
)
