"""Leases and losses in the memory of one process, as stores/leases.py has them in a file."""

from collections.abc import Iterable, Sequence

from holdlog.adapters.stores.leases import LOSS_SECONDS
from holdlog.domain.claims.lease import Lease, Loss, Who

Key = tuple[str, int]


class MemoryLeases:
    """`leases` and `lost` are the caller's to keep; readers never change them."""

    def __init__(self, leases: dict[Key, Lease], lost: list[Loss]) -> None:
        self.leases = leases
        self.lost = lost
        self.wrote = False

    def of(self, resources: Sequence[str]) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.resource in resources]

    def of_agent(self, who: Who) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.is_of(who)]

    def of_session(self, session: str) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.session == session]

    def held(self, who: Who, now: int) -> int:
        mine = self.of_agent(who) if who.principal is None else self._of_principal(who.principal)
        return sum(1 for lease in mine if lease.kind != "waits" and lease.deadline > now)

    def _of_principal(self, principal: str) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.principal == principal]

    def next_end(self) -> int | None:
        ends = [lease.deadline for lease in self.leases.values()]
        calls = [lease.present_until for lease in self.leases.values() if lease.present_until]
        return min(ends + calls, default=None)

    def servers(self) -> list[str]:
        return sorted({lease.server for lease in self.leases.values() if lease.server})

    def losses(self, principal: str | None, session: str | None, agent: str | None) -> list[Loss]:
        mine = (it for it in self.lost if it.principal == principal)
        return [it for it in mine if (session is not None and it.session == session) or it.agent == agent]

    def due(self, now: int, limit: int) -> list[Lease]:
        due = sorted((lease for lease in self.leases.values() if lease.deadline <= now), key=lambda it: it.deadline)
        over = [it for it in self.leases.values() if 0 < it.present_until <= now < it.deadline]
        return [*due[:limit], *over[:limit]]

    def put(self, leases: Iterable[Lease]) -> None:
        self._change({lease.key: lease for lease in leases})

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.leases.pop(key, None)
        self.wrote = True

    def heard(self, who: Who, server: str, now: int) -> None:
        changed = {}
        for lease in self.of_agent(who):
            renewed = _renewed(lease, now)
            worn = lease.kind == "held" and lease.deadline < now + lease.length - lease.length // 8
            kept = _keeper(lease, server) if server else lease.server
            if lease.deadline > now and (worn or (lease.session, lease.server) != (who.session, kept)):
                changed[lease.key] = renewed._replace(session=who.session, server=kept, heard=now)
        self._change(changed)

    def renew(self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[Key], now: int) -> None:
        heard, named = dict(sessions), set(grants)
        changed = {}
        for key, lease in self.leases.items():
            if lease.deadline > now and lease.session in heard and lease.principal is None:
                at = max(lease.heard, heard[lease.session])
                changed[key] = _renewed(lease, now)._replace(server=_keeper(lease, server), heard=at)
            elif lease.deadline > now and key in named:
                changed[key] = _renewed(lease, now)
        self._change(changed)

    def end(self, servers: Sequence[str], now: int, grace: int | None) -> bool:
        changed = {}
        for key, lease in self.leases.items():
            if lease.server in servers and lease.server:
                bound = lease.kind == "offered" or (lease.kind == "held" and not lease.told)
                cut = bound and grace is not None
                deadline = min(lease.deadline, now + (grace or 0)) if cut else lease.deadline
                present = min(lease.present_until, now)
                changed[key] = lease._replace(server="", deadline=deadline, present_until=present)
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
    """Who waits is there as long as the server that it called."""
    return server if lease.kind == "held" or not lease.server else lease.server


def _renewed(lease: Lease, now: int) -> Lease:
    return lease._replace(deadline=max(lease.deadline, now + lease.length)) if lease.kind == "held" else lease
