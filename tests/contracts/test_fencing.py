"""Writes that rely on a claim, on every store: refused unless the writer holds it."""

import pytest

from holdlog.domain.claims.commands import ReleaseClaim, Sweep
from holdlog.domain.envelope import CheckedClaim
from holdlog.domain.message import NOBODY
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import ConflictError, FencedError, NotFoundError
from tests.support.claim_calls import Change, by, claim, deletes, writes
from tests.support.clock import Clock
from tests.support.commands import run, whole_log, write


@pytest.mark.parametrize("change", [writes, deletes])
def test_a_guarded_write_of_the_holder_succeeds(store: Store, change: Change) -> None:
    write(store, "k", 1)
    run(store, change(guard=(FencingCondition(resource="a", version=claim(store).version),)), by())


@pytest.mark.parametrize("change", [writes, deletes])
@pytest.mark.parametrize("how", ["expired", "released", "taken over", "forced", "another agent", "another session"])
def test_a_write_whose_claim_is_not_held_is_fenced_and_changes_nothing(
    store: Store, clock: Clock, change: Change, how: str
) -> None:
    write(store, "k", 1)
    guard = (FencingCondition(resource="a", version=claim(store).version),)
    agent, caller = "ann", by()
    match how:
        case "expired":
            clock.pass_by(300)
        case "released":
            run(store, ReleaseClaim(resource="a", agent="ann"), by())
        case "taken over":
            clock.pass_by(300)
            claim(store, agent="bob")
        case "forced":
            run(store, ReleaseClaim(resource="a", agent="eve", forced=True, note="lunch"), by("s9"))
        case "another agent":
            agent = "bob"
        case "another session":
            caller = by("s2")
    before = len(whole_log(store))
    with pytest.raises(FencedError) as fenced:
        run(store, change(agent, guard), caller)
    assert len(whole_log(store)) == before
    assert fenced.value.held_by == {"taken over": "bob", "another agent": "ann", "another session": "ann"}.get(how)
    assert fenced.value.reason == ("lunch" if how == "forced" else None)


def test_claim_acquired_again_keeps_its_old_version_fenced(store: Store, clock: Clock) -> None:
    old = claim(store).version
    clock.pass_by(300)
    new = claim(store).version
    with pytest.raises(FencedError) as fenced:
        run(store, writes(guard=(FencingCondition(resource="a", version=old),)), by())
    assert (fenced.value.version, fenced.value.current_version) == (old, new)


def test_not_found_precedes_fenced_and_fenced_precedes_conflict(store: Store) -> None:
    lost = (FencingCondition(resource="a", version=1),)
    with pytest.raises(NotFoundError):
        run(store, deletes(guard=lost, expected=7), by())
    write(store, "k", 1)
    for change in (writes, deletes):
        with pytest.raises(FencedError):
            run(store, change(guard=lost, expected=7), by())
    held = (FencingCondition(resource="a", version=claim(store).version),)
    with pytest.raises(ConflictError):
        run(store, writes(guard=held, expected=7), by())


def test_all_fencing_conditions_of_a_write_must_hold(store: Store) -> None:
    guards = tuple(FencingCondition(resource=name, version=claim(store, name).version) for name in ("a", "b"))
    run(store, writes(guard=guards), by())
    run(store, ReleaseClaim(resource="b", agent="ann"), by())
    with pytest.raises(FencedError) as fenced:
        run(store, writes(guard=guards), by())
    assert fenced.value.resource == "b"


def test_fencing_condition_of_an_ended_session_is_recorded_with_that_session(store: Store) -> None:
    version = claim(store).version
    run(store, Sweep(ended=("v1",)))
    run(store, writes(guard=(FencingCondition(resource="a", version=version),)), by("s2"))
    assert whole_log(store)[-1].envelope.guard == (CheckedClaim("a", version, "s1"),)
    run(store, writes(guard=(FencingCondition(resource="a", version=version),)), by())
    assert whole_log(store)[-1].envelope.guard == (CheckedClaim("a", version),)


def test_fencing_condition_without_a_session_needs_the_receipt(store: Store) -> None:
    version = claim(store, caller=NOBODY, new_receipt="r1").version
    for receipt in (None, "r2"):
        with pytest.raises(FencedError) as refused:
            run(store, writes(guard=(FencingCondition(resource="a", version=version, receipt=receipt),)), NOBODY)
        assert refused.value.needs_receipt is (receipt is None)
    run(store, writes(guard=(FencingCondition(resource="a", version=version, receipt="r1"),)), NOBODY)
    assert whole_log(store)[-1].envelope.guard == (CheckedClaim("a", version),)
