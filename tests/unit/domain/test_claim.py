"""What the events of a claim make of it."""

import pytest
from pydantic import ValidationError

from holdlog.domain.claims.claim import (
    Claim,
    ClaimExpired,
    ClaimGranted,
    ClaimQueued,
    ClaimReleased,
    ClaimUnqueued,
    FileChanged,
    Grant,
    PastHold,
    Ticket,
)
from tests.support.given import SECOND, given


def granted(agent: str = "ann", **fields: object) -> ClaimGranted:
    return ClaimGranted.model_validate({"agent": agent, **fields})


def queued(agent: str = "bob", turn: int = 1, **fields: object) -> ClaimQueued:
    return ClaimQueued.model_validate({"agent": agent, "turn": turn, **fields})


def test_resource_that_was_never_claimed_is_empty() -> None:
    claim = given().claim
    assert claim == Claim("src/tea.py")
    assert (claim.version, claim.grants, claim.waiting, claim.past, claim.stream) == (
        0,
        (),
        0,
        None,
        "claim:src/tea.py",
    )


def test_grant_is_identified_by_version_agent_and_time() -> None:
    claim = given(granted(principal="org", mode="shared")).claim
    assert claim.grants == (Grant(1, "ann", "org", "shared", SECOND),)
    assert claim.grant(1) == claim.grants[0]
    assert claim.grant(2) is None


def test_grant_keeps_its_version_whatever_follows() -> None:
    claim = given(granted("ann", mode="shared"), queued("bob"), granted("cleo", mode="shared")).claim
    assert [(it.version, it.agent) for it in claim.grants] == [(1, "ann"), (3, "cleo")]


def test_release_ends_its_grant_alone() -> None:
    shared = granted("ann", mode="shared"), granted("bob", mode="shared")
    claim = given(*shared, ClaimReleased(agent="ann", grant=1)).claim
    assert [it.agent for it in claim.grants] == ["bob"]
    assert claim.past == PastHold("ann", "released", 3 * SECOND, version=1)


def test_release_from_before_grants_had_versions_ends_the_only_grant() -> None:
    claim = given(granted(), ClaimReleased(agent="ann")).claim
    assert (claim.grants, claim.past) == ((), PastHold("ann", "released", 2 * SECOND))


@pytest.mark.parametrize("outcome", ["released", "modified", "created", "deleted"])
def test_past_of_a_claim_has_outcome_and_note(outcome: str) -> None:
    ending = ClaimReleased.model_validate({"agent": "ann", "grant": 1, "outcome": outcome, "note": "half done"})
    assert given(granted(), ending).claim.past == PastHold("ann", ending.outcome, 2 * SECOND, "half done", version=1)


def test_past_of_a_claim_has_the_target_of_a_move() -> None:
    moved = ClaimReleased(agent="ann", grant=1, outcome="moved", moved_to="src/coffee.py")
    assert given(granted(), moved).claim.past == PastHold(
        "ann", "moved", 2 * SECOND, moved_to="src/coffee.py", version=1
    )


def test_past_of_a_claim_names_who_took_it_and_the_reason() -> None:
    forced = ClaimReleased(agent="ann", grant=1, forced_by="eve", note="off duty")
    assert given(granted(), forced).claim.past == PastHold(
        "ann", "forced", 2 * SECOND, "off duty", forced_by="eve", version=1
    )


def test_lease_expired_when_it_was_due_and_not_when_it_was_noticed() -> None:
    claim = given(granted(), ClaimExpired(agent="ann", grant=1, due=1_500_000)).claim
    assert (claim.grants, claim.past) == ((), PastHold("ann", "expired", 1_500_000, version=1))


def test_uncollected_offer_leaves_the_past_unchanged() -> None:
    modified = ClaimReleased(agent="ann", grant=1, outcome="modified")
    uncollected = ClaimExpired(agent="bob", grant=4, due=9, collected=False)
    claim = given(granted(), queued("bob"), modified, granted("bob", ticket=2), uncollected).claim
    assert (claim.grants, claim.waiting) == ((), 0)
    assert claim.past == PastHold("ann", "modified", 3 * SECOND, version=1)


def test_ticket_event_holds_everything_requested() -> None:
    queue = given(granted(), queued("bob", turn=7, mode="shared", principal="org", also=["a", "b/"])).queue
    assert queue == [Ticket("src/tea.py", 2, "bob", "org", "shared", 2 * SECOND, 7, ("a", "b/"), ())]
    assert given(queued(alternatives=["c"])).queue[0].alternatives == ("c",)


def test_grant_removes_its_ticket_from_the_queue() -> None:
    waiting = granted("ann"), queued("bob", 1), queued("cleo", 2)
    after = given(*waiting, ClaimReleased(agent="ann", grant=1), granted("bob", ticket=2))
    assert ([it.agent for it in after.claim.grants], [it.agent for it in after.queue]) == (["bob"], ["cleo"])


@pytest.mark.parametrize("why", ["left", "absent", "granted"])
def test_leaving_the_queue_keeps_the_others_in_it(why: str) -> None:
    left = ClaimUnqueued.model_validate({"agent": "bob", "ticket": 2, "why": why})
    after = given(granted(), queued("bob", 1), queued("cleo", 2), left)
    assert [it.agent for it in after.queue] == ["cleo"]
    assert (after.claim.version, after.claim.past) == (4, None)


def test_grant_may_replace_an_earlier_one_of_its_holder() -> None:
    claim = given(granted("ann", mode="shared"), granted("ann", instead_of=1)).claim
    assert [(it.version, it.mode) for it in claim.grants] == [(2, "exclusive")]


@pytest.mark.parametrize("sha256", ["ab" * 32, None])
def test_change_of_a_file_leaves_holders_queue_and_past_as_they_are(sha256: str | None) -> None:
    past = granted("eva"), ClaimReleased(agent="eva", grant=1, outcome="modified"), granted("ann"), queued("bob")
    before, after = given(*past), given(*past, FileChanged(agent="cleo", sha256=sha256))
    assert after.claim == before.claim._replace(version=5)
    assert after.queue == before.queue


def test_release_after_a_change_of_the_file_ends_the_grant_of_its_version() -> None:
    changed = FileChanged(agent="ann", sha256="ab" * 32)
    assert given(granted("ann"), changed, ClaimReleased(agent="ann", grant=1)).claim.grants == ()
    assert given(changed, granted("ann")).claim.grant(2) == Grant(2, "ann", None, "exclusive", 2 * SECOND)


@pytest.mark.parametrize("sha256", ["", "AB" * 32, "ab" * 31, "ab" * 32 + "\n", "xy" * 32])
def test_digest_of_a_changed_file_must_be_sha256_in_lower_case(sha256: str) -> None:
    with pytest.raises(ValidationError):
        FileChanged(agent="ann", sha256=sha256)


def test_every_event_of_a_claim_advances_its_version() -> None:
    events = granted(), queued(), ClaimUnqueued(agent="bob", ticket=2, why="left"), ClaimReleased(agent="ann", grant=1)
    assert [given(*events[:count]).claim.version for count in range(5)] == [0, 1, 2, 3, 4]
