"""The past on every store: snapshots of the board, clocks that were wrong, and responses that may still change."""

import time
from datetime import timedelta

import pytest

from holdlog.adapters.api.past.requests import point_in_time
from holdlog.adapters.api.past.responses import PastClaims
from holdlog.adapters.api.values.responses import AsOf
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.stores.event_log.audit import Faults
from holdlog.adapters.stores.event_log.snapshots import check_snapshots, rebuild_snapshots
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim, Sweep
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.message import NOBODY
from holdlog.domain.ports import Store
from holdlog.domain.times import utc
from tests.support.claim_calls import by
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, run, write
from tests.support.past import Past

EVERY = 4


@pytest.fixture
def past(store: Store, clock: Clock) -> Past:
    return Past(store, clock)


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the board every few positions."""
    for module in ("sql.transaction", "event_log.snapshots"):
        monkeypatch.setattr(f"holdlog.adapters.stores.{module}.SNAPSHOT_EVERY", EVERY)


def claims(store: Store) -> None:
    """Twelve events: holds, queues, releases, and values between them."""
    for number, agent in enumerate(("ann", "ben", "cid")):
        run(store, AcquireClaim(resource="a", agent=agent, wait=0 if number == 0 else 60 * SECOND), by(f"s{number}"))
        run(
            store,
            AcquireClaim(resource=f"b{number}", agent=agent, also=("c",) if number == 0 else ()),
            by(f"s{number}"),
        )
        write(store, "k", number)
    run(store, ReleaseClaim(resource="a", agent="ann"), by("s0"))


def board(past: Past, position: int) -> PastClaims:
    found: PastClaims = past.read(past.requests.past.board(point_in_time(position, None)))
    return found


def kept(store: Store) -> list[int]:
    """The positions of snapshots."""
    with store.reader() as reader:
        found, below = [], reader.position()
        while position := reader.snapshot_before(below)[0]:
            found.append(position)
            below = position - 1
    return found[::-1]


def faults(store: Store) -> int:
    found = Faults()
    with store.snapshot() as reader:
        check_snapshots(reader, found)
    return found.count


def test_board_is_copied_by_the_commit_that_crosses_a_boundary(snapshots: None, store: Store, past: Past) -> None:
    claims(store)
    first, *rest = kept(store)
    assert EVERY <= first < 2 * EVERY
    assert rest
    with store.reader() as reader:
        _, held, tickets = reader.snapshot_before(first)
    shown = board(past, first)
    assert sorted((claim.resource, grant.agent) for claim in held for grant in claim.grants) == [
        (it.resource, it.held_by) for it in shown.claims
    ]
    assert [ticket.agent for ticket in tickets] == [it.agent for queue in shown.queues for it in queue.line]
    assert faults(store) == 0


def test_queue_length_counts_every_waiter_whatever_the_response_shows(store: Store, past: Past) -> None:
    for resource, agent in (("a/", "ann"), ("z", "ben")):
        run(store, AcquireClaim(resource=resource, agent=agent), by(f"s-{agent}"))
    run(store, AcquireClaim(resource="z", agent="cid", also=("a/x",), wait=60 * SECOND), by("s-cid"))
    now = point_in_time(3, None)
    length = past.read(past.requests.claims.status("a/x")).queue_length
    assert (length, past.read(past.requests.past.status("a/x", now)).queue_length) == (1, 1)
    for filtered in ({"limit": 1}, {"agent": "ann"}):
        live, then = (
            past.read(past.requests.claims.board(**filtered)),
            past.read(past.requests.past.board(now, **filtered)),
        )
        assert [it.queue_length for it in live.claims] == [it.queue_length for it in then.claims] == [1]
        assert then.queues == []
        assert [it.agent for it in then.agents] == ["ann"]


def test_holders_of_the_past_are_in_the_order_of_the_present(store: Store, past: Past) -> None:
    run(store, AcquireClaim(resource="d/z", agent="ann"), by("s1"))
    run(store, AcquireClaim(resource="d/a", agent="ben"), by("s2"))
    live = past.read(past.requests.claims.status("d/"))
    then = past.read(past.requests.past.status("d/", point_in_time(2, None)))
    assert (then.held_by, then.holders) == (live.held_by, live.holders) == ("ben", ["ben", "ann"])


def test_snapshots_are_rebuilt_from_the_log_alone(snapshots: None, store: Store, past: Past) -> None:
    claims(store)
    with store.reader() as reader:
        last = reader.position()
    before = [board(past, position) for position in range(1, last + 1)]
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        transaction.drop_snapshots()
        transaction.put_snapshot(EVERY, [], [])
    assert faults(store) == 1
    assert [board(past, position) for position in range(1, last + 1)] != before
    assert rebuild_snapshots(store) == last // EVERY
    assert kept(store) == list(range(EVERY, last + 1, EVERY))
    assert faults(store) == 0
    assert [board(past, position) for position in range(1, last + 1)] == before


def as_of(past: Past, **moment: object) -> AsOf:
    point = point_in_time(moment.get("position"), moment.get("time"))
    found: AsOf = past.read(past.requests.past.resolved(point))
    return found


def test_moments_around_a_clock_that_was_ahead_are_marked(store: Store, clock: Clock, past: Past) -> None:
    write(store, "k", 1)
    clock.pass_by(100)
    write(store, "k", 2)
    clock.move(3600)
    write(store, "k", 3)  # an hour ahead
    clock.move(-3600)
    clock.pass_by(10)
    write(store, "k", 4)
    assert [as_of(past, position=position).clock_suspect for position in (1, 2, 3, 4)] == [None, None, True, True]
    assert as_of(past, time=utc(clock())).clock_suspect  # the last two are earlier than their times
    assert as_of(past, time=utc(clock() - 105 * SECOND)).clock_suspect is None


def test_time_just_now_may_still_change_and_a_settled_one_does_not(store: Store, clock: Clock, past: Past) -> None:
    write(store, "k", 1)
    assert as_of(past, time=utc(clock())).may_change
    clock.pass_by(61)
    assert as_of(past, time=utc(clock() - 61 * SECOND)).may_change is None
    assert as_of(past, position=1).may_change is None


def test_hold_whose_expiry_is_not_recorded_yet_may_change(store: Store, clock: Clock, past: Past) -> None:
    run(store, AcquireClaim(resource="a", agent="ann", lease=60 * SECOND), by())
    due = utc(clock()) + timedelta(seconds=60)
    write(store, "k", 1)
    clock.pass_by(200)
    requests = past.requests.past

    def at(time: object) -> PastClaims:
        found: PastClaims = past.read(requests.board(point_in_time(None, time)))
        return found

    before, after = at(due - timedelta(seconds=1)), at(due + timedelta(seconds=1))
    assert ([it.held_by for it in before.claims], before.as_of and before.as_of.may_change) == (["ann"], None)
    assert ([it.held_by for it in after.claims], after.as_of and after.as_of.may_change) == (["ann"], True)
    run(store, Sweep(), NOBODY)
    assert at(due + timedelta(seconds=1)).claims == []
    (held,) = at(due - timedelta(seconds=1)).claims
    assert (held.outcome, held.ended_at, held.noticed_at) == ("expired", due, utc(clock()))
    free = past.read(requests.status("a", point_in_time(None, due + timedelta(seconds=1))))
    assert (free.previous_outcome, free.previous_holder, free.previous_outcome_at) == ("expired", "ann", due)
    assert free.previous_noticed_at == utc(clock())
    assert past.read(requests.status("a", point_in_time(2, None))).held_by == "ann"


def test_board_of_the_past_shows_only_what_the_caller_may_see(store: Store, past: Past) -> None:
    for resource in ("a", "b"):
        run(store, AcquireClaim(resource=resource, agent="ann"), by())
    within = past.requests.within(Grants.of(["read-claims:a"]))
    found = past.read(within.past.board(point_in_time(2, None)))
    assert [it.resource for it in found.claims] == ["a"]
    assert [(it.agent, it.claims) for it in past.read(within.past.agents(point_in_time(2, None))).agents] == [
        ("ann", 1)
    ]
