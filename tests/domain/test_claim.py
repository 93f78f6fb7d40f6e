"""Who may hold a resource."""

from datetime import UTC, datetime

from holdlog.domain.claim import ClaimGranted, ClaimReleased, Release, Take
from holdlog.domain.refusals import BusyError, NotFoundError, NotHolderError
from tests.given import given

RESOURCE = "src/tea.py"


def granted(agent: str) -> ClaimGranted:
    return ClaimGranted(agent=agent)


def released(agent: str) -> ClaimReleased:
    return ClaimReleased(agent=agent)


def take(agent: str) -> Take:
    return Take(resource=RESOURCE, agent=agent)


def release(agent: str) -> Release:
    return Release(resource=RESOURCE, agent=agent)


def test_what_nobody_holds_is_granted() -> None:
    given().when(take("ann")).then(granted("ann"))
    given(granted("bob"), released("bob")).when(take("ann")).then(granted("ann"))


def test_what_another_holds_is_refused() -> None:
    given(granted("bob")).when(take("ann")).refused(BusyError)


def test_claiming_what_one_holds_changes_nothing() -> None:
    given(granted("ann")).when(take("ann")).then()


def test_a_name_that_only_starts_alike_is_another_agent() -> None:
    given(granted("ann")).when(take("anna")).refused(BusyError)
    given(granted("ann")).when(take("Ann")).refused(BusyError)


def test_the_holder_releases() -> None:
    given(granted("ann")).when(release("ann")).then(released("ann"))


def test_nobody_else_releases() -> None:
    given(granted("ann")).when(release("bob")).refused(NotHolderError)


def test_a_former_holder_cannot_release_what_another_holds_now() -> None:
    given(granted("ann"), released("ann"), granted("bob")).when(release("ann")).refused(NotHolderError)


def test_releasing_what_is_free_changes_nothing_whoever_asks() -> None:
    given(granted("ann"), released("ann")).when(release("ann")).then()
    given(granted("ann"), released("ann")).when(release("bob")).then()


def test_what_was_never_claimed_is_not_found() -> None:
    refusal = given().when(release("ann")).refused(NotFoundError)
    assert refusal.facts == {"resource": RESOURCE}


def test_busy_names_the_holder_the_time_and_the_version_of_the_grant() -> None:
    refusal = given(granted("ann"), released("ann"), granted("bob")).when(take("ann")).refused(BusyError)
    assert refusal.hold.model_dump() == {
        "resource": RESOURCE,
        "held_by": "bob",
        "claimed_at": datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC),
        "version": 3,
    }


def test_a_free_claim_remembers_who_held_it_until_when() -> None:
    state = given(granted("ann"), released("ann")).claim
    assert (state.holder, state.previous_holder, state.ended_at, state.version) == (None, "ann", 2_000_000, 2)


def test_the_version_of_a_grant_stays_that_of_the_grant() -> None:
    assert given(granted("ann")).claim.granted == 1
    assert given(granted("ann"), released("ann")).claim.granted == 1
    assert given(granted("ann"), released("ann"), granted("bob")).claim.granted == 3
