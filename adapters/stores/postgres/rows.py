"""Reads of the views and the log through one connection."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg

from holdlog.adapters.stores.event_log.codec import decode
from holdlog.adapters.stores.postgres.leases import PostgresLeases
from holdlog.adapters.stores.postgres.schema import SELECT_EVENTS
from holdlog.adapters.stores.postgres.threads import PostgresThreads
from holdlog.adapters.stores.sqlite.schema import EVENTS_TABLE, beyond, select_from
from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.resource import covering
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import HistoryEntry
from holdlog.domain.record import Record
from holdlog.domain.token import Token
from holdlog.projections import fold
from holdlog.projections.agents import AGENTS
from holdlog.projections.claims import CLAIMS
from holdlog.projections.current import CURRENT
from holdlog.projections.projection import Row, Table
from holdlog.projections.tokens import TOKENS

Connection = psycopg.Connection[tuple[Any, ...]]

_LIVE: Final = "live = 1 AND COALESCE(expires_at > %s, true)"
_ENDING: Final = "live = 1 AND expires_at IS NOT NULL"
_ACTIVE: Final = "(held > 0 OR waiting > 0)"
SELECT_DUE: Final = f"{select_from(CURRENT)} WHERE {_ENDING} AND expires_at <= %s ORDER BY expires_at, namespace, key"
SELECT_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The database's clock in microseconds UTC."""


class PostgresReader(PostgresThreads):
    """Reads through one connection. `now`: microseconds UTC by the database's clock, read before anything else."""

    def __init__(self, connection: Connection, now: int) -> None:
        self.connection = connection
        self._now = now
        self._at: int | None = None

    def rows(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, parameters, prepare=True).fetchall()

    def _states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        """The states of rows of a view."""
        return list(map(fold.decoder(view), rows))

    @property
    def at(self) -> int:
        if self._at is None:
            last = self.rows(f"SELECT at FROM {EVENTS_TABLE} ORDER BY notification_id DESC LIMIT 1", ())
            self._at = max(self._now, last[0][0] if last else 0)
        return self._at

    @property
    def leases(self) -> PostgresLeases:
        return PostgresLeases(self.rows)

    def meta(self, name: str) -> str | None:
        rows = self.rows("SELECT value FROM meta WHERE name = %s", (name,))
        return rows[0][0] if rows else None

    def position(self) -> int:
        return self.rows(f"SELECT MAX(notification_id) FROM {EVENTS_TABLE}", ())[0][0] or 0

    def record(self, namespace: str, key: str) -> Record:
        rows = self.rows(f"{select_from(CURRENT)} WHERE namespace = %s AND key = %s", (namespace, key))
        return self._states(CURRENT, rows)[0] if rows else Record(namespace, key)

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        bound, beyond = _bounded("key", prefix)
        select = (
            f"{select_from(CURRENT)} WHERE namespace = %s AND key >= %s{bound} AND key > %s AND ({_LIVE}) = %s"
            " ORDER BY key LIMIT %s"
        )
        parameters = (namespace, prefix, *beyond, after or "", self.at, not deleted, _limit(limit))
        return self._states(CURRENT, self.rows(select, parameters))

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        select = (
            f"SELECT namespace, COUNT(*) FROM current WHERE namespace > %s AND {_LIVE}"
            " GROUP BY namespace ORDER BY 1 LIMIT %s"
        )
        return [(name, count) for name, count in self.rows(select, (after or "", self.at, _limit(limit)))]

    def next_value_end(self) -> int | None:
        end: int | None = self.rows(f"SELECT MIN(expires_at) FROM current WHERE {_ENDING}", ())[0][0]
        return end

    def claim(self, resource: str) -> Claim:
        rows = self.rows(f"{select_from(CLAIMS)} WHERE resource = %s", (resource,))
        return self._states(CLAIMS, rows)[0] if rows else Claim(resource)

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        select = f"{select_from(CLAIMS)} WHERE resource > %s AND {_ACTIVE} ORDER BY resource LIMIT %s"
        return self._claims(select, (after or "", _limit(limit)))

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        names = list(dict.fromkeys(name for resource in resources for name in covering(resource)))
        found = self._claims(f"{select_from(CLAIMS)} WHERE resource = ANY(%s)", (names,))
        for resource in resources:
            if resource.endswith("/"):
                bound, beyond = _bounded("resource", resource)
                select = f"{select_from(CLAIMS)} WHERE resource >= %s{bound} AND {_ACTIVE}"
                found += self._claims(select, (resource, *beyond))
        return found

    def queued(self) -> list[Claim]:
        return self._claims(f"{select_from(CLAIMS)} WHERE waiting > 0", ())

    def agents(self, names: Sequence[str]) -> list[Profile]:
        rows = self.rows(f"{select_from(AGENTS)} WHERE agent = ANY(%s)", (list(names),))
        found = {profile.agent: profile for profile in self._states(AGENTS, rows)}
        return [found[name] for name in names if name in found]

    def token(self, name: str) -> Token:
        rows = self.rows(f"{select_from(TOKENS)} WHERE name = %s", (name,))
        return self._states(TOKENS, rows)[0] if rows else Token(name)

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        select = f"{select_from(TOKENS)} WHERE name > %s ORDER BY name LIMIT %s"
        return self._states(TOKENS, self.rows(select, (after or "", _limit(limit))))

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        below = sys.maxsize if before is None else before
        select = (
            f"{SELECT_EVENTS} WHERE originator_id = %s AND originator_version < %s"
            " ORDER BY originator_version DESC LIMIT %s"
        )
        return [decode(row) for row in self.rows(select, (stream, below, _limit(limit)))]

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        select = f"{SELECT_EVENTS} WHERE notification_id > %s ORDER BY notification_id LIMIT %s"
        return [decode(row) for row in self.rows(select, (after, _limit(limit)))]

    def entries(self, after: int, limit: int) -> list[HistoryEntry]:
        select = (
            f"SELECT notification_id, originator_id, topic, at FROM {EVENTS_TABLE} WHERE notification_id > %s"
            " ORDER BY notification_id LIMIT %s"
        )
        return [HistoryEntry(*row) for row in self.rows(select, (after, _limit(limit)))]

    def _claims(self, select: str, parameters: object) -> list[Claim]:
        return self._states(CLAIMS, self.rows(select, parameters))


def _limit(limit: int) -> int | None:
    return None if limit < 0 else limit


def _bounded(column: str, prefix: str) -> tuple[str, tuple[str, ...]]:
    """A condition that ends the range before the first text after all that start with the prefix, if there is one."""
    behind = beyond(prefix)
    return (f" AND {column} < %s", (behind,)) if behind is not None else ("", ())
