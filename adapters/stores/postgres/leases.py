"""Leases and losses in PostgreSQL; the counterpart of stores/sqlite/leases.py."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.schema import PUT_LEASES, PUT_LOSSES
from holdlog.adapters.stores.sqlite.leases import LOSS_SECONDS
from holdlog.adapters.stores.sqlite.schema import LEASE_COLUMNS
from holdlog.domain.claims.lease import BY_CALLS, SESSION_ENDS, SESSION_IDLE, TOUCH_EVERY, HeldCounts, Lease, Loss, Who

Rows = Callable[[str, Any], list[tuple[Any, ...]]]
"""Runs a statement and returns its rows."""

_SELECT: Final = f"SELECT {', '.join(LEASE_COLUMNS)} FROM leases"
_SELECT_LOSSES: Final = (
    f"SELECT {', '.join(Loss._fields)} FROM losses WHERE principal IS NOT DISTINCT FROM %s"
    " AND (session = %s OR receipt = %s) ORDER BY at, resource"
)
_MOVES_TO_SERVER: Final = "(kind = 'held' OR server = '')"  # a waiter lives as long as the server that it called
_HAS_ENDED: Final = f"(server = '' OR server = '{BY_CALLS}' AND seen <= %(now)s - {SESSION_ENDS})"
_WAITS_UNTIL: Final = f"CASE WHEN {_HAS_ENDED} THEN LEAST(present_until, %(now)s) ELSE present_until END"
_IS_OWN: Final = "agent = %(agent)s AND receipt IS NOT DISTINCT FROM %(receipt)s"
_RECORD_CALL: Final = f"""UPDATE leases SET seen = %(now)s,
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END, present_until = {_WAITS_UNTIL},
    heard = CASE WHEN {_IS_OWN} THEN %(now)s ELSE heard END,
    server = CASE WHEN %(server)s != '' AND (kind = 'held' OR {_HAS_ENDED}) THEN %(server)s ELSE server END,
    deadline = CASE WHEN kind = 'held' AND {_IS_OWN} THEN GREATEST(deadline, %(now)s + length) ELSE deadline END
    WHERE principal IS NOT DISTINCT FROM %(principal)s AND session IS NOT DISTINCT FROM %(session)s
    AND deadline > %(now)s AND (session IS NOT NULL AND %(server)s != '' AND {_HAS_ENDED}
    OR {_IS_OWN} AND (session IS NOT NULL OR receipt IS NOT NULL)
    AND (kind = 'held' AND (deadline < %(now)s + length - length / 8 OR server != %(server)s AND %(server)s != '')
    OR server = '{BY_CALLS}' AND seen < %(now)s - {TOUCH_EVERY}))"""
_TOUCH: Final = f"""UPDATE leases SET seen = GREATEST(seen, %(now)s), server = '{BY_CALLS}',
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END, present_until = {_WAITS_UNTIL}
    WHERE session = %(session)s AND principal IS NOT DISTINCT FROM %(principal)s AND deadline > %(now)s
    AND (server = '{BY_CALLS}' OR server = '' AND seen < %(called_at)s)"""
_END_SESSION: Final = f"""UPDATE leases SET server = '', ended_at = %(at)s, seen = %(now)s,
    present_until = LEAST(present_until, %(now)s)
    WHERE session = %(session)s AND principal IS NOT DISTINCT FROM %(principal)s AND server = '{BY_CALLS}'"""
_HELD: Final = """SELECT COUNT(*) FILTER (WHERE session IS NOT DISTINCT FROM %(session)s
    AND (session IS NOT NULL OR agent = %(agent)s)), COUNT(*) FROM leases
    WHERE principal IS NOT DISTINCT FROM %(principal)s AND kind != 'waits' AND deadline > %(now)s"""
_END_IDLE: Final = f"""UPDATE leases SET server = '', present_until = LEAST(present_until, %(now)s),
    ended_at = %(at)s - GREATEST(0, %(now)s - seen - {SESSION_IDLE})
    WHERE server = '{BY_CALLS}' AND seen <= %(now)s - {SESSION_ENDS} RETURNING 1"""
_RENEW_SESSION: Final = f"""UPDATE leases SET heard = GREATEST(heard, %(heard)s), seen = %(now)s,
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END,
    server = CASE WHEN {_MOVES_TO_SERVER} THEN %(server)s ELSE server END,
    deadline = CASE kind WHEN 'held' THEN GREATEST(deadline, %(now)s + length) ELSE deadline END
    WHERE session = %(session)s AND principal IS NULL AND deadline > %(now)s"""
_RENEW_GRANT: Final = """UPDATE leases SET deadline = GREATEST(deadline, %(now)s + length)
    WHERE resource = %(resource)s AND version = %(version)s AND kind = 'held' AND deadline > %(now)s"""
_INHERIT: Final = """UPDATE leases SET server = %(heir)s, present_until = LEAST(present_until, %(now)s)
    WHERE server = %(server)s AND session = %(session)s"""
_END: Final = """UPDATE leases SET server = '', ended_at = %(at)s, present_until = LEAST(present_until, %(now)s),
    deadline = CASE WHEN (kind = 'held' AND told = 0 OR kind = 'offered') AND %(until)s::bigint IS NOT NULL
    THEN LEAST(deadline, %(until)s) ELSE deadline END WHERE server = %(server)s RETURNING 1"""


class PostgresLeases:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def of(self, resources: Sequence[str]) -> list[Lease]:
        return self._leases(f"{_SELECT} WHERE resource = ANY(%s)", (list(resources),))

    def of_agent(self, agent: str, principal: str | None) -> list[Lease]:
        select = f"{_SELECT} WHERE agent = %s AND principal IS NOT DISTINCT FROM %s"
        return self._leases(select, (agent, principal))

    def of_session(self, session: str) -> list[Lease]:
        return self._leases(f"{_SELECT} WHERE session = %s", (session,))

    def next_end(self) -> int | None:
        select = "SELECT MIN(LEAST(deadline, CASE WHEN present_until > 0 THEN present_until END)) FROM leases"
        end: int | None = self._rows(select, ())[0][0]
        return end

    def servers(self) -> list[str]:
        return [row[0] for row in self._rows("SELECT DISTINCT server FROM leases WHERE server != ''", ())]

    def sessions_of(self, server: str) -> list[str]:
        select = "SELECT DISTINCT session FROM leases WHERE server = %s AND session IS NOT NULL"
        return [row[0] for row in self._rows(select, (server,))]

    def has_idle_sessions(self, now: int) -> bool:
        select = f"SELECT 1 FROM leases WHERE server = '{BY_CALLS}' AND seen <= %s LIMIT 1"
        return bool(self._rows(select, (now - SESSION_ENDS,)))

    def losses(self, principal: str | None, session: str | None, receipt: str | None) -> list[Loss]:
        return [Loss(*row) for row in self._rows(_SELECT_LOSSES, (principal, session, receipt))]

    def _leases(self, select: str, parameters: object) -> list[Lease]:
        return [_lease(row) for row in self._rows(select, parameters)]


class Pending(Protocol):
    """Statements that a transaction defers and runs together, in this order."""

    wrote: bool

    def rows(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement now, after all pending ones."""

    def later(self, statement: str, parameters: Any) -> None:
        """Defer a statement until the next read or the commit."""

    def holds_nothing(self, agent: str) -> bool:
        """Whether this agent is known to have no lease."""

    def has_lease(self, agent: str) -> None:
        """Record that this agent has a lease from now on."""


class PostgresLeaseWrites(PostgresLeases):
    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.rows)
        self._pending = pending

    def held(self, who: Who, now: int) -> HeldCounts:
        return HeldCounts(*self._rows(_HELD, {**who._asdict(), "now": now})[0])

    def due(self, now: int, limit: int) -> list[Lease]:
        select = f"{_SELECT} WHERE deadline <= %s ORDER BY deadline LIMIT %s"
        due = self._leases(select, (now, limit))
        select = f"{_SELECT} WHERE present_until > 0 AND present_until <= %s AND deadline > %s LIMIT %s"
        return due + self._leases(select, (now, now, limit))

    def put(self, leases: Iterable[Lease]) -> None:
        rows = [lease._replace(explicit=int(lease.explicit)) for lease in leases]  # type: ignore[arg-type]
        for lease in rows:
            self._pending.has_lease(lease.agent)
        if rows:
            self._later(*PUT_LEASES.of(rows))

    def drop(self, keys: Iterable[tuple[str, int]]) -> None:
        delete = "DELETE FROM leases WHERE (resource, version) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))"
        if named := list(keys):
            self._later(delete, arrays((str, int), named))

    def record_call(self, who: Who, server: str, now: int) -> None:
        if not self._pending.holds_nothing(who.agent):
            self._later(_RECORD_CALL, {**who._asdict(), "server": server, "now": now})

    def renew(
        self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[tuple[str, int]], now: int
    ) -> None:
        for session, record_call in sessions:
            self._later(_RENEW_SESSION, {"server": server, "session": session, "heard": record_call, "now": now})
        for resource, version in grants:
            self._later(_RENEW_GRANT, {"resource": resource, "version": version, "now": now})

    def touch(self, sessions: Sequence[tuple[str | None, str, int]], now: int) -> None:
        for principal, session, called_at in sessions:
            self._later(_TOUCH, {"principal": principal, "session": session, "called_at": called_at, "now": now})

    def end_session(self, session: str, principal: str | None, now: int, at: int) -> None:
        self._later(_END_SESSION, {"session": session, "principal": principal, "now": now, "at": at})

    def end_idle_sessions(self, now: int, at: int) -> bool:
        ended = bool(self._rows(_END_IDLE, {"now": now, "at": at}))
        self._pending.wrote = self._pending.wrote or ended
        return ended

    def inherit(self, server: str, session: str, heir: str, now: int) -> None:
        self._later(_INHERIT, {"server": server, "session": session, "heir": heir, "now": now})

    def end(self, servers: Sequence[str], now: int, at: int, grace: int | None) -> bool:
        facts = {"now": now, "at": at, "until": None if grace is None else now + grace}
        ended = [bool(self._rows(_END, {"server": server, **facts})) for server in servers if server]
        self._pending.wrote = self._pending.wrote or any(ended)
        return any(ended)

    def lose(self, losses: Sequence[Loss], at: int) -> None:
        self._later("DELETE FROM losses WHERE at < %s", (at - LOSS_SECONDS * 1_000_000,))
        by_key = {(loss.resource, loss.version): loss for loss in losses}
        if by_key:
            self._later(*PUT_LOSSES.of(list(by_key.values())))

    def forget(self, losses: Sequence[Loss]) -> None:
        for loss in losses:
            self._later("DELETE FROM losses WHERE resource = %s AND version = %s", (loss.resource, loss.version))

    def _later(self, statement: str, parameters: object) -> None:
        self._pending.later(statement, parameters)
        self._pending.wrote = True


def _lease(row: tuple[Any, ...]) -> Lease:
    lease = Lease(*row)
    return lease._replace(explicit=bool(lease.explicit))
