"""Random histories of claims: what agents, servers and clocks can do, a step at a time, on any store."""

import time
from typing import NamedTuple, Protocol

import hypothesis.strategies as st

from holdlog.adapters.runtime.command_handler import handle
from holdlog.domain.claims.claim import Claim, Mode, Ticket
from holdlog.domain.claims.commands import (
    AcquireClaim,
    EndSession,
    ReleaseClaim,
    Renew,
    StopWaiting,
    Sweep,
    TouchSessions,
)
from holdlog.domain.claims.lease import BY_CALLS, SECOND, Lease, Loss
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Reader, Store
from holdlog.domain.record import Set, Transact
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.value import Json
from tests.support.clock import Clock

RESOURCES = ("a", "a/", "a/b", "a/b/", "a/b/c", "d", "d/")
AGENTS = ("x", "x/1", "x/2", "y", "z")
SERVERS = {"s1": "v1", "s2": "v2", "c1": BY_CALLS, "c2": BY_CALLS, "r1": "", "r2": ""}
"""Sessions, with what keeps them alive. `r…` are no sessions, but receipts."""
PATIENCE = 30.0


class By(NamedTuple):
    agent: str
    session: str = "s1"

    @property
    def caller(self) -> Caller:
        return Caller(session=None if self.receipt else self.session, server=SERVERS[self.session])

    @property
    def receipt(self) -> str | None:
        return self.session if self.session.startswith("r") else None


class Seen(NamedTuple):
    """All that stands at one moment. `now`: the steady clock."""

    position: int
    now: int
    claims: dict[str, Claim]
    tickets: tuple[Ticket, ...]
    leases: dict[tuple[str, int], Lease]
    losses: tuple[Loss, ...] = ()

    @property
    def settled(self) -> bool:
        """Nothing is over that nobody noticed yet."""
        ends = [(lease.deadline, lease.waiting_until or self.now + 1) for lease in self.leases.values()]
        idle = any(it.server == BY_CALLS and it.has_ended(self.now) for it in self.leases.values())
        return all(min(end) > self.now for end in ends) and not idle

    def live(self, *kinds: str) -> list[Lease]:
        found = (lease for lease in self.leases.values() if lease.kind in kinds and lease.deadline > self.now)
        return sorted(found, key=lambda lease: lease.key)


class Turn(NamedTuple):
    """One command, and what stood before and after it."""

    by: By | None
    command: AnyCommand
    said: Outcome | HoldlogError
    before: Seen
    after: Seen


class World:
    """A store, its clock, and the calls that somebody may repeat."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.calls: list[tuple[By, AcquireClaim]] = []

    def run(self, command: AnyCommand, by: By | None = None) -> Turn:
        """As the writer does: a refusal does not undo the transaction."""
        said: Outcome | HoldlogError
        with self.store.transaction(time.monotonic() + PATIENCE) as transaction:
            before = seen(transaction, transaction.steady)
            try:
                said = handle(command, by.caller if by else NOBODY, transaction)
            except HoldlogError as refusal:
                said = refusal
            after = seen(transaction, transaction.steady)
        return Turn(by, command, said, before, after)

    def now(self) -> Seen:
        with self.store.reader() as reader:
            return seen(reader, self.clock.steady())


def seen(reader: Reader, now: int) -> Seen:
    claims = {resource: reader.claim(resource) for resource in RESOURCES}
    leases = {lease.key: lease for lease in reader.leases.of(RESOURCES)}
    lost = {loss for who in SERVERS for loss in reader.leases.losses(None, who, who)}
    tickets = tuple(sorted(reader.tickets(RESOURCES)))
    return Seen(reader.position(), now, claims, tickets, leases, tuple(sorted(lost)))


# --- steps


class Step(Protocol):
    def take(self, world: World) -> Turn | None:
        """Do it; None when there is nothing to do it to."""


class Claims(NamedTuple):
    by: By
    resource: str
    also: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    mode: Mode = "exclusive"
    wait: int = 0
    lease: int = 300

    def take(self, world: World) -> Turn:
        command = AcquireClaim(
            resource=self.resource,
            agent=self.by.agent,
            also=self.also,
            alternatives=self.alternatives,
            mode=self.mode,
            wait=self.wait * SECOND,
            lease=self.lease * SECOND,
            new_receipt=self.by.receipt,
        )
        if self.wait:
            world.calls.append((self.by, command))
        return world.run(command, self.by)


class CallsAgain(NamedTuple):
    """Somebody who waited once makes the same call again: collects, or takes its old place."""

    number: int

    def take(self, world: World) -> Turn | None:
        if not world.calls:
            return None
        by, command = world.calls[-1 - self.number % len(world.calls)]
        return world.run(command, by)


class StepsBack(NamedTuple):
    number: int

    def take(self, world: World) -> Turn | None:
        tickets = world.now().live("waits")
        if not tickets:
            return None
        it = tickets[self.number % len(tickets)]
        command = StopWaiting(resource=it.resource, agent=it.agent, ticket=it.version, receipt=it.receipt)
        return world.run(command, _of(it))


class LetsGo(NamedTuple):
    """Of the n-th lease."""

    number: int
    forced: bool = False

    def take(self, world: World) -> Turn | None:
        leases = world.now().live("held", "offered", "waits")
        if not leases:
            return None
        it = leases[self.number % len(leases)]
        agent = "person" if self.forced else it.agent
        command = ReleaseClaim(resource=it.resource, agent=agent, forced=self.forced, receipt=it.receipt)
        return world.run(command, _of(it))


class Releases(NamedTuple):
    by: By
    resource: str | None = None
    also: tuple[str, ...] = ()
    by_name: bool = False

    def take(self, world: World) -> Turn:
        also = self.also if self.resource else ()
        receipt = None if self.by_name else self.by.receipt
        return world.run(ReleaseClaim(resource=self.resource, agent=self.by.agent, also=also, receipt=receipt), self.by)


class Writes(NamedTuple):
    by: By

    def take(self, world: World) -> Turn:
        put = Set(namespace="n", key="k", value=Json.of(1))
        return world.run(Transact(operations=(put,), by=self.by.agent), self.by)


class Passes(NamedTuple):
    """Time; and the sweep comes, or not yet."""

    seconds: int
    swept: bool = True

    def take(self, world: World) -> Turn | None:
        world.clock.pass_by(self.seconds)
        return world.run(Sweep()) if self.swept else None


class Ends(NamedTuple):
    """A server is gone."""

    server: str

    def take(self, world: World) -> Turn:
        return world.run(Sweep(ended=(self.server,)))


class EndsSession(NamedTuple):
    """The client of a session that lives by its calls ends it."""

    session: str

    def take(self, world: World) -> Turn:
        return world.run(EndSession(session=self.session), By("x", self.session))


class Touches(NamedTuple):
    """A session that lives by its calls has a request open."""

    session: str

    def take(self, world: World) -> Turn:
        return world.run(TouchSessions(sessions=((None, self.session, world.clock.steady()),)))


class Renews(NamedTuple):
    session: str

    def take(self, world: World) -> Turn:
        return world.run(Renew(server=SERVERS[self.session], sessions=((self.session, world.clock.steady()),)))


def _of(lease: Lease) -> By:
    return By(lease.agent, lease.session or lease.receipt or "s1")


# --- strategies

numbers = st.integers(0, 5)
resources = st.sampled_from(RESOURCES)
few = st.lists(resources, max_size=2, unique=True).map(tuple)
none: st.SearchStrategy[tuple[str, ...]] = st.just(())
parts = st.one_of(
    st.tuples(none, none), st.tuples(none, none), st.tuples(few, none), st.tuples(none, few)
)  # also, alternatives
modes = st.sampled_from(["exclusive", "exclusive", "shared"])


def steps(sessions: tuple[str, ...], endings: bool) -> st.SearchStrategy[list[Step]]:
    """`endings`: servers end, and agents come back in other sessions."""
    callers = st.builds(By, st.sampled_from(AGENTS), st.sampled_from(sessions))

    def claims(by: By, resource: str, both: tuple[tuple[str, ...], ...], mode: Mode, wait: int, lease: int) -> Claims:
        return Claims(by, resource, *both, mode, wait, lease)

    claiming = st.builds(
        claims, callers, resources, parts, modes, st.sampled_from([0, 30, 30, 30]), st.sampled_from([300, 300, 20])
    )
    kinds: list[tuple[int, st.SearchStrategy[Step]]] = [
        (9, claiming),
        (2, st.builds(CallsAgain, numbers)),
        (2, st.builds(LetsGo, numbers)),
        (1, st.builds(LetsGo, numbers, st.just(True))),
        (1, st.builds(Releases, callers, st.none() | resources, few, st.booleans())),
        (1, st.builds(StepsBack, numbers)),
        (1, st.builds(Passes, st.sampled_from([1, 10, 20, 31, 121]), st.sampled_from([True, True, False]))),
    ]
    if endings:
        kinds += [
            (1, st.builds(Writes, callers)),
            (1, st.builds(Ends, st.sampled_from(["v1", "v2"]))),
            (1, st.builds(Renews, st.sampled_from(["s1", "s2"]))),
        ]
    if by_calls := [session for session in sessions if SERVERS[session] == BY_CALLS]:
        kinds += [
            (1, st.builds(EndsSession, st.sampled_from(by_calls))),
            (1, st.builds(Touches, st.sampled_from(by_calls))),
        ]
    weighed = [kind for weight, kind in kinds for _ in range(weight)]
    step = st.none() | st.sampled_from(weighed).flatmap(lambda kind: kind)
    # Long from the start, or most would be short; what shrinking makes of a step is None, and drops out.
    return st.lists(step, min_size=25, max_size=50).map(lambda found: [it for it in found if it is not None])
