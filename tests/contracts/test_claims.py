"""Claims over time, on every store: how leases end and last, and what sessions that end leave."""

import time

import pytest

from holdlog.domain.claims.claim import ClaimExpired, ClaimGranted
from holdlog.domain.claims.commands import (
    AcquireClaim,
    ClaimAcquired,
    CollectLostClaims,
    EndSession,
    LostClaims,
    Queued,
    ReleaseClaim,
    ReleaseOutcome,
    Renew,
    Sweep,
    SweepOutcome,
    TouchSessions,
)
from holdlog.domain.claims.lease import BY_CALLS, GRACE, SECOND
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition, Transact
from holdlog.domain.refusals import BusyError, DeadlockError, ExpiredError, FencedError, InvalidError, NotHolderError
from tests.support.claim_calls import HOUR, by, claim, holder, left, refused, wait, writes
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, run, whole_log

# --- the end of a lease


def test_lease_expires_when_it_is_due_and_reads_see_it_at_once(store: Store, clock: Clock) -> None:
    claim(store)
    clock.pass_by(299.999999)
    assert holder(store, clock) == "ann"
    clock.pass_by(0.000001)
    assert holder(store, clock) is None
    with pytest.raises(ExpiredError):
        run(store, ReleaseClaim(resource="a", agent="ann"), by())


@pytest.mark.check
@pytest.mark.parametrize(
    "command",
    [
        AcquireClaim(resource="a", agent="bob"),
        AcquireClaim(resource="a/", agent="bob"),
        Sweep(),
        ReleaseClaim(resource="a", agent="ann"),
        writes(guard=(FencingCondition(resource="a", version=1),)),
    ],
    ids=["claim", "claim of the subtree", "sweep", "release", "guard"],
)
def test_expiry_noticed_late_is_reported_with_the_time_it_was_due(
    store: Store, clock: Clock, command: AnyCommand
) -> None:
    taken = claim(store, lease=10 * SECOND)
    due = clock() + 10 * SECOND
    clock.pass_by(25)
    if isinstance(command, ReleaseClaim | Transact):
        assert isinstance(refused(store, command), ExpiredError | FencedError)
    else:
        run(store, command, by("s2"))
    ended = [it.event for it in whole_log(store) if isinstance(it.event, ClaimExpired)]
    assert ended == [ClaimExpired(agent="ann", grant=taken.version, due=due)]


def test_sweep_reports_whether_it_expired_anything(store: Store, clock: Clock) -> None:
    claim(store)
    assert run(store, Sweep()) == SweepOutcome(False)
    clock.pass_by(300)
    assert [run(store, Sweep()), run(store, Sweep())] == [SweepOutcome(True), SweepOutcome(False)]


def test_lost_claim_is_reported_to_its_holder_once(store: Store, clock: Clock) -> None:
    taken = claim(store)
    clock.pass_by(300)
    run(store, Sweep())
    told = run(store, CollectLostClaims(session="s1"))
    assert isinstance(told, LostClaims)
    assert [(it.resource, it.version, it.why, it.agent) for it in told.losses] == [
        ("a", taken.version, "expired", "ann")
    ]
    assert run(store, CollectLostClaims(session="s1")) == LostClaims(())


@pytest.mark.check
def test_a_thousand_leases_that_are_due_at_once_all_end(store: Store, clock: Clock) -> None:
    for number in range(1_001):
        claim(store, f"r{number}", most=2_000)
    clock.pass_by(300)
    while run(store, Sweep()) == SweepOutcome(True):
        pass
    with store.reader() as reader:
        assert reader.claims(None, -1) == []
        assert reader.leases.next_end() is None


# --- what renews, and what does not


@pytest.mark.parametrize(
    "command", [writes(), AcquireClaim(resource="b", agent="ann"), ReleaseClaim(resource="b", agent="ann")]
)
def test_every_call_that_names_the_agent_renews_its_claims(store: Store, clock: Clock, command: AnyCommand) -> None:
    claim(store)
    claim(store, "b")
    clock.pass_by(200)
    run(store, command, by())
    assert left(store, clock) == 300


@pytest.mark.parametrize(
    ("agent", "caller"),
    [("ann", by("s2")), ("bob", by()), ("ann/x", by()), ("ann", Caller(session="s1", principal="org", server="v1"))],
)
def test_calls_of_other_agents_renew_no_claim(store: Store, clock: Clock, agent: str, caller: Caller) -> None:
    claim(store)
    clock.pass_by(200)
    run(store, writes(agent), caller)
    assert left(store, clock) == 100


def test_expired_claim_is_not_revived_by_a_call(store: Store, clock: Clock) -> None:
    claim(store)
    clock.pass_by(300)
    run(store, writes(), by())
    run(store, Renew(server="v1", sessions=(("s1", clock.steady()),), grants=(("a", 1),)))
    assert holder(store, clock) is None
    claim(store, agent="bob")
    assert holder(store, clock) == "bob"


def test_claim_after_expiry_is_a_new_grant(store: Store, clock: Clock) -> None:
    first = claim(store)
    clock.pass_by(300)
    again = claim(store)
    assert not again.already
    assert again.version > first.version
    assert again.past is not None
    assert again.past.outcome == "expired"


def test_last_outcome_of_a_covering_resource_is_passed_to_the_next_holder(store: Store, clock: Clock) -> None:
    for resource in ("src/a.py", "src/"):
        claim(store, resource)
        clock.pass_by(1)
        run(store, ReleaseClaim(resource=resource, agent="ann", outcome="modified"), by())
    assert claim(store, "src/a.py").past_of == "src/"


@pytest.mark.parametrize("hours", [1, -1, 24 * 365])
def test_changing_the_wall_clock_ends_and_renews_no_claim(store: Store, clock: Clock, hours: int) -> None:
    claim(store)
    clock.pass_by(100)
    clock.move(hours * HOUR)
    run(store, Sweep())
    assert (holder(store, clock), left(store, clock)) == ("ann", 200)
    clock.pass_by(200)
    assert holder(store, clock) is None


def test_suspending_the_machine_ends_no_claim(store: Store, clock: Clock) -> None:
    wait_for = claim(store)
    clock.move(8 * HOUR)  # the steady clock stands still
    run(store, Sweep())
    with pytest.raises(BusyError):
        run(store, AcquireClaim(resource="a", agent="bob"), by())
    run(store, writes(guard=(FencingCondition(resource="a", version=wait_for.version),)), by())


# --- sessions that end


def test_claims_of_an_ended_server_last_for_the_grace_period(store: Store, clock: Clock) -> None:
    claim(store)
    claim(store, "told", explicit=True, lease=300 * SECOND)
    assert run(store, Sweep(ended=("v1",))) == SweepOutcome(True)
    assert [left(store, clock), left(store, clock, "told")] == [GRACE / SECOND, 300]
    clock.pass_by(GRACE / SECOND)
    run(store, Sweep())
    assert [holder(store, clock), holder(store, clock, "told")] == [None, "ann"]


def test_claim_of_an_ended_session_is_resumed_only_by_claiming_that_resource(store: Store, clock: Clock) -> None:
    first = claim(store)
    with pytest.raises(BusyError) as refused:
        claim(store, caller=by("s2"))
    assert refused.value.hold.same_name
    run(store, Sweep(ended=("v1",)))
    ended_at = clock()
    clock.pass_by(5)
    claim(store, "unrelated", caller=by("s2"))
    with store.reader() as reader:
        assert [it.session for it in reader.leases.of(["a"])] == ["s1"]
    again = claim(store, caller=by("s2"))
    assert (again.version, again.already, again.previous_session_ended_at) == (first.version + 1, False, ended_at)
    with pytest.raises(BusyError):
        claim(store)  # the old session is another now
    told = run(store, CollectLostClaims(session="s1"))
    assert isinstance(told, LostClaims)
    assert [(it.resource, it.version, it.why) for it in told.losses] == [("a", first.version, "resumed")]


def test_session_that_returns_has_all_its_claims_again(store: Store, clock: Clock) -> None:
    claim(store)
    claim(store, "b")
    run(store, Sweep(ended=("v1",)))
    clock.pass_by(59)
    assert claim(store, caller=by(server="v9")).already
    with store.reader() as reader:
        assert {(it.server, it.ended_at) for it in reader.leases.of(["a", "b"])} == {("v9", 0)}
    assert (left(store, clock), left(store, clock, "b")) == (300, 300)


def test_session_kept_alive_by_calls_ends_when_calls_stop(store: Store, clock: Clock) -> None:
    calls = by("c1", server=BY_CALLS)
    claim(store, caller=calls)
    clock.pass_by(60)
    run(store, TouchSessions(sessions=((None, "c1", clock.steady()),)))
    clock.pass_by(69)
    with pytest.raises(BusyError):
        claim(store, caller=by("c2", server=BY_CALLS))
    last = clock() - 69 * SECOND
    clock.pass_by(1)
    with store.reader() as reader:
        assert reader.leases.has_idle_sessions(clock.steady())
    run(store, Sweep())
    with store.reader() as reader:
        assert not reader.leases.has_idle_sessions(clock.steady())
    resumed = claim(store, caller=by("c2", server=BY_CALLS))
    assert resumed.previous_session_ended_at == last + 60 * SECOND


def test_call_made_before_a_session_ended_does_not_revive_the_session(store: Store, clock: Clock) -> None:
    claim(store, caller=by("c1", server=BY_CALLS))
    called_at = clock.steady()
    clock.pass_by(1)
    run(store, EndSession(session="c1"), by("c1", server=BY_CALLS))
    run(store, TouchSessions(sessions=((None, "c1", called_at),)))
    with store.reader() as reader:
        assert [lease.server for lease in reader.leases.of(["a"])] == [""]
    clock.pass_by(1)
    run(store, TouchSessions(sessions=((None, "c1", clock.steady()),)))
    with store.reader() as reader:
        assert [lease.server for lease in reader.leases.of(["a"])] == [BY_CALLS]


def test_waiter_whose_process_died_is_passed_over_while_its_session_lives(store: Store) -> None:
    claim(store)
    run(store, AcquireClaim(resource="a", agent="bob", wait=30 * SECOND), by("shared", server="v2"))
    run(store, AcquireClaim(resource="a", agent="cat", wait=30 * SECOND), by("s3", server="v3"))
    run(store, Sweep(ended=("v2",), heirs=(("v2", "shared", "v4"),)))
    outcome = run(store, ReleaseClaim(resource="a", agent="ann"), by())
    assert isinstance(outcome, ReleaseOutcome)
    assert outcome.granted_to == "cat"


def test_a_repeated_claim_keeps_its_session_alive(store: Store, clock: Clock) -> None:
    repeated = by("c1", server=BY_CALLS).model_copy(update={"request_id": "r-1"})
    claim(store, caller=repeated)
    clock.pass_by(70)
    run(store, Sweep())
    claim(store, caller=repeated)
    with pytest.raises(BusyError):
        claim(store, caller=by("c2", server=BY_CALLS))


def test_session_ended_by_its_client_keeps_its_leases_as_they_are(store: Store, clock: Clock) -> None:
    calls = by("c1", server=BY_CALLS)
    claim(store, caller=calls)
    run(store, EndSession(session="c1"), Caller(principal="token:other"))
    with pytest.raises(BusyError):
        claim(store, caller=by("c2", server=BY_CALLS))
    run(store, EndSession(session="c1"))
    assert left(store, clock) == 300
    assert claim(store, caller=by("c2", server=BY_CALLS)).previous_session_ended_at == clock()


def test_restarted_server_adopts_its_session(store: Store, clock: Clock) -> None:
    claim(store)
    run(store, Sweep(ended=("v1",)))
    run(store, Renew(server="v9", sessions=(("s1", clock.steady()),)))
    assert left(store, clock) == 300
    with store.reader() as reader:
        assert reader.leases.servers() == ["v9"]
    assert run(store, Sweep(ended=("v1",))) == SweepOutcome(False)


def test_a_loss_of_an_ended_session_is_kept_for_that_session(store: Store, clock: Clock) -> None:
    claim(store)
    run(store, Sweep(ended=("v1",)))
    clock.pass_by(60)
    run(store, Sweep())
    assert run(store, CollectLostClaims(session="s2")) == LostClaims(())
    taken = claim(store, caller=by("s2"))
    assert (taken.is_former, taken.past and taken.past.outcome) == (True, "expired")
    told = run(store, CollectLostClaims(session="s1"))
    assert isinstance(told, LostClaims)
    assert [it.resource for it in told.losses] == ["a"]
    assert run(store, CollectLostClaims(session="s1")) == LostClaims(())


def test_a_loss_without_a_session_is_kept_for_the_receipt(store: Store, clock: Clock) -> None:
    claim(store, caller=NOBODY, new_receipt="r1")
    clock.pass_by(300)
    run(store, Sweep())
    for session, receipt in ((None, None), ("s1", None), (None, "r2")):
        assert run(store, CollectLostClaims(session=session, receipt=receipt)) == LostClaims(())
    told = run(store, CollectLostClaims(session=None, receipt="r1"))
    assert isinstance(told, LostClaims)
    assert [it.resource for it in told.losses] == ["a"]


# --- receipts


def test_caller_without_a_session_is_identified_by_its_receipt_alone(store: Store) -> None:
    first = claim(store, caller=NOBODY, new_receipt="r1")
    assert first.receipt == "r1"
    again = claim(store, caller=NOBODY, receipt="r1", new_receipt="r2")
    assert (again.already, again.version, again.receipt) == (True, first.version, "r1")
    with pytest.raises(BusyError) as refused:
        claim(store, caller=NOBODY, new_receipt="r3")
    assert (refused.value.hold.same_name, refused.value.hold.without_session) == (True, True)
    with pytest.raises(BusyError):
        claim(store, caller=NOBODY, receipt="r3", new_receipt="r4")
    assert claim(store, "b", caller=NOBODY, receipt="r1", new_receipt="r5").receipt == "r1"
    let = run(store, ReleaseClaim(agent="ann", receipt="r1"), NOBODY)
    assert isinstance(let, ReleaseOutcome)
    assert [resource for resource, _ in let.released] == ["a", "b"]


def test_unissued_receipt_identifies_nobody(store: Store) -> None:
    taken = claim(store, caller=NOBODY, receipt="made up", new_receipt="r1")
    assert taken.receipt == "r1"
    with pytest.raises(BusyError):
        claim(store, caller=NOBODY, receipt="made up", new_receipt="r2")


def test_receipt_is_valid_for_its_name_and_principal_alone(store: Store) -> None:
    claim(store, caller=NOBODY, new_receipt="r1")
    for agent, caller in (("bob", NOBODY), ("ann", Caller(principal="token:ci"))):
        with pytest.raises(BusyError):
            claim(store, agent=agent, caller=caller, receipt="r1", new_receipt="r2")
        with pytest.raises(NotHolderError):
            run(store, ReleaseClaim(resource="a", agent=agent, receipt="r1"), caller)


def test_wrong_receipt_releases_nothing(store: Store, clock: Clock) -> None:
    """Such as that of a claim that expired before a namesake got the resource: its bearer is not that holder."""
    claim(store, caller=NOBODY, new_receipt="r1")
    clock.pass_by(300)
    current = claim(store, caller=NOBODY, new_receipt="r2")
    with pytest.raises(ExpiredError):
        run(store, ReleaseClaim(resource="a", agent="ann", receipt="r1"), NOBODY)
    with pytest.raises(ExpiredError):
        run(store, ReleaseClaim(resource="a", agent="ann", receipt="made up"), NOBODY)
    assert claim(store, caller=NOBODY, receipt="r2", new_receipt="r3").version == current.version
    claim(store, "b", caller=NOBODY, new_receipt="r4")
    with pytest.raises(NotHolderError) as refused:
        run(store, ReleaseClaim(resource="b", agent="ann", receipt="r1"), NOBODY)
    assert refused.value.cause == "receipt"
    assert run(store, ReleaseClaim(agent="ann", receipt="r1"), NOBODY) == ReleaseOutcome((), already=True)


def test_wrong_receipt_leaves_the_waiter_in_the_queue(store: Store) -> None:
    claim(store)
    assert isinstance(
        run(store, AcquireClaim(resource="a", agent="bob", wait=SECOND, new_receipt="r1"), NOBODY), Queued
    )
    with pytest.raises(NotHolderError):
        run(store, ReleaseClaim(resource="a", agent="bob", receipt="made up"), NOBODY)
    with store.reader() as reader:
        assert len(reader.tickets(["a"])) == 1


def test_queued_grant_is_collected_with_the_receipt(store: Store) -> None:
    claim(store)
    waits = AcquireClaim(resource="a", agent="bob", wait=30 * SECOND, new_receipt="r1")
    queued = run(store, waits, NOBODY)
    assert isinstance(queued, Queued)
    assert queued.receipt == "r1"
    run(store, ReleaseClaim(resource="a", agent="ann"), by())
    with pytest.raises(BusyError):
        claim(store, agent="bob", caller=NOBODY, new_receipt="r2")
    assert claim(store, agent="bob", caller=NOBODY, receipt="r1", new_receipt="r3").receipt == "r1"


def test_claims_last_for_the_grace_period_in_a_copy_of_the_log_without_leases(store: Store, clock: Clock) -> None:
    claim(store)
    wait(store, "a", "bob")
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        transaction.leases.drop([lease.key for lease in transaction.leases.of(["a"])])
    assert holder(store, clock) == "ann"
    assert isinstance(refused(store, AcquireClaim(resource="a", agent="cleo")), BusyError)
    clock.pass_by(59)
    assert holder(store, clock) == "ann"
    clock.pass_by(1)
    run(store, Sweep())
    assert [it.event.topic for it in whole_log(store)][2:] == ["ClaimExpired", "ClaimUnqueued"]
    assert claim(store, agent="cleo").version == 5


# --- requests that are repeated


def test_repeated_claim_request_gets_the_first_response(store: Store, clock: Clock) -> None:
    first = claim(store, caller=by(request_id="r1"))
    clock.pass_by(10)
    again = claim(store, caller=by(request_id="r1"))
    assert again == first._replace(at=again.at, expires_in=again.expires_in)
    assert again.at + again.expires_in == first.at + first.expires_in
    assert len(whole_log(store)) == 1
    with pytest.raises(InvalidError):
        claim(store, "b", caller=by(request_id="r1"))


def test_repeated_release_gets_the_first_response_and_spares_the_next_holder(store: Store) -> None:
    claim(store)
    let = ReleaseClaim(resource="a", agent="ann", outcome="modified")
    first = run(store, let, by(request_id="r1"))
    assert isinstance(first, ReleaseOutcome)
    claim(store)  # the same agent, again
    assert run(store, let, by(request_id="r1")) == first
    assert claim(store).already


def test_busy_and_queued_responses_are_not_remembered(store: Store) -> None:
    claim(store)
    with pytest.raises(BusyError):
        claim(store, agent="bob", caller=by(request_id="r1"))
    waits = AcquireClaim(resource="a", agent="cleo", wait=30 * SECOND)
    assert isinstance(run(store, waits, by(request_id="r2")), Queued)
    run(store, ReleaseClaim(resource="a", agent="ann"), by())
    assert isinstance(run(store, waits, by(request_id="r2")), ClaimAcquired)
    run(store, ReleaseClaim(resource="a", agent="cleo"), by())
    assert not claim(store, agent="bob", caller=by(request_id="r1")).already


def test_queued_claim_response_is_repeated_for_the_original_waiting_call(store: Store) -> None:
    """It was granted to the look at the end of its wait, which waits no more."""
    claim(store)
    waits = AcquireClaim(resource="a", agent="bob", wait=30 * SECOND)
    run(store, waits, by(request_id="r1"))
    run(store, ReleaseClaim(resource="a", agent="ann"), by())
    taken = run(store, waits.model_copy(update={"wait": 0}), by(request_id="r1"))
    assert isinstance(taken, ClaimAcquired)
    assert run(store, waits, by(request_id="r1")) == taken
    with pytest.raises(InvalidError):
        run(store, AcquireClaim(resource="b", agent="bob", wait=30 * SECOND), by(request_id="r1"))


def test_request_id_of_a_claim_is_valid_in_its_session_alone(store: Store) -> None:
    first = claim(store, caller=by(request_id="r1"))
    with pytest.raises(BusyError):
        claim(store, caller=by("s2", request_id="r1"))
    assert claim(store, caller=by(request_id="r1")).version == first.version
    with pytest.raises(NotHolderError):
        run(store, ReleaseClaim(resource="a", agent="ann"), by("s2", request_id="r1"))


def test_repeated_claim_request_is_refused_once_its_claim_has_ended(store: Store, clock: Clock) -> None:
    claim(store, caller=by(request_id="r1"))
    clock.pass_by(300)
    with pytest.raises(ExpiredError) as refused:
        claim(store, caller=by(request_id="r1"))
    assert refused.value.replayed
    claim(store, agent="bob", caller=by("s2"))
    with pytest.raises(ExpiredError) as refused:
        claim(store, caller=by(request_id="r1"))
    assert refused.value.held_by == "bob"


def test_claim_requests_without_a_session_are_not_remembered(store: Store) -> None:
    claim(store, caller=Caller(request_id="r1"), new_receipt="r1")
    with pytest.raises(BusyError):
        claim(store, caller=Caller(request_id="r1"), new_receipt="r2")


# --- the line


def test_grant_from_the_queue_has_its_own_position(store: Store) -> None:
    """Not that of its ticket: sinks outside the store compare positions, and the one before must have the lower one."""
    claim(store)
    wait(store, "a", "bob")
    claim(store, "b", agent="cleo")
    run(store, ReleaseClaim(resource="a", agent="ann"), by())
    taken = claim(store, agent="bob")
    [granted] = [it for it in whole_log(store) if isinstance(it.event, ClaimGranted) and it.event.agent == "bob"]
    assert taken.position == granted.envelope.position == 5


def test_waiting_twice_for_one_resource_yields_one_grant(store: Store, clock: Clock) -> None:
    claim(store, also=("d",))
    wait(store, "d", "bob")
    run(store, AcquireClaim(resource="a", agent="bob", alternatives=("d",), wait=30 * SECOND), by())
    run(store, ReleaseClaim(agent="ann"), by())
    assert [holder(store, clock, it) for it in ("d", "a")] == ["bob", None]


def test_waiter_is_granted_when_a_later_one_leaves_the_queue(store: Store, clock: Clock) -> None:
    claim(store, "a/b", agent="x/1")
    claim(store, "a", agent="y")
    for agent, resource, also in (("x", "a/", ()), ("x/1", "a", ("a/b",))):
        run(store, AcquireClaim(resource=resource, also=also, agent=agent, mode="shared", wait=30 * SECOND), by())
    claim(store, "a", agent="y", mode="shared")
    assert holder(store, clock, "a/") == "x"


def test_resumed_claim_admits_sub_agents_of_its_session(store: Store, clock: Clock) -> None:
    claim(store, agent="x", caller=by("s2"))
    wait(store, "a", "x/1")
    run(store, Sweep(ended=("v2",)))
    assert claim(store, agent="x").previous_session_ended_at is not None
    with store.reader() as reader:
        assert [grant.agent for grant in reader.claim("a").grants] == ["x", "x/1"]


def test_waiter_resumes_the_claim_of_an_ended_session_of_its_name(store: Store) -> None:
    claim(store, caller=by("s2"))
    wait(store, "a", "ann")
    run(store, Sweep(ended=("v2",)))
    with store.reader() as reader:
        assert reader.queued() == []
    run(store, Renew(server="v2", sessions=(("s2", 0),)))  # too late: the claim is the other's
    collected = claim(store)
    assert (collected.already, collected.previous_session_ended_at is not None) == (False, True)


@pytest.mark.parametrize("resource", ["a/", "custom://a/", "custom://a//", "custom://a///", "custom:////a//"])
def test_subtree_has_one_holder_for_any_number_of_trailing_slashes(store: Store, resource: str) -> None:
    claim(store, resource)
    with pytest.raises(BusyError):
        claim(store, resource, agent="bob")
    assert claim(store, resource).already


def test_resuming_a_claim_that_would_deadlock_is_refused(store: Store) -> None:
    claim(store, "x", caller=by("s2"))
    claim(store, "y", "bob")
    wait(store, "y", "ann")
    wait(store, "x", "bob")
    run(store, Sweep(ended=("v2",)))
    for seconds in (0, 1):
        ring = refused(store, AcquireClaim(resource="x", agent="ann", wait=seconds * SECOND))
        assert isinstance(ring, DeadlockError)
        assert sorted((it.agent, it.holds, it.waits_for) for it in ring.cycle) == [("ann", "x", "y"), ("bob", "y", "x")]


def test_claim_taken_back_from_an_ended_session_leaves_no_silent_deadlock(store: Store) -> None:
    claim(store, "a/b", "x/1", caller=by("s2"))
    claim(store, "a", "x/2")
    wait(store, "a", "x/1")
    run(store, Sweep(ended=("v2",)))
    wait(store, "a/", "x/2")
    assert isinstance(refused(store, AcquireClaim(resource="a/b", agent="x/1")), DeadlockError)
    with store.reader() as reader:
        assert [it.session for it in reader.leases.of(["a/b"])] == ["s2"]


def test_holder_sees_the_first_waiter_of_the_queue(store: Store) -> None:
    claim(store)
    for number in range(25):
        wait(store, "a", f"w{number}")
    assert [it.agent for it in claim(store).waiting] == [f"w{number}" for number in range(20)]


def test_waiter_offered_an_unusable_resource_gets_a_free_one(store: Store) -> None:
    claim(store, "d", agent="bob", mode="shared")
    claim(store, "d/", agent="cleo", mode="shared")
    claim(store, "e", agent="cleo")
    run(store, AcquireClaim(resource="e", also=("d",), agent="ann", mode="shared", wait=SECOND), by())
    run(store, ReleaseClaim(resource="e", agent="cleo"), by())
    assert claim(store, "a", alternatives=("d",)).resource == "a"


def test_a_wait_for_a_share_resumes_an_exclusive_claim_as_a_share(store: Store) -> None:
    claim(store, caller=by("s2"))
    run(store, AcquireClaim(resource="a", agent="ann", mode="shared", wait=30 * SECOND), by())
    run(store, Sweep(ended=("v2",)))
    assert claim(store, mode="shared").previous_session_ended_at is not None
    with store.reader() as reader:
        held = reader.claim("a")
    assert ([grant.mode for grant in held.grants], held.waiting) == (["shared"], 0)
