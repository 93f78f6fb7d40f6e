"""The table of leases, and that of losses not yet reported: liveness, stored next to the log."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from holdlog.adapters.stores.sqlite.schema import LEASE_COLUMNS
from holdlog.domain.claims.commands import MAX_OF_PRINCIPAL
from holdlog.domain.claims.lease import BY_CALLS, SESSION_ENDS, SESSION_IDLE, TOUCH_EVERY, HeldCounts, Lease, Loss, Who

LOSS_SECONDS: Final = 24 * 60 * 60

_SELECT: Final = f"SELECT {', '.join(LEASE_COLUMNS)} FROM leases"
_SELECT_LOSSES: Final = (
    f"SELECT {', '.join(Loss._fields)} FROM losses WHERE principal IS ? AND (session = ? OR receipt = ?)"
    " ORDER BY at, resource"
)
_PUT: Final = f"INSERT OR REPLACE INTO leases VALUES ({', '.join('?' * len(LEASE_COLUMNS))})"
_MOVES_TO_SERVER: Final = "(kind = 'held' OR server = '')"  # a waiter lives as long as the server that it called
_HAS_ENDED: Final = f"(server = '' OR server = '{BY_CALLS}' AND seen <= :now - {SESSION_ENDS})"
_WAITS_UNTIL: Final = f"CASE WHEN {_HAS_ENDED} THEN MIN(present_until, :now) ELSE present_until END"
_IS_OWN: Final = "agent = :agent AND receipt IS :receipt"
_RECORD_CALL: Final = f"""UPDATE leases SET seen = :now, ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END,
    present_until = {_WAITS_UNTIL}, heard = CASE WHEN {_IS_OWN} THEN :now ELSE heard END,
    server = CASE WHEN :server != '' AND (kind = 'held' OR {_HAS_ENDED}) THEN :server ELSE server END,
    deadline = CASE WHEN kind = 'held' AND {_IS_OWN} THEN MAX(deadline, :now + length) ELSE deadline END
    WHERE principal IS :principal AND session IS :session AND deadline > :now
    AND (session IS NOT NULL AND :server != '' AND {_HAS_ENDED}
    OR {_IS_OWN} AND (session IS NOT NULL OR receipt IS NOT NULL)
    AND (kind = 'held' AND (deadline < :now + length - length / 8 OR server != :server AND :server != '')
    OR server = '{BY_CALLS}' AND seen < :now - {TOUCH_EVERY}))"""
_TOUCH: Final = f"""UPDATE leases SET seen = MAX(seen, :now), server = '{BY_CALLS}',
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END, present_until = {_WAITS_UNTIL}
    WHERE session = :session AND principal IS :principal AND deadline > :now
    AND (server = '{BY_CALLS}' OR server = '' AND seen < :called_at)"""
_END_SESSION: Final = f"""UPDATE leases SET server = '', ended_at = :at, seen = :now,
    present_until = MIN(present_until, :now)
    WHERE session = :session AND principal IS :principal AND server = '{BY_CALLS}'"""
_END_IDLE: Final = f"""UPDATE leases SET server = '', present_until = MIN(present_until, :now),
    ended_at = :at - MAX(0, :now - seen - {SESSION_IDLE})
    WHERE server = '{BY_CALLS}' AND seen <= :now - {SESSION_ENDS}"""
_RENEW_SESSION: Final = f"""UPDATE leases SET heard = MAX(heard, :heard), seen = :now,
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END,
    server = CASE WHEN {_MOVES_TO_SERVER} THEN :server ELSE server END,
    deadline = CASE kind WHEN 'held' THEN MAX(deadline, :now + length) ELSE deadline END
    WHERE session = :session AND principal IS NULL AND deadline > :now"""
_IS_LIVE_GRANT: Final = "principal IS :principal AND kind != 'waits' AND deadline > :now"
_HELD_BY_PRINCIPAL: Final = f"SELECT COUNT(*) FROM leases WHERE {_IS_LIVE_GRANT}"
_HELD: Final = f"""SELECT (SELECT COUNT(*) FROM leases
    WHERE {_IS_LIVE_GRANT} AND session IS :session AND (session IS NOT NULL OR agent = :agent)),
    (SELECT COUNT(*) FROM
    (SELECT 1 FROM leases WHERE principal IS :principal AND kind != 'waits' LIMIT {MAX_OF_PRINCIPAL}))"""
_RENEW_GRANT: Final = """UPDATE leases SET deadline = MAX(deadline, :now + length)
    WHERE resource = :resource AND version = :version AND kind = 'held' AND deadline > :now"""
_INHERIT: Final = """UPDATE leases SET server = :heir, present_until = MIN(present_until, :now)
    WHERE server = :server AND session = :session"""
_END: Final = """UPDATE leases SET server = '', ended_at = :at, present_until = MIN(present_until, :now),
    deadline = CASE WHEN (kind = 'held' AND NOT told OR kind = 'offered') AND :until IS NOT NULL
    THEN MIN(deadline, :until) ELSE deadline END WHERE server = :server"""


class SqliteLeases:
    """Reads leases and losses through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def of(self, resources: Sequence[str]) -> list[Lease]:
        select = f"{_SELECT} WHERE resource = ?"
        return [_lease(row) for resource in resources for row in self.connection.execute(select, (resource,))]

    def of_agent(self, agent: str, principal: str | None) -> list[Lease]:
        select = f"{_SELECT} WHERE agent = ? AND principal IS ?"
        return [_lease(row) for row in self.connection.execute(select, (agent, principal))]

    def of_session(self, session: str) -> list[Lease]:
        return [_lease(row) for row in self.connection.execute(f"{_SELECT} WHERE session = ?", (session,))]

    def next_end(self) -> int | None:
        ends = (
            self.connection.execute("SELECT MIN(deadline) FROM leases").fetchone()[0],
            self.connection.execute("SELECT MIN(present_until) FROM leases WHERE present_until > 0").fetchone()[0],
        )
        return min((end for end in ends if end is not None), default=None)

    def servers(self) -> list[str]:
        return [row[0] for row in self.connection.execute("SELECT DISTINCT server FROM leases WHERE server != ''")]

    def sessions_of(self, server: str) -> list[str]:
        select = "SELECT DISTINCT session FROM leases WHERE server = ? AND session IS NOT NULL"
        return [row[0] for row in self.connection.execute(select, (server,))]

    def has_idle_sessions(self, now: int) -> bool:
        select = f"SELECT 1 FROM leases WHERE server = '{BY_CALLS}' AND seen <= ? LIMIT 1"
        return self.connection.execute(select, (now - SESSION_ENDS,)).fetchone() is not None

    def losses(self, principal: str | None, session: str | None, receipt: str | None) -> list[Loss]:
        return [Loss(*row) for row in self.connection.execute(_SELECT_LOSSES, (principal, session, receipt))]


class SqliteLeaseWrites(SqliteLeases):
    """Writes leases and losses. `wrote`: whether anything changed since it was set to False."""

    wrote = False

    def held(self, who: Who, now: int) -> HeldCounts:
        parameters = {**who._asdict(), "now": now}
        by_session, by_principal = self.connection.execute(_HELD, parameters).fetchone()
        if by_principal > MAX_OF_PRINCIPAL // 2:  # by_principal comes from an index alone, and includes expired leases
            by_principal = self.connection.execute(_HELD_BY_PRINCIPAL, parameters).fetchone()[0]
        return HeldCounts(by_session, by_principal)

    def due(self, now: int, limit: int) -> list[Lease]:
        select = f"{_SELECT} WHERE deadline <= ? ORDER BY deadline LIMIT ?"
        due = [_lease(row) for row in self.connection.execute(select, (now, limit))]
        select = f"{_SELECT} WHERE present_until > 0 AND present_until <= ? AND deadline > ? LIMIT ?"
        return due + [_lease(row) for row in self.connection.execute(select, (now, now, limit))]

    def put(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self.connection.execute(_PUT, lease)
        self.wrote = True

    def drop(self, keys: Iterable[tuple[str, int]]) -> None:
        for key in keys:
            self.connection.execute("DELETE FROM leases WHERE resource = ? AND version = ?", key)
        self.wrote = True

    def record_call(self, who: Who, server: str, now: int) -> None:
        self._update(_RECORD_CALL, {**who._asdict(), "server": server, "now": now})

    def renew(
        self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[tuple[str, int]], now: int
    ) -> None:
        for session, record_call in sessions:
            self._update(_RENEW_SESSION, {"server": server, "session": session, "heard": record_call, "now": now})
        for resource, version in grants:
            self._update(_RENEW_GRANT, {"resource": resource, "version": version, "now": now})

    def touch(self, sessions: Sequence[tuple[str | None, str, int]], now: int) -> None:
        for principal, session, called_at in sessions:
            self._update(_TOUCH, {"principal": principal, "session": session, "called_at": called_at, "now": now})

    def end_session(self, session: str, principal: str | None, now: int, at: int) -> None:
        self._update(_END_SESSION, {"session": session, "principal": principal, "now": now, "at": at})

    def end_idle_sessions(self, now: int, at: int) -> bool:
        return self._update(_END_IDLE, {"now": now, "at": at})

    def inherit(self, server: str, session: str, heir: str, now: int) -> None:
        self._update(_INHERIT, {"server": server, "session": session, "heir": heir, "now": now})

    def end(self, servers: Sequence[str], now: int, at: int, grace: int | None) -> bool:
        facts = {"now": now, "at": at, "until": None if grace is None else now + grace}
        ended = [self._update(_END, {"server": server, **facts}) for server in servers if server]
        return any(ended)

    def lose(self, losses: Sequence[Loss], at: int) -> None:
        self.connection.execute("DELETE FROM losses WHERE at < ?", (at - LOSS_SECONDS * 1_000_000,))
        insert = f"INSERT OR REPLACE INTO losses VALUES ({', '.join('?' * len(Loss._fields))})"
        self.connection.executemany(insert, losses)
        self.wrote = True

    def forget(self, losses: Sequence[Loss]) -> None:
        keys = [(loss.resource, loss.version) for loss in losses]
        self.connection.executemany("DELETE FROM losses WHERE resource = ? AND version = ?", keys)
        self.wrote = True

    def _update(self, statement: str, parameters: dict[str, object]) -> bool:
        changed = self.connection.execute(statement, parameters).rowcount > 0
        self.wrote = self.wrote or changed
        return changed


def _lease(row: tuple[object, ...]) -> Lease:
    return Lease(*row)  # type: ignore[arg-type]
