"""Names that both schemas share, and the tables next to the log and its views."""

import secrets
from typing import Final

from holdlog.domain.claims.lease import Lease, Loss
from holdlog.domain.ports import Refusal
from holdlog.projections.claims import SNAPSHOT_TABLES
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table
from holdlog.projections.tree import TREE

EVENTS_TABLE: Final = "stored_events"

SESSION_SALT: Final = "session_salt"
"""Row of `meta`: 32 random bytes as hexadecimal, the salt of all hashes of sessions and receipts."""

_LEASE_COLUMNS: Final = {
    "duration": "length",
    "explicit": "told",
    "waiting_until": "present_until",
    "last_call_at": "heard",
    "last_seen_at": "seen",
}
LEASE_COLUMNS: Final = tuple(_LEASE_COLUMNS.get(field, field) for field in Lease._fields)
"""The columns of a lease, in the order of its fields; the names are those of the first schema."""
LEASES: Final = Table(
    "leases",
    dict.fromkeys(LEASE_COLUMNS, str)
    | dict.fromkeys(
        ("version", "deadline", "length", "told", "present_until", "heard", "position", "seen", "ended_at"), int
    ),
    key=2,
)
LOSSES: Final = Table("losses", dict.fromkeys(Loss._fields, str) | dict.fromkeys(("version", "at"), int), key=2)
REFUSALS: Final = Table("refusals", dict.fromkeys(Refusal._fields, str) | {"at": int}, key=0)

KEPT: Final = (*SNAPSHOT_TABLES, TREE)
"""Tables whose rows are computed from the log and are not views: some may be missing."""
TABLES: Final = (*VIEWS, *KEPT)
"""The tables whose rows come from the log."""
SIDE_INDEXES: Final = (
    "requests_at ON requests (at)",
    "leases_deadline ON leases (deadline)",
    "leases_agent ON leases (agent)",
    "leases_principal ON leases (principal, session, kind)",
    "leases_session ON leases (session)",
    "leases_queued ON leases (principal, kind, deadline) WHERE kind = 'waits'",
    "leases_present ON leases (present_until) WHERE present_until > 0",
)
IS_ACTIVE: Final = "(held > 0 OR waiting > 0)"
"""Whether a claim is held or waited for."""
IS_JOINT: Final = "(also <> '' OR alternatives <> '')"
"""Whether a ticket requests more than one resource."""
VIEW_INDEXES: Final = (
    "current_due ON current (expires_at) WHERE expires_at IS NOT NULL AND live = 1",
    "claims_active ON claims (resource) WHERE held > 0 OR waiting > 0",
    "claims_waiting ON claims (resource) WHERE waiting > 0",
    "tickets_agent ON tickets (agent)",
    f"tickets_joint ON tickets (resource) WHERE {IS_JOINT}",
    "thread_items_name ON thread_items (thread, kind, name, version) WHERE name <> ''",
)
"""Indexes of views: dropped with a view's table, and created again when a new one replaces it."""


def new_session_salt() -> str:
    return secrets.token_hex(32)


def copy_at_position(table: Table, into: Table, condition: str) -> str:
    """Copy rows of a table into one that keeps them with a position."""
    columns = ", ".join(f'"{column}"' for column in list(into.columns)[1:])
    return (
        f'INSERT INTO "{into.name}" (position, {columns}) SELECT CAST(:position AS BIGINT), {columns}'
        f' FROM "{table.name}" WHERE {condition} ON CONFLICT DO NOTHING'
    )


def select_from(table: Table, name: str | None = None) -> str:
    columns = ", ".join(f'"{column}"' for column in table.columns)
    return f'SELECT {columns} FROM "{name or table.name}"'
