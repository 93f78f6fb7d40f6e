"""Two principals whose agents have the same name, as over HTTP: strangers in every store."""

from collections.abc import Sequence

import pytest

from holdlog.domain.claims.claim import ClaimReleased
from holdlog.domain.claims.commands import (
    AcquireClaim,
    CollectLostClaims,
    LostClaims,
    Queued,
    ReleaseClaim,
    Renew,
    StopWaiting,
    Sweep,
    SweepOutcome,
)
from holdlog.domain.claims.lease import BY_CALLS, SECOND, Who
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import BusyError, ExpiredError, FencedError, HoldlogError, NotHolderError
from tests.support.claim_calls import by, claim, left, writes
from tests.support.clock import Clock
from tests.support.commands import run, whole_log

CI = Caller(principal="token:ci", session="s7", server=BY_CALLS)
ROBOT = Caller(principal="token:robot", session="s8", server=BY_CALLS)
LOCAL = by("s9")
OTHERS: Sequence[Caller] = (
    ROBOT,
    by(),
    Caller(principal="token:robot", session="s7", server=BY_CALLS),
    Caller(principal="token:ci", session="s8", server=BY_CALLS),
    Caller(principal="token:ci"),
)


@pytest.fixture(
    params=OTHERS,
    ids=["principal", "local user", "its session, another token", "its token, another session", "no session"],
)
def other(request: pytest.FixtureRequest) -> Caller:
    found: Caller = request.param
    return found


def told(store: Store, caller: Caller, session: str | None = None) -> list[str]:
    outcome = run(store, CollectLostClaims(session=session or caller.session), caller)
    assert isinstance(outcome, LostClaims)
    return [it.resource for it in outcome.losses]


def test_principal_keeps_its_claim_across_calls(store: Store) -> None:
    taken = claim(store, caller=CI)
    again = claim(store, caller=CI)
    assert (again.already, again.version) == (True, taken.version)
    assert run(store, ReleaseClaim(resource="a", agent="ann"), CI)


def test_other_principal_is_not_granted_a_held_resource(store: Store, other: Caller) -> None:
    claim(store, caller=CI)
    for resource, agent in (("a", "ann"), ("a/", "ann"), ("a", "ann/x")):
        take = AcquireClaim(resource=resource, agent=agent, new_receipt="r1")
        with pytest.raises(BusyError):
            run(store, take, other)
    assert run(store, AcquireClaim(resource="a", agent="ann/x"), CI)  # its own sub-agent is let in


def test_other_principal_releases_nothing(store: Store, other: Caller) -> None:
    claim(store, caller=CI)
    with pytest.raises(NotHolderError):
        run(store, ReleaseClaim(resource="a", agent="ann"), other)
    if other.session is not None:
        let = run(store, ReleaseClaim(agent="ann"), other)
        assert let.already  # type: ignore[union-attr]
    assert not [it for it in whole_log(store) if isinstance(it.event, ClaimReleased)]


def test_other_principal_renews_and_adopts_nothing(store: Store, clock: Clock, other: Caller) -> None:
    claim(store, caller=CI)
    clock.pass_by(200)
    run(store, writes("ann"), other)
    claim(store, "b", caller=other, new_receipt="r1")
    run(store, ReleaseClaim(resource="b", agent="ann", receipt="r1"), other)
    run(store, Renew(server="v1", sessions=(("s7", clock.steady()),)), LOCAL)
    with store.reader() as reader:
        (lease,) = reader.leases.of(["a"])
    assert (left(store, clock), lease.who) == (100, Who("ann", "token:ci", "s7"))
    run(store, writes("ann"), CI)
    assert left(store, clock) == 300


def test_naming_a_session_of_another_principal_renews_none_of_its_claims(store: Store, clock: Clock) -> None:
    named = Caller(principal="token:ci", session="s1")
    claim(store, caller=named)
    clock.pass_by(200)
    run(store, Renew(server="v1", sessions=(("s1", clock.steady()),)), LOCAL)
    assert left(store, clock) == 100
    assert run(store, Sweep(ended=("v1",))) == SweepOutcome(False)
    assert claim(store, caller=named).already


def test_other_principal_cannot_write_under_the_claim(store: Store, other: Caller) -> None:
    version = claim(store, caller=CI).version
    guard = (FencingCondition(resource="a", version=version),)
    with pytest.raises(FencedError):
        run(store, writes("ann", guard), other)
    run(store, writes("ann", guard), CI)


def test_other_principal_gets_nobodys_place_in_the_queue(store: Store, other: Caller) -> None:
    claim(store, agent="bob", caller=CI)
    waiting = AcquireClaim(resource="a", agent="ann", wait=30 * SECOND, new_receipt="r1")
    mine = run(store, waiting, CI)
    theirs = run(store, waiting, other)
    assert isinstance(mine, Queued)
    assert isinstance(theirs, Queued)
    assert (mine.position, theirs.position) == (1, 2)
    run(store, StopWaiting(resource="a", agent="ann", ticket=mine.ticket), other)
    run(store, ReleaseClaim(agent="ann", receipt="r1"), other)
    run(store, ReleaseClaim(resource="a", agent="bob"), CI)
    assert claim(store, caller=CI).also == ()  # it stood in line all the time, and was served


def test_loss_is_reported_to_its_principal_alone_and_consumed_by_no_other(
    store: Store, clock: Clock, other: Caller
) -> None:
    claim(store, caller=CI)
    claim(store, "b", caller=CI)
    clock.pass_by(300)
    run(store, Sweep())
    assert told(store, other) == []
    assert told(store, CI) == ["a", "b"]
    assert told(store, CI) == []


def test_local_loss_is_not_reported_to_a_principal(store: Store, clock: Clock) -> None:
    claim(store, caller=by())
    clock.pass_by(300)
    run(store, Sweep(ended=("v1",)))
    assert told(store, CI, "s1") == []
    assert told(store, LOCAL, "s1") == ["a"]


def test_forced_release_records_the_principal(store: Store) -> None:
    claim(store, caller=CI)
    run(store, ReleaseClaim(resource="a", agent="boss", forced=True, note="why"), ROBOT)
    assert told(store, ROBOT) == []
    assert told(store, CI) == ["a"]
    with pytest.raises(HoldlogError) as refused:
        run(store, ReleaseClaim(resource="a", agent="ann"), CI)
    assert isinstance(refused.value, NotHolderError | ExpiredError)
