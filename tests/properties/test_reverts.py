"""A revert restores what a run of random histories changed, touches nothing else, and is undone by a second one."""

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.runtime.engine import Engine
from tests.support.runs import Runs

RUNS: Final = ("bad", "ann", "bob")
_NUMBERS: Final = count()


class Step(NamedTuple):
    """`value` None: a deletion, if there is something to delete."""

    run: str
    key: str
    value: int | None


STEPS = st.lists(
    st.builds(Step, st.sampled_from(RUNS), st.sampled_from("abc"), st.none() | st.integers(0, 2)), max_size=12
)


def take(runs: Runs, step: Step) -> bool:
    if step.value is not None:
        runs.put(step.run, step.key, step.value)
    elif step.key in runs.now():
        runs.drop(step.run, step.key)
    else:
        return False
    return True


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    places = {"memory": lambda: MEMORY, "sqlite": lambda: str(tmp_path / "state.db")}
    opened = open_holdlog(places.get(request.param, lambda: str(request.getfixturevalue("postgres")))())
    yield opened
    opened.close()


def expected(steps: list[Step]) -> tuple[dict[str, int], set[str]]:
    """The values after a revert of `bad`, and the keys that it leaves alone although `bad` wrote them."""
    values, left = dict[str, int](), set[str]()
    for key in "abc":
        history = [(it.run, it.value) for it in steps if it.key == key]
        block = len(list(takewhile(lambda made: made[0] == "bad", reversed(history))))
        base = history[: len(history) - block]
        if any(run == "bad" for run, _ in base) or (not block and any(run == "bad" for run, _ in history)):
            left.add(key)
            base = history
        if base and (value := base[-1][1]) is not None:
            values[key] = value
    return values, left


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_revert_restores_what_was_before_and_a_second_one_restores_everything(
    engine: Engine, steps: list[Step]
) -> None:
    runs = Runs(engine, f"n{next(_NUMBERS)}")
    taken = [step for step in steps if take(runs, step)]
    before = runs.now()
    values, left = expected(taken)
    first = runs.revert(session="bad", namespace=runs.namespace)
    assert runs.now() == values
    assert {it.key for it in first.kept_as_is if it.reason != "unchanged"} == left
    if first.correlation_id is not None:
        second = runs.revert(correlation_id=first.correlation_id)
        assert runs.now() == before
        assert {it.key for it in second.reverted} == {it.key for it in first.reverted}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS | st.sampled_from(RUNS), max_size=5))
def test_two_reverts_restore_everything_whatever_was_reverted_before(
    engine: Engine, steps: list[list[Step] | str]
) -> None:
    """A name means a revert of that run."""
    runs = Runs(engine, f"n{next(_NUMBERS)}")
    for step in steps:
        if isinstance(step, str):
            runs.revert(by=f"boss of {step}", session=step, namespace=runs.namespace)
        else:
            for each in step:
                take(runs, each)
    before, count = runs.now(), len(runs.events())
    first = runs.revert(session="bad", namespace=runs.namespace)
    restored = {it.key for it in first.reverted}
    assert {key: value for key, value in runs.now().items() if key not in restored} == {
        key: value for key, value in before.items() if key not in restored
    }
    assert len(runs.events()) == count + len(restored)
    if first.correlation_id is not None:
        second = runs.revert(correlation_id=first.correlation_id)
        assert {it.key for it in second.reverted} == restored
    assert runs.now() == before
