"""The deciders of claims: agents act one after the other on a board, by a clock that the test moves."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from holdlog.adapters.operations import claims
from holdlog.domain.claims import commands
from holdlog.domain.claims.acquire import acquire, leave, release
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ABSENCE, OFFER
from holdlog.domain.claims.holder import LIFE_DIVISOR
from holdlog.domain.claims.queue import settle
from holdlog.domain.moment import LEASE, SECOND, Caller, Moment
from holdlog.domain.state import State


class Story:
    """A board on which agents act. `session` is that of the next caller."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.claims: Any = {}
        self.holders: Any = {}
        self.position = 0
        self.now = 10**12
        self.session = "one"
        self.events: list[Any] = []
        """Of the last command, with what had expired before it."""

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def act(self, decide: Any, **arguments: Any) -> Any:
        board = Board(self.now)
        board.claims, board.holders, board.is_quiet = dict(self.claims), dict(self.holders), False
        names = [arguments.get("resource") or "", *(arguments.get("also") or ()), *(key[0] for key in self.claims)]
        for name in names:
            board.versions[f"claim:{name}"] = self.versions.setdefault(f"claim:{name}", 0)
        self.events = []
        caller = Caller(self.session, host="h", handle=self.session)
        board.start(Moment(self.now, self.position, caller, 0, self.now))
        settle(board)
        self._append(board.events)
        moment = Moment(self.now, self.position, caller, 0, self.now)
        events, result = decide(SimpleNamespace(**arguments), State({}, board), moment)
        self._append(events)
        self.claims, self.holders = board.claims, board.holders
        return result

    def _append(self, events: list[Any]) -> None:
        for event in events:
            self.position += 1
            self.versions[event.stream] += 1
        self.events += events

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def losses(self) -> list[Any]:
        return [loss for holder in self.holders.values() for loss in holder.lost]

    def claim(self, agent: str, resource: str = "a", **options: Any) -> Any:
        defaults = {"also": None, "mode": "exclusive", "note": None, "lease_seconds": None, "wait_seconds": 0}
        return self.act(
            acquire, agent=agent, resource=resource, receipt=None, **(defaults | {"continues": False} | options)
        )

    def queue(self, agent: str, resource: str = "a", **options: Any) -> Any:
        return self.claim(agent, resource, wait_seconds=50, **options)

    def release(self, agent: str, resource: str | None = "a", **options: Any) -> Any:
        defaults = {"also": None, "outcome": None, "moved_to": None, "note": None}
        return self.act(release, agent=agent, resource=resource, receipt=None, **(defaults | options))

    @property
    def board(self) -> dict[str, list[str]]:
        """Who holds what, and who waits, with a question mark."""
        board: dict[str, list[str]] = {}
        for claim in sorted(self.claims.values(), key=lambda claim: claim.position):
            board.setdefault(claim.resource, []).append(claim.who.agent + "?" * claim.is_ticket)
        return board


def test_free_resource_is_granted_and_a_held_one_is_busy():
    story = Story()
    claimed = story.claim("ann")
    assert (claimed.status, claimed.version, claimed.position, claimed.expires_in_seconds) == ("claimed", 1, 1, 60)
    busy = story.claim("bob")
    assert (busy.status, busy.held_by, busy.version, bool(busy), story.kinds) == ("busy", "ann", 1, False, [])
    assert story.claim("ann").status == "already_claimed"
    assert story.kinds == []


def test_subtree_excludes_what_is_below_it_and_its_own_name():
    story = Story()
    story.claim("ann", "src/")
    assert [story.claim("bob", name).status for name in ("src/a.py", "src", "src-app")] == ["busy", "busy", "claimed"]
    assert story.claim("bob", "src/a.py").covered_by == "src/"


def test_several_are_granted_together_or_not_at_all():
    story = Story()
    story.claim("ann", "b")
    assert story.claim("bob", "a", also=["b"]).resource == "b"
    assert story.board == {"b": ["ann"]}
    assert [it.version for it in story.claim("bob", "a", also=["c"]).also] == [1]


def test_shared_claims_go_together_and_the_last_may_have_it_alone():
    story = Story()
    assert [story.claim(agent, mode="shared").status for agent in ("ann", "bob")] == ["claimed"] * 2
    assert story.claim("cleo").holders == ["ann", "bob"]
    assert story.queue("ann").ticket is None  # she would wait for herself
    story.release("bob")
    assert (story.claim("ann").status, story.board) == ("claimed", {"a": ["ann"]})


def test_release_hands_over_to_the_first_waiter_in_the_same_transaction():
    story = Story()
    story.claim("ann")
    assert [story.queue(agent).queue_position for agent in ("bob", "cleo")] == [1, 2]
    assert story.release("ann").granted_to == "bob"
    assert (story.kinds, story.board) == (["ClaimReleased", "ClaimGranted"], {"a": ["cleo?", "bob"]})
    assert (story.queue("bob").status, story.kinds) == ("claimed", [])
    assert story.queue("bob").status == "already_claimed"


def test_grant_that_is_not_collected_goes_to_the_next():
    story = Story()
    story.claim("ann")
    story.queue("bob")
    story.release("ann")
    story.wait(OFFER / SECOND)
    assert story.claim("cleo").status == "claimed"
    assert (story.kinds, story.losses) == (["OfferExpired", "ClaimGranted"], [])


def test_absent_waiter_keeps_its_place_for_two_minutes_but_may_be_overtaken():
    story = Story()
    story.claim("ann", lease_seconds=1000)
    story.queue("bob")
    story.wait(51)
    assert story.queue("cleo").queue_position == 2
    assert story.release("ann").granted_to == "cleo"
    story.wait(ABSENCE / SECOND - 1)
    assert story.claim("dora").status == "claimed"
    assert story.kinds[-2:] == ["ClaimUnqueued", "ClaimGranted"] or "ClaimUnqueued" in story.kinds


def test_lease_of_the_holder_keeps_all_its_claims_and_its_end_is_counted_from_the_last_call():
    story = Story()
    story.claim("ann", "a")
    story.wait(50)
    story.claim("ann", "b")
    story.wait(59)
    assert story.claim("bob", "a").expires_in_seconds == 1
    story.wait(3)
    assert (story.claim("bob", "a").status, story.board) == ("claimed", {"a": ["bob"]})
    assert [story.now - event.due for event in story.events[:2]] == [2 * SECOND] * 2
    assert [(loss.resource, loss.why) for loss in story.losses] == [("a", "expired"), ("b", "expired")]


def test_claim_with_a_lease_of_its_own_ends_then_whatever_its_holder_does():
    story = Story()
    story.claim("ann", "a", lease_seconds=100)
    for _ in range(3):
        story.wait(40)
        story.claim("ann", "b")
    assert story.claim("bob", "a").status == "claimed"
    assert story.board["b"] == ["ann"]


def test_agent_does_not_block_its_sub_agents_and_takes_over_what_they_left():
    story = Story()
    story.claim("ann", "a/")
    assert story.claim("ann/tests", "a/b").status == "claimed"
    story.session = "two"
    assert story.claim("ann/tests", "a/c").status == "busy"
    story.session = "one"
    story.claim("ann/docs", "d", lease_seconds=1000)
    assert story.claim("ann", "d").status == "busy"
    story.wait(LEASE // LIFE_DIVISOR / SECOND)
    assert story.claim("bob", "d").status == "busy"
    assert (story.claim("ann", "d").status, story.board["d"]) == ("claimed", ["ann"])


def test_hand_over_serves_those_whom_it_frees_although_its_caller_gets_nothing_new():
    story = Story()
    story.claim("ann", "src/", mode="shared")
    story.session = "two"
    story.claim("ann", "src/a.py", mode="shared")
    assert story.queue("ann/tests", "src/b.py").status == "busy"
    story.session = "one"
    story.act(leave, open_calls=(), in_conversations=())
    story.session = "two"
    assert story.claim("ann", "src/a.py", mode="shared").status == "already_claimed"
    assert story.kinds == ["ClaimHandedOver", "ClaimGranted"]
    assert story.board["src/b.py"] == ["ann/tests"]


def test_sharing_waiters_are_granted_together_up_to_one_that_wants_it_alone():
    story = Story()
    story.claim("ann")
    for agent, mode in (("bob", "shared"), ("cleo", "shared"), ("dora", "exclusive"), ("eve", "shared")):
        story.queue(agent, mode=mode)
    story.release("ann")
    assert story.board == {"a": ["dora?", "eve?", "bob", "cleo"]}
    assert story.claim("fay", mode="shared").held_by == "dora"


def test_nobody_overtakes_a_waiter_unless_it_waits_for_the_caller():
    story = Story()
    story.claim("ann", "a")
    story.claim("bob", "b")
    story.queue("cleo", "a", also=["b", "c"])
    assert story.claim("dora", "c").held_by == "cleo"
    assert story.claim("ann", "c").status == "claimed"  # cleo waits for her


def test_wait_that_would_never_end_is_refused_with_its_cycle():
    story = Story()
    story.claim("ann", "a")
    story.claim("bob", "b")
    story.claim("cleo", "c")
    story.queue("ann", "b")
    story.queue("bob", "c")
    refusal = story.queue("cleo", "a")
    assert [(it.agent, it.holds, it.waits_for) for it in refusal.cycle] == [
        ("cleo", "c", "a"),
        ("ann", "a", "b"),
        ("bob", "b", "c"),
    ]
    assert (story.kinds, bool(refusal)) == ([], False)


def test_waiter_whose_grant_would_close_a_cycle_goes_on_waiting_when_it_calls_again():
    story = Story()
    for agent, resource in (("bob", "b"), ("cleo", "a"), ("dan", "d")):
        story.claim(agent, resource)
    story.queue("ann", "b")
    assert story.queue("ann", "a").ticket == 2
    story.queue("bob", "a", also=["d"])
    story.release("cleo", "a")
    again = story.queue("ann", "a")
    assert (again.status, again.ticket, story.kinds) == ("busy", 2, [])
    assert story.claim("ann", "a").status == "deadlock"
    story.release("ann", "b")
    assert story.queue("ann", "a").status == "claimed"


def test_call_that_waits_does_not_queue_again_after_its_place_was_released():
    story = Story()
    story.claim("bob")
    story.queue("ann")
    assert story.queue("ann", continues=True).ticket == 2
    story.release("ann")
    again = story.queue("ann", continues=True)
    assert (again.status, again.ticket, again.lost, story.board) == ("busy", None, [], {"a": ["bob"]})


def test_grant_that_would_close_a_cycle_goes_to_the_next_waiter():
    story = Story()
    story.claim("cleo", "p")
    story.claim("dora", "q")
    story.queue("bob", "q")
    story.queue("bob", "p")
    story.queue("cleo", "q")
    assert story.release("dora", "q").granted_to == "cleo"


def test_release_is_refused_to_others_and_ends_all_without_a_resource():
    story = Story()
    story.claim("ann", "a", also=["b"])
    assert (story.release("bob", "a").status, story.release("bob", "never").status) == ("not_holder", "not_found")
    story.claim("bob", "c")
    story.queue("ann", "c")
    assert [it.resource for it in story.release("ann", None).released] == ["a", "b", "c"]
    assert (story.board, story.release("ann", None).status) == ({"c": ["bob"]}, "already_free")


@pytest.mark.parametrize(
    ("command", "operation"), [(commands.Acquire, claims.Claim), (commands.Release, claims.Release)]
)
def test_command_of_hooks_has_the_arguments_of_its_operation(command: Any, operation: Any) -> None:
    defaults = {name: command._field_defaults.get(name, PydanticUndefined) for name in command._fields}
    assert defaults == {name: field.default for name, field in operation.model_fields.items()}
