"""An agent that knows only the list of tools and follows only hints: it reaches its goal from every refusal, or reports
to its user what only a person can do."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from holdlog.adapters.auth.grants import Grants
from holdlog.domain import refusals
from holdlog.domain.refusals import (
    HoldlogError,
    OverLimitError,
    SealedError,
    StoreError,
    TokenError,
    UnavailableError,
)
from tests.support.agent import ALL, listing
from tests.support.call_arguments import Arguments
from tests.support.hint_reading import PERSON, Step
from tests.support.hints import Hint, hints
from tests.support.simulated_agent import PATIENT, Call, Ended, Exchange, Goal, SimulatedAgent
from tests.support.simulated_world import LARGEST, ME, World, world

AT: Final = {"namespace": "n", "key": "plan"}
MINE: Final = "mine"


Prepare = Callable[[World], Awaitable[Goal]]


class Case(NamedTuple):
    """`shows`: the constant with the hint, or the code of an error; `says`: a part of the error. `reports`: the agent
    cannot reach its goal, and says so to its user. `world`: settings."""

    name: str
    prepare: Prepare
    shows: str
    says: str
    reports: bool
    world: dict[str, Any]

    def is_shown_by(self, status: str, text: str) -> bool:
        if self.shows not in HINTS:
            return status in ("error", "denied") and self.says in text
        return re.search(_pattern(HINTS[self.shows]), text) is not None


CASES: list[Case] = []
HINTS: Final = {hint.name: hint for hint in hints() if not hint.module.startswith("http.")}


def case(shows: str, says: str = "", reports: bool = False, **settings: Any) -> Callable[[Prepare], Prepare]:
    def add(prepare: Prepare) -> Prepare:
        CASES.append(Case(prepare.__name__, prepare, shows, says, reports, settings))
        return prepare

    return add


def _pattern(hint: Hint) -> str:
    return re.sub(r"\\\{\d?\\\}", r"\\S+", re.escape(re.sub(r"\b([a-z_]+)\(\)", r"holdlog_\1", hint.template)))


# --- goals


def hold(resource: str, **arguments: Any) -> Goal:
    def is_reached(tool: str, it: Arguments) -> bool:
        return tool == "claim" and it["status"] in ("claimed", "already_claimed") and it["resource"] == resource

    return Goal(claim(resource, **arguments), is_reached)


def claim(resource: str, **arguments: Any) -> Call:
    return Call("holdlog_claim", {"resource": resource, "agent": ME, **arguments})


def put(key: str = "plan", **arguments: Any) -> Goal:
    """Add the agent's entry to a list under a key."""

    def is_reached(tool: str, it: Arguments) -> bool:
        if tool == "set":
            return str(it["status"]) == "ok"
        return tool == "get" and MINE in (it.get("value") or ())

    call = Call("holdlog_set", {"namespace": "n", "key": key, "value": [MINE], "updated_by": ME, **arguments})
    return Goal(call, is_reached, change=lambda value: [*value, MINE])


def call(tool: str, **arguments: Any) -> Goal:
    """Make a call until it succeeds."""

    def is_reached(called: str, it: Arguments) -> bool:
        return called == tool and it["status"] == "ok"

    return Goal(Call(f"holdlog_{tool}", arguments), is_reached)


def release(resource: str) -> Goal:
    """No longer hold a resource."""

    def is_reached(tool: str, it: Arguments) -> bool:
        if tool == "status" and it["status"] == "claimed":
            return bool(it["held_by"] != ME)
        return tool == "release" and it["status"] in ("released", "already_free")

    return Goal(Call("holdlog_release", {"resource": resource, "agent": ME}), is_reached)


def guarded(version: int) -> Goal:
    return put(expected_version=0, guard=[{"resource": "a.md", "version": version}])


# --- claims that others hold


@case("_BUSY")
async def held_by_another_that_releases_while_the_agent_waits(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben")
    it.meanwhile(it.release_for_waiters("a.md"))
    return hold("a.md")


@case("_STILL_HELD")
async def held_when_waiting_for_it_times_out(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben")
    it.meanwhile(it.release_for_waiters("a.md"))
    wait = Call("holdlog_wait", {"resource": "a.md", "timeout_seconds": 0})
    return hold("a.md")._replace(call=wait)


@case("_BEFORE")
async def free_but_another_agent_queued_first(it: World) -> Goal:
    await it.other("claim", resource="src/a.py", agent="ben")
    it.meanwhile(it.other("claim", "third", resource="src/", agent="cleo", wait_seconds=30))
    await it.until_queued()
    it.meanwhile(_release_both(it))
    return hold("src/b.py")


async def _release_both(it: World) -> None:
    while sum(len(queue["line"]) for queue in (await it.other("status"))["queues"]) < 2:
        pass
    await it.other("release", resource="src/a.py", agent="ben")
    await it.other("release", "third", resource="src/", agent="cleo")


@case("_QUEUED", max_wait=0.01)
async def queued_until_the_wait_of_one_call_ended(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben")
    it.then = partial(it.other, "release", resource="a.md", agent="ben")
    return hold("a.md", wait_seconds=30)


@case("_QUEUED_RECEIPT", max_wait=0.01)
async def queued_without_a_session(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben")
    it.then = partial(it.other, "release", resource="a.md", agent="ben")
    without_session(it)
    return hold("a.md", wait_seconds=30)


def without_session(it: World) -> None:
    it.engine.caller = it.engine.caller.model_copy(update={"session": None, "server": ""})


@case("_SAME_NAME")
async def held_by_another_session_with_the_same_name(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent=ME)
    it.meanwhile(it.release_for_waiters("a.md", ME))
    return hold("a.md")


@case("_SAME_NAME_RECEIPT")
async def held_by_itself_without_a_session(it: World) -> Goal:
    without_session(it)
    await it.agent.make(claim("a.md"))
    return hold("a.md")


@case("_SAME_NAME_RECEIPT")
async def held_by_a_namesake_without_a_session(it: World) -> Goal:
    await it.claim_as("a.md", ME, session=None, server="")
    it.meanwhile(_release_as_namesake(it))
    without_session(it)
    return hold("a.md")


async def _release_as_namesake(it: World) -> None:
    await it.until_queued()
    request = it.engine.requests.claims.release("a.md", ME)
    it.engine.write(request, it.engine.caller.model_copy(update={"session": None, "server": ""}))


@case("_FORMER")
async def covered_by_what_an_ended_session_of_the_name_holds(it: World) -> Goal:
    it.engine.keeps = False  # sessions live by their calls
    await it.other("claim", "former", resource="src/", agent=ME)
    await it.end_session("former")
    return hold("src/a.py")


@case("_UPGRADE")
async def shared_with_another_agent(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben", mode="shared")
    it.meanwhile(it.release_for_waiters("a.md"))
    await it.agent.make(claim("a.md", mode="shared"))
    return hold("a.md")


@case("_DEADLOCK")
async def waiting_would_close_a_cycle(it: World) -> Goal:
    await it.other("claim", resource="b.md", agent="ben")
    await it.other("claim", None, resource="a.md", agent=ME)
    it.meanwhile(_take_a_then_release_both(it))
    await it.until_queued()
    return hold("b.md", wait_seconds=30)


async def _take_a_then_release_both(it: World) -> None:
    granted = await it.other("claim", resource="a.md", agent="ben", wait_seconds=30)
    assert granted["status"] == "claimed"
    await it.other("release", agent="ben")


@case("_REPLAYED")
async def repeated_request_whose_claim_has_ended(it: World) -> Goal:
    again = claim("a.md")._replace(meta={"holdlog/request_id": "r-1"})
    await it.agent.make(again)
    await it.agent.make(release("a.md").call)
    return hold("a.md")._replace(call=again)


# --- grants with hints


@case("MOVED")
async def moved_by_the_previous_holder(it: World) -> Goal:
    await it.other("claim", resource="old.md", agent="ben")
    await it.other("release", resource="old.md", agent="ben", outcome="moved", moved_to="new.md")
    return hold("new.md")._replace(call=claim("old.md"))


@case("_FOLDER")
async def folder_without_its_slash(it: World) -> Goal:
    return hold("src/")._replace(call=claim("src"))


@case("_NO_FILE")
async def bare_word_that_is_no_file(it: World) -> Goal:
    return hold("custom://merge")._replace(call=claim("merge"))


# --- releases


@case("_NEVER_CLAIMED")
async def release_of_a_misspelled_resource(it: World) -> Goal:
    await it.agent.make(claim("src/parser.py"))
    return release("src/parsre.py")


@case("_NOT_HOLDER[agent]")
async def release_of_what_another_agent_holds(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben")
    return release("a.md")


@case("_NOT_HOLDER[session]", reports=True)
async def release_of_what_another_session_of_the_name_holds(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent=ME)
    return release("a.md")


@case("_NOT_HOLDER[token]", reports=True)
async def release_of_what_the_name_holds_under_another_token(it: World) -> Goal:
    await it.claim_as("a.md", ME, principal="token:ci")
    return release("a.md")


@case("_NOT_HOLDER[receipt]")
async def release_without_the_receipt(it: World) -> Goal:
    with_session = it.engine.caller
    without_session(it)
    await it.agent.make(claim("a.md"))
    it.engine.caller = with_session
    return release("a.md")


@case("_ENDED_BY_OTHERS")
async def release_of_what_a_person_took(it: World) -> Goal:
    await it.other("claim", None, resource="a.md", agent=ME)
    it.take_by_force("a.md")
    return release("a.md")


@case("_EXPIRED")
async def release_after_the_lease_ended(it: World) -> Goal:
    await it.other("claim", None, resource="a.md", agent=ME, lease_seconds=1)
    it.clock.pass_by(1)
    await it.other("claim", resource="a.md", agent="ben")
    it.meanwhile(it.release_for_waiters("a.md"))
    return release("a.md")


@case("_EXPIRED_ELSEWHERE")
async def release_after_the_lease_of_another_session_of_the_name_ended(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent=ME, lease_seconds=1)
    it.clock.pass_by(1)
    return release("a.md")


# --- values


@case("_CONFLICT")
async def value_that_another_agent_changed(it: World) -> Goal:
    await it.other("set", **AT, value=["a"], updated_by="ben", expected_version=0)
    await it.other("set", **AT, value=["a", "b"], updated_by="ben", expected_version=1)
    it.expected["plan"] = ["a", "b", MINE]
    return put(expected_version=1)


@case("_CONFLICT_OWN")
async def value_that_a_namesake_changed(it: World) -> Goal:
    await it.other("set", **AT, value=["a"], updated_by=ME, expected_version=0)
    it.expected["plan"] = ["a", MINE]
    return put(expected_version=0)


@case("_CONFLICT_OWN")
async def value_that_the_agent_itself_already_wrote(it: World) -> Goal:
    await it.other("set", None, **AT, value=[MINE], updated_by=ME, expected_version=0)
    it.expected["plan"] = [MINE]
    return put(expected_version=0)


@case("_CONFLICT_IN_TRANSACTION")
async def transaction_with_an_old_version(it: World) -> Goal:
    await it.other("set", **AT, value=["a"], updated_by="ben", expected_version=0)
    it.expected |= {"plan": ["a", MINE], "other": 1}
    operations = [
        {"op": "set", "namespace": "n", "key": "other", "value": 1},
        {"op": "set", **AT, "value": [MINE], "expected_version": 0},
    ]
    goal = call("transact", operations=operations, updated_by=ME)
    return goal._replace(change=lambda value: [*value, MINE])


@case("_REPEATABLE_CONFLICT")
async def deletion_with_an_old_version(it: World) -> Goal:
    await it.other("set", **AT, value=1, updated_by="ben", expected_version=0)
    return call("delete", **AT, deleted_by=ME, expected_version=7)


@case("_REPEATABLE_CONFLICT_OWN")
async def update_with_an_old_version_of_a_namesake(it: World) -> Goal:
    await it.other("set", **AT, value=[], updated_by=ME, expected_version=0)
    it.expected["plan"] = [MINE]
    return call("update", **AT, updated_by=ME, append=MINE, expected_version=7)


@case("_GONE")
async def value_that_another_agent_deleted(it: World) -> Goal:
    await it.other("set", **AT, value=1, updated_by="ben", expected_version=0)
    await it.other("delete", **AT, deleted_by="ben", expected_version=1)
    it.expected["plan"] = [MINE]
    return put(expected_version=1)


@case("_NEVER_WRITTEN")
async def write_to_a_misspelled_key(it: World) -> Goal:
    await it.other("set", **AT, value=[], updated_by="ben", expected_version=0)
    it.expected["plan"] = [MINE]
    return put(key="plna", expected_version=1)


@case("_NEVER_WRITTEN")
async def write_of_a_new_key_with_a_version(it: World) -> Goal:
    it.expected["plan"] = [MINE]
    return put(expected_version=1)


@case("_NO_VALUE")
async def read_of_a_misspelled_key(it: World) -> Goal:
    await it.other("set", **AT, value=1, updated_by="ben", expected_version=0)
    return call("get", namespace="n", key="plans")


@case("_NO_VALUE")
async def transaction_that_changes_a_misspelled_key(it: World) -> Goal:
    await it.other("set", **AT, value={}, updated_by="ben", expected_version=0)
    it.expected["plan"] = {"mine": 1}
    patch = [{"op": "add", "path": "/mine", "value": 1}]
    return call(
        "transact", operations=[{"op": "patch", "namespace": "n", "key": "plna", "patch": patch}], updated_by=ME
    )


@case("_NO_VALUE_THEN")
async def read_of_a_value_before_it_was_written(it: World) -> Goal:
    await it.other("register", agent="ben", purpose="first event")
    await it.other("set", **AT, value=1, updated_by="ben", expected_version=0)
    return call("past", what="value", **AT, at_position=1)


@case("_UNCHANGED")
async def watched_value_that_changes_later(it: World) -> Goal:
    it.then = partial(it.other, "set", **AT, value=1, updated_by="ben", expected_version=0)
    return call("watch", **AT, since_version=0, timeout_seconds=0)


@case("_NOTHING")
async def saved_value_that_nobody_saved(it: World) -> Goal:
    return call("read_state", group="n", key="plan")._replace(knows={"value": MINE})


# --- writes that rely on a claim


@case("_NOT_YOURS")
async def guarded_write_without_the_claim(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent="ben")
    it.meanwhile(it.release_for_waiters("a.md"))
    return guarded(1)


@case("_OTHER_VERSION")
async def guarded_write_with_another_version(it: World) -> Goal:
    await it.agent.make(claim("a.md"))
    return guarded(7)


@case("_OTHER_SESSION")
async def guarded_write_of_a_namesake_in_another_session(it: World) -> Goal:
    await it.other("claim", resource="a.md", agent=ME)
    it.meanwhile(it.release_for_waiters("a.md", ME))
    return guarded(1)


@case("_RECEIPT")
async def guarded_write_without_the_receipt(it: World) -> Goal:
    without_session(it)
    await it.agent.make(claim("a.md"))
    return guarded(1)


@case("_RECEIPT")
async def guarded_write_when_a_namesake_without_a_session_holds_it(it: World) -> Goal:
    await it.claim_as("a.md", ME, session=None, server="")
    it.meanwhile(_release_as_namesake(it))
    without_session(it)
    return guarded(1)


@case("_ENDED[released]")
async def guarded_write_after_the_release(it: World) -> Goal:
    await it.agent.make(claim("a.md"))
    await it.agent.make(release("a.md").call)
    return guarded(1)


@case("_ENDED[expired]")
async def guarded_write_after_the_lease_ended(it: World) -> Goal:
    await it.other("claim", None, resource="a.md", agent=ME, lease_seconds=1)
    it.clock.pass_by(1)
    return guarded(1)


@case("_ENDED[forced]")
async def guarded_write_after_a_person_took_the_claim(it: World) -> Goal:
    await it.other("claim", None, resource="a.md", agent=ME)
    it.take_by_force("a.md")
    return guarded(1)


# --- threads

HELLO: Final = {"type": "text", "role": "user", "content": "hello"}


@case("_NO_THREAD")
async def message_to_a_thread_that_nobody_started(it: World) -> Goal:
    return call("thread_append", thread_id="run", agent=ME, messages=[HELLO])


@case("_NO_THREAD_THEN")
async def thread_before_it_was_started(it: World) -> Goal:
    await it.other("register", agent="ben", purpose="first event")
    await it.other("thread_start", agent="ben", thread_id="run")
    return call("past", what="thread", thread_id="run", at_position=1)


@case("_NO_KEY")
async def misspelled_key_of_a_thread(it: World) -> Goal:
    await it.other("thread_start", agent="ben", thread_id="run", data={"plan": 1})
    return call("thread_get", thread_id="run", key="plna")


@case("_DATA_CONFLICT")
async def data_of_a_thread_that_another_agent_changed(it: World) -> Goal:
    await it.other("thread_start", agent="ben", thread_id="run", data={"plan": 1})
    await it.other("thread_set", thread_id="run", key="plan", value=2, agent="ben", force=True)
    return call("thread_set", thread_id="run", key="mine", value=1, agent=ME, expected_data_version=2)


# --- a store that cannot write


@case("_UNAVAILABLE")
async def store_that_is_locked_for_a_moment(it: World) -> Goal:
    it.store.refusal, it.store.times = UnavailableError("the store is locked; try again", retry_after=2.0), 2
    return put(expected_version=0)


@case("_UNAVAILABLE", reports=True)
async def disk_that_stays_full(it: World) -> Goal:
    it.store.refusal, it.store.times = UnavailableError("the disk is full", retry_after=2.0), LARGEST
    return put(expected_version=0)


@case("_UNAVAILABLE", reports=True)
async def quota_that_stays_exhausted(it: World) -> Goal:
    it.store.refusal, it.store.times = OverLimitError("the store's quota of 1 keys is exhausted", 10.0), LARGEST
    return put(expected_version=0)


@case("_UNAVAILABLE_IN_DOUBT")
async def write_in_doubt_that_happened(it: World) -> Goal:
    it.store.refusal, it.store.times, it.store.done = UnavailableError("lost", in_doubt=True), 1, True
    it.expected["plan"] = [MINE]
    return put(expected_version=0)


@case("_UNAVAILABLE_IN_DOUBT")
async def write_in_doubt_that_did_not_happen(it: World) -> Goal:
    it.store.refusal, it.store.times = UnavailableError("lost", in_doubt=True), 1
    it.expected["plan"] = [MINE]
    return put(expected_version=0)


@case("sealed", "the store was sealed", reports=True)
async def store_that_moved(it: World) -> Goal:
    it.store.refusal, it.store.times = SealedError("the store was sealed and moved to /b.db; use it there"), LARGEST
    return put(expected_version=0)


@case("store", "the store is damaged", reports=True)
async def store_that_is_damaged(it: World) -> Goal:
    it.store.refusal, it.store.times = StoreError("the store is damaged; run `holdlog doctor`"), LARGEST
    return put(expected_version=0)


# --- errors


@case("denied", "the token does not allow this call", reports=True)
async def write_that_the_token_does_not_allow(it: World) -> Goal:
    it.engine.requests = it.engine.requests.within(Grants.parse(["read:*"]))
    return put(expected_version=0)


@case("invalid", "the token is not valid", reports=True)
async def token_that_became_invalid(it: World) -> Goal:
    it.store.refusal, it.store.times = TokenError(), LARGEST
    return put(expected_version=0)


@case("invalid", "which this server does not offer", reports=True, groups=("claims",))
async def tool_of_a_group_that_is_not_offered(it: World) -> Goal:
    return put(expected_version=0)


@case("invalid", "unknown tool; did you mean")
async def misspelled_tool(it: World) -> Goal:
    goal = hold("a.md")
    return goal._replace(call=goal.call._replace(tool="holdlog_claims"))


@case("invalid", "unknown argument; did you mean")
async def misspelled_argument(it: World) -> Goal:
    return hold("a.md")._replace(call=Call("holdlog_claim", {"resorce": "a.md", "agent": ME}))


@case("invalid", "must be a finite number of seconds")
async def number_out_of_its_range(it: World) -> Goal:
    return hold("a.md", lease_seconds=1_000_000)


@case("invalid", "expected_version: is required")
async def write_without_a_version(it: World) -> Goal:
    await it.other("set", **AT, value=["a"], updated_by="ben", expected_version=0)
    return put()


@case("invalid", "a pattern protects nothing")
async def pattern_instead_of_a_folder(it: World) -> Goal:
    return hold("src/")._replace(call=claim("src/*.py"))


@case("invalid", "must have the form custom://<name>")
async def malformed_custom_name(it: World) -> Goal:
    return hold("custom://merge")._replace(call=claim("custom:merge"))


@case("invalid", "must be one file")
async def list_instead_of_a_file(it: World) -> Goal:
    return hold("a.py")._replace(call=claim("a.py, b.py"))


@case("invalid", "the limit is 2", max_claims=2)
async def more_claims_than_a_session_may_hold(it: World) -> Goal:
    await it.agent.make(claim("a.md"))
    await it.agent.make(claim("b.md"))
    return hold("c.md")


@case("too_large", "must have at most 1000 bytes")
async def value_that_is_too_large(it: World) -> Goal:
    goal = put(expected_version=0)
    large = goal.call._replace(arguments=goal.call.arguments | {"value": ["x" * LARGEST]})
    return goal._replace(call=large, knows={"reference": "docs/plan.md"})


@case("inapplicable", "is not a list")
async def entry_for_what_is_not_a_list(it: World) -> Goal:
    await it.other("set", **AT, value={"a": 1}, updated_by="ben", expected_version=0)
    it.expected["plan"] = [{"a": 1}, MINE]
    update = Call("holdlog_update", {**AT, "updated_by": ME, "append": MINE})
    return put()._replace(call=update, change=lambda value: [value, MINE])


@case("reused", "already used for a different request")
async def request_id_of_another_request(it: World) -> Goal:
    first = claim("a.md")._replace(meta={"holdlog/request_id": "r-1"})
    await it.agent.make(first)
    goal = hold("b.md")
    return goal._replace(call=goal.call._replace(meta=first.meta))


# --- the tests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace."""
    for name in (".holdlog", "src"):
        (tmp_path / name).mkdir()
    (tmp_path / "a.py").touch()
    return tmp_path


@pytest.mark.parametrize("it", CASES, ids=lambda it: it.name)
async def test_agent_that_follows_hints_reaches_its_goal_or_reports_to_its_user(it: Case, folder: Path) -> None:
    async with world(folder, **it.world) as here:
        goal = await it.prepare(here)
        before = len(here.agent.journey)
        async with asyncio.timeout(10):
            ended = await here.agent.pursue(goal)
        journey = [(made.call, made.response, made.text) for made in here.agent.journey]
        first = here.agent.journey[before]
        assert it.is_shown_by(str(first.response["status"]), first.text or ""), first
        assert ended.is_reached is not it.reports, journey
        if it.reports:
            assert PERSON.search(ended.report or ""), journey
            assert len(journey) - before <= PATIENT, journey
        for key, value in here.expected.items():
            assert (await here.other("get", namespace="n", key=key))["value"] == value, journey


ENOUGH_TO_REPEAT: Final = {
    "queued_until_the_wait_of_one_call_ended",
    "queued_without_a_session",
    "watched_value_that_changes_later",
    "store_that_is_locked_for_a_moment",
    "write_in_doubt_that_did_not_happen",
}


class Stubborn(SimulatedAgent):
    """Repeats its call, whatever a hint says."""

    def _plan(self, refused: Exchange) -> list[tuple[Step, Exchange]] | Ended:
        return []


@pytest.mark.check
async def test_agent_that_ignores_hints_only_reaches_goals_for_which_repeating_suffices(folder: Path) -> None:
    reached = set()
    for it in CASES:
        async with world(folder, Stubborn, **it.world) as here:
            if (await here.agent.pursue(await it.prepare(here))).is_reached:
                reached.add(it.name)
    assert reached == ENOUGH_TO_REPEAT


WITHOUT_CASE: Final = {
    "_NESTED": "needs a repository inside another one (tests/surfaces/hooks/test_repositories.py)",
    "_READ_ONLY": "needs a store that cannot be written (tests/processes/test_read_only.py)",
    "_ALREADY": "the claim is granted, and it names no call",
    "_RESUMED": "the claim is granted, and it names no call",
    "_ELSEWHERE": "the claim is granted, and it names no call",
    "_PASTS[modified]": "the claim is granted, and it names no call",
    "_PASTS[created]": "the claim is granted, and it names no call",
    "_PASTS[expired]": "the claim is granted, and it names no call",
    "_PASTS[forced]": "the claim is granted, and it names no call",
    "_PASTS[deleted]": "the claim is granted; it names a call for agents that give up their goal",
    "MOVED_UNSEEN": "the claim is granted; it names a call for agents that give up their goal",
    "_PASTS[moved]": "the text of MOVED",
    "_DELETED": "the value is deleted; only a person can do more",
    "error": "the code of the base class, which nothing raises",
}
DONE: Final = frozenset(
    {"ok", "claimed", "already_claimed", "released", "already_free", "available", "deleted", "started", "resumed"}
)
"""Statuses of responses that refuse nothing."""


async def test_every_hint_and_every_code_of_a_refusal_has_a_case_of_the_simulated_agent() -> None:
    shown = {it.shows for it in CASES}
    assert len(shown & HINTS.keys()) >= 40
    assert (HINTS.keys() | _codes_of_errors()) - WITHOUT_CASE.keys() - shown == set()
    assert shown & WITHOUT_CASE.keys() == set()
    assert WITHOUT_CASE.keys() <= HINTS.keys() | {"error"}


def _codes_of_errors() -> set[str]:
    """Those of domain/refusals.py; other modules define refusals of programs that are not tools."""
    kinds = [it for it in vars(refusals).values() if isinstance(it, type) and issubclass(it, HoldlogError)]
    return {kind.code for kind in kinds} - STATUSES


STATUSES: Final = frozenset(
    {"busy", "conflict", "deadlock", "expired", "fenced", "not_found", "not_holder", "timeout", "unavailable"}
)
"""Statuses of refusals that have a hint."""


async def test_every_status_of_a_tool_is_a_success_or_a_refusal_with_a_hint() -> None:
    tools, _ = await listing(ALL)
    statuses = {status for tool in tools for status in tool["outputSchema"]["properties"]["status"]["enum"]}
    assert statuses == DONE | STATUSES
