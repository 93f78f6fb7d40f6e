"""Two principals who use the same agent name, without sessions and servers, as over HTTP: strangers in every store."""

from collections.abc import Sequence

import pytest

from holdlog.domain.claims.claim import ClaimReleased
from holdlog.domain.claims.commands import Queued, Release, Renew, StepBack, Sweep, Swept, Take, TellLosses, Told
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import Guard
from holdlog.domain.refusals import BusyError, ExpiredError, FencedError, HoldlogError, InvalidError, NotHolderError
from tests.claim_calls import by, claim, left, writes
from tests.clock import Clock
from tests.commands import run, whole_log

CI, ROBOT = Caller(principal="token:ci"), Caller(principal="token:robot")
LOCAL = Caller()
OTHERS: Sequence[Caller] = (ROBOT, LOCAL, by(), Caller(principal="token:robot", session="s1", server="v1"))


@pytest.fixture(params=OTHERS, ids=["another principal", "the local user", "a session", "its session"])
def other(request: pytest.FixtureRequest) -> Caller:
    found: Caller = request.param
    return found


def told(store: Store, caller: Caller, session: str | None = None, agent: str | None = "ann") -> list[str]:
    outcome = run(store, TellLosses(session=session, agent=agent), caller)
    assert isinstance(outcome, Told)
    return [it.resource for it in outcome.losses]


def test_a_principal_comes_back_to_its_claim_from_whichever_call(store: Store) -> None:
    taken = claim(store, caller=CI)
    again = claim(store, caller=CI)
    assert (again.already, again.version) == (True, taken.version)
    assert run(store, Release(resource="a", agent="ann"), CI)


def test_another_is_not_granted_what_the_principal_holds(store: Store, other: Caller) -> None:
    claim(store, caller=CI)
    for take in (Take(resource="a", agent="ann"), Take(resource="a/", agent="ann"), Take(resource="a", agent="ann/x")):
        with pytest.raises(BusyError):
            run(store, take, other)
    assert run(store, Take(resource="a", agent="ann/x"), CI)  # its own sub-agent is let in


def test_another_releases_nothing(store: Store, other: Caller) -> None:
    claim(store, caller=CI)
    with pytest.raises(NotHolderError):
        run(store, Release(resource="a", agent="ann"), other)
    let = run(store, Release(agent="ann"), other)
    assert let.already  # type: ignore[union-attr]
    assert not [it for it in whole_log(store) if isinstance(it.event, ClaimReleased)]


def test_another_renews_and_adopts_nothing(store: Store, clock: Clock, other: Caller) -> None:
    claim(store, caller=CI)
    clock.pass_by(200)
    run(store, writes("ann"), other)
    claim(store, "b", caller=other)
    run(store, Release(resource="b", agent="ann"), other)
    run(store, Renew(server="v1", sessions=(("s1", clock.steady()),)), LOCAL)
    with store.reader() as reader:
        (lease,) = reader.leases.of(["a"])
    assert (left(store, clock), lease.who) == (100, ("ann", "token:ci", None))
    run(store, writes("ann"), CI)
    assert left(store, clock) == 300


def test_a_server_renews_no_principals_claims_by_a_session_that_somebody_names(store: Store, clock: Clock) -> None:
    named = Caller(principal="token:ci", session="s1")
    claim(store, caller=named)
    clock.pass_by(200)
    run(store, Renew(server="v1", sessions=(("s1", clock.steady()),)), LOCAL)
    assert left(store, clock) == 100
    assert run(store, Sweep(ended=("v1",))) == Swept(False)
    assert claim(store, caller=named).already


def test_another_writes_nothing_under_the_principals_claim(store: Store, other: Caller) -> None:
    version = claim(store, caller=CI).version
    guard = (Guard(resource="a", version=version),)
    with pytest.raises(FencedError):
        run(store, writes("ann", guard), other)
    run(store, writes("ann", guard), CI)


def test_another_takes_nobodys_place_in_line(store: Store, other: Caller) -> None:
    claim(store, agent="bob", caller=CI)
    waiting = Take(resource="a", agent="ann", wait=30 * SECOND)
    mine = run(store, waiting, CI)
    theirs = run(store, waiting, other)
    assert isinstance(mine, Queued)
    assert isinstance(theirs, Queued)
    assert (mine.position, theirs.position) == (1, 2)
    run(store, StepBack(resource="a", agent="ann", ticket=mine.ticket), other)
    run(store, Release(agent="ann"), other)
    run(store, Release(resource="a", agent="bob"), CI)
    assert claim(store, caller=CI).also == ()  # it stood in line all the time, and was served


def test_a_loss_is_told_to_its_principal_alone_and_used_up_by_nobody_else(
    store: Store, clock: Clock, other: Caller
) -> None:
    claim(store, caller=CI)
    claim(store, "b", caller=Caller(principal="token:ci", session="s1"))
    clock.pass_by(300)
    run(store, Sweep())
    for session, agent in ((None, "ann"), ("s1", None), ("s1", "ann")):
        assert told(store, other, session, agent) == []
    assert sorted(told(store, CI, "s1", "ann")) == ["a", "b"]
    assert told(store, CI, "s1", "ann") == []


def test_a_local_loss_is_not_told_to_a_principal(store: Store, clock: Clock) -> None:
    claim(store, caller=by())
    clock.pass_by(300)
    run(store, Sweep(ended=("v1",)))
    assert told(store, CI, "s1") == []
    assert told(store, LOCAL, "s1") == ["a"]


def test_a_principal_may_hold_so_many_by_whatever_names(store: Store) -> None:
    for number in range(3):
        claim(store, f"r{number}", agent=f"a{number}", caller=CI, most=3)
    with pytest.raises(InvalidError, match="would hold 4 claims, and 3 at most"):
        claim(store, "r3", agent="another", caller=CI, most=3)
    assert claim(store, "r0", agent="a0", caller=CI, most=3).already
    claim(store, "r3", agent="another", caller=ROBOT, most=3)
    claim(store, "r4", agent="another", caller=by(), most=3)
    run(store, Release(resource="r1", agent="a1"), CI)
    claim(store, "r5", agent="another", caller=CI, most=3)


def test_nor_may_a_principal_wait_for_more_than_that_by_whatever_names(store: Store) -> None:
    for resource in ("r1", "r2", "r3"):
        claim(store, resource, agent="bob", caller=ROBOT)
    for resource, agent in (("r1", "a1"), ("r2", "a2")):
        run(store, Take(resource=resource, agent=agent, wait=SECOND, most=2), CI)
    with pytest.raises(InvalidError, match="would hold 3 claims, with those it waits for"):
        run(store, Take(resource="r3", agent="a3", wait=SECOND, most=2), CI)
    assert isinstance(run(store, Take(resource="r1", agent="a1", wait=SECOND, most=2), CI), Queued)


def test_who_forces_is_told_apart_by_principal(store: Store) -> None:
    claim(store, caller=CI)
    run(store, Release(resource="a", agent="boss", forced=True, note="why"), ROBOT)
    assert told(store, ROBOT) == []
    assert told(store, CI) == ["a"]
    with pytest.raises(HoldlogError) as refused:
        run(store, Release(resource="a", agent="ann"), CI)
    assert isinstance(refused.value, NotHolderError | ExpiredError)
