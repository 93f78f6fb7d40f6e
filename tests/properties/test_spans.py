"""Who held what and who waited, in random histories, is what the events of the log say, recomputed from their views."""

from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings

from holdlog.adapters.api.questions.responses import HoldEntry, ResourceHistory, TimelineResult, WaitEntry
from holdlog.adapters.api.questions.timelines import Timespan
from holdlog.domain.claims.resource import overlap
from holdlog.domain.names import acts_for
from holdlog.domain.refusals import NotFoundError
from tests.properties.test_past import RESOURCES, Step, history, often, opened, steps
from tests.support.clock import Clock
from tests.support.past import Body, Past, end_of

Span = tuple[Any, ...]


def holds(events: list[Body], resource: str, live: set[tuple[str, int]]) -> list[Span]:
    """`live`: the grants on the board; the lease of each other one that has not ended is due."""
    found = []
    for number, it in enumerate(events):
        if it["kind"] not in ("ClaimGranted", "ClaimResumed") or not overlap(it["resource"], resource):
            continue
        end = end_of(it, events[number + 1 :])
        span = (it["resource"], it["version"], it["agent"], it["mode"], datetime.fromisoformat(it["at"]))
        if end is None:
            found.append((*span, None if (it["resource"], it["version"]) in live else "expired", None))
            continue
        kinds = {"ClaimGranted": "replaced", "ClaimResumed": "resumed", "ClaimExpired": "expired"}
        outcome = kinds.get(end["kind"]) or ("forced" if "forced_by" in end else end["outcome"])
        found.append((*span, outcome, datetime.fromisoformat(end.get("due", end["at"]))))
    return found


def waits(events: list[Body], resource: str) -> list[Span]:
    found = []
    for it in events:
        if it["kind"] != "ClaimQueued" or not overlap(it["resource"], resource):
            continue
        ends = [end for end in events if end["stream"] == it["stream"] and end.get("ticket") == it["version"]]
        outcome = ends[0].get("why", "granted") if ends else None
        ended = datetime.fromisoformat(ends[0]["at"]) if ends else None
        found.append((it["resource"], it["agent"], it["mode"], datetime.fromisoformat(it["at"]), outcome, ended))
    return found


def held(it: HoldEntry) -> Span:
    is_known = it.outcome != "expired" or it.noticed_at is not None or it.ended_at is None
    return (it.resource, it.version, it.held_by, it.mode, it.claimed_at, it.outcome, it.ended_at if is_known else None)


def waited(it: WaitEntry) -> Span:
    return (it.resource, it.agent, it.mode, it.queued_at, it.outcome, it.ended_at or it.noticed_at)


def require_the_same(past: Past, events: list[Body], resource: str) -> None:
    board = past.read(past.requests.claims.board(limit=1000))
    live = {(it.resource, it.version) for it in board.claims}
    expected = holds(events, resource, live), waits(events, resource)
    if not any(expected):
        if any(it["kind"] == "FileChanged" and overlap(it["resource"], resource) for it in events):
            nothing: ResourceHistory = past.read(past.requests.questions.history(resource))
            assert (nothing.holds, nothing.waits) == ([], [])
            return
        with pytest.raises(NotFoundError):
            past.read(past.requests.questions.history(resource))
        return
    found: ResourceHistory = past.read(past.requests.questions.history(resource, limit=1000))
    shown = [held(it) for it in found.holds]
    # An expiry that was noticed when it was due looks like one that the log does not have yet.
    by_grant = {it[:2]: it for it in expected[0]}
    assert [it[:6] for it in sorted(shown)] == sorted(it[:6] for it in expected[0])
    assert all(it[6] in (None, by_grant[it[:2]][6]) for it in shown)
    assert sorted(map(waited, found.waits), key=repr) == sorted(expected[1], key=repr)
    assert found.more is None
    assert [it.claimed_at for it in found.holds] == sorted((it.claimed_at for it in found.holds), reverse=True)
    newest: ResourceHistory = past.read(past.requests.questions.history(resource, limit=2))
    assert (newest.holds, newest.waits) == (found.holds[:2], found.waits[:2])
    assert newest.more == ((len(found.holds) > 2 or len(found.waits) > 2) or None)


def require_the_same_timelines(past: Past, events: list[Body], agent: str) -> None:
    """The timeline of an agent has its holds and waits of every resource, and its changes of every value."""
    found: TimelineResult = past.read(past.requests.timelines.of_agent(agent, Timespan(limit=1000)))
    mine = [it for it in events if acts_for(it.get("agent") or it.get("by", ""), agent)]
    begun = {"ClaimGranted", "ClaimResumed", "ClaimQueued"}
    expected = [(it["stream"], it["version"]) for it in mine if it["kind"] in begun or "key" in it]
    entries = [
        *(hold.resource for lane in found.lanes for hold in (*lane.holds, *lane.waits)),
        *(f"{it.namespace}/{it.key}" for lane in found.lanes for it in lane.changes),
    ]
    assert sorted(entries) == sorted(unquote(stream.partition(":")[2]) for stream, _ in expected)
    assert all(
        (lane.resource or f"{lane.namespace}/{lane.key}") == entry
        for lane in found.lanes
        for entry in [
            *(it.resource for it in (*lane.holds, *lane.waits)),
            *(f"{it.namespace}/{it.key}" for it in lane.changes),
        ]
    )
    for lane in found.lanes:
        times = [it.at for it in lane.changes] or [it.claimed_at for it in lane.holds]
        assert times == sorted(times)
        assert all(found.begins_at <= at <= found.ends_at for at in times)


def require_every_resource(kind: str, taken: list[Step], url: str | None = None) -> None:
    clock = Clock()
    with opened(kind, clock, url) as store:
        history(store, clock, taken)
        past = Past(store, clock)
        events = past.events()
        for resource in (*RESOURCES, "src/b", "y", "custom://none"):
            require_the_same(past, events, resource)
        for agent in ("ann", "ben", "ann/sub", "none"):
            require_the_same_timelines(past, events, agent)


@settings(often, max_examples=25)
@given(steps("claims", "values"))
def test_history_of_a_resource_is_what_its_events_say(taken: list[Step]) -> None:
    require_every_resource("memory", taken)


@pytest.mark.check
@settings(often, max_examples=15)
@given(steps("claims", "values"))
def test_history_of_a_resource_is_read_alike_from_postgres(shared_postgres: str, taken: list[Step]) -> None:
    require_every_resource("postgres", taken, shared_postgres)
