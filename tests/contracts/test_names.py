"""Which names calls accept, on every store; and that names which were stored before stay usable."""

import contextlib
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.claims import responses as results
from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.compose import MEMORY, examine, open_holdlog, open_shadow_tables
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.event_log.rebuild import rebuild
from holdlog.domain.claims.commands import AcquireClaim, ClaimAcquired, ReleaseClaim, ReleaseOutcome, Sweep
from holdlog.domain.commands import RecordsChanged
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import InvalidError
from tests.support.claim_calls import by, holder, writes
from tests.support.clock import Clock
from tests.support.commands import run, whole_log

OLD_AGENT = "ann\u3164"
OLD_NAMES = [
    *("src/*.py", "src/**", "custom:merge", "a.py, b.py", "src/parser.py:10-20"),
    *("custom://merge\u3164", "a\u2003b", "❤\ufe0f.md", "custom: x"),
]
LOOK_ALIKES = ["ann\u3164", "ann\u2800", "a\u00a0nn", "ann\ufe0f", "a\u200dnn", "ann\ue000", "ann\u0378"]


def take_as_before(resource: str, agent: str = "ann", **more: Any) -> AcquireClaim:
    """A claim as release 0.1 made it, which refused none of these names."""
    defaults = {name: field.default for name, field in AcquireClaim.model_fields.items() if not field.is_required()}
    return AcquireClaim.model_construct(**{**defaults, "resource": resource, "agent": agent, **more})


@pytest.mark.parametrize("resource", OLD_NAMES)
def test_an_existing_claim_under_a_refused_name_guards_and_is_released(
    store: Store, clock: Clock, resource: str
) -> None:
    taken = run(store, take_as_before(resource, note="old"), by())
    assert isinstance(taken, ClaimAcquired)
    assert holder(store, clock, resource) == "ann"
    guarded = run(store, writes(guard=(FencingCondition(resource=resource, version=taken.version),)), by())
    assert isinstance(guarded, RecordsChanged)
    released = run(store, ReleaseClaim(resource=resource, agent="ann"), by())
    assert isinstance(released, ReleaseOutcome)
    assert [name for name, _ in released.released] == [resource]
    assert holder(store, clock, resource) is None
    assert [it.envelope.topic for it in whole_log(store)] == ["ClaimGranted", "ValueWritten", "ClaimReleased"]


@pytest.mark.parametrize("resource", OLD_NAMES)
def test_an_existing_claim_under_a_refused_name_expires(store: Store, clock: Clock, resource: str) -> None:
    run(store, take_as_before(resource, OLD_AGENT), by())
    clock.pass_by(301)
    run(store, Sweep())
    assert [it.envelope.topic for it in whole_log(store)] == ["ClaimGranted", "ClaimExpired"]
    assert holder(store, clock, resource) is None


def test_waiters_with_refused_names_are_still_granted(store: Store, clock: Clock) -> None:
    run(store, take_as_before("src/*.py"), by())
    run(store, take_as_before("src/*.py", OLD_AGENT, also=("custom:x",), wait=30_000_000), by("s2"))
    run(store, ReleaseClaim(resource="src/*.py", agent="ann"), by())
    assert (holder(store, clock, "src/*.py"), holder(store, clock, "custom:x")) == (OLD_AGENT, OLD_AGENT)


def before(engine: Engine, command: AcquireClaim) -> None:
    engine.write(CommandRequest(command, lambda outcome: outcome), engine.caller)


@pytest.mark.parametrize("resource", OLD_NAMES)
def test_calls_that_read_or_release_accept_refused_names(engine: Engine, resource: str) -> None:
    calls = engine.requests
    before(engine, take_as_before(resource))
    assert engine.read(calls.claims.status(resource)).status == "claimed"
    assert engine.wait(calls.claims.wait(resource, 0)).status == "timeout"
    (guard,) = calls.rules.guards([{"resource": resource, "version": 1}])
    assert guard.resource == resource
    assert [it.resource for it in engine.read(calls.claims.board("ann")).claims] == [resource]
    choice = calls.events.choice(None, None, None, resource, "ann", None)
    assert [it.kind for it in engine.read(calls.events.page(choice)).events] == ["ClaimGranted"]
    assert engine.write(calls.claims.release(resource, "ann"), engine.caller).status == "released"


@pytest.mark.parametrize("resource", [it for it in OLD_NAMES if it not in ("a.py, b.py", "src/parser.py:10-20")])
def test_a_new_claim_under_a_refused_name_is_refused_by_its_argument(engine: Engine, resource: str) -> None:
    claim, release = engine.requests.claims.claim, engine.requests.claims.release
    calls: list[tuple[str, Callable[[], object]]] = [
        ("resource", lambda: claim(resource, "ann")),
        ("also[0]", lambda: claim("a", "ann", also=[resource])),
        ("alternatives[1]", lambda: claim("a", "ann", alternatives=["b", resource])),
        ("moved_to", lambda: release("a", "ann", outcome="moved", moved_to=resource)),
    ]
    for argument, make in calls:
        with pytest.raises(InvalidError) as refusal:
            make()
        assert str(refusal.value).startswith(f"{argument}: must ")
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("agent", LOOK_ALIKES)
def test_every_write_refuses_an_agent_that_looks_like_another(engine: Engine, agent: str) -> None:
    calls = engine.requests
    result = {"agent_name": agent, "output": [], "created_at": "2026-01-01T00:00:00Z"}
    message = {"type": "text", "role": "user", "content": "x"}
    writes: list[tuple[str, Callable[[], object]]] = [
        ("agent", lambda: calls.claims.claim("a", agent)),
        ("agent", lambda: calls.claims.release("a", agent)),
        ("agent", lambda: calls.claims.register(agent, "Ann")),
        ("updated_by", lambda: calls.values.set("n", "k", 1, agent, 0)),
        ("deleted_by", lambda: calls.values.delete("n", "k", agent, 1)),
        ("deleted_by", lambda: calls.values.clear("n", agent)),
        ("agent", lambda: calls.threads.start(agent, "t")),
        ("agent", lambda: calls.threads.append("t", agent, [message])),
        ("results[0].agent_name", lambda: calls.threads.append("t", "ann", results=[result])),
    ]
    for argument, make in writes:
        with pytest.raises(InvalidError) as refusal:
            make()
        assert str(refusal.value).startswith(f"{argument}: must not contain U+")


def test_history_of_a_refused_agent_name_is_readable_and_its_claim_can_be_taken(engine: Engine) -> None:
    calls = engine.requests
    before(engine, take_as_before("a.py", OLD_AGENT))
    (held,) = engine.read(calls.claims.board(OLD_AGENT)).claims
    assert held.held_by == OLD_AGENT
    choice = calls.events.choice(None, None, None, None, OLD_AGENT, None)
    assert [it.by for it in engine.read(calls.events.page(choice)).events] == [OLD_AGENT]
    released = engine.write(calls.claims.release("a.py", "boss", note="cannot be named", forced=True), engine.caller)
    assert released.status == "released"
    assert engine.read(calls.claims.board()).claims == []


def test_a_log_with_refused_names_is_sound_and_rebuilt(place: str) -> None:
    if place == MEMORY:
        pytest.skip("nothing is kept")
    with contextlib.closing(open_holdlog(place)) as engine:
        for number, resource in enumerate(OLD_NAMES):
            before(engine, take_as_before(resource, f"{OLD_AGENT}/{number}"))
    where = place if "://" in place else Path(place)
    assert [it for it in examine(where) if it.level == "bad"] == []
    shadow = open_shadow_tables(where, lambda line: None)
    assert shadow is not None
    assert rebuild(shadow[1]).events == len(OLD_NAMES)
    shadow[0].close()
    with contextlib.closing(open_holdlog(place)) as engine:
        assert {it.resource for it in engine.read(engine.requests.claims.board()).claims} == set(OLD_NAMES)


def test_names_in_all_scripts_are_claimed_under_their_own_name(engine: Engine) -> None:
    for resource in ("資料（最終）.docx", "my file.py", "app/[id]/page.tsx", "custom://слияние", "cafe\u0301.md"):
        claimed = engine.claim(engine.requests.claims.claim(resource, "日本"), engine.caller)
        assert isinstance(claimed, results.Claimed)
        assert claimed.resource == unicodedata.normalize("NFC", resource)
