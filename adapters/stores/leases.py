"""The table of leases, and that of losses not told yet: liveness beside the log."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from holdlog.domain.claims.lease import Lease, Loss, Who

LOSS_SECONDS: Final = 24 * 60 * 60

_SELECT: Final = f"SELECT {', '.join(Lease._fields)} FROM leases"
_SELECT_LOSSES: Final = (
    f"SELECT {', '.join(Loss._fields)} FROM losses WHERE principal IS ? AND (session = ? OR agent = ?)"
    " ORDER BY at, resource"
)
_PUT: Final = f"INSERT OR REPLACE INTO leases VALUES ({', '.join('?' * len(Lease._fields))})"
_OF_AGENT: Final = "agent = :agent AND principal IS :principal AND (session IS :session OR server = '')"
_ADOPTABLE: Final = "(kind = 'held' OR server = '')"  # who waits is there as long as the server that it called
_HEARD: Final = f"""UPDATE leases SET session = :session, heard = :now,
    server = CASE WHEN {_ADOPTABLE} AND :server != '' THEN :server ELSE server END,
    deadline = CASE kind WHEN 'held' THEN MAX(deadline, :now + length) ELSE deadline END
    WHERE {_OF_AGENT} AND deadline > :now
    AND (kind = 'held' AND deadline < :now + length - length / 8 OR session IS NOT :session
    OR {_ADOPTABLE} AND server != :server AND :server != '')"""
_RENEW_SESSION: Final = f"""UPDATE leases SET heard = MAX(heard, :heard),
    server = CASE WHEN {_ADOPTABLE} THEN :server ELSE server END,
    deadline = CASE kind WHEN 'held' THEN MAX(deadline, :now + length) ELSE deadline END
    WHERE session = :session AND principal IS NULL AND deadline > :now"""
_RENEW_GRANT: Final = """UPDATE leases SET deadline = MAX(deadline, :now + length)
    WHERE resource = :resource AND version = :version AND kind = 'held' AND deadline > :now"""
_END: Final = """UPDATE leases SET server = '', present_until = MIN(present_until, :now),
    deadline = CASE WHEN (kind = 'held' AND NOT told OR kind = 'offered') AND :until IS NOT NULL
    THEN MIN(deadline, :until) ELSE deadline END WHERE server = :server"""


class SqliteLeases:
    """Reads through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def of(self, resources: Sequence[str]) -> list[Lease]:
        select = f"{_SELECT} WHERE resource = ?"
        return [_lease(row) for resource in resources for row in self.connection.execute(select, (resource,))]

    def of_agent(self, who: Who) -> list[Lease]:
        return [_lease(row) for row in self.connection.execute(f"{_SELECT} WHERE {_OF_AGENT}", who._asdict())]

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

    def losses(self, principal: str | None, session: str | None, agent: str | None) -> list[Loss]:
        return [Loss(*row) for row in self.connection.execute(_SELECT_LOSSES, (principal, session, agent))]


class SqliteLeaseWrites(SqliteLeases):
    """`wrote`: something changed since it was set to False."""

    wrote = False

    def held(self, who: Who, now: int) -> int:
        whose = _OF_AGENT if who.principal is None else "principal = :principal"
        select = f"SELECT COUNT(*) FROM leases WHERE {whose} AND kind != 'waits' AND deadline > :now"
        count: int = self.connection.execute(select, {**who._asdict(), "now": now}).fetchone()[0]
        return count

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

    def heard(self, who: Who, server: str, now: int) -> None:
        self._update(_HEARD, {**who._asdict(), "server": server, "now": now})

    def renew(
        self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[tuple[str, int]], now: int
    ) -> None:
        for session, heard in sessions:
            self._update(_RENEW_SESSION, {"server": server, "session": session, "heard": heard, "now": now})
        for resource, version in grants:
            self._update(_RENEW_GRANT, {"resource": resource, "version": version, "now": now})

    def end(self, servers: Sequence[str], now: int, grace: int | None) -> bool:
        until = None if grace is None else now + grace
        named = [server for server in servers if server]
        ended = [self._update(_END, {"server": server, "now": now, "until": until}) for server in named]
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
