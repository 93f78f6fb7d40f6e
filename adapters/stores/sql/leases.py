"""The table of leases, and that of losses not yet reported: liveness, stored next to the log."""

from collections.abc import Iterable, Sequence
from typing import Final

from holdlog.adapters.stores.sql.tables import LEASES, LOSSES, select_from
from holdlog.adapters.stores.sql.text import NONE, Parameters, PendingStatements, Statements
from holdlog.domain.claims.commands import MAX_OF_PRINCIPAL
from holdlog.domain.claims.lease import BY_CALLS, SESSION_ENDS, SESSION_IDLE, TOUCH_EVERY, HeldCounts, Lease, Loss, Who

LOSS_SECONDS: Final = 24 * 60 * 60

_SELECT: Final = select_from(LEASES)
_SELECT_OF: Final = f"{_SELECT} WHERE resource = ANY(:names)"
_SELECT_OF_AGENT: Final = f"{_SELECT} WHERE agent = :agent AND principal IS NOT DISTINCT FROM :principal"
_SELECT_OF_SESSION: Final = f"{_SELECT} WHERE session = :session"
_SELECT_DUE: Final = f"{_SELECT} WHERE deadline <= :now ORDER BY deadline LIMIT :limit"
_SELECT_CALLS: Final = f"{_SELECT} WHERE present_until > 0 AND present_until <= :now AND deadline > :now LIMIT :limit"
_SELECT_ENDS: Final = (
    "SELECT (SELECT MIN(deadline) FROM leases), (SELECT MIN(present_until) FROM leases WHERE present_until > 0)"
)
_SELECT_SERVERS: Final = "SELECT DISTINCT server FROM leases WHERE server != ''"
_SELECT_SESSIONS: Final = "SELECT DISTINCT session FROM leases WHERE server = :server AND session IS NOT NULL"
_SELECT_IDLE: Final = f"SELECT 1 FROM leases WHERE server = '{BY_CALLS}' AND seen <= :before LIMIT 1"
_SELECT_LOSSES: Final = (
    f"{select_from(LOSSES)} WHERE principal IS NOT DISTINCT FROM :principal"
    " AND (session = :session OR receipt = :receipt) ORDER BY at, resource"
)
_DROP: Final = "DELETE FROM leases WHERE resource = :resource AND version = :version"
_DROP_LOSS: Final = "DELETE FROM losses WHERE resource = :resource AND version = :version"
_DROP_LOSSES: Final = "DELETE FROM losses WHERE at < :before"

_MOVES_TO_SERVER: Final = "(kind = 'held' OR server = '')"  # a waiter lives as long as the server that it called
_HAS_ENDED: Final = f"(server = '' OR server = '{BY_CALLS}' AND seen <= :now - {SESSION_ENDS})"
_WAITS_UNTIL: Final = f"CASE WHEN {_HAS_ENDED} THEN LEAST(present_until, :now) ELSE present_until END"
_IS_OWN: Final = "agent = :agent AND receipt IS NOT DISTINCT FROM :receipt"
_IS_OF_SESSION: Final = "session = :session AND principal IS NOT DISTINCT FROM :principal"
_RECORD_CALL: Final = f"""UPDATE leases SET seen = :now, ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END,
    present_until = {_WAITS_UNTIL}, heard = CASE WHEN {_IS_OWN} THEN :now ELSE heard END,
    server = CASE WHEN :server != '' AND (kind = 'held' OR {_HAS_ENDED}) THEN :server ELSE server END,
    deadline = CASE WHEN kind = 'held' AND {_IS_OWN} THEN GREATEST(deadline, :now + length) ELSE deadline END
    WHERE principal IS NOT DISTINCT FROM :principal AND session IS NOT DISTINCT FROM :session AND deadline > :now
    AND (session IS NOT NULL AND :server != '' AND {_HAS_ENDED}
    OR {_IS_OWN} AND (session IS NOT NULL OR receipt IS NOT NULL)
    AND (kind = 'held' AND (deadline < :now + length - length / 8 OR server != :server AND :server != '')
    OR server = '{BY_CALLS}' AND seen < :now - {TOUCH_EVERY}))"""
_TOUCH: Final = f"""UPDATE leases SET seen = GREATEST(seen, :now), server = '{BY_CALLS}',
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END, present_until = {_WAITS_UNTIL}
    WHERE {_IS_OF_SESSION} AND deadline > :now AND (server = '{BY_CALLS}' OR server = '' AND seen < :called_at)"""
_END_SESSION: Final = f"""UPDATE leases SET server = '', ended_at = :at, seen = :now,
    present_until = LEAST(present_until, :now) WHERE {_IS_OF_SESSION} AND server = '{BY_CALLS}'"""
_END_IDLE: Final = f"""UPDATE leases SET server = '', present_until = LEAST(present_until, :now),
    ended_at = :at - GREATEST(0, :now - seen - {SESSION_IDLE})
    WHERE server = '{BY_CALLS}' AND seen <= :now - {SESSION_ENDS}"""
_RENEW_SESSION: Final = f"""UPDATE leases SET heard = GREATEST(heard, :heard), seen = :now,
    ended_at = CASE kind WHEN 'offered' THEN ended_at ELSE 0 END,
    server = CASE WHEN {_MOVES_TO_SERVER} THEN :server ELSE server END,
    deadline = CASE kind WHEN 'held' THEN GREATEST(deadline, :now + length) ELSE deadline END
    WHERE session = :session AND principal IS NULL AND deadline > :now"""
_RENEW_GRANT: Final = """UPDATE leases SET deadline = GREATEST(deadline, :now + length)
    WHERE resource = :resource AND version = :version AND kind = 'held' AND deadline > :now"""
_INHERIT: Final = """UPDATE leases SET server = :heir, present_until = LEAST(present_until, :now)
    WHERE server = :server AND session = :session"""
_END: Final = """UPDATE leases SET server = '', ended_at = :at, present_until = LEAST(present_until, :now),
    deadline = CASE WHEN (kind = 'held' AND told = 0 OR kind = 'offered') AND CAST(:until AS BIGINT) IS NOT NULL
    THEN LEAST(deadline, :until) ELSE deadline END WHERE server = :server"""

_IS_GRANT: Final = "principal IS NOT DISTINCT FROM :principal AND kind != 'waits'"
_HELD_BY_PRINCIPAL: Final = f"SELECT COUNT(*) FROM leases WHERE {_IS_GRANT} AND deadline > :now"
_IS_COUNTED: Final = "session IS NOT DISTINCT FROM :session AND (session IS NOT NULL OR agent = :agent)"
_HELD: Final = f"""SELECT (SELECT COUNT(*) FROM leases WHERE {_IS_GRANT} AND deadline > :now AND {_IS_COUNTED}),
    (SELECT COUNT(*) FROM (SELECT 1 FROM leases WHERE {_IS_GRANT} LIMIT {MAX_OF_PRINCIPAL}) AS grants),
    (SELECT COUNT(*) FROM leases
    WHERE kind = 'waits' AND principal IS NOT DISTINCT FROM :principal AND deadline > :now)"""


class SqlLeases:
    """Reads leases and losses."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def of(self, resources: Sequence[str]) -> list[Lease]:
        return list(map(Lease._make, self._statements.rows_in(_SELECT_OF, resources)))

    def of_agent(self, agent: str, principal: str | None) -> list[Lease]:
        return self._leases(_SELECT_OF_AGENT, {"agent": agent, "principal": principal})

    def of_session(self, session: str) -> list[Lease]:
        return self._leases(_SELECT_OF_SESSION, {"session": session})

    def next_end(self) -> int | None:
        return min((end for end in self._statements.rows(_SELECT_ENDS, NONE)[0] if end is not None), default=None)

    def servers(self) -> list[str]:
        return [row[0] for row in self._statements.rows(_SELECT_SERVERS, NONE)]

    def sessions_of(self, server: str) -> list[str]:
        return [row[0] for row in self._statements.rows(_SELECT_SESSIONS, {"server": server})]

    def has_idle_sessions(self, now: int) -> bool:
        return bool(self._statements.rows(_SELECT_IDLE, {"before": now - SESSION_ENDS}))

    def losses(self, principal: str | None, session: str | None, receipt: str | None) -> list[Loss]:
        whose = {"principal": principal, "session": session, "receipt": receipt}
        return [Loss(*row) for row in self._statements.rows(_SELECT_LOSSES, whose)]

    def _leases(self, select: str, parameters: Parameters) -> list[Lease]:
        return list(map(Lease._make, self._statements.rows(select, parameters)))


class SqlLeaseWrites(SqlLeases):
    """Writes leases and losses."""

    _statements: PendingStatements

    def __init__(self, statements: PendingStatements) -> None:
        super().__init__(statements)

    def held(self, who: Who, now: int) -> HeldCounts:
        agent, principal, session, _ = who
        parameters = {"agent": agent, "principal": principal, "session": session, "now": now}
        by_session, by_principal, awaited = self._statements.rows(_HELD, parameters)[0]
        if by_principal > MAX_OF_PRINCIPAL // 2:  # by_principal comes from an index alone, and includes expired leases
            by_principal = self._statements.rows(_HELD_BY_PRINCIPAL, parameters)[0][0]
        return HeldCounts(by_session, by_principal, awaited_by_principal=awaited)

    def due(self, now: int, limit: int) -> list[Lease]:
        parameters = {"now": now, "limit": limit}
        return self._leases(_SELECT_DUE, parameters) + self._leases(_SELECT_CALLS, parameters)

    def put(self, leases: Iterable[Lease]) -> None:
        self._statements.put(LEASES, [(*it[:9], int(it.explicit), *it[10:]) for it in leases])

    def drop(self, keys: Iterable[tuple[str, int]]) -> None:
        for resource, version in keys:
            self._statements.later(_DROP, {"resource": resource, "version": version})

    def record_call(self, who: Who, server: str, now: int) -> None:
        agent, principal, session, receipt = who
        whose = {"agent": agent, "principal": principal, "session": session, "receipt": receipt}
        self._statements.later(_RECORD_CALL, {**whose, "server": server, "now": now})

    def renew(
        self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[tuple[str, int]], now: int
    ) -> None:
        for session, record_call in sessions:
            facts = {"server": server, "session": session, "heard": record_call, "now": now}
            self._statements.later(_RENEW_SESSION, facts)
        for resource, version in grants:
            self._statements.later(_RENEW_GRANT, {"resource": resource, "version": version, "now": now})

    def touch(self, sessions: Sequence[tuple[str | None, str, int]], now: int) -> None:
        for principal, session, called_at in sessions:
            facts = {"principal": principal, "session": session, "called_at": called_at, "now": now}
            self._statements.later(_TOUCH, facts)

    def end_session(self, session: str, principal: str | None, now: int, at: int) -> None:
        facts = {"session": session, "principal": principal, "now": now, "at": at}
        self._statements.later(_END_SESSION, facts)

    def end_idle_sessions(self, now: int, at: int) -> bool:
        return self._statements.changes(_END_IDLE, {"now": now, "at": at})

    def inherit(self, server: str, session: str, heir: str, now: int) -> None:
        self._statements.later(_INHERIT, {"server": server, "session": session, "heir": heir, "now": now})

    def end(self, servers: Sequence[str], now: int, at: int, grace: int | None) -> bool:
        facts = {"now": now, "at": at, "until": None if grace is None else now + grace}
        ended = [self._statements.changes(_END, {"server": server, **facts}) for server in servers if server]
        return any(ended)

    def lose(self, losses: Sequence[Loss], at: int) -> None:
        self._statements.later(_DROP_LOSSES, {"before": at - LOSS_SECONDS * 1_000_000})
        self._statements.put(LOSSES, list(losses))

    def forget(self, losses: Sequence[Loss]) -> None:
        for loss in losses:
            self._statements.later(_DROP_LOSS, {"resource": loss.resource, "version": loss.version})
