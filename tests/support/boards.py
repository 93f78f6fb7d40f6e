"""Boards as sentences: who holds and who waits, when somebody calls, then this follows.

An agent is said as `ann`, in the session `here`; `ann@there` calls from another session. A session whose name ends in
`gone` has no server any more.
"""

from typing import Any, Self, TypeVar

import pytest

from holdlog.domain.claims import acquire as taking
from holdlog.domain.claims import fencing, queue
from holdlog.domain.claims import release as releasing
from holdlog.domain.claims.board import ClaimBoard, Key
from holdlog.domain.claims.claim import (
    Claim,
    ClaimEvent,
    ClaimExpired,
    ClaimGranted,
    ClaimQueued,
    ClaimReleased,
    ClaimResumed,
    ClaimUnqueued,
    Ticket,
    ended_ticket,
    evolve,
    new_ticket,
)
from holdlog.domain.claims.commands import (
    AcquireClaim,
    ClaimAcquired,
    Queued,
    ReleaseClaim,
    ReleaseOutcome,
    StopWaiting,
)
from holdlog.domain.claims.draft import BoardDraft, Decision
from holdlog.domain.claims.lease import ABSENCE, GRACE, SECOND, HeldCounts, Lease, Who
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import FencedError, HoldlogError

START = 1_000 * SECOND
"""When a sentence begins, on both clocks."""
LEASE = 300 * SECOND
WAIT = 50 * SECOND

Refusal = TypeVar("Refusal", bound=HoldlogError)
Named = tuple[str, ClaimEvent]


def who(name: str, principal: str | None = None) -> Who:
    """`ann` is in the session `here`, `ann@there` in another; `ann#r1` has no session, but a receipt, and `ann#`
    neither."""
    if "#" in name:
        agent, _, receipt = name.partition("#")
        return Who(agent, principal, None, receipt or None)
    agent, _, session = name.partition("@")
    return Who(agent, principal, session or "here")


def server_of(caller: Who) -> str:
    session = caller.session or "gone"
    return "" if session.endswith("gone") else f"server of {session}"


# --- commands


def take(resource: str, by: str, **fields: Any) -> tuple[AcquireClaim, str]:
    return AcquireClaim(resource=resource, agent=who(by).agent, **fields), by


def stand(resource: str, by: str, **fields: Any) -> tuple[AcquireClaim, str]:
    """Claim, and wait where it is not free."""
    return take(resource, by, wait=WAIT, **fields)


def release(resource: str | None, by: str, **fields: Any) -> tuple[ReleaseClaim, str]:
    return ReleaseClaim(resource=resource, agent=who(by).agent, **fields), by


def force(resource: str, by: str, reason: str) -> tuple[ReleaseClaim, str]:
    return release(resource, by, forced=True, note=reason)


def step_back(resource: str, by: str, ticket: int) -> tuple[StopWaiting, str]:
    return StopWaiting(resource=resource, agent=who(by).agent, ticket=ticket), by


# --- events


def granted(resource: str, to: str, **fields: Any) -> Named:
    holder = who(to)
    return resource, ClaimGranted(agent=holder.agent, session=holder.session, **fields)


def resumed(resource: str, by: str, former: str, grant: int = 1, **fields: Any) -> Named:
    holder = who(by)
    return resource, ClaimResumed(
        agent=holder.agent, session=holder.session, former_session=who(former).session, grant=grant, **fields
    )


def released(resource: str, by: str, **fields: Any) -> Named:
    return resource, ClaimReleased(agent=by, **fields)


def expired(resource: str, of: str, **fields: Any) -> Named:
    return resource, ClaimExpired(agent=of, **fields)


def queued(resource: str, by: str, **fields: Any) -> Named:
    return resource, ClaimQueued(agent=by, **fields)


def unqueued(resource: str, by: str, **fields: Any) -> Named:
    return resource, ClaimUnqueued(agent=by, **fields)


# --- what stands


class Part:
    """One event of the past, and the lease that it left."""

    def __init__(self, resource: str, event: ClaimEvent, by: Who, kind: Any = None, **lease: Any) -> None:
        self.resource, self.event, self.by, self.kind, self.lease = resource, event, by, kind, lease


def held(resource: str, by: str, mode: Any = "exclusive", principal: str | None = None, **lease: Any) -> Part:
    holder = who(by, principal)
    event = ClaimGranted(agent=holder.agent, principal=principal, session=holder.session, mode=mode)
    return Part(resource, event, holder, "held", **lease)


def waits(
    resource: str, by: str, mode: Any = "exclusive", also: Any = (), alternatives: Any = (), present: bool = True
) -> Part:
    """In a call, or else between two."""
    waiter = who(by)
    event = ClaimQueued(agent=waiter.agent, mode=mode, turn=1, also=also, alternatives=alternatives)
    lease = {"waiting_until": START + WAIT, "deadline": START + WAIT + ABSENCE}
    return Part(
        resource, event, waiter, "waits", **lease if present else {"waiting_until": 0, "deadline": START + ABSENCE}
    )


def ended(resource: str, of: str, version: int = 1, **fields: Any) -> Part:
    """A hold that was released, or taken away (`forced_by`)."""
    return Part(resource, ClaimReleased(agent=who(of).agent, grant=version, **fields), who(of))


def ran_out(resource: str, of: str, version: int = 1) -> Part:
    return Part(resource, ClaimExpired(agent=who(of).agent, grant=version, due=START), who(of))


def board(*parts: Part) -> "Scene":
    """What happened, in this order; each ticket stands behind those before it."""
    made = BoardDraft(ClaimBoard((), (), {}, START, START))
    for turn, part in enumerate(parts, start=1):
        event = part.event
        if isinstance(event, ClaimQueued):
            event = event.model_copy(update={"turn": turn})
        version = made.record(part.resource, event)
        if isinstance(event, ClaimReleased | ClaimExpired):
            made.drop((part.resource, event.grant or 0))
        if part.kind is not None:
            by = part.by
            facts = by._asdict() | {
                "deadline": START + LEASE,
                "duration": LEASE,
                "last_call_at": START,
                "last_seen_at": START,
            }
            facts |= {"server": server_of(by), "ended_at": 0 if server_of(by) else START} | part.lease
            made.keep(Lease(part.resource, version, part.kind, **facts))
    return Scene(made.claims, made.tickets, made.leases, START)


class Scene:
    """A board at one moment; `when` somebody calls, the next one follows."""

    def __init__(
        self, claims: dict[str, Claim], tickets: dict[Key, Ticket], leases: dict[Key, Lease], now: int
    ) -> None:
        self.claims, self.tickets, self.leases, self.now = claims, tickets, leases, now

    @property
    def board(self) -> ClaimBoard:
        return ClaimBoard(
            self.claims.values(),
            self.tickets.values(),
            self.leases,
            self.now,
            self.now,
            ticket_count=len(self.tickets),
        )

    def after(self, seconds: float) -> "Happened":
        """Time passes, and what is due then ends."""
        self = Scene(self.claims, self.tickets, self.leases, self.now + round(seconds * SECOND))
        return Happened(self.board, queue.expire_due(self.board))

    def after_the_end_of(self, session: str, grace: int | None = GRACE) -> "Happened":
        """The session's server is gone, as somebody noticed."""
        leases = dict(self.leases)
        for key, lease in leases.items():
            if lease.session == session:
                cut = lease.kind == "held" and not lease.explicit and grace is not None
                deadline = min(lease.deadline, self.now + (grace or 0)) if cut else lease.deadline
                leases[key] = lease._replace(
                    server="", deadline=deadline, waiting_until=min(lease.waiting_until, self.now), ended_at=self.now
                )
        found = Scene(self.claims, self.tickets, leases, self.now).board
        return Happened(found, queue.expire_due(found))

    def when(
        self, call: tuple[AcquireClaim | ReleaseClaim | StopWaiting, str], principal: str | None = None
    ) -> "Happened":
        """Decide. A refusal is kept for `refused`."""
        command, name = call
        caller = who(name, principal)
        found = self.board
        try:
            match command:
                case AcquireClaim():
                    turn = max((it.ticket.turn for it in found.waiting()), default=0) + 1
                    claimant = taking.Claimant(caller, server_of(caller), self._held(caller), turn)
                    decision: Decision[Any] = taking.acquire(command, claimant, found)
                case ReleaseClaim():
                    decision = releasing.release(command, caller, server_of(caller), found)
                case StopWaiting():
                    decision = releasing.stop_waiting(command, caller, found)
        except HoldlogError as refusal:
            decision = Decision(refusal, [], [], set(), [])
        assert (found.claims, found.tickets, found.leases) == (self.claims, self.tickets, self.leases), (
            "a decider changed the board it was given"
        )
        return Happened(found, decision)

    def _held(self, caller: Who) -> HeldCounts:
        """How much the caller's session and principal hold and wait for."""
        grants = [it for it in self.leases.values() if it.principal == caller.principal and it.kind != "waits"]
        waits = [it for it in self.board.waiting() if it.lease.principal == caller.principal]
        return HeldCounts(
            sum(it.is_counted_for(caller) for it in grants),
            len(grants),
            sum(taking.most_of(it.ticket) for it in waits if it.lease.is_counted_for(caller)),
            sum(taking.most_of(it.ticket) for it in waits),
        )

    def fenced(self, resource: str, version: int, writer: str, receipt: str | None = None) -> FencedError | None:
        return fencing.fence(
            FencingCondition(resource=resource, version=version, receipt=receipt), who(writer), self.board
        )

    def holders(self, resource: str) -> list[str]:
        return [hold.grant.agent for hold in self.board.holds(resource)]

    def line(self, resource: str) -> list[str]:
        return [waiting.ticket.agent for waiting in self.board.waiting() if waiting.resource == resource]

    def lease(self, resource: str, of: str) -> Lease:
        """The one lease that the agent has there."""
        (found,) = (it for it in self.leases.values() if it.resource == resource and it.agent == who(of).agent)
        return found


class Happened(Scene):
    """What came of a call."""

    def __init__(self, before: ClaimBoard, decision: Decision[Any]) -> None:
        claims, tickets = dict(before.claims), dict(before.tickets)
        for claim, event, after in decision.events:
            assert claim == claims.get(claim.resource, Claim(claim.resource)), "each event follows the one before it"
            claims[claim.resource] = evolve(claim, event, before.at)
            assert claims[claim.resource] == after
            if (ticket := new_ticket(after, event, before.at)) is not None:
                tickets[ticket.resource, ticket.version] = ticket
            if (left := ended_ticket(event)) is not None:
                del tickets[claim.resource, left]
            assert after.waiting == sum(it.resource == claim.resource for it in tickets.values())
        leases = {key: lease for key, lease in before.leases.items() if key not in decision.dropped}
        super().__init__(claims, tickets, leases | {lease.key: lease for lease in decision.kept}, before.now)
        self.changes = [(claim.resource, event) for claim, event, _ in decision.events]
        self.losses = decision.losses
        self._outcome = decision.outcome

    def then(self, *expected: Named) -> Self:
        """These events follow, and no others."""
        _ = self.outcome  # a refusal is raised here
        assert self.changes == list(expected)
        return self

    @property
    def outcome(self) -> Any:
        if isinstance(self._outcome, HoldlogError):
            raise self._outcome
        return self._outcome

    @property
    def taken(self) -> ClaimAcquired:
        assert isinstance(self.outcome, ClaimAcquired)
        return self.outcome

    @property
    def queued(self) -> Queued:
        assert isinstance(self.outcome, Queued)
        return self.outcome

    @property
    def let(self) -> ReleaseOutcome:
        assert isinstance(self.outcome, ReleaseOutcome)
        return self.outcome

    def refused(self, kind: type[Refusal]) -> Refusal:
        """The call was refused and changed nothing; answers with the refusal."""
        with pytest.raises(kind) as refused:
            raise self._outcome if isinstance(self._outcome, HoldlogError) else AssertionError(self._outcome)
        assert self.changes == []
        return refused.value
