"""Whatever is done to live data, by whichever of two States, does to the log what it does to plain data; or conflicts,
and then nothing happened."""

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pydantic import BaseModel

from holdlog import DataConflictError, InvalidError, State, StateStore, create_state

WHICH = st.sampled_from([0, 1])
KEYS = st.sampled_from(["a", "b", "c", "é/1"])
INDEXES = st.integers(-3, 3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "", "x"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(KEYS, parts, max_size=3),
    max_leaves=6,
)


class Change(NamedTuple):
    """`make` is done to a live part and to its plain twin. `quiet` tells of a twin that nothing would be written."""

    make: Callable[[Any], object]
    quiet: Callable[[Any], bool] = lambda twin: False


def of_a_dict(key: str, value: Any) -> list[Change]:
    return [
        Change(lambda it: it.__setitem__(key, copy.deepcopy(value))),
        Change(lambda it: it.__delitem__(key)),
        Change(lambda it: it.update({key: copy.deepcopy(value), "c": 1})),
        Change(lambda it: it.pop(key)),
        Change(lambda it: it.pop(key, None)),
        Change(lambda it: it.popitem()),
        Change(lambda it: it.setdefault(key, copy.deepcopy(value)), lambda twin: key in twin),
        Change(lambda it: it.__ior__({key: copy.deepcopy(value)})),
        Change(lambda it: it.clear()),
        Change(lambda it: it.__setitem__("b", copy.deepcopy(it[key])), lambda twin: key == "b"),
    ]


def of_a_list(index: int, value: Any) -> list[Change]:
    return [
        Change(lambda it: it.append(copy.deepcopy(value))),
        Change(lambda it: it.insert(index, copy.deepcopy(value))),
        Change(lambda it: it.pop(index)),
        Change(lambda it: it.__setitem__(index, copy.deepcopy(value))),
        Change(lambda it: it.__delitem__(index)),
        Change(lambda it: it.__setitem__(slice(index, None), [copy.deepcopy(value)] * 2)),
        Change(lambda it: it.__delitem__(slice(index, None))),
        Change(lambda it: it.extend([copy.deepcopy(value), 1])),
        Change(lambda it: it.remove(value)),
        Change(lambda it: it.sort(key=repr)),
        Change(lambda it: it.reverse()),
        Change(lambda it: it.__imul__(2)),
        Change(lambda it: it.clear()),
    ]


def of_a_set(value: Any) -> list[Change]:
    return [
        Change(lambda it: it.add(f"{value}")),
        Change(lambda it: it.discard("x")),
        Change(lambda it: it.remove("x")),
        Change(lambda it: it.update(["x", "y"])),
        Change(lambda it: it.__ixor__({"x", "z"})),
        Change(lambda it: it.clear()),
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


def of_a_model(model: Any, value: Any) -> list[Change]:
    fields: dict[str, Any] = {
        "title": f"{value}",
        "notes": ["n", f"{value}"],
        "facts": {"v": value},
        "goal": f"{value}",
        "steps": [Step(title="s"), Step(facts={"v": value})],
        "by_name": {"b": Step()},
        "tags": {f"{value}"},
        "first": Step(title="first"),
    }
    right = [name for name in fields if name in type(model).model_fields]
    made = [Change(lambda it, name=name: setattr(it, name, copy.deepcopy(fields[name]))) for name in right]  # type: ignore[misc]
    return [*made, *(Change(lambda it, name=name: setattr(it, name, 7)) for name in right)]  # type: ignore[misc]


class Shown:
    """What one State should show: `twin`, plain; at `version`. `held`: parts of it, with their twins."""

    def __init__(self, state: State[Any]) -> None:
        self.state = state
        self.twin: Any = copy.deepcopy(state.data)
        self.version = state.data_version


class Held(NamedTuple):
    live: Any
    twin: Any
    root: Any


def parts(live: Any, twin: Any) -> list[tuple[Any, Any]]:
    """Everything that can be changed, from the top."""
    if isinstance(twin, dict):
        below = [(live[key], twin[key]) for key in twin]
    elif isinstance(twin, list):
        below = list(zip(live, twin, strict=True))
    elif isinstance(twin, BaseModel):
        below = [(getattr(live, name), getattr(twin, name)) for name in type(twin).model_fields]
    elif isinstance(twin, set):
        below = []
    else:
        return []
    return [(live, twin), *(found for pair in below for found in parts(*pair))]


def apart(part: Any, seen: set[int]) -> Any:
    """The twin of data in which nothing is in two places."""
    if not isinstance(part, dict | list | set | BaseModel):
        return part
    if id(part) in seen:
        part = copy.deepcopy(part)
    seen.add(id(part))
    if isinstance(part, dict):
        for key in part:
            part[key] = apart(part[key], seen)
    elif isinstance(part, list):
        part[:] = [apart(it, seen) for it in part]
    elif isinstance(part, BaseModel):
        for name, value in part.__dict__.items():
            part.__dict__[name] = apart(value, seen)
    return part


class Machine(RuleBasedStateMachine):
    beginning: Any

    def __init__(self) -> None:
        super().__init__()
        self.store = StateStore(":memory:")
        states = [create_state(self.beginning, thread_id="t", store=self.store) for _ in range(2)]
        self.shown = [Shown(state) for state in states]
        self.truth = copy.deepcopy(self.shown[0].twin)
        self.version = self.shown[0].version
        self.held: list[Held] = []
        self.others: list[Shown] = []

    # --- what may happen

    @rule(which=WHICH, data=st.data(), key=KEYS, index=INDEXES, value=VALUES)
    def change_a_part(self, which: int, data: Any, key: str, index: int, value: Any) -> None:
        shown = self.shown[which]
        live, twin = data.draw(st.sampled_from(parts(shown.state.data, shown.twin)))
        self.do(shown, live, twin, data.draw(st.sampled_from(changes(twin, key, index, value))))

    @rule(which=WHICH, data=st.data())
    def hold_a_part(self, which: int, data: Any) -> None:
        shown = self.shown[which]
        live, twin = data.draw(st.sampled_from(parts(shown.state.data, shown.twin)))
        self.held.append(Held(live, twin, shown.twin))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), key=KEYS, index=INDEXES, value=VALUES)
    def change_a_held_part(self, data: Any, key: str, index: int, value: Any) -> None:
        held = data.draw(st.sampled_from(self.held))
        change = data.draw(st.sampled_from(changes(held.twin, key, index, value)))
        shown = next((it for it in (*self.shown, *self.others) if it.twin is held.root), None)
        if shown is not None:
            self.do(shown, held.live, held.twin, change)
        elif is_in(held.twin, held.root):
            self.refused(lambda: change.make(held.live), held.twin, change)
        else:
            self.both(held.live, held.twin, change)
        assert held.live == held.twin

    @rule(which=WHICH, key=KEYS, value=VALUES)
    def set_a_key(self, which: int, key: str, value: Any) -> None:
        shown = self.shown[which]
        if isinstance(shown.twin, dict):
            change = Change(lambda it: it.__setitem__(key, copy.deepcopy(value)))
            self.do(shown, shown.state.data, shown.twin, change, lambda: shown.state.kv.set(key, value))

    @rule(which=WHICH, key=KEYS)
    def delete_a_key(self, which: int, key: str) -> None:
        shown = self.shown[which]
        if isinstance(shown.twin, dict):
            change = Change(lambda it: it.pop(key, None))
            self.do(shown, shown.state.data, shown.twin, change, lambda: shown.state.kv.delete(key))

    @rule(which=WHICH)
    def refresh(self, which: int) -> None:
        shown = self.shown[which]
        assert shown.state.refresh() == (shown.version != self.version)
        if shown.version != self.version:
            self.shown[which] = Shown(shown.state)

    @rule(which=WHICH, data=st.data(), key=KEYS, index=INDEXES, value=VALUES)
    def update(self, which: int, data: Any, key: str, index: int, value: Any) -> None:
        shown = self.shown[which]
        wanted = self.truth

        def decide(copied: Any) -> None:
            nonlocal wanted
            assert same(copied, self.truth)
            _, target = data.draw(st.sampled_from(parts(copied, copied)))
            data.draw(st.sampled_from(changes(target, key, index, value))).make(target)
            wanted = fits(apart(copy.deepcopy(copied), set()))

        try:
            shown.state.update(decide)
        except (LookupError, ValueError, TypeError):
            wanted = self.truth
        self.truth, self.version = wanted, shown.state.data_version
        if shown.version != self.version:
            self.shown[which] = Shown(shown.state)

    @rule(which=WHICH)
    def open_again(self, which: int) -> None:
        again = create_state(self.beginning, thread_id="t", store=self.store)
        assert same(again.data, self.truth)
        self.others.append(self.shown[which])
        self.shown[which] = Shown(again)

    # --- what must be

    def do(
        self, shown: Shown, live: Any, twin: Any, change: Change, instead: Callable[[], object] | None = None
    ) -> None:
        make = instead or (lambda: change.make(live))
        if not is_in(twin, shown.twin):
            self.both(live, twin, change)
        elif shown.version != self.version:
            self.refused(make, twin, change)
        elif self.goes(shown.twin, twin, change):
            make()
            put(shown.twin, twin, change)
            self.truth = copy.deepcopy(shown.twin)
            self.version = shown.version = shown.state.data_version
        else:
            before = shown.state.version
            try:
                make()
            except (LookupError, ValueError, TypeError):
                assert shown.state.version == before
            else:
                raise AssertionError("what plain data refuses was taken")

    def goes(self, root: Any, twin: Any, change: Change) -> bool:
        whole, target = copy.deepcopy((root, twin))
        try:
            change.make(target)
            fits(whole)
        except (LookupError, ValueError, TypeError):
            return False
        return True

    def refused(self, make: Callable[[], object], twin: Any, change: Change) -> None:
        """By its version; or, before that, for what it is."""
        try:
            make()
        except (DataConflictError, InvalidError, LookupError, ValueError, TypeError):
            return
        assert change.quiet(twin)

    def both(self, live: Any, twin: Any, change: Change) -> None:
        """It is nobody's."""
        try:
            change.make(twin)
        except (LookupError, ValueError, TypeError) as error:
            try:
                change.make(live)
            except type(error):
                return
            raise AssertionError("only the twin refused") from error
        change.make(live)
        apart(twin, set())

    @invariant()
    def all_agree(self) -> None:
        for shown in self.shown:
            assert same(shown.state.data, shown.twin)
            assert shown.state.data_version == shown.version
        raw = self.shown[0].state.raw
        if isinstance(self.truth, dict):
            assert same(raw, self.truth)
            assert all(same(shown.state.kv.all(), shown.twin) for shown in self.shown)
        else:
            assert type(self.truth).model_validate(raw) == self.truth

    def teardown(self) -> None:
        state = create_state(self.beginning, thread_id="t", store=self.store)
        assert same(state.data, self.truth)
        assert same(state.clone().data, self.truth)
        self.store.close()


def changes(twin: Any, key: str, index: int, value: Any) -> list[Change]:
    match twin:
        case dict():
            return of_a_dict(key, value)
        case list():
            return of_a_list(index, value)
        case set():
            return of_a_set(value)
        case _:
            return of_a_model(twin, value)


def put(root: Any, twin: Any, change: Change) -> None:
    """The change, made to the twin: what a State shows is what its model reads, and what is equal stays what it is."""
    before = dict(twin) if twin is root and isinstance(root, dict) else {}
    change.make(twin)
    for key, value in before.items():
        if key in twin and as_json(twin[key]) == as_json(value):
            twin[key] = value
    apart(root, set())
    if isinstance(root, BaseModel):
        settle(root, fits(root))


def settle(twin: Any, read: Any) -> Any:
    """`twin` with what the model made of it."""
    if type(twin) is not type(read):
        return read
    if isinstance(twin, dict):
        for key in twin:
            twin[key] = settle(twin[key], read[key])
    elif isinstance(twin, list):
        twin[:] = [settle(*pair) for pair in zip(twin, read, strict=True)]
    elif isinstance(twin, BaseModel):
        for name in type(twin).model_fields:
            twin.__dict__[name] = settle(twin.__dict__[name], read.__dict__[name])
    elif not isinstance(twin, set):
        return read
    return twin


def fits(root: Any) -> Any:
    """As it is read again; else ValueError."""
    return type(root).model_validate_json(root.model_dump_json(warnings=False)) if isinstance(root, BaseModel) else root


def is_in(part: Any, root: Any) -> bool:
    return any(it is part for _, it in parts(root, root))


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
def test_live_objects_behave_like_plain_ones() -> None:
    run_state_machine_as_test(OfADict, settings=MACHINE)  # type: ignore[no-untyped-call]


@pytest.mark.check
def test_live_models_behave_like_plain_ones() -> None:
    run_state_machine_as_test(OfAModel, settings=MACHINE)  # type: ignore[no-untyped-call]
