"""Leases and losses in the memory of one process; the counterpart of stores/sqlite/leases.py."""

from collections.abc import Iterable, Sequence

from holdlog.adapters.stores.sqlite.leases import LOSS_SECONDS
from holdlog.domain.claims.lease import BY_CALLS, TOUCH_EVERY, HeldCounts, Lease, Loss, Who

Key = tuple[str, int]


class MemoryLeases:
    """Reads and writes leases and losses. The caller keeps `leases` and `lost`; readers never change them."""

    def __init__(self, leases: dict[Key, Lease], lost: list[Loss]) -> None:
        self.leases = leases
        self.lost = lost
        self.wrote = False

    def of(self, resources: Sequence[str]) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.resource in resources]

    def of_agent(self, agent: str, principal: str | None) -> list[Lease]:
        return [it for it in self.leases.values() if it.agent == agent and it.principal == principal]

    def of_session(self, session: str) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.session == session]

    def held(self, who: Who, now: int) -> HeldCounts:
        live = [it for it in self.leases.values() if it.kind != "waits" and it.deadline > now]
        mine = [it for it in live if it.principal == who.principal]
        of_session = [it for it in mine if it.session == who.session and (who.session or it.agent == who.agent)]
        return HeldCounts(len(of_session), len(mine))

    def next_end(self) -> int | None:
        ends = [lease.deadline for lease in self.leases.values()]
        calls = [lease.waiting_until for lease in self.leases.values() if lease.waiting_until]
        return min(ends + calls, default=None)

    def servers(self) -> list[str]:
        return sorted({lease.server for lease in self.leases.values() if lease.server})

    def sessions_of(self, server: str) -> list[str]:
        return sorted({it.session for it in self.leases.values() if it.server == server and it.session is not None})

    def has_idle_sessions(self, now: int) -> bool:
        return any(it.server == BY_CALLS and it.has_ended(now) for it in self.leases.values())

    def losses(self, principal: str | None, session: str | None, receipt: str | None) -> list[Loss]:
        mine = (it for it in self.lost if it.principal == principal)
        return [
            it
            for it in mine
            if (it.session is not None and it.session == session) or (it.receipt is not None and it.receipt == receipt)
        ]

    def due(self, now: int, limit: int) -> list[Lease]:
        due = sorted((lease for lease in self.leases.values() if lease.deadline <= now), key=lambda it: it.deadline)
        over = [it for it in self.leases.values() if 0 < it.waiting_until <= now < it.deadline]
        return [*due[:limit], *over[:limit]]

    def put(self, leases: Iterable[Lease]) -> None:
        self._change({lease.key: lease for lease in leases})

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.leases.pop(key, None)
        self.wrote = True

    def record_call(self, who: Who, server: str, now: int) -> None:
        changed = {}
        for lease in self.leases.values():
            if lease.deadline <= now or (lease.principal, lease.session) != (who.principal, who.session):
                continue
            returned = bool(server) and lease.has_ended(now)
            if returned:
                changed[lease.key] = lease = lease.revived(server, now)
            if not lease.is_of(who):
                continue
            held = lease.kind == "held"
            kept = server if held and server else lease.server
            needs_renewal = held and (
                lease.deadline < now + lease.duration - lease.duration // 8 or lease.server != kept
            )
            if returned or needs_renewal or (lease.server == BY_CALLS and lease.last_seen_at < now - TOUCH_EVERY):
                changed[lease.key] = (
                    _renewed(lease, now).alive()._replace(server=kept, last_call_at=now, last_seen_at=now)
                )
        self._change(changed)

    def touch(self, sessions: Sequence[tuple[str | None, str, int]], now: int) -> None:
        called_at = {(principal, session): at for principal, session, at in sessions}
        theirs = [it for it in self.leases.values() if (it.principal, it.session) in called_at and it.deadline > now]
        alive = [
            it
            for it in theirs
            if it.server == BY_CALLS
            or (it.server == "" and it.last_seen_at < called_at[it.principal, it.session or ""])
        ]
        self._change({it.key: it.revived(BY_CALLS, max(it.last_seen_at, now)) for it in alive})

    def end_session(self, session: str, principal: str | None, now: int, at: int) -> None:
        ended = [
            it for it in self.leases.values() if (it.session, it.principal, it.server) == (session, principal, BY_CALLS)
        ]
        self._change({it.key: _ended(it, now, at)._replace(last_seen_at=now) for it in ended})

    def renew(self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[Key], now: int) -> None:
        record_call, named = dict(sessions), set(grants)
        changed = {}
        for key, lease in self.leases.items():
            if lease.deadline > now and lease.session in record_call and lease.principal is None:
                at = max(lease.last_call_at, record_call[lease.session])
                kept = _keeper(lease, server)
                changed[key] = _renewed(lease, now).alive()._replace(server=kept, last_call_at=at, last_seen_at=now)
            elif lease.deadline > now and key in named:
                changed[key] = _renewed(lease, now)
        self._change(changed)

    def end_idle_sessions(self, now: int, at: int) -> bool:
        idle = [it for it in self.leases.values() if it.server == BY_CALLS and it.has_ended(now)]
        self._change({it.key: _ended(it, now, it.end_of_session(now, at)) for it in idle})
        return bool(idle)

    def inherit(self, server: str, session: str, heir: str, now: int) -> None:
        theirs = [it for it in self.leases.values() if (it.server, it.session) == (server, session)]
        self._change({it.key: it._replace(server=heir, waiting_until=min(it.waiting_until, now)) for it in theirs})

    def end(self, servers: Sequence[str], now: int, at: int, grace: int | None) -> bool:
        changed = {}
        for key, lease in self.leases.items():
            if lease.server in servers and lease.server:
                bound = lease.kind == "offered" or (lease.kind == "held" and not lease.explicit)
                cut = bound and grace is not None
                deadline = min(lease.deadline, now + (grace or 0)) if cut else lease.deadline
                changed[key] = _ended(lease, now, at)._replace(deadline=deadline)
        self._change(changed)
        return bool(changed)

    def lose(self, losses: Sequence[Loss], at: int) -> None:
        again = {(loss.resource, loss.version) for loss in losses}
        oldest = at - LOSS_SECONDS * 1_000_000
        kept = [it for it in self.lost if it.at >= oldest and (it.resource, it.version) not in again]
        self.lost = [*kept, *dict.fromkeys(losses)]
        self.wrote = True

    def forget(self, losses: Sequence[Loss]) -> None:
        self.lost = [loss for loss in self.lost if loss not in losses]
        self.wrote = True

    def _change(self, changed: dict[Key, Lease]) -> None:
        self.leases |= changed
        self.wrote = self.wrote or bool(changed)


def _keeper(lease: Lease, server: str) -> str:
    """The server that keeps a lease alive: for a waiter, the one that it called."""
    return server if lease.kind == "held" or not lease.server else lease.server


def _ended(lease: Lease, now: int, at: int) -> Lease:
    return lease._replace(server="", ended_at=at, waiting_until=min(lease.waiting_until, now))


def _renewed(lease: Lease, now: int) -> Lease:
    return lease._replace(deadline=max(lease.deadline, now + lease.duration)) if lease.kind == "held" else lease
