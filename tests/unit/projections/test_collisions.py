"""Whom a waiter queued behind."""

from typing import Any

import pytest

from holdlog.projections.collisions import Blocker, RecordedHold, RecordedTicket, blockers


def hold(agent: str, mode: Any = "exclusive", session: str | None = None, principal: str | None = None) -> RecordedHold:
    return RecordedHold("src/", 1, agent, principal, session or f"of {agent}", mode)


def ticket(agent: str, turn: int, mode: Any = "exclusive", session: str | None = None) -> RecordedTicket:
    return RecordedTicket("src/", turn, agent, None, session or f"of {agent}", mode, turn)


def test_waiter_is_behind_every_holder_that_excludes_it() -> None:
    holds = [hold("ann", "shared"), hold("bob", "shared")]
    assert blockers(ticket("cid", 5), holds, []) == [Blocker("src/", "ann", None), Blocker("src/", "bob", None)]


def test_waiters_ahead_count_only_if_no_holder_excludes_it() -> None:
    ahead = [ticket("ann", 1), ticket("eve", 9)]
    assert [it.agent for it in blockers(ticket("cid", 5), [hold("bob")], ahead)] == ["bob"]
    assert [it.agent for it in blockers(ticket("cid", 5), [], ahead)] == ["ann"]


def test_shared_claim_is_behind_the_exclusive_waiter_and_not_behind_shared_holders() -> None:
    found = blockers(
        ticket("cid", 5, "shared"), [hold("ann", "shared")], [ticket("bob", 1), ticket("dan", 2, "shared")]
    )
    assert [it.agent for it in found] == ["bob"]


@pytest.mark.parametrize(
    ("holder", "is_behind"),
    [
        (hold("claude", session="one"), False),
        (hold("claude/tests", session="one"), False),
        (hold("claude", session="two"), True),
        (hold("claude/tests", session="one", principal="token:ci"), True),
        (hold("claude/docs", session="one"), True),
        (hold("claude/test", session="one"), True),
    ],
)
def test_own_claim_and_that_of_a_parent_exclude_only_other_sessions(holder: RecordedHold, is_behind: bool) -> None:
    found = blockers(ticket("claude/tests", 5, session="one"), [holder], [])
    assert bool(found) == is_behind


def test_two_holds_of_one_agent_are_one_collision() -> None:
    assert len(blockers(ticket("cid", 5), [hold("ann", session="one"), hold("ann", session="two")], [])) == 1
