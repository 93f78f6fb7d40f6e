"""Who may hold what, who gets it next, and what the former holder is told. Queues and rings: test_queue.py."""

from typing import Any

import pytest

from holdlog.domain.claims.claim import PastHold
from holdlog.domain.claims.commands import MAX_RESOURCES, AcquireClaim, ReleaseClaim
from holdlog.domain.claims.lease import SECOND, Loss
from holdlog.domain.refusals import BusyError, ExpiredError, InvalidError, NotFoundError, NotHolderError
from tests.support.boards import (
    LEASE,
    START,
    board,
    ended,
    expired,
    force,
    granted,
    held,
    ran_out,
    release,
    released,
    resumed,
    take,
    unqueued,
    waits,
)

# --- one holder


def test_free_resource_is_granted() -> None:
    taken = board().when(take("a.py", by="ann")).then(granted("a.py", to="ann")).taken
    assert (taken.resource, taken.version, taken.already, taken.past) == ("a.py", 1, False, None)
    assert taken.expires_in == LEASE


def test_held_resource_is_refused_with_all_that_is_known() -> None:
    hold = board(held("a.py", by="ann", note="nearly done")).when(take("a.py", by="bob")).refused(BusyError).hold
    assert (hold.resource, hold.held_by, hold.claimed_at, hold.version) == ("a.py", "ann", START, 1)
    assert (hold.expires_in, hold.idle, hold.servers) == (LEASE, 0, ("server of here",))
    assert (hold.queue_length, hold.covered_by, hold.holders, hold.note) == (0, None, (), "nearly done")
    assert (hold.same_name, hold.in_line, hold.shared_by_caller) == (False, False, False)


def test_refusal_shows_the_remaining_lease_and_the_silence_of_the_holder() -> None:
    later = board(held("a.py", by="ann")).after(100)
    hold = later.when(take("a.py", by="bob")).refused(BusyError).hold
    assert (hold.expires_in, hold.idle) == (200 * SECOND, 100 * SECOND)


def test_reclaiming_a_held_resource_only_renews_it() -> None:
    again = board(held("a.py", by="ann")).after(100).when(take("a.py", by="ann")).then()
    assert (again.taken.already, again.taken.version, again.taken.previous_session_ended_at) == (True, 1, None)
    assert again.taken.expires_in == LEASE
    assert again.lease("a.py", of="ann").deadline == again.now + LEASE


def test_chosen_lease_duration_is_kept_until_another_is_chosen() -> None:
    chosen = board().when(take("a.py", by="ann", lease=7 * SECOND, explicit=True))
    assert chosen.taken.expires_in == 7 * SECOND
    again = chosen.when(take("a.py", by="ann"))
    assert again.taken.expires_in == 7 * SECOND
    assert again.when(take("a.py", by="ann", lease=9 * SECOND, explicit=True)).taken.expires_in == 9 * SECOND


def test_note_of_a_claim_is_kept_until_the_next_one() -> None:
    noted = board().when(take("a.py", by="ann", note="one hour")).when(take("a.py", by="ann"))
    assert noted.when(take("a.py", by="bob")).refused(BusyError).hold.note == "one hour"
    renewed = noted.when(take("a.py", by="ann", note="ten more minutes"))
    assert renewed.when(take("a.py", by="bob")).refused(BusyError).hold.note == "ten more minutes"


def test_resource_names_are_compared_character_by_character() -> None:
    for other in ("anna", "Ann", "an"):
        board(held("a.py", by="ann")).when(take("a.py", by=other)).refused(BusyError)


def test_due_lease_counts_as_free_before_its_expiry_is_recorded() -> None:
    scene = board(held("a.py", by="ann", deadline=START))
    assert scene.holders("a.py") == []
    scene.when(take("a.py", by="bob")).then(granted("a.py", to="bob"))


def test_claim_limit_counts_held_and_requested_resources() -> None:
    scene = board(held("a.py", by="ann"), held("b.py", by="ann"))
    refusal = scene.when(take("c.py", by="ann", most=2)).refused(InvalidError)
    assert str(refusal).startswith(
        "agent: this session would hold 3 claims; the limit is 2. Release some first, or claim"
    )
    refusal = (
        board(waits("b.py", by="ann"), held("b.py", by="bob@there"))
        .when(take("c.py", by="ann", most=1))
        .refused(InvalidError)
    )
    assert str(refusal).startswith(
        "agent: this session would hold 2 claims, counting those it waits for; the limit is 1"
    )
    scene.when(take("c.py", by="ann", also=("d.py",), most=3)).refused(InvalidError)
    scene.when(take("c.py", by="ann", also=("a.py",), most=3)).then(granted("c.py", to="ann"))
    scene.when(take("a.py", by="ann", most=2)).then()
    scene.when(take("c.py", by="bob@there", most=1)).then(granted("c.py", to="bob@there"))


def test_call_names_at_most_a_hundred_resources() -> None:
    many = tuple(f"r{number}" for number in range(MAX_RESOURCES))
    assert len(take("a.py", by="ann", also=many[1:])[0].also) == 99
    for field in ("also", "alternatives"):
        with pytest.raises(ValueError, match=field):
            take("a.py", by="ann", **{field: many})
    with pytest.raises(ValueError, match="alternatives: cannot be combined with also"):
        take("a.py", by="ann", also=("b",), alternatives=("c",))


# --- sessions


def test_namesake_in_another_live_session_is_another_agent() -> None:
    hold = board(held("a.py", by="ann")).when(take("a.py", by="ann@there")).refused(BusyError).hold
    assert (hold.held_by, hold.same_name) == ("ann", True)


def test_claim_of_an_ended_session_is_resumed_by_claiming_that_resource() -> None:
    scene = board(held("a.py", by="ann@gone")).when(take("a.py", by="ann@there"))
    scene.then(resumed("a.py", by="ann@there", former="ann@gone"))
    assert (scene.taken.already, scene.taken.previous_session_ended_at, scene.taken.version) == (False, START, 2)
    assert scene.lease("a.py", of="ann").session == "there"
    assert [(it.session, it.version, it.why) for it in scene.losses] == [("gone", 1, "resumed")]
    scene.when(take("a.py", by="ann@elsewhere")).refused(BusyError)
    scene.when(take("a.py", by="ann@gone")).refused(BusyError)


def test_session_returns_to_its_claim_without_an_event() -> None:
    back = board(held("a.py", by="ann@gone")).when(take("a.py", by="ann@gone")).then()
    assert (back.taken.already, back.taken.previous_session_ended_at, back.losses) == (True, None, [])


def test_resumed_claim_restores_no_other_claim() -> None:
    scene = board(held("a.py", by="ann@gone"), held("b.py", by="ann@gone")).when(take("a.py", by="ann@there"))
    assert [it.session for it in scene.leases.values()] == ["gone", "there"]
    scene.when(release(None, by="ann@there")).then(released("a.py", by="ann", grant=2))


def test_claim_of_an_unrelated_file_restores_nothing() -> None:
    scene = board(held("a.py", by="ann@gone")).when(take("b.py", by="ann@there"))
    assert scene.lease("a.py", of="ann").session == "gone"


def test_covering_claim_is_not_resumed_by_claiming_a_file_in_it() -> None:
    hold = board(held("src/", by="ann@gone")).when(take("src/a.py", by="ann@there")).refused(BusyError).hold
    assert (hold.former, hold.covered_by) == (True, "src/")


def test_waiter_resumes_what_its_ended_namesake_leaves() -> None:
    scene = board(held("a", by="ann@there"), waits("a", by="ann")).after_the_end_of("there")
    scene.then(resumed("a", by="ann", former="ann@there", ticket=2))
    assert scene.when(take("a", by="ann")).taken.previous_session_ended_at == START


def test_two_shares_of_ended_sessions_become_one_exclusive_claim() -> None:
    scene = board(held("a", by="ann@gone", mode="shared"), held("a", by="ann@long gone", mode="shared"))
    after = scene.when(take("a", by="ann")).then(
        resumed("a", by="ann", former="ann@gone"),
        released("a", by="ann", grant=2, former_session="long gone"),
    )
    assert (after.holders("a"), len(after.losses)) == (["ann"], 2)
    shared = scene.when(take("a", by="ann", mode="shared"))
    assert len(shared.then(resumed("a", by="ann", former="ann@gone", mode="shared")).holders("a")) == 2


def test_claim_of_an_ended_session_may_be_released_and_used_as_a_condition_by_name() -> None:
    scene = board(held("a", by="ann@gone"))
    assert scene.fenced("a", 1, writer="ann") is None
    after = scene.when(release("a", by="ann", outcome="modified"))
    after.then(released("a", by="ann", grant=1, outcome="modified", former_session="gone"))
    assert [(it.session, it.why) for it in after.losses] == [("gone", "released_by_name")]


def test_session_kept_alive_by_calls_ends_seventy_seconds_after_the_last() -> None:
    scene = board(held("a", by="ann", server="calls"))
    scene.after(69).when(take("a", by="ann@there")).refused(BusyError)
    taken = scene.after(70).when(take("a", by="ann@there")).taken
    assert taken.previous_session_ended_at == START + 60 * SECOND


# --- without a session


def test_two_callers_without_a_session_are_two_holders() -> None:
    hold = board(held("a", by="ann#r1")).when(take("a", by="ann#r2")).refused(BusyError).hold
    assert (hold.same_name, hold.without_session) == (True, True)


def test_receipt_identifies_a_holder_without_a_session() -> None:
    scene = board(held("a", by="ann#r1"))
    taken = scene.when(take("a", by="ann#r1")).taken
    assert (taken.already, taken.receipt) == (True, "r1")
    scene.when(release("a", by="ann#r1")).then(released("a", by="ann", grant=1))
    scene.when(release("a", by="ann#r2")).refused(NotHolderError)
    assert scene.when(release("a", by="ann@there")).refused(NotHolderError).cause == "receipt"


def test_claim_without_a_session_is_released_by_name_and_the_loss_reported() -> None:
    after = board(held("a", by="ann#r1")).when(release("a", by="ann#"))
    after.then(released("a", by="ann", grant=1, released_by_name=True))
    assert [(it.receipt, it.why) for it in after.losses] == [("r1", "released_by_name")]
    two = board(held("a", by="ann#r1", mode="shared"), held("a", by="ann#r2", mode="shared"))
    two.when(release("a", by="ann#")).refused(NotHolderError)
    board(held("a", by="ann")).when(release("a", by="ann#")).refused(NotHolderError)


def test_releasing_everything_without_a_session_needs_a_receipt() -> None:
    scene = board(held("a", by="ann#r1"), held("b", by="ann#r2"))
    assert "receipt: is required" in str(scene.when(release(None, by="ann#")).refused(InvalidError))
    scene.when(release(None, by="ann#r1")).then(released("a", by="ann", grant=1))


def test_agents_without_a_session_do_not_nest() -> None:
    board(held("a", by="ann#r1")).when(take("a", by="ann/sub#r1")).refused(BusyError)


def test_fencing_condition_without_a_session_requires_the_receipt() -> None:
    scene = board(held("a", by="ann#r1"))
    why = scene.fenced("a", 1, writer="ann#")
    assert why is not None
    assert (why.needs_receipt, why.current_version) == (True, 1)
    with_another_version = scene.fenced("a", 7, writer="ann#")
    assert with_another_version is not None
    assert with_another_version.needs_receipt
    assert scene.fenced("a", 1, writer="ann#r2") is not None
    assert scene.fenced("a", 1, writer="ann#", receipt="r1") is None
    assert scene.fenced("a", 1, writer="ann/sub#", receipt="r1") is not None


def test_other_name_gets_nothing_from_an_ended_session() -> None:
    board(held("a.py", by="ann@gone")).when(take("a.py", by="bob")).refused(BusyError)


def test_other_principal_is_another_agent_even_after_the_session_ended() -> None:
    scene = board(held("a.py", by="ann@gone", principal="org"))
    scene.when(take("a.py", by="ann"), principal="other").refused(BusyError)
    assert scene.when(take("a.py", by="ann"), principal="org").taken.previous_session_ended_at == START


def test_lease_lasts_for_the_grace_period_after_its_session_ended() -> None:
    scene = board(held("a.py", by="ann"), held("b.py", by="ann", explicit=True)).after_the_end_of("here")
    assert scene.after(59).holders("a.py") == ["ann"]
    later = scene.after(60).then(expired("a.py", of="ann", grant=1, due=START + 60 * SECOND))
    assert (later.holders("a.py"), later.holders("b.py")) == ([], ["ann"])


# --- nested names


def test_ancestor_in_the_same_session_does_not_block() -> None:
    after = board(held("a.py", by="ann")).when(take("a.py", by="ann/tests")).then(granted("a.py", to="ann/tests"))
    assert after.holders("a.py") == ["ann", "ann/tests"]
    after.when(take("a.py", by="ann/tests/unit")).then(granted("a.py", to="ann/tests/unit"))


def test_descendant_agent_blocks_its_ancestor() -> None:
    board(held("a.py", by="ann/tests")).when(take("a.py", by="ann")).refused(BusyError)


def test_sibling_agents_block_each_other() -> None:
    board(held("a.py", by="ann/tests")).when(take("a.py", by="ann/docs")).refused(BusyError)
    board(held("a.py", by="ann"), held("a.py", by="ann/tests")).when(take("a.py", by="ann/docs")).refused(BusyError)


def test_ancestor_names_match_whole_segments_only() -> None:
    board(held("a.py", by="ann")).when(take("a.py", by="ann-2")).refused(BusyError)
    board(held("a.py", by="ann/t")).when(take("a.py", by="ann/tests")).refused(BusyError)


def test_ancestor_in_another_session_blocks() -> None:
    board(held("a.py", by="ann")).when(take("a.py", by="ann/tests@there")).refused(BusyError)
    board(held("a.py", by="ann@gone")).when(take("a.py", by="ann/tests@there")).refused(BusyError)


# --- subtrees


@pytest.mark.parametrize(
    ("one", "other"), [("src/", "src/a.py"), ("src/a.py", "src/"), ("src/", "src"), ("x/", "x/y/")]
)
def test_subtree_and_its_contents_block_each_other(one: str, other: str) -> None:
    hold = board(held(one, by="ann")).when(take(other, by="bob")).refused(BusyError).hold
    assert (hold.resource, hold.covered_by, hold.held_by) == (other, one, "ann")


def test_similar_resource_prefixes_do_not_block() -> None:
    scene = board(held("src/", by="ann"), held("custom://x/", by="ann"))
    for other in ("src-app", "src-app/a.py", "lib/src/a.py", "custom://xy", "file://web/src/a.py"):
        scene.when(take(other, by="bob")).then(granted(other, to="bob"))


def test_subtree_of_the_same_holder_does_not_block_its_contents() -> None:
    board(held("src/", by="ann")).when(take("src/a.py", by="ann")).then(granted("src/a.py", to="ann"))


# --- modes


def test_shared_claims_do_not_block_each_other() -> None:
    scene = board(held("a.py", by="ann", mode="shared"))
    after = scene.when(take("a.py", by="bob", mode="shared")).then(granted("a.py", to="bob", mode="shared"))
    hold = after.when(take("a.py", by="cleo")).refused(BusyError).hold
    assert (hold.held_by, hold.holders) == ("ann", ("ann", "bob"))


def test_shared_and_exclusive_claims_block_each_other() -> None:
    board(held("a.py", by="ann", mode="shared")).when(take("a.py", by="bob")).refused(BusyError)
    board(held("a.py", by="ann")).when(take("a.py", by="bob", mode="shared")).refused(BusyError)
    board(held("src/", by="ann", mode="shared")).when(take("src/a", by="bob", mode="shared")).then(
        granted("src/a", to="bob", mode="shared")
    )


def test_shared_holder_does_not_get_it_exclusively_while_others_share() -> None:
    scene = board(held("a.py", by="ann", mode="shared"), held("a.py", by="bob", mode="shared"))
    assert scene.when(take("a.py", by="ann")).refused(BusyError).hold.shared_by_caller
    assert scene.when(take("a.py", by="ann", wait=SECOND)).refused(BusyError).hold.shared_by_caller


def test_last_shared_holder_may_get_it_exclusively() -> None:
    board(held("a.py", by="ann", mode="shared")).when(take("a.py", by="ann")).then(
        granted("a.py", to="ann", instead_of=1)
    )


def test_downgrading_to_shared_admits_waiting_shared_claims() -> None:
    scene = board(held("a.py", by="ann"), waits("a.py", by="bob", mode="shared"), waits("a.py", by="cleo"))
    after = scene.when(take("a.py", by="ann", mode="shared")).then(
        granted("a.py", to="ann", mode="shared", instead_of=1),
        granted("a.py", to="bob", mode="shared", ticket=2),
    )
    assert after.holders("a.py") == ["ann", "bob"]
    assert after.line("a.py") == ["cleo"]


# --- several at once


def test_several_are_granted_together() -> None:
    taken = (
        board()
        .when(take("a", by="ann", also=("b", "a", "c")))
        .then(granted("a", to="ann"), granted("b", to="ann"), granted("c", to="ann"))
    )
    assert taken.taken.also == (("b", 1), ("c", 1))


def test_several_resources_are_granted_together_or_not_at_all() -> None:
    hold = board(held("b", by="bob")).when(take("a", by="ann", also=("b",))).refused(BusyError).hold
    assert (hold.resource, hold.held_by) == ("b", "bob")


def test_already_held_resources_of_several_are_kept() -> None:
    after = board(held("a", by="ann")).when(take("a", by="ann", also=("b",))).then(granted("b", to="ann"))
    assert (after.taken.version, after.taken.also, after.taken.already) == (1, (("b", 1),), False)


def test_first_free_alternative_is_granted_when_the_resource_is_not() -> None:
    scene = board(held("p1", by="bob"), held("p2", by="cleo"))
    after = scene.when(take("p1", by="ann", alternatives=("p2", "p3", "p4"))).then(granted("p3", to="ann"))
    assert after.taken.resource == "p3"


def test_requested_resource_precedes_its_alternatives() -> None:
    board().when(take("p1", by="ann", alternatives=("p2",))).then(granted("p1", to="ann"))


def test_already_held_alternative_is_renewed() -> None:
    after = board(held("p1", by="bob"), held("p2", by="ann")).when(take("p1", by="ann", alternatives=("p2", "p3")))
    assert (after.then().taken.resource, after.taken.already) == ("p2", True)


def test_busy_names_the_requested_resource_when_no_alternative_is_free() -> None:
    scene = board(held("p1", by="bob"), held("p2", by="cleo"))
    hold = scene.when(take("p1", by="ann", alternatives=("p2",))).refused(BusyError).hold
    assert (hold.resource, hold.held_by) == ("p1", "bob")


# --- release


@pytest.mark.parametrize(
    "said", [{"outcome": "modified", "note": "half"}, {"outcome": "moved", "moved_to": "b.py"}, {"outcome": "deleted"}]
)
def test_outcome_of_the_last_holder_is_passed_to_the_next(said: dict[str, Any]) -> None:
    free = board(held("a.py", by="ann")).when(release("a.py", by="ann", **said))
    free.then(released("a.py", by="ann", grant=1, **said))
    assert (free.let.released, free.let.already, free.let.outcome) == ((("a.py", 2),), False, said["outcome"])
    taken = free.when(take("a.py", by="bob")).taken
    assert taken.past == PastHold(
        "ann", said["outcome"], START, said.get("note"), said.get("moved_to"), session="here", version=1
    )


def test_latest_outcome_of_several_resources_is_passed_on() -> None:
    scene = board(held("one", by="ann"), held("two", by="ann"), held("three", by="ann"))
    scene = (
        scene.when(release("one", by="ann")).after(1).when(release("two", by="ann", outcome="modified", note="half"))
    )
    scene = scene.when(release("three", by="ann"))
    taken = scene.when(take("one", by="bob", also=("two", "three"))).taken
    assert (taken.past_of, taken.past) == (
        "two",
        PastHold("ann", "modified", START + SECOND, "half", session="here", version=1),
    )


def test_latest_outcome_of_a_covering_resource_is_passed_on() -> None:
    scene = board(held("src/a.py", by="ann"), ended("src/a.py", of="ann")).after(1).when(take("src/", by="bob"))
    taken = scene.when(release("src/", by="bob", outcome="modified")).when(take("src/a.py", by="cleo")).taken
    assert (taken.past_of, taken.past) == (
        "src/",
        PastHold("bob", "modified", START + SECOND, session="here", version=1),
    )
    own = board(held("src/", by="bob"), ended("src/", of="bob"), held("src/a.py", by="ann")).after(1)
    taken = own.when(release("src/a.py", by="ann")).when(take("src/a.py", by="cleo")).taken
    assert (taken.past_of, taken.past) == (
        "src/a.py",
        PastHold("ann", "released", START + SECOND, session="here", version=1),
    )


def test_moved_to_is_accepted_with_outcome_moved_only() -> None:
    for said in ({"outcome": "moved"}, {"moved_to": "b.py"}, {"outcome": "deleted", "moved_to": "b.py"}):
        with pytest.raises(ValueError, match="moved_to"):
            ReleaseClaim.model_validate({"resource": "a.py", "agent": "ann", **said})


def test_other_agent_releases_nothing() -> None:
    refusal = board(held("a.py", by="ann")).when(release("a.py", by="bob")).refused(NotHolderError)
    assert (refusal.resource, refusal.held_by, refusal.cause, refusal.reason) == ("a.py", "ann", "agent", None)


def test_namesake_in_another_live_session_releases_nothing() -> None:
    scene = board(held("a.py", by="ann"))
    assert scene.when(release("a.py", by="ann@there")).refused(NotHolderError).cause == "session"
    refusal = scene.when(release("a.py", by="ann"), principal="org").refused(NotHolderError)
    assert refusal.cause == "token"


def test_ancestors_and_descendants_cannot_release_for_each_other() -> None:
    board(held("a.py", by="ann/tests")).when(release("a.py", by="ann")).refused(NotHolderError)
    board(held("a.py", by="ann")).when(release("a.py", by="ann/tests")).refused(NotHolderError)


def test_covering_claim_is_not_released_with_its_contents() -> None:
    board(held("src/", by="ann")).when(release("src/a.py", by="ann")).refused(NotFoundError)


def test_releasing_twice_changes_nothing_for_any_caller() -> None:
    scene = board(held("a.py", by="ann"), ended("a.py", of="ann"))
    for agent in ("ann", "bob"):
        assert scene.when(release("a.py", by=agent)).then().let.already


def test_release_of_an_unclaimed_resource_is_not_found() -> None:
    assert board().when(release("a.py", by="ann")).refused(NotFoundError).facts == {"resource": "a.py"}
    board().when(force("a.py", by="eve", reason="x")).refused(NotFoundError)
    covered = board(held("src/", by="ann")).when(force("src/a.py", by="eve", reason="x"))
    assert "nobody holds this exact one" in str(covered.refused(InvalidError))


def test_several_resources_are_released_together_or_not_at_all() -> None:
    scene = board(held("a", by="ann"), held("b", by="bob"), held("c", by="ann"))
    scene.when(release("a", by="ann", also=("b",))).refused(NotHolderError)
    let = scene.when(release("a", by="ann", also=("c",))).let
    assert let.released == (("a", 2), ("c", 2))


def test_release_without_a_resource_ends_all_claims_and_tickets() -> None:
    scene = board(
        held("b", by="ann"), held("a", by="ann"), held("c", by="bob"), waits("c", by="ann"), held("d", by="ann/sub")
    )
    after = scene.when(release(None, by="ann")).then(
        released("a", by="ann", grant=1),
        released("b", by="ann", grant=1),
        unqueued("c", by="ann", ticket=2, why="left"),
    )
    assert after.let.released == (("a", 2), ("b", 2), ("c", 3))
    assert after.holders("d") == ["ann/sub"]
    assert after.when(release(None, by="ann")).then().let.already


def test_release_without_a_resource_is_limited_to_this_session() -> None:
    scene = board(held("a", by="ann@there"), held("b", by="ann"), held("c", by="ann@gone"))
    scene.when(release(None, by="ann")).then(released("b", by="ann", grant=1))


def test_also_requires_a_resource() -> None:
    with pytest.raises(ValueError, match="also: requires resource"):
        ReleaseClaim(agent="ann", also=("a",))


def test_release_bound_to_a_grant_never_ends_a_later_one() -> None:
    scene = board(held("a", by="ann"), ended("a", of="ann"), held("a", by="ann"))
    scene.when(release("a", by="ann", version=1)).refused(NotHolderError)
    scene.when(release("a", by="ann", version=3)).then(released("a", by="ann", grant=3))


# --- ends that nobody asked for


def test_expired_lease_is_reported_to_its_former_holder() -> None:
    scene = board(held("a", by="ann")).after(300).then(expired("a", of="ann", grant=1, due=START + LEASE))
    assert scene.losses == [Loss("a", 1, "expired", "ann", None, "here", "server of here", scene.now)]
    assert scene.when(release("a", by="ann")).refused(ExpiredError).held_by is None
    taken = scene.when(take("a", by="bob"))
    assert taken.taken.past == PastHold("ann", "expired", START + LEASE, session="here", version=1)
    assert taken.when(release("a", by="ann")).refused(ExpiredError).held_by == "bob"


def test_late_notice_of_an_expiry_has_the_time_it_was_due() -> None:
    board(held("a", by="ann")).after(1000).then(expired("a", of="ann", grant=1, due=START + LEASE))


def test_claim_taken_away_is_reported_with_the_reason() -> None:
    scene = board(held("a", by="ann")).when(force("a", by="eve", reason="off duty"))
    scene.then(released("a", by="ann", grant=1, forced_by="eve", note="off duty"))
    assert scene.losses == [Loss("a", 1, "forced", "ann", None, "here", "server of here", START, "off duty")]
    refusal = scene.when(release("a", by="ann")).refused(NotHolderError)
    assert (refusal.held_by, refusal.reason) == (None, "off duty")
    taken = scene.when(take("a", by="bob"))
    assert taken.taken.past == PastHold("ann", "forced", START, "off duty", forced_by="eve", session="here", version=1)
    assert taken.when(release("a", by="ann")).refused(NotHolderError).held_by == "bob"


def test_all_shared_holders_lose_a_claim_that_is_taken_away() -> None:
    scene = board(held("a", by="ann", mode="shared"), held("a", by="bob", mode="shared"))
    after = scene.when(force("a", by="eve", reason="x"))
    assert (after.holders("a"), [it.agent for it in after.losses]) == ([], ["ann", "bob"])


def test_nothing_is_taken_away_from_a_free_resource() -> None:
    after = board(held("a", by="ann"), ended("a", of="ann")).when(force("a", by="eve", reason="x")).then()
    assert (after.let.already, after.losses) == (True, [])


def test_released_claim_is_not_reported_as_expired_later() -> None:
    scene = board(held("a", by="ann"), ended("a", of="ann"), held("a", by="bob"), ran_out("a", of="bob", version=3))
    assert scene.when(release("a", by="ann")).then().let.already


# --- fencing


def test_current_claim_of_the_writer_does_not_block_it() -> None:
    scene = board(held("a", by="ann"))
    assert scene.fenced("a", 1, writer="ann") is None


def test_fenced_writer_sees_its_grant_and_never_that_of_its_parent() -> None:
    scene = board(held("a", by="ann"), held("a", by="ann/sub"))
    why = scene.fenced("a", 1, writer="ann/sub")
    assert why is not None
    assert (why.current_version, why.held_by, why.is_own) == (2, "ann/sub", True)
    why = board(held("a", by="ann")).fenced("a", 1, writer="ann/sub")
    assert why is not None
    assert (why.current_version, why.held_by, why.is_own) == (None, None, False)


def test_fenced_writer_learns_how_its_claim_ended() -> None:
    endings = [ended("a", of="ann"), ran_out("a", of="ann"), ended("a", of="ann", forced_by="eve")]
    found = [board(held("a", by="ann"), ending).fenced("a", 1, writer="ann") for ending in endings]
    assert [why and why.ended for why in found] == ["released", "expired", "forced"]


@pytest.mark.parametrize(("version", "writer"), [(2, "ann"), (1, "bob"), (1, "ann@there")])
def test_only_the_holder_with_the_version_of_its_grant_passes_the_fence(version: int, writer: str) -> None:
    why = board(held("a", by="ann")).fenced("a", version, writer)
    assert why is not None
    assert (why.resource, why.version, why.current_version, why.held_by) == ("a", version, 1, "ann")


def test_older_grant_is_fenced_for_any_later_holder() -> None:
    scene = board(held("a", by="ann"), ended("a", of="ann"), held("a", by="ann"))
    assert scene.fenced("a", 1, writer="ann") is not None
    assert scene.fenced("a", 3, writer="ann") is None


def test_due_lease_is_fenced_before_its_expiry_is_recorded() -> None:
    why = board(held("a", by="ann", deadline=START)).fenced("a", 1, writer="ann")
    assert why is not None
    assert (why.current_version, why.held_by, why.reason) == (None, None, None)


def test_claim_taken_away_is_fenced_with_the_reason_for_its_holder_alone() -> None:
    scene = board(held("a", by="ann")).when(force("a", by="eve", reason="off duty"))
    reasons = [why.reason for name in ("ann", "bob") if (why := scene.fenced("a", 1, writer=name))]
    assert reasons == ["off duty", None]


def test_queue_ticket_is_not_a_claim() -> None:
    assert board(held("a", by="ann"), waits("a", by="bob")).fenced("a", 2, writer="bob") is not None


def test_covering_claim_is_not_a_claim_of_its_contents() -> None:
    assert board(held("src/", by="ann")).fenced("src/a.py", 1, writer="ann") is not None


def test_each_shared_holder_is_current() -> None:
    scene = board(held("a", by="ann", mode="shared"), held("a", by="bob", mode="shared"))
    assert scene.fenced("a", 1, writer="ann") is scene.fenced("a", 2, writer="bob") is None
    assert scene.fenced("a", 2, writer="ann") is not None


def test_absurd_names_are_refused_as_commands() -> None:
    for bad in ("", " ", "/", "..", "a/../b", "x" * 513, "ftp://x", "custom://", "a\nb"):
        with pytest.raises(ValueError, match="resource"):
            AcquireClaim(resource=bad, agent="ann")
