"""Holders without a process, as HTTP servers and hooks have them, by a clock that the test moves."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.claims import Claim
from holdlog.adapters.operations.values import SetValue
from holdlog.domain.claims.commands import Acquire, Call, Release
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.refusals import FencedError

ANN, BEN = Caller("s-ann"), Caller("s-ben")
STEP = 20


class Clock:
    """Seconds by which the steady clock is ahead."""

    shift = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, now = Clock(), time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: now() + clock.shift * 1_000_000_000)
    return clock


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Opens a server's engine."""
    engines: list[Engine] = []

    def start() -> Engine:
        engines.append(open_engine(tmp_path / "state.db"))
        return engines[-1]

    yield start
    for each in engines:
        each.close()


def write(engine: Engine, agent: str, caller: Caller) -> Any:
    command = {"namespace": "n", "key": agent, "value": 1, "updated_by": agent}
    return engine.run(SetValue.parse(command), caller)


def is_free(engine: Engine, resource: str = "a.md") -> bool:
    status = engine.run(Acquire(resource, "ben"), BEN).status
    return bool(status == "claimed")


def test_holder_without_a_process_lives_300_seconds_from_its_last_call_over_a_deploy(opened, clock):
    first, second = opened(), opened()
    version = first.run(Acquire("a.md", "ann"), ANN).version
    clock.shift += 290
    assert write(first, "ann", ANN).status == "ok"  # any call that names the agent
    first.close()
    clock.shift += 290
    assert not is_free(second)
    again = second.run(Acquire("a.md", "ann"), ANN)
    assert (again.status, again.version) == ("already_claimed", version)
    clock.shift += 301
    assert is_free(second)
    lost = [second.run(Acquire("b.md", "ann"), ANN).lost for _ in range(2)]
    assert [it and [(loss.resource, loss.held_by) for loss in it] for it in lost] == [[("a.md", "ben")], None]


def test_open_call_keeps_a_holder_without_a_process_until_its_end(opened, clock):
    engine = opened()
    engine.run(Acquire("a.md", "ann"), ANN)
    engine.run(Call("ann", begins="c-1", lasts=1800 * SECOND), ANN)
    clock.shift += 1000
    assert not is_free(engine)
    engine.run(Call("ann", ends="c-1"), ANN)
    clock.shift += 290
    assert not is_free(engine)
    engine.run(Call("ann", begins="c-2", lasts=1800 * SECOND), ANN)  # never ends
    clock.shift += 1790
    assert not is_free(engine)
    clock.shift += 20
    assert is_free(engine)


def test_open_call_does_not_keep_the_holder_of_a_process_that_stopped_beating(opened, clock):
    engine = opened()
    engine.run(Acquire("a.md", "ann"), ANN._replace(handle="elsewhere/1/1#1"))
    engine.run(Call("ann", begins="c-1", lasts=1800 * SECOND), ANN)
    engine.run(Call("ann", ends="c-2"), ANN)
    for _ in range(4):
        clock.shift += STEP
        write(engine, "ben", BEN)
    assert is_free(engine)


def test_receipt_stands_for_the_session_of_its_holder(opened, clock):
    """Its caller has another session each time, which the server made up."""
    engine = opened()
    first = engine.run(Acquire("a.md", "ann"), Caller("made-up-1", is_anonymous=True))
    assert first.receipt == "made-up-1"
    second = Caller("made-up-2", is_anonymous=True)
    assert engine.run(Acquire("a.md", "ann"), second).same_name
    clock.shift += 290
    engine.run(Acquire("b.md", "ann", receipt=first.receipt), second)  # a call for all that it holds
    clock.shift += 290
    assert not is_free(engine)
    clock.shift += 20
    again = engine.run(Acquire("c.md", "ann", receipt=first.receipt), second)
    assert (again.receipt, [loss.resource for loss in again.lost]) == ("made-up-1", ["a.md", "b.md"])
    assert is_free(engine)  # not revived
    assert engine.run(Release("ann", receipt=first.receipt), second).status == "released"


def test_caller_without_a_session_writes_and_releases_by_name_and_version(opened):
    engine, later = opened(), Caller("receipt-2", is_anonymous=True)
    version = engine.run(Acquire("a.md", "ann"), Caller("receipt-1", is_anonymous=True)).version
    engine.run(Acquire("b.md", "ann"), ANN)
    guarded = {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann"}
    assert engine.run(SetValue.parse(guarded | {"guard": [{"resource": "a.md", "version": version}]}), later)
    with pytest.raises(FencedError):
        engine.run(SetValue.parse(guarded | {"guard": [{"resource": "b.md", "version": 1}]}), later)
    for who, resource, caller in (("ben", "a.md", later), ("ann", "a.md", BEN), ("ann", "b.md", later)):
        assert engine.run(Release(who, resource), caller).status == "not_holder"
    assert engine.run(Release("ann", "a.md"), later).status == "released"


def test_repeated_claim_of_a_caller_without_a_session_is_its_first(opened):
    engine = opened()
    command = Claim.parse({"resource": "a.md", "agent": "ann", "also": ["b.md"]})
    callers = [Caller(f"receipt-{number}", request_id="r", is_anonymous=True) for number in (1, 2, 3)]
    first, second = (engine.run(command, caller) for caller in callers[:2])
    assert (second.receipt, second.version, second.also) == (first.receipt, first.version, first.also)
    assert second.expires_in_seconds < first.expires_in_seconds
    engine.run(Release("ann", "b.md", receipt=first.receipt), callers[2]._replace(request_id=None))
    assert (engine.run(command, callers[2]).status, engine.run(command, callers[2]).resource) == ("expired", "b.md")


def test_holders_that_ended_and_hold_nothing_are_forgotten(opened, clock):
    engine = opened()
    for number in range(100):
        for command in (Acquire("a.md", f"ann-{number}"), Release(f"ann-{number}", "a.md")):
            engine.run(command, ANN)
    clock.shift += 301
    for _ in range(256):
        write(engine, "ben", BEN)
    assert engine.store.read("SELECT count(*) FROM holders", {}) == [(0,)]
