"""Who stands in line, who gets it next, and what would never end."""

from typing import Any

import pytest

from holdlog.domain.claims import acquire as taking
from holdlog.domain.claims.claim import PastHold
from holdlog.domain.claims.lease import ABSENCE, OFFER, SECOND
from holdlog.domain.refusals import BusyError, DeadlockError, UnavailableError
from tests.support.boards import (
    LEASE,
    START,
    WAIT,
    Happened,
    board,
    expired,
    force,
    granted,
    held,
    queued,
    release,
    released,
    stand,
    step_back,
    take,
    unqueued,
    waits,
)


def ring(happened: Happened) -> list[tuple[str, str, str]]:
    """Of a wait that was refused: agent, what it holds, what it waits for; from the one that asked."""
    return [tuple(link)[:3] for link in happened.refused(DeadlockError).cycle]  # type: ignore[misc]


# --- to stand in line


def test_waiter_gets_a_ticket_and_a_queue_position() -> None:
    scene = (
        board(held("a", by="ann"))
        .when(stand("a", by="bob", note="for a fix"))
        .then(queued("a", by="bob", turn=1, note="for a fix"))
    )
    assert (scene.queued.ticket, scene.queued.position, scene.queued.hold.held_by) == (2, 1, "ann")
    assert scene.queued.hold.queue_length == 1
    assert scene.when(stand("a", by="cleo")).then(queued("a", by="cleo", turn=2)).queued.position == 2


def test_caller_that_does_not_wait_gets_no_ticket() -> None:
    board(held("a", by="ann"), waits("a", by="bob")).when(take("a", by="cleo")).refused(BusyError)


def test_ticket_holds_everything_requested() -> None:
    scene = board(held("a", by="ann"))
    scene.when(stand("a", by="bob", also=("b", "c/"))).then(queued("a", by="bob", turn=1, also=("b", "c/")))
    scene.when(stand("a", by="bob", mode="shared")).then(queued("a", by="bob", turn=1, mode="shared"))


def test_holder_sees_who_waits() -> None:
    scene = board(held("a", by="ann")).when(stand("a", by="bob", note="for a fix"))
    (waiter,) = scene.when(take("a", by="ann")).taken.waiting
    assert tuple(waiter)[:3] == ("bob", START, "for a fix")


def test_queue_length_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "MAX_TICKETS", 2)
    scene = board(held("a", by="ann"), waits("a", by="bob"), waits("a", by="cleo"))
    scene.when(stand("a", by="dora")).refused(UnavailableError)
    scene.when(stand("a", by="cleo")).then()


# --- to call again


def test_waiter_that_calls_again_keeps_its_queue_position() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob", present=False), waits("a", by="cleo"))
    again = scene.when(stand("a", by="bob")).then()
    assert (again.queued.ticket, again.queued.position) == (2, 1)
    assert again.lease("a", of="bob").waiting_until == START + WAIT


def test_waiter_that_calls_again_without_waiting_keeps_its_place_for_a_while() -> None:
    again = board(held("a", by="ann"), waits("a", by="bob")).when(take("a", by="bob")).then()
    assert (again.queued.ticket, again.queued.position) == (2, 1)
    assert (again.lease("a", of="bob").waiting_until, again.lease("a", of="bob").deadline) == (0, START + ABSENCE)


@pytest.mark.parametrize("other", [{"mode": "shared"}, {"also": ("b",)}, {"alternatives": ("b",)}])
def test_waiter_that_requests_something_else_joins_the_end_of_the_queue(other: dict[str, Any]) -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob"), waits("a", by="cleo"), held("b", by="ann"))
    after = scene.when(stand("a", by="bob", **other)).then(
        unqueued("a", by="bob", ticket=2, why="left"), queued("a", by="bob", turn=4, **other)
    )
    assert after.line("a") == ["cleo", "bob"]


def test_ticket_of_an_ended_call_is_kept_for_two_minutes() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob")).when(step_back("a", by="bob", ticket=2)).then()
    assert scene.after(119).line("a") == ["bob"]
    assert scene.after(120).then(unqueued("a", by="bob", ticket=2, why="absent")).line("a") == []


def test_ended_call_leaves_tickets_of_other_waiters_unchanged() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob"))
    for name, ticket in (("cleo", 2), ("bob@there", 2), ("bob", 7), ("ann", 1)):
        after = scene.when(step_back("a", by=name, ticket=ticket)).then()
        assert after.lease("a", of="bob").waiting_until == START + WAIT


def test_unfinished_call_counts_as_ended_in_time() -> None:
    scene = board(held("a", by="ann", deadline=START + 2 * LEASE), waits("a", by="bob")).after(50).then()
    assert scene.lease("a", of="bob").waiting_until == 0
    scene.when(release("a", by="ann")).then(released("a", by="ann", grant=1))


def test_waiter_leaves_the_queue_by_releasing() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob"), waits("a", by="cleo"))
    after = scene.when(release("a", by="bob")).then(unqueued("a", by="bob", ticket=2, why="left"))
    assert (after.line("a"), after.holders("a")) == (["cleo"], ["ann"])


def test_waiter_of_an_ended_session_keeps_its_place_in_the_next() -> None:
    scene = board(held("a", by="ann@there"), waits("a", by="bob")).after_the_end_of("here")
    assert scene.lease("a", of="bob").waiting_until <= scene.now
    again = scene.when(stand("a", by="bob@next")).then()
    assert (again.queued.ticket, again.lease("a", of="bob").session) == (2, "next")


# --- to be served


def test_release_and_grant_to_the_next_are_one_step() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob"), waits("a", by="cleo"))
    after = scene.when(release("a", by="ann")).then(released("a", by="ann", grant=1), granted("a", to="bob", ticket=2))
    assert after.let.granted_to == "bob"
    assert (after.holders("a"), after.line("a")) == (["bob"], ["cleo"])


def test_every_kind_of_end_grants_to_the_queue() -> None:
    scene = board(held("a", by="ann", deadline=START + SECOND), waits("a", by="bob"))
    grant = granted("a", to="bob", ticket=2)
    scene.after(1).then(expired("a", of="ann", grant=1, due=START + SECOND), grant)
    forced = released("a", by="ann", grant=1, forced_by="eve", note="x")
    scene.when(force("a", by="eve", reason="x")).then(forced, grant)
    said: dict[str, Any] = {"outcome": "moved", "moved_to": "b"}
    scene.when(release("a", by="ann", **said)).then(released("a", by="ann", grant=1, **said), grant)
    scene.when(release(None, by="ann")).then(released("a", by="ann", grant=1), grant)
    cut = board(held("a", by="ann@there"), waits("a", by="bob")).after_the_end_of("there").after(40)
    cut.when(stand("a", by="bob")).after(20).then(expired("a", of="ann", grant=1, due=START + 60 * SECOND), grant)


def test_absent_waiter_is_overtaken_and_keeps_its_position() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob", present=False), waits("a", by="cleo"))
    after = scene.when(release("a", by="ann")).then(released("a", by="ann", grant=1), granted("a", to="cleo", ticket=3))
    assert after.line("a") == ["bob"]
    assert after.when(stand("a", by="bob")).queued.position == 1


def test_resource_free_while_all_waiters_are_absent_goes_to_any_caller() -> None:
    scene = board(held("a", by="ann"), waits("a", by="bob", present=False)).when(release("a", by="ann"))
    scene.when(take("a", by="cleo")).then(granted("a", to="cleo"))
    scene.when(take("a", by="bob")).then(granted("a", to="bob", ticket=2))


def test_present_waiter_is_not_overtaken() -> None:
    scene = board(held("b", by="ann"), waits("a", by="bob", also=("b",)))
    hold = scene.when(take("a", by="cleo")).refused(BusyError).hold
    assert (hold.held_by, hold.in_line, hold.version) == ("bob", True, 1)
    assert scene.when(stand("a", by="cleo")).queued.position == 2


def test_shared_waiters_are_granted_together_up_to_an_exclusive_one() -> None:
    scene = board(
        held("a", by="ann"),
        waits("a", by="bob", mode="shared"),
        waits("a", by="cleo", mode="shared"),
        waits("a", by="dora"),
        waits("a", by="eve", mode="shared"),
    )
    after = scene.when(release("a", by="ann"))
    assert (after.holders("a"), after.line("a")) == (["bob", "cleo"], ["dora", "eve"])


def test_exclusive_waiter_is_not_starved_by_shared_ones() -> None:
    scene = board(held("a", by="ann", mode="shared"), waits("a", by="bob"))
    assert scene.when(take("a", by="cleo", mode="shared")).refused(BusyError).hold.in_line


def test_waiter_for_several_is_granted_when_all_are_free() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("a", by="cleo", also=("b",)))
    first = scene.when(release("a", by="ann")).then(released("a", by="ann", grant=1))
    first.when(release("b", by="bob")).then(
        released("b", by="bob", grant=1), granted("a", to="cleo", ticket=2), granted("b", to="cleo")
    )


def test_waiter_with_alternatives_gets_the_first_free_one() -> None:
    scene = board(held("p1", by="ann"), held("p2", by="bob"), waits("p1", by="cleo", alternatives=("p2",)))
    after = scene.when(release("p2", by="bob")).then(
        released("p2", by="bob", grant=1),
        granted("p2", to="cleo"),
        unqueued("p1", by="cleo", ticket=2, why="granted"),
    )
    assert after.let.granted_to == "cleo"
    collected = after.when(take("p1", by="cleo", alternatives=("p2",))).then().taken
    assert (collected.resource, collected.already) == ("p2", False)


def test_claim_response_omits_the_callers_position_in_the_queue() -> None:
    scene = board(held("a", by="ann", mode="shared"), waits("a", by="bob"), waits("a", by="cleo", present=False))
    taken = scene.when(take("a", by="bob", mode="shared")).taken
    assert [it.agent for it in taken.waiting] == ["cleo"]


def test_waiter_granted_the_first_of_several_learns_their_release() -> None:
    scene = board(held("a", by="ann"), held("b", by="ann"), waits("b", by="bob"), held("c", by="ann"))
    assert scene.when(release(None, by="ann")).let.granted_to == "bob"
    assert scene.when(release("a", by="ann", also=("b",))).let.granted_to == "bob"
    assert scene.when(release("a", by="ann", also=("c",))).let.granted_to is None


def test_subtree_and_contents_grant_to_each_others_waiters() -> None:
    board(held("src/", by="ann"), waits("src/a", by="bob"), waits("src/b", by="cleo")).when(
        release("src/", by="ann")
    ).then(
        released("src/", by="ann", grant=1),
        granted("src/a", to="bob", ticket=1),
        granted("src/b", to="cleo", ticket=1),
    )
    scene = board(held("src/a", by="ann"), held("src/b", by="bob"), waits("src/", by="cleo"))
    first = scene.when(release("src/a", by="ann")).then(released("src/a", by="ann", grant=1))
    assert first.when(release("src/b", by="bob")).let.granted_to == "cleo"


# --- an offer


def served(by: str = "ann") -> Happened:
    said: dict[str, Any] = {"outcome": "modified", "note": "half"}
    return board(held("a", by=by), waits("a", by="bob"), waits("a", by="cleo")).when(release("a", by=by, **said))


def test_grant_from_the_queue_lasts_30_seconds_until_it_is_collected() -> None:
    offered = served()
    assert (offered.lease("a", of="bob").kind, offered.lease("a", of="bob").deadline) == ("offered", START + OFFER)
    collected = offered.after(29).when(take("a", by="bob")).then()
    assert (collected.taken.already, collected.taken.version, collected.taken.expires_in) == (False, 5, LEASE)
    assert collected.taken.past == PastHold("ann", "modified", START, "half", session="here", version=1)
    assert collected.lease("a", of="bob").kind == "held"
    assert collected.when(take("a", by="bob")).taken.already


def test_offer_blocks_others_and_fences_like_a_claim() -> None:
    offered = served()
    assert offered.when(take("a", by="dora")).refused(BusyError).hold.held_by == "bob"
    assert offered.fenced("a", 5, writer="bob") is None


def test_uncollected_offer_goes_to_the_next_and_is_not_a_loss() -> None:
    late = served().after(30)
    late.then(expired("a", of="bob", grant=5, due=START + OFFER, collected=False), granted("a", to="cleo", ticket=3))
    assert late.losses == []
    taken = late.when(take("a", by="cleo")).taken
    assert taken.past == PastHold("ann", "modified", START, "half", session="here", version=1)


def test_waiter_that_did_not_collect_gets_busy_like_any_other() -> None:
    hold = served().after(30).when(take("a", by="bob")).refused(BusyError).hold
    assert (hold.held_by, hold.same_name) == ("cleo", False)


def test_offer_may_be_released() -> None:
    after = served().when(release("a", by="bob"))
    assert (after.let.granted_to, after.holders("a")) == ("cleo", ["cleo"])


def test_grant_cancels_other_tickets_of_the_waiter_for_that_resource() -> None:
    scene = board(
        held("a", by="ann"), held("b", by="ann"), waits("a", by="bob"), waits("b", by="bob", alternatives=("a",))
    )
    after = scene.when(release("a", by="ann"))
    assert (after.holders("a"), after.line("a"), after.line("b")) == (["bob"], [], [])


# --- deadlock


def test_deadlock_of_two_waiters_is_refused() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("b", by="ann"))
    assert ring(scene.when(stand("a", by="bob"))) == [("bob", "b", "a"), ("ann", "a", "b")]


def test_deadlock_of_three_waiters_is_refused() -> None:
    scene = board(
        held("a", by="ann"), held("b", by="bob"), held("c", by="cleo"), waits("b", by="ann"), waits("c", by="bob")
    )
    assert ring(scene.when(stand("a", by="cleo"))) == [("cleo", "c", "a"), ("ann", "a", "b"), ("bob", "b", "c")]


def test_deadlock_through_subtrees_is_refused() -> None:
    scene = board(held("src/a", by="ann"), held("lib/", by="bob"), waits("lib/x", by="ann"))
    assert ring(scene.when(stand("src/", by="bob"))) == [("bob", "lib/", "src/a"), ("ann", "src/a", "lib/")]


def test_deadlock_through_several_resources_is_refused() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("x", by="ann", also=("b",)))
    assert ring(scene.when(stand("y", by="bob", also=("a",)))) == [("bob", "b", "a"), ("ann", "a", "b")]


def test_deadlock_with_alternatives_needs_all_of_them_blocked() -> None:
    free = board(held("a", by="ann"), held("b", by="bob"), held("c", by="cleo"), waits("b", by="ann"))
    assert free.when(stand("a", by="bob", alternatives=("c",))).queued.position == 1
    stuck = board(
        held("a", by="ann"), held("b", by="bob"), held("c", by="cleo"), waits("b", by="ann"), waits("b", by="cleo")
    )
    stuck.when(stand("a", by="bob", alternatives=("c",))).refused(DeadlockError)


def test_waiter_with_a_free_alternative_causes_no_deadlock() -> None:
    scene = board(
        held("a", by="ann"), held("b", by="bob"), held("c", by="cleo"), waits("b", by="ann", alternatives=("c",))
    )
    assert scene.when(stand("a", by="bob")).queued.position == 1


def test_deadlock_of_shared_and_exclusive_waiters_is_refused() -> None:
    scene = board(held("a", by="ann", mode="shared"), held("b", by="bob"), waits("b", by="ann"))
    assert scene.when(take("a", by="bob", mode="shared")).taken.version == 2
    scene.when(stand("a", by="bob")).refused(DeadlockError)


def test_caller_that_does_not_wait_causes_no_deadlock() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("b", by="ann"))
    scene.when(take("a", by="bob")).refused(BusyError)


def test_absent_waiter_causes_no_deadlock() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("b", by="ann", present=False))
    waiting = scene.when(stand("a", by="bob"))
    assert waiting.queued.position == 1
    assert ring(waiting.when(stand("b", by="ann"))) == [("ann", "a", "b"), ("bob", "b", "a")]


def test_chain_of_waiters_is_not_a_deadlock() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("a", by="bob"))
    assert scene.when(stand("b", by="cleo")).queued.position == 1


def test_namesake_in_another_session_is_another_agent_in_a_deadlock() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), waits("b", by="ann@there"))
    assert scene.when(stand("a", by="bob")).queued.position == 1


def test_earlier_ticket_that_waits_for_the_caller_does_not_block_it() -> None:
    scene = board(held("b", by="cleo"), waits("a", by="bob", also=("b",)))
    scene.when(take("a", by="cleo")).then(granted("a", to="cleo"))
    scene.when(take("a", by="dora")).refused(BusyError)


def test_earlier_ticket_waiting_for_the_caller_through_others_does_not_block_it() -> None:
    scene = board(held("b", by="cleo"), held("c", by="dora"), waits("c", by="cleo"), waits("a", by="bob", also=("b",)))
    scene.when(take("a", by="dora")).then(granted("a", to="dora"))


def test_grant_of_further_resources_must_not_cause_a_deadlock() -> None:
    """Bob waits for what ann holds; were he given what she waits for, neither would ever go on."""
    scene = board(held("a", by="ann"), held("c", by="cleo"), waits("c", by="ann"), waits("a", by="bob"))
    free = scene.when(release("c", by="cleo"))
    assert free.holders("c") == ["ann"]
    absent = board(held("a", by="ann"), waits("c", by="ann", also=("d",)), held("d", by="cleo"), waits("a", by="bob"))
    absent.when(take("c", by="bob")).refused(BusyError)
