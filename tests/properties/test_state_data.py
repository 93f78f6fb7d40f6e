"""Two States of one thread against plain data: an edit, assignment or update does to the log what it does to a plain
copy; or it conflicts or is refused, and then nothing happened."""

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pydantic import BaseModel

from holdlog import DataConflictError, State, StateStore, create_state

WHICH = st.sampled_from([0, 1])
KEYS = st.sampled_from(["a", "b", "c", "é/1"])
INDEXES = st.integers(-3, 3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "", "x"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(KEYS, parts, max_size=3),
    max_leaves=6,
)
REFUSED = (LookupError, ValueError, TypeError)
Change = Callable[[Any], object]


def of_a_dict(key: str, value: Any) -> list[Change]:
    return [
        lambda it: it.__setitem__(key, value),
        lambda it: it.__delitem__(key),
        lambda it: it.update({key: value, "c": 1}),
        lambda it: it.pop(key),
        lambda it: it.setdefault(key, value),
        lambda it: it.__ior__({key: value}),
        lambda it: it.clear(),
        lambda it: it.__setitem__("b", it[key]),
    ]


def of_a_list(index: int, value: Any) -> list[Change]:
    return [
        lambda it: it.append(value),
        lambda it: it.insert(index, value),
        lambda it: it.pop(index),
        lambda it: it.__setitem__(index, value),
        lambda it: it.__setitem__(slice(index, None), [value] * 2),
        lambda it: it.__delitem__(slice(index, None)),
        lambda it: it.extend([value, 1]),
        lambda it: it.remove(value),
        lambda it: it.sort(key=repr),
        lambda it: it.__imul__(2),
        lambda it: it.clear(),
    ]


def of_a_set(value: Any) -> list[Change]:
    return [
        lambda it: it.add(f"{value}"),
        lambda it: it.remove("x"),
        lambda it: it.update(["x", "y"]),
        lambda it: it.__ixor__({"x", "z"}),
        lambda it: it.clear(),
    ]


class Step(BaseModel):
    title: str = ""
    notes: list[str] = []
    facts: dict[str, Any] = {}


class Board(BaseModel):
    goal: str = ""
    steps: list[Step] = []
    by_name: dict[str, Step] = {}
    tags: set[str] = set()
    first: Step | None = None


def fields(value: Any) -> dict[str, Any]:
    return {
        "title": f"{value}",
        "notes": ["n", f"{value}"],
        "facts": {"v": value},
        "goal": f"{value}",
        "steps": [Step(title="s"), Step(facts={"v": value})],
        "by_name": {"b": Step()},
        "tags": {f"{value}"},
        "first": Step(title="first"),
    }


def of_a_model(model: Any, value: Any) -> list[Change]:
    known = [(name, part) for name, part in fields(value).items() if name in type(model).model_fields]
    made: list[Change] = [lambda it, name=name, part=part: setattr(it, name, part) for name, part in known]  # type: ignore[misc]
    return [*made, *(lambda it, name=name: setattr(it, name, 7) for name, _ in known)]  # type: ignore[misc]


def changes(part: Any, key: str, index: int, value: Any) -> list[Change]:
    match part:
        case dict():
            return of_a_dict(key, value)
        case list():
            return of_a_list(index, value)
        case set():
            return of_a_set(value)
        case _:
            return of_a_model(part, value)


def parts(whole: Any) -> list[Any]:
    """Everything in data that can be changed, from the top, in an order that equal data share."""
    match whole:
        case dict():
            below = [whole[key] for key in sorted(whole)]
        case list():
            below = list(whole)
        case BaseModel():
            below = [getattr(whole, name) for name in type(whole).model_fields]
        case set():
            below = []
        case _:
            return []
    return [whole, *(found for part in below for found in parts(part))]


class Choice(NamedTuple):
    """The `which`th change of the `part`th part."""

    part: int
    which: int
    key: str
    index: int
    value: Any

    def make(self, whole: Any) -> None:
        found = parts(whole)
        part = found[self.part % len(found)]
        possible = changes(part, self.key, self.index, copy.deepcopy(self.value))
        possible[self.which % len(possible)](part)


CHOICES = st.lists(
    st.builds(Choice, st.integers(0, 9), st.integers(0, 12), KEYS, INDEXES, VALUES), min_size=1, max_size=3
)


class Shown:
    """What one State should show."""

    def __init__(self, state: State[Any], plain: Any, version: int) -> None:
        self.state = state
        self.plain = copy.deepcopy(plain)
        self.version = version


class Machine(RuleBasedStateMachine):
    beginning: Any

    def __init__(self) -> None:
        super().__init__()
        self.store = StateStore(":memory:")
        self.truth = copy.deepcopy(self.beginning)
        self.version = 2
        self.shown = [Shown(self.opened(), self.truth, self.version) for _ in range(2)]

    def opened(self) -> State[Any]:
        return create_state(self.beginning, thread_id="t", store=self.store)

    # --- what may happen

    @rule(which=WHICH, chosen=CHOICES)
    def edit(self, which: int, chosen: list[Choice]) -> None:
        def edit(state: State[Any]) -> None:
            with state.edit() as data:
                for choice in chosen:
                    choice.make(data)

        self.change(self.shown[which], edit, lambda data: [choice.make(data) for choice in chosen])

    @rule(which=WHICH, key=KEYS, value=VALUES)
    def assign_a_key_or_field(self, which: int, key: str, value: Any) -> None:
        shown = self.shown[which]
        if isinstance(shown.plain, dict):
            self.change(
                shown, lambda state: state.data.__setitem__(key, value), lambda data: data.__setitem__(key, value)
            )
        else:
            for name in type(shown.plain).model_fields:
                part = fields(value)[name]
                self.change(
                    shown,
                    lambda state, name=name, part=part: setattr(state.data, name, part),  # type: ignore[misc]
                    lambda data, name=name, part=part: setattr(data, name, copy.deepcopy(part)),  # type: ignore[misc]
                )

    @rule(which=WHICH, key=KEYS)
    def delete_a_key(self, which: int, key: str) -> None:
        shown = self.shown[which]
        if isinstance(shown.plain, dict):
            self.change(shown, lambda state: state.data.__delitem__(key), lambda data: data.__delitem__(key))

    @rule(which=WHICH, key=KEYS, value=VALUES)
    def set_and_delete_keys(self, which: int, key: str, value: Any) -> None:
        shown = self.shown[which]
        if isinstance(shown.plain, dict):
            self.change(shown, lambda state: state.kv.set(key, value), lambda data: data.__setitem__(key, value))
            self.change(shown, lambda state: state.kv.delete("a"), lambda data: data.pop("a", None))

    @rule(which=WHICH, chosen=CHOICES)
    def assign_all_data(self, which: int, chosen: list[Choice]) -> None:
        new = copy.deepcopy(self.beginning)
        made = after(new, lambda data: [choice.make(data) for choice in chosen])
        if made is not None:
            self.change(self.shown[which], lambda state: setattr(state, "data", new), lambda _: None, made)

    @rule(which=WHICH, chosen=CHOICES)
    def update(self, which: int, chosen: list[Choice]) -> None:
        shown = self.shown[which]
        shown.plain, shown.version = copy.deepcopy(self.truth), self.version
        make = lambda data: [choice.make(data) for choice in chosen]  # noqa: E731
        self.change(shown, lambda state: state.update(make), make)

    @rule(which=WHICH)
    def refresh(self, which: int) -> None:
        shown = self.shown[which]
        assert shown.state.refresh() == (shown.version != self.version)
        shown.plain, shown.version = copy.deepcopy(self.truth), self.version

    @rule(which=WHICH)
    def open_again(self, which: int) -> None:
        self.shown[which] = Shown(self.opened(), self.truth, self.version)

    # --- what must be

    def change(self, shown: Shown, make: Callable[[State[Any]], Any], plainly: Change, whole: Any = None) -> None:
        expected = after(copy.deepcopy(shown.plain), plainly) if whole is None else whole
        events = shown.state.version
        if expected is None:
            with pytest.raises((*REFUSED, DataConflictError)):
                make(shown.state)
        elif shown.version != self.version:
            with pytest.raises(DataConflictError):
                make(shown.state)
        else:
            make(shown.state)
            shown.version = self.version = shown.state.data_version
            shown.plain, self.truth = expected, copy.deepcopy(expected)
            return
        assert shown.state.version == events

    @invariant()
    def all_agree(self) -> None:
        for shown in self.shown:
            assert same(shown.state.data, shown.plain)
            assert shown.state.data_version == shown.version
            if isinstance(shown.plain, dict):
                assert same(shown.state.kv.all(), shown.plain)
                assert list(shown.state.data) == sorted(shown.plain)
        raw = self.shown[0].state.raw
        assert same(raw if isinstance(self.truth, dict) else type(self.truth).model_validate(raw), self.truth)

    def teardown(self) -> None:
        state = self.opened()
        assert same(state.data, self.truth)
        assert same(state.clone().data, self.truth)
        self.store.close()


def after(whole: Any, change: Change) -> Any:
    """Plain data after a change, as a program that opens the thread reads it; None if the change is refused."""
    try:
        change(whole)
        return (
            type(whole).model_validate_json(whole.model_dump_json(warnings=False))
            if isinstance(whole, BaseModel)
            else json.loads(json.dumps(whole))
        )
    except REFUSED:
        return None


def same(one: Any, other: Any) -> bool:
    """1, 1.0 and True differ."""
    return bool(one == other) and as_json(one) == as_json(other)


def as_json(value: Any) -> str:
    def default(part: Any) -> Any:
        return sorted(part) if isinstance(part, set) else part.model_dump()

    return json.dumps(value, sort_keys=True, default=default)


class OfADict(Machine):
    beginning = {"a": {"b": [1, {"c": 2}]}, "b": [[], {}]}  # noqa: RUF012


class OfAModel(Machine):
    beginning = Board(steps=[Step(title="a"), Step(facts={"a": [1, {}]})], tags={"x"}, first=Step())


MACHINE = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)


@pytest.mark.check
def test_any_sequence_of_changes_of_a_state_equals_that_of_a_dict() -> None:
    run_state_machine_as_test(OfADict, settings=MACHINE)  # type: ignore[no-untyped-call]


@pytest.mark.check
def test_any_sequence_of_changes_of_a_state_equals_that_of_a_model() -> None:
    run_state_machine_as_test(OfAModel, settings=MACHINE)  # type: ignore[no-untyped-call]
