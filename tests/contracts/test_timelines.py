"""Timelines, over every store: lanes of who did something with a resource or a value, and of what an agent did."""

from typing import Any

import pytest

from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.questions import timelines
from holdlog.adapters.api.questions.responses import TimelineResult
from holdlog.adapters.api.questions.timelines import Timespan
from holdlog.adapters.auth.grants import Grants
from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import InvalidError, NotFoundError
from tests.support.clock import Clock
from tests.support.commands import change, drop, put, release, run, take
from tests.support.past import Past

Shown = dict[str, list[tuple[Any, ...]]]


def at(position: int, name: str = "since") -> PointInTime:
    return PointInTime(position, None, names=(name, name))


def stage(store: Store, clock: Clock) -> None:
    """1: ann claims src/; 2: ben queues for src/a.py; 3: ann writes n/k; 4, 5: ann releases, ben is granted; 6: ann/sub
    deletes n/k; 7: ann/sub claims lib/x, whose lease ends unnoticed."""

    def step(command: Any, session: str) -> None:
        run(store, command, Caller(session=session, server=f"server of {session}"))
        clock.pass_by(1)

    step(take("src/", "ann"), "a")
    step(AcquireClaim(resource="src/a.py", agent="ben", wait=60 * SECOND), "b")
    change(store, put("k", 1), by="ann")
    clock.pass_by(1)
    step(release("src/", "ann"), "a")
    change(store, drop("k"), by="ann/sub")
    clock.pass_by(1)
    step(AcquireClaim(resource="lib/x", agent="ann/sub", lease=2 * SECOND), "a")
    clock.pass_by(5)


@pytest.fixture
def past(store: Store, clock: Clock) -> Past:
    stage(store, clock)
    return Past(store, clock)


def shown(found: TimelineResult) -> Shown:
    """The entries of each lane: what they are, and the seconds of their beginning and end."""
    lanes: Shown = {}
    for lane in found.lanes:
        entries = lanes[lane.agent or lane.resource or f"{lane.namespace}/{lane.key}"] = []
        entries += [
            ("held", it.resource, it.claimed_at.second, it.ended_at and it.ended_at.second) for it in lane.holds
        ]
        entries += [
            ("waited", it.resource, it.queued_at.second, it.ended_at and it.ended_at.second) for it in lane.waits
        ]
        entries += [(it.change, it.version, it.at.second) for it in lane.changes]
    return lanes


def test_timeline_of_a_resource_has_a_lane_for_each_agent(past: Past) -> None:
    found = past.read(past.requests.timelines.of_resource("src/a.py"))
    start = found.begins_at.second
    assert shown(found) == {
        "ann": [("held", "src/", start, start + 3)],
        "ben": [("held", "src/a.py", start + 3, None), ("waited", "src/a.py", start + 1, start + 3)],
    }
    assert (found.resource, found.more) == ("src/a.py", None)


def test_timeline_of_a_value_has_its_changes_by_agent(past: Past) -> None:
    found = past.read(past.requests.timelines.of_value("n", "k"))
    start = found.begins_at.second
    assert shown(found) == {"ann": [("write", 1, start)], "ann/sub": [("delete", 2, start + 2)]}
    assert found.ends_at.second == start + 2


def test_timeline_of_an_agent_has_a_lane_for_each_resource_and_value(past: Past) -> None:
    found = past.read(past.requests.timelines.of_agent("ann"))
    start = found.begins_at.second
    assert shown(found) == {
        "src/": [("held", "src/", start, start + 3)],
        "n/k": [("write", 1, start + 2), ("delete", 2, start + 4)],
        "lib/x": [("held", "lib/x", start + 5, start + 7)],  # due, although the log does not know it yet
    }
    assert list(shown(past.read(past.requests.timelines.of_agent("ann/sub")))) == ["n/k", "lib/x"]
    assert shown(past.read(past.requests.timelines.of_agent("an"))) == {}


def test_range_keeps_what_overlaps_it(past: Past) -> None:
    requests = past.requests.timelines
    later = Timespan(since=at(5))
    assert list(shown(past.read(requests.of_resource("src/a.py", later)))) == ["ann", "ben"]  # ann's ended then
    assert list(shown(past.read(requests.of_resource("src/a.py", Timespan(since=at(6)))))) == ["ben"]
    assert list(shown(past.read(requests.of_agent("ann", Timespan(since=at(6)))))) == ["n/k", "lib/x"]
    begun = Timespan(since=at(2), until=at(3, "until"))
    assert list(shown(past.read(requests.of_agent("ann", begun)))) == ["src/", "n/k"]
    assert list(shown(past.read(requests.of_value("n", "k", Timespan(until=at(3, "until")))))) == ["ann"]


def test_limit_keeps_the_newest_entries(past: Past) -> None:
    found = past.read(past.requests.timelines.of_agent("ann", Timespan(limit=2)))
    assert ([entries[0][0] for entries in shown(found).values()], found.more) == (["delete", "held"], True)


def test_timeline_shows_only_what_its_caller_may_see(past: Past) -> None:
    within = past.requests.within(Grants.parse(["read-claims:lib/*", "read-claims:src/a.py"])).timelines
    assert list(shown(past.read(within.of_agent("ann")))) == ["lib/x"]
    assert list(shown(past.read(within.of_resource("src/a.py")))) == ["ben"]


def test_agent_covers_the_last_events_and_no_longer_range(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "SCANNED", 2)
    found = past.read(past.requests.timelines.of_agent("ann"))
    assert (list(shown(found)), found.more) == (["src/", "n/k", "lib/x"], True)
    with pytest.raises(InvalidError, match=r"since: 5 events follow it, but .* at most 2; choose a later beginning"):
        past.read(past.requests.timelines.of_agent("ann", Timespan(since=at(3))))


def test_unknown_resource_or_key_is_not_found(past: Past) -> None:
    requests = past.requests.timelines
    with pytest.raises(NotFoundError, match="doc/ was never claimed"):
        past.read(requests.of_resource("doc/"))
    with pytest.raises(NotFoundError, match="n/none does not exist"):
        past.read(requests.of_value("n", "none"))
