"""The grant rule against a second, brute-force telling of it (tests/support/claim_rule.py), over random histories."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.commands import AcquireClaim, ClaimAcquired, Queued, ReleaseClaim
from holdlog.domain.claims.lease import Lease
from holdlog.domain.ports import State, Store
from holdlog.domain.refusals import BusyError, DeadlockError, HoldlogError
from holdlog.projections import fold
from tests.support import claim_rule
from tests.support.claim_rule import Agent, Has, Scene, Wants, scene
from tests.support.claim_steps import (
    SERVERS,
    By,
    Claims,
    EndsSession,
    LetsGo,
    Passes,
    Seen,
    Step,
    Touches,
    Turn,
    World,
    steps,
)
from tests.support.clock import Clock
from tests.support.commands import whole_log
from tests.support.postgres import emptied

ONE = ("s1",)
TWO = ("s1", "s2")
NAMESAKES = tuple(SERVERS)
"""Processes, sessions that live by their calls, and receipts."""
A_TICKET_WHOSE_SESSION_RETURNS_AND_ENDS: list[Step] = [
    Claims(By("x"), "a"),
    Claims(By("x", "c1"), "a", wait=30),
    EndsSession("c1"),
    Passes(1),
    Touches("c1"),
    Passes(121, swept=True),
]
RETURNS_INTO_A_RING: list[Step] = [
    Claims(By("x"), "d"),
    Claims(By("x", "c1"), "a"),
    Claims(By("z", "s2"), "a/b/c"),
    Claims(By("x", "c1"), "d", wait=200),
    Passes(75, swept=False),
    Claims(By("x"), "a", also=("a/b/c",), wait=200),
    Touches("c1"),
    Passes(1),
]
"""`x` in s1 waits for a claim that it may resume as long as c1 counts as ended."""
RETURNS_TO_ITS_OFFER: list[Step] = [
    Claims(By("x"), "a"),
    Claims(By("x/2", "c2"), "a", mode="shared", wait=30),
    LetsGo(0),
    Claims(By("x"), "a/b"),
    Claims(By("x/2", "s2"), "a", also=("a/",), wait=30),
    EndsSession("c2"),
    Claims(By("x/2", "c2"), "a"),
]
"""`x/2` in s2 waits for `x`, and again for the session c2 as soon as that one calls."""
quick = settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
fewer = settings(quick, max_examples=25)


@fewer
@given(steps(ONE, endings=False))
def test_random_claims_of_one_session_follow_the_rule(history: list[Step]) -> None:
    with in_memory() as world:
        live(world, history)


@pytest.mark.check
@quick
@given(steps(TWO, endings=False))
def test_random_claims_of_two_sessions_follow_the_rule(history: list[Step]) -> None:
    with in_memory() as world:
        live(world, history)


@pytest.mark.check
@quick
@given(steps(TWO, endings=True))
def test_random_claims_of_sessions_that_end_and_return_follow_the_rule(history: list[Step]) -> None:
    with in_memory() as world:
        live(world, history)


@pytest.mark.check
@quick
@given(steps(NAMESAKES, endings=True))
@example(RETURNS_INTO_A_RING)
@example(RETURNS_TO_ITS_OFFER)
def test_random_claims_of_sessions_and_receipts_with_shared_names_follow_the_rule(history: list[Step]) -> None:
    with in_memory() as world:
        live(world, history)


@pytest.mark.slow
@settings(quick, max_examples=20_000)
@given(steps(NAMESAKES, endings=True))
def test_twenty_thousand_claim_histories_with_shared_names_follow_the_rule(history: list[Step]) -> None:
    with in_memory() as world:
        live(world, history)


@pytest.mark.check
@fewer
@given(steps(NAMESAKES, endings=True))
@example(A_TICKET_WHOSE_SESSION_RETURNS_AND_ENDS)
@example(RETURNS_INTO_A_RING)
def test_random_claims_in_a_file_follow_the_rule(history: list[Step]) -> None:
    with in_a_file() as world:
        require_the_same(world, history)


@pytest.mark.check
@fewer
@given(steps(NAMESAKES, endings=True))
@example(A_TICKET_WHOSE_SESSION_RETURNS_AND_ENDS)
@example(RETURNS_INTO_A_RING)
def test_random_claims_in_postgres_follow_the_rule(shared_postgres: str, history: list[Step]) -> None:
    with in_postgres(shared_postgres) as world:
        require_the_same(world, history)


@pytest.mark.slow
@settings(quick, max_examples=1_000)
@given(steps(NAMESAKES, endings=True))
def test_thousand_random_claim_histories_in_postgres_follow_the_rule(shared_postgres: str, history: list[Step]) -> None:
    with in_postgres(shared_postgres) as world:
        require_the_same(world, history)


def require_the_same(other: World, history: list[Step]) -> None:
    """Whatever is asked, the answer and what stands then are as in memory; so is the log at the end."""
    with in_memory() as world:
        for step in history:
            said, also_said = step.take(world), step.take(other)
            assert _told(said) == _told(also_said)
        assert world.now() == other.now()
        logs = [_without_digests(it.store) for it in (world, other)]
        assert logs[0] == logs[1]


@contextmanager
def in_memory() -> Iterator[World]:
    clock = Clock()
    yield World(open_memory(clock, clock.steady), clock)


@contextmanager
def in_a_file() -> Iterator[World]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        store = open_sqlite(Path(folder) / "state.db", clock, clock.steady)
        try:
            yield World(store, clock)
        finally:
            store.close()


@contextmanager
def in_postgres(url: str) -> Iterator[World]:
    clock = Clock()
    with emptied(url, clock, clock.steady) as store:
        yield World(store, clock)


def live(world: World, history: list[Step]) -> None:
    """Take the steps; after each, all that must always hold holds."""
    replay = Replay()
    returned = False
    for step in history:
        turn = step.take(world)
        if turn is None:
            continue
        seen = turn.after
        require_exclusion(seen)
        require_leases_match(seen)
        require_first_come(turn)
        require_losses(turn)
        returned = returned or (not isinstance(turn.command, AcquireClaim) and _returns(turn))
        if seen.settled:
            ring = claim_rule.deadlocked(scene(seen))
            assert not ring, f"{ring} wait for each other, and none was told"
            amiss = starves(scene(seen))
            returned = returned and amiss is not None  # other commands grant nothing when a session returns
            assert returned or amiss is None, amiss
        if turn.before.settled:
            assert not isinstance(turn.said, HoldlogError) or seen == turn.before, "a refusal changed something"
            if isinstance(turn.command, AcquireClaim):
                require_answer(turn, turn.command)
        replay.follow(world, seen)


# --- what holds after every step


def require_losses(turn: Turn) -> None:
    """A grant that is gone was released or replaced by its own holder, or its holder is going to learn it."""
    known = {(it.resource, it.version) for it in turn.after.losses}
    for lease in turn.before.live("held"):
        if lease.key in turn.after.leases:
            continue
        same = [it for it in turn.after.live("held", "offered") if it.resource == lease.resource]
        if any(claim_rule.agent_of(it) == claim_rule.agent_of(lease) for it in same):
            continue  # it got a grant of the other mode, which it waited for
        by = turn.by and Agent(turn.by.agent, turn.by.session)
        own = by == claim_rule.agent_of(lease) and isinstance(turn.command, ReleaseClaim | AcquireClaim)
        by_name = isinstance(turn.command, ReleaseClaim) and turn.command.receipt is None and lease.receipt is not None
        assert (own and not by_name) or lease.key in known, f"{lease.who} lost {lease.key} and learns nothing"


def require_exclusion(seen: Seen) -> None:
    """Two that hold what overlaps share it, are the same holder, or are related in one session."""
    held = [(it, lease) for lease in seen.live("held", "offered") for it in _has(seen, lease)]
    for number, (one, first) in enumerate(held):
        for other, second in held[number + 1 :]:
            if claim_rule.clash(one, other.mode, other.resources):
                met = first.session is not None and first.session == second.session
                family = met and (_is_above(first.agent, second.agent) or _is_above(second.agent, first.agent))
                assert one.agent == other.agent or family, f"{one} and {other} exclude each other"


def starves(scene: Scene) -> str | None:
    for wish in scene.wants:
        option = claim_rule.grantable(scene, wish)
        if option is not None:
            return f"{wish} waits although {option} is free for it"
    return None


def require_first_come(turn: Turn) -> None:
    """Nobody was served before one who came earlier, still waits in its call for the same, and not for the served."""
    before, after = turn.before, turn.after
    now, then = scene(after), scene(before)
    asked = _asked(then, turn)
    waiting = {(it.agent.name, it.turn) for it in now.wants}
    offers = [it for it in after.live("offered") if it.key not in before.leases]
    gone = [it for it in then.wants if (it.agent.name, it.turn) not in waiting]
    stood = {(it.turn, it.agent.name, it.options) for it in then.wants}
    first = {it.agent: it for it in reversed(gone)}  # whatever else an agent waited for is needless then
    for served in first.values():
        got = [it for lease in offers if _may_be(lease, served) for it in _has(after, lease) if not _is_back(turn, it)]
        needless = [it for it in gone if it.agent == served.agent]
        undone = Scene(tuple(it for it in now.has if it not in got), tuple(sorted((*now.wants, *needless))))
        for earlier in now.wants:
            if (
                (earlier.turn, earlier.agent.name, earlier.options) in stood  # turns begin anew when nobody waits
                and earlier.turn < served.turn
                and claim_rule.is_other(earlier, served.agent)
                and any(claim_rule.clash(earlier, it.mode, it.resources) for it in got)
            ):
                passed = [claim_rule.waits_for(it, earlier.agent, served.agent) for it in (undone, then, asked)]
                assert any(passed), f"{served} was served before {earlier}"


def _asked(then: Scene, turn: Turn) -> Scene:
    """With the wish of the one who claims just now: another may be served because of it, and then this one, too."""
    if not isinstance(turn.command, AcquireClaim) or turn.by is None:
        return then
    asker = Agent(turn.by.agent, turn.by.session)
    return Scene(then.has, (*then.wants, _wish(turn, turn.command, asker)))


def require_leases_match(seen: Seen) -> None:
    """Every grant and every ticket has its lease, and there are no others."""
    grants = {(claim.resource, it.version) for claim in seen.claims.values() for it in claim.grants}
    tickets = {(it.resource, it.version) for it in seen.tickets}
    assert grants | tickets == set(seen.leases)
    assert tickets == {key for key, lease in seen.leases.items() if lease.kind == "waits"}
    for resource, claim in seen.claims.items():
        assert claim.waiting == sum(it.resource == resource for it in seen.tickets)


def require_answer(turn: Turn, command: AcquireClaim) -> None:
    """The rule says who is granted what, and who is told that it may not wait."""
    assert turn.by is not None
    asker = Agent(turn.by.agent, turn.by.session)
    stood = _returned(scene(turn.before), asker)
    wish = _wish(turn, command, asker)
    options = wish.options
    offered = [option for option in options if _is_offered(turn.before, option, asker)]
    expected = _first(stood, wish._replace(options=tuple(dict.fromkeys((*offered, *options)))))
    if isinstance(turn.said, ClaimAcquired):
        assert expected is not None, f"granted {turn.said.resource} against the rule"
        assert {turn.said.resource, *dict(turn.said.also)} == set(expected)
        return
    assert expected is None, f"{expected} is free for {wish}"
    if any(claim_rule.is_free(stood, wish, option) for option in options):
        assert isinstance(turn.said, DeadlockError), "what would close a ring is refused as a deadlock"
        return
    if command.wait and not isinstance(turn.said, Queued):
        others = tuple(it for it in stood.wants if it.turn != wish.turn)
        rings = claim_rule.deadlocked(Scene(stood.has, (*others, wish)))
        alone = command.mode == "exclusive" and _shares_alone(turn.before, command.resource, asker)
        assert isinstance(turn.said, BusyError) if alone else isinstance(turn.said, DeadlockError) and rings


class Replay:
    """Folds the log as it grows: the views say the same at every position."""

    def __init__(self) -> None:
        self.position = 0
        self.states: dict[str, State] = {}

    def follow(self, world: World, seen: Seen) -> None:
        with world.store.reader() as reader:
            for recorded in reader.log(self.position, -1):
                envelope = recorded.envelope
                before = self.states.get(envelope.stream) or fold.initial(envelope.stream)
                assert (envelope.position, envelope.version) == (self.position + 1, before.version + 1)
                self.states[envelope.stream], _ = fold.apply(before, envelope, recorded.event)
                self.position += 1
            assert self.position == seen.position
            for resource, claim in seen.claims.items():
                assert self.states.get(claim.stream, Claim(resource)) == claim == reader.claim(resource)
            active = [claim for claim in seen.claims.values() if claim.grants or claim.waiting]
            assert reader.claims(None, -1) == sorted(active)


# --- small readings


def _has(seen: Seen, lease: Lease) -> list[Has]:
    grant = seen.claims[lease.resource].grant(lease.version)
    return [Has(lease.resource, grant.mode, claim_rule.agent_of(lease), lease.has_ended(seen.now))] if grant else []


def _may_be(lease: Lease, served: Wants) -> bool:
    return claim_rule.agent_of(lease) == served.agent


def _is_back(turn: Turn, got: Has) -> bool:
    """Whether it only took back what an ended session of its name held: nobody is ahead of it there."""
    gone = [lease for lease in turn.before.live("held", "offered") if lease.key not in turn.after.leases]
    former = [it for lease in gone if lease.agent == got.agent.name for it in _has(turn.before, lease)]
    return any(
        it.resource == got.resource and it.agent != got.agent and it.mode in ("exclusive", got.mode) for it in former
    )


def _told(turn: Turn | None) -> object:
    """What the caller learns, and what stands then."""
    if turn is None or not isinstance(turn.said, HoldlogError):
        return turn
    return turn._replace(said=(type(turn.said), vars(turn.said)))  # type: ignore[arg-type]


def _without_digests(store: Store) -> list[tuple[object, object]]:
    """Values are salted."""
    return [(it.event, it.envelope._replace(digest=b"")) for it in whole_log(store)]


def _returns(turn: Turn) -> bool:
    """Whether a session that had ended is alive again."""
    before, after = turn.before, turn.after
    both = [(before.leases[key], lease) for key, lease in after.leases.items() if key in before.leases]
    return any(was.has_ended(before.now) and not lease.has_ended(after.now) for was, lease in both)


def _returned(before: Scene, asker: Agent) -> Scene:
    """The session that calls is alive, whatever was noticed before."""
    has = (it._replace(gone=it.gone and it.agent.session != asker.session) for it in before.has)
    return before._replace(has=tuple(has))


def _is_above(one: str, other: str) -> bool:
    return other.startswith(one + "/")


def _wish(turn: Turn, command: AcquireClaim, asker: Agent) -> Wants:
    options = ((command.resource, *command.also), *((it,) for it in command.alternatives))
    options = tuple(tuple(dict.fromkeys(option)) for option in options)
    return Wants(_place(turn.before, command, asker), command.mode, asker, options)


def _place(seen: Seen, command: AcquireClaim, asker: Agent) -> float:
    """The turn of the ticket that the same call took before, or behind all."""
    for ticket in seen.tickets:
        if ticket.resource != command.resource:
            continue
        lease = seen.leases[ticket.resource, ticket.version]
        mine = claim_rule.agent_of(lease) == asker or (lease.agent == asker.name and lease.has_ended(seen.now))
        asked = (ticket.mode, ticket.also, ticket.alternatives)
        if mine and asked == (command.mode, command.also, command.alternatives):
            return ticket.turn
    return float("inf")


def _is_offered(seen: Seen, option: tuple[str, ...], asker: Agent) -> bool:
    named = [it for it in seen.live("offered") if it.agent == asker.name]
    mine = [it for it in named if claim_rule.agent_of(it) == asker]
    return any(it.resource in option for it in mine)


def _first(stood: Scene, wish: Wants) -> tuple[str, ...] | None:
    """The option that the asker gets, or has."""
    for option in wish.options:
        alone = wish._replace(options=(option,))
        if claim_rule.holds_all(stood, wish, option) or claim_rule.grantable(stood, alone):
            return option
    return None


def _shares_alone(seen: Seen, resource: str, asker: Agent) -> bool:
    """It shares the resource and wants it alone: no wait would end that."""
    held = [it for lease in seen.live("held", "offered") for it in _has(seen, lease)]
    return any(it.resource == resource and it.mode == "shared" and claim_rule.is_same(it, asker) for it in held)
