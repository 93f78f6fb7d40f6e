"""Holds and waits of a resource, from the events of its claim."""

from typing import Any

import pytest

from holdlog.domain.claims.claim import (
    ClaimEvent,
    ClaimExpired,
    ClaimGranted,
    ClaimQueued,
    ClaimReleased,
    ClaimResumed,
    ClaimUnqueued,
    FileChanged,
)
from holdlog.domain.envelope import NO_DIGEST, Envelope, Recorded
from holdlog.domain.message import NOBODY
from holdlog.projections.spans import HoldSpan, OpenSpans, WaitSpan


class Given:
    """Events of the claim src/a.py, recorded at 10, 20, 30 …"""

    def __init__(self, *events: ClaimEvent) -> None:
        self.spans, self._version, self._ended = OpenSpans(), 0, list[HoldSpan | WaitSpan]()
        for event in events:
            self._ended = self._apply(event)

    def _apply(self, event: ClaimEvent) -> list[HoldSpan | WaitSpan]:
        self._version += 1
        place = (self._version, "claim:src%2Fa.py", self._version, event.topic, 10 * self._version)
        return list(self.spans.apply(Recorded(Envelope(*place, NOBODY, NO_DIGEST), event)))

    def when(self, event: ClaimEvent) -> list[Any]:
        """What each span that the event ends is, begins, ends and how."""
        return [
            ("held", it.grant.agent, it.began, it.ended, it.ending and it.ending.outcome)
            if isinstance(it, HoldSpan)
            else ("waited", it.ticket.agent, it.began, it.ended, it.outcome)
            for it in self._apply(event)
        ]

    @property
    def open(self) -> list[str]:
        return [it.owner.agent for it in (*self.spans.holds.values(), *self.spans.waits.values())]


ANN, BEN = ClaimGranted(agent="ann"), ClaimQueued(agent="ben", turn=1)


def test_release_ends_a_hold_with_what_its_holder_reported() -> None:
    given = Given(ANN)
    moved = ClaimReleased(agent="ann", grant=1, outcome="moved", moved_to="src/b.py", note="split")
    assert given.when(moved) == [("held", "ann", 10, 20, "moved")]
    assert given.open == []


def test_grant_of_a_ticket_ends_the_wait() -> None:
    given = Given(ANN, BEN, ClaimReleased(agent="ann", grant=1))
    assert given.when(ClaimGranted(agent="ben", ticket=2)) == [("waited", "ben", 20, 40, "granted")]
    assert given.open == ["ben"]


@pytest.mark.parametrize("why", ["left", "absent", "granted"])
def test_waiter_that_leaves_the_queue_has_the_reason_as_its_outcome(why: Any) -> None:
    given = Given(ANN, BEN)
    assert given.when(ClaimUnqueued(agent="ben", ticket=2, why=why)) == [("waited", "ben", 20, 30, why)]
    assert given.open == ["ann"]


def test_expired_hold_ends_when_it_was_due() -> None:
    given = Given(ANN)
    assert given.when(ClaimExpired(agent="ann", grant=1, due=15)) == [("held", "ann", 10, 15, "expired")]


def test_person_who_takes_a_claim_is_named() -> None:
    given = Given(ANN)
    assert given.when(ClaimReleased(agent="ann", grant=1, forced_by="boss")) == [("held", "ann", 10, 20, "forced")]


def test_resumed_and_replaced_claims_are_two_holds() -> None:
    given = Given(ANN)
    assert given.when(ClaimResumed(agent="ann", grant=1)) == [("held", "ann", 10, 20, "resumed")]
    again = ClaimGranted(agent="ann", mode="shared", instead_of=2)
    assert given.when(again) == [("held", "ann", 20, 30, "replaced")]
    assert given.open == ["ann"]


def test_shared_holds_end_one_by_one() -> None:
    given = Given(ClaimGranted(agent="ann", mode="shared"), ClaimGranted(agent="ben", mode="shared"))
    assert given.when(ClaimReleased(agent="ann", grant=1)) == [("held", "ann", 10, 30, "released")]
    assert given.open == ["ben"]


def test_release_in_a_log_of_major_1_ends_the_only_hold() -> None:
    assert Given(ANN).when(ClaimReleased(agent="ann")) == [("held", "ann", 10, 20, "released")]


@pytest.mark.parametrize(("sha256", "changed"), [("0" * 64, "modified"), (None, "deleted")])
def test_hold_knows_what_hooks_recorded_of_its_holder_only(sha256: str | None, changed: str) -> None:
    given = Given(ANN, FileChanged(agent="eve", sha256="1" * 64))
    assert [it.changed for it in given.spans.holds.values()] == [None]
    given.when(FileChanged(agent="ann", sha256=sha256))
    assert [it.changed for it in given.spans.holds.values()] == [changed]
