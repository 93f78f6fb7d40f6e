"""The state that `holdlog replay` ends with is the one that an independent fold of the printed events has."""

import argparse
import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings

from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.cli.log_texts import line_of
from holdlog.adapters.cli.replay import replay
from holdlog.adapters.cli.replay_state import ReplayedState, print_state
from tests.properties.test_past import STEPS, Step, history, often, opened
from tests.support.clock import Clock
from tests.support.past import Past, Replay

FILTERS = ("namespace", "prefix", "resource", "agent", "thread", "kinds")


def printed(past: Past, last: int, as_json: bool = True, **filters: str) -> tuple[list[str], Any]:
    """The lines of the events, and the state, as one replay prints them."""
    engine, out = past._engine, StringIO()
    options = argparse.Namespace(**(dict.fromkeys(FILTERS) | filters), json=as_json)
    with redirect_stdout(out):
        found = past.read(past.requests.events.range(None, None))._replace(upto=last)
        replay(engine, found, options, None)
        events = out.getvalue().splitlines()
        print_state(ReplayedState(engine, PointInTime(last, None), options), as_json=True)
    return events, json.loads(out.getvalue().splitlines()[-1])


def require_the_state_of_every_position(kind: str, steps: list[Step], url: str | None = None) -> None:
    clock, fold = Clock(), Replay()
    with opened(kind, clock, url) as store:
        history(store, clock, steps)
        past = Past(store, clock)
        events = past.events()
        for number, event in enumerate(events, start=1):
            fold.add(event)
            lines, state = printed(past, number)
            assert [json.loads(line) for line in lines] == events[:number]
            assert state["as_of"]["position"] == number
            values = {(it["namespace"], it["key"]): (it["version"], it["value"]) for it in state["values"]}
            assert values == {address: value[:2] for address, value in fold.values.items()}
            claims = {(it["resource"], it["version"]): it["held_by"] for it in state["claims"]}
            assert claims == {key: hold["agent"] for key, hold in fold.holds.items()}
            waiting = sorted((it["resource"], waiter["agent"]) for it in state["queues"] for waiter in it["line"])
            assert waiting == sorted((it["resource"], it["agent"]) for it in fold.tickets.values())
            assert {it["thread_id"]: it["version"] for it in state["threads"]} == fold.versions
        for filters in ({"namespace": "n"}, {"resource": "src/"}, {"agent": "ann"}, {"kinds": "claim"}):
            text, _ = printed(past, len(events), as_json=False, **filters)
            kept = [line_of(event) for event in events if matches(event, **filters)]
            assert text == kept


def matches(event: dict[str, Any], namespace: str = "", resource: str = "", agent: str = "", kinds: str = "") -> bool:
    return bool(
        (namespace and event.get("namespace") == namespace)
        or (resource and event.get("resource", "").startswith(resource))
        or (agent and f"{event['by']}/".startswith(f"{agent}/"))
        or (kinds and event["stream"].startswith(kinds))
    )


@settings(often, max_examples=15)
@given(STEPS)
def test_replayed_state_is_that_of_an_independent_fold(steps: list[Step]) -> None:
    require_the_state_of_every_position("memory", steps)


@pytest.mark.check
@settings(often, max_examples=15)
@given(STEPS)
def test_replayed_state_is_that_of_an_independent_fold_in_a_file(steps: list[Step]) -> None:
    require_the_state_of_every_position("sqlite", steps)


@pytest.mark.check
@settings(often, max_examples=5)
@given(STEPS)
def test_replayed_state_is_that_of_an_independent_fold_in_postgres(shared_postgres: str, steps: list[Step]) -> None:
    require_the_state_of_every_position("postgres", steps, shared_postgres)
