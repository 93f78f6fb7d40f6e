"""`state.data` as a pydantic model: an assignment is an event, it stays what the model allows, and the log has it field
by field."""

import collections
import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from holdlog import DataConflictError, InvalidError, State, StateStore, create_state

Item = TypeVar("Item")


class Step(BaseModel):
    title: str
    done: bool = False
    notes: list[str] = []


class Plan(BaseModel):
    goal: str = ""
    steps: list[Step] = []
    by_name: dict[str, Step] = {}
    tags: set[str] = set()
    due: date | None = None
    first: Step | None = None
    pair: tuple[int, list[int]] = (0, [])


def reopened(state: State[Any]) -> Any:
    """The data as a program that opens the thread now reads them."""
    return state.at(version=state.version).data


def agreed(state: State[Any]) -> None:
    assert reopened(state) == state.data
    assert isinstance(state.data, type(reopened(state)))
    assert state.raw == state.kv.all()


def plan() -> State[Plan]:
    return create_state(
        Plan(goal="g", steps=[Step(title="a"), Step(title="b")], by_name={"x": Step(title="c")}, tags={"t"})
    )


def edited(state: State[Any], change: Callable[[Any], object]) -> None:
    with state.edit() as data:
        change(data)


def test_assigning_a_field_is_one_event() -> None:
    state = plan()
    data = state.data
    before = state.version
    data.goal = "h"
    data.goal += "i"
    data.steps = [*data.steps, Step(title="z")]
    data.tags = data.tags | {"u"}
    data.due = date(2026, 1, 2)
    data.first = data.steps[0]
    data.pair = (1, [2])
    assert state.version - before == 7
    agreed(state)
    assert data is state.data
    assert data == Plan(
        goal="hi",
        steps=[Step(title="a"), Step(title="b"), Step(title="z")],
        by_name={"x": Step(title="c")},
        tags={"t", "u"},
        due=date(2026, 1, 2),
        first=Step(title="a"),
        pair=(1, [2]),
    )
    assert state.kv.get("due") == "2026-01-02"
    assert sorted(state.kv.get("tags")) == ["t", "u"]


def change_everything(data: Plan) -> None:
    data.goal = "h"
    data.steps.append(Step(title="z"))
    data.steps[0].done = True
    data.steps[0].notes += ["note"]
    data.by_name["y"] = data.steps[0]
    data.by_name["x"].notes.append("n")
    data.tags |= {"v"}
    data.tags -= {"t"}
    data.first = Step(title="f")
    data.first.title = "ff"
    data.pair[1].append(3)


def test_edit_of_a_model_changes_anything_with_one_event() -> None:
    state = plan()
    before = state.version
    edited(state, change_everything)
    assert state.version - before == 1
    agreed(state)
    expected = plan().data.model_copy(deep=True)
    change_everything(expected)
    assert state.data == expected
    edited(state, lambda data: None)
    assert state.version - before == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.steps.append(Step(title="z")),
        lambda data: data.steps.__setitem__(0, Step(title="z")),
        lambda data: data.steps.sort(key=repr),
        lambda data: data.by_name.update(y=Step(title="z")),
        lambda data: data.by_name.pop("x"),
        lambda data: data.pair[1].append(3),
        lambda data: data.tags.add("b"),
        lambda data: data.tags.discard("t"),
        lambda data: data.tags.remove("t"),
        lambda data: data.tags.pop(),
        lambda data: data.tags.clear(),
        lambda data: data.tags.update(["x"], iter("yz")),
        lambda data: data.tags.difference_update(["t"]),
        lambda data: data.tags.intersection_update(["a"]),
        lambda data: data.tags.symmetric_difference_update(["a"]),
        lambda data: data.tags.__ior__({"b"}),
        lambda data: data.tags.__iand__({"b"}),
        lambda data: data.tags.__isub__({"t"}),
        lambda data: data.tags.__ixor__({"b"}),
    ],
)
def test_change_inside_of_a_field_is_refused_with_the_remedy(change: Any) -> None:
    state = plan()
    before, shown = state.version, state.data.model_copy()
    with pytest.raises(InvalidError, match=r"`with state\.edit\(\) as data:`, or assign the whole value"):
        change(state.data)
    assert state.version == before
    assert state.data == shown
    agreed(state)
    assert repr(state.data.tags) == repr(set(state.data.tags))


def test_nested_model_is_a_detached_copy() -> None:
    state = plan()
    step = state.data.steps[0]
    step.title = "mine"
    step.notes.append("mine")
    state.data.by_name["x"].title = "mine"
    assert type(step) is Step
    assert state.data.steps[0] == Step(title="a")
    agreed(state)
    state.data.steps = [step]
    assert state.data.steps == [Step(title="mine", notes=["mine"])]
    agreed(state)


def test_data_is_an_instance_of_its_model() -> None:
    state = plan()
    mine = Plan(goal="g", steps=[Step(title="a"), Step(title="b")], by_name={"x": Step(title="c")}, tags={"t"})
    assert isinstance(state.data, Plan)
    assert isinstance(state.data.steps[0], Step)
    assert state.data == mine
    assert mine == state.data
    assert state.data == plan().data
    assert state.data != Plan()
    assert mine.steps == state.data.steps
    assert state.data.steps == mine.steps
    assert repr(state.data) == repr(mine)
    assert str(state.data) == str(mine)
    assert dict(state.data) == dict(mine)
    assert state.data.model_dump() == mine.model_dump()
    assert json.loads(state.data.model_dump_json()) == json.loads(mine.model_dump_json())
    assert state.data.model_dump(include={"goal"}) == {"goal": "g"}
    assert state.data.model_json_schema() == Plan.model_json_schema()
    assert Plan.model_validate(state.data) == mine
    assert TypeAdapter(list[Plan]).dump_json([state.data]) == TypeAdapter(list[Plan]).dump_json([mine])
    match state.data:
        case Plan(goal=goal):
            assert goal == "g"


def test_data_of_one_state_is_the_data_of_another() -> None:
    one = plan()
    two = create_state(one.data)
    assert two.data == one.data
    one.data.goal = "h"
    two.data = one.data
    assert two.raw == one.raw
    agreed(two)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), lambda it: it.model_copy(deep=True)],
)
def test_copy_of_a_model_is_plain(copied: Any) -> None:
    state = plan()
    before = state.version
    mine = copied(state.data)
    assert type(mine) is Plan
    assert type(mine.steps[0]) is Step
    assert mine == state.data
    mine.goal = "mine"
    mine.steps[0].title = "mine"
    assert state.version == before
    assert state.data.steps[0].title == "a"


def test_value_assigned_to_a_field_is_copied() -> None:
    state = plan()
    mine = Step(title="mine")
    state.data.first = mine
    mine.title = "still mine"
    assert state.data.first == Step(title="mine")
    agreed(state)


def test_value_coerced_by_the_model_is_shown_as_coerced() -> None:
    state = plan()
    edited(state, lambda data: data.steps.append({"title": "from a dict"}))
    state.data.due = "2026-03-04"  # type: ignore[assignment]
    state.data.tags = ["a", "a"]  # type: ignore[assignment]
    assert state.data.steps[2] == Step(title="from a dict")
    assert state.data.due == date(2026, 3, 4)
    assert state.data.tags == {"a"}
    agreed(state)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: setattr(data, "goal", 3),
        lambda data: setattr(data, "steps", [{"done": True}]),
        lambda data: data.steps.append("no step"),
        lambda data: data.steps.append(Step.model_construct(done=True)),
        lambda data: setattr(data.steps[0], "title", None),
        lambda data: data.by_name.update(ok=Step(title="ok"), bad=1),
        lambda data: data.tags.add(7),
        lambda data: data.pair[1].append("no number"),
        lambda data: setattr(data, "goal", object()),
        lambda data: data.steps.append(object()),
        lambda data: data.steps[0].notes.append("\ud800"),
        lambda data: setattr(data, "due", "secret-value"),
        lambda data: delattr(data.steps[0], "title"),
    ],
)
def test_invalid_change_of_a_model_is_refused_and_nothing_changed(change: Any) -> None:
    state = plan()
    before, shown = state.version, copy.deepcopy(state.data)
    with pytest.raises(InvalidError) as refused:
        edited(state, change)
    assert "\n" not in str(refused.value)
    assert "secret-value" not in str(refused.value)
    assert state.version == before
    assert state.data == shown
    agreed(state)


def test_validation_error_names_thread_and_field() -> None:
    state = create_state(Plan(), thread_id="build-1")
    with pytest.raises(InvalidError, match=r"^thread build-1: its data does not fit Plan: due: "):
        state.data.due = "tomorrow"  # type: ignore[assignment]


def test_keys_set_one_by_one_are_fields_of_the_model() -> None:
    state = plan()
    held = state.data
    state.kv.set("steps", [{"title": "k"}])
    state.kv.set("due", "2026-01-01")
    assert held.steps == [Step(title="k")]
    assert held.due == date(2026, 1, 1)
    edited(state, lambda data: setattr(data.steps[0], "done", True))
    assert state.kv.get("steps") == [{"title": "k", "done": True, "notes": []}]
    with pytest.raises(InvalidError):
        state.kv.set("steps", [{}])
    assert state.kv.delete("steps") is True
    assert state.kv.delete("steps") is False
    assert state.data.steps == []
    assert not state.kv.has("steps")
    state.data.steps = [Step(title="again")]
    agreed(state)


def test_deleted_field_shows_its_default() -> None:
    state = plan()
    del state.data.goal
    assert state.data.goal == ""
    assert not state.kv.has("goal")
    state.data.goal = "x"
    agreed(state)
    edited(state, lambda data: delattr(data, "goal"))
    assert state.data.goal == ""
    assert not state.kv.has("goal")


def test_required_field_cannot_be_deleted() -> None:
    state = create_state(Step(title="t"))
    with pytest.raises(InvalidError, match="title: is required"):
        del state.data.title
    with pytest.raises(InvalidError, match="title: is required"):
        state.kv.delete("title")
    assert state.data.title == "t"
    assert state.kv.get("title") == "t"


# --- a model and another version of it


class Before(BaseModel):
    goal: str
    left: int = 1


class After(BaseModel):
    goal: str
    files: dict[str, str] = {}
    made: datetime = Field(default_factory=lambda: datetime.now(UTC))


def test_unknown_keys_of_a_model_are_never_lost() -> None:
    with StateStore(":memory:") as store:
        create_state(Before(goal="g", left=7), thread_id="t", store=store)
        state = create_state(After, thread_id="t", store=store)
        assert state.data.goal == "g"
        assert not hasattr(state.data, "left")
        state.data.goal = "h"
        state.data.files = {"a": "1"}
        state.update(lambda data: setattr(data, "goal", "i"))
        state.data = After(goal="j")
        state.kv.set("more", [1])
        assert state.raw.keys() == {"goal", "left", "files", "made", "more"}
        assert state.kv.get("left") == 7
        assert create_state(Before, thread_id="t", store=store).data == Before(goal="j", left=7)
        assert state.clone().kv.get("left") == 7
        assert state.kv.delete("left") is True


def test_unstored_defaults_of_fields_are_shown_until_they_change() -> None:
    with StateStore(":memory:") as store:
        create_state(Before(goal="g"), thread_id="t", store=store)
        state = create_state(After, thread_id="t", store=store)
        made = state.data.made
        state.data.goal = "h"
        assert state.data.made == made
        assert not state.kv.has("made")
        assert state.kv.get("files", "none") == "none"
        state.data.files = {"a": "1"}
        assert state.kv.get("files") == {"a": "1"}
        assert not state.kv.has("made")


class Strict(BaseModel):
    goal: int


def test_model_that_does_not_fit_is_refused_and_stored_data_stays_readable() -> None:
    with StateStore(":memory:") as store:
        plain = create_state({"goal": "not a number", "x": 1}, thread_id="t", store=store)
        with pytest.raises(InvalidError) as refused:
            create_state(Strict, thread_id="t", store=store)
        assert str(refused.value).startswith("thread t: its data does not fit Strict: goal: must be a valid integer")
        assert "not a number" not in str(refused.value)
        assert create_state(dict, thread_id="t", store=store).data == {"goal": "not a number", "x": 1}
        plain.data["goal"] = 3
        state = create_state(Strict, thread_id="t", store=store)
        plain.data["goal"] = "again"
        with pytest.raises(InvalidError):
            state.refresh()
        assert state.data.goal == 3
        assert state.raw == {"goal": "again", "x": 1}
        assert state.at(version=2).data == {"goal": "not a number", "x": 1}
        assert state.at(version=3).data == Strict(goal=3)
        with pytest.raises(DataConflictError):
            state.data.goal = 4
        with pytest.raises(InvalidError):
            state.clone()
        with pytest.raises(InvalidError):
            state.update(lambda data: None)


def test_model_class_needs_defaults_only_for_a_new_thread() -> None:
    with StateStore(":memory:") as store:
        with pytest.raises(InvalidError, match="Before needs values for fields without a default: goal: is required"):
            create_state(Before, thread_id="t", store=store)
        create_state(Before(goal="g"), thread_id="t", store=store)
        assert create_state(Before, thread_id="t", store=store).data.goal == "g"
        assert create_state(Plan).kv.all().keys() == Plan.model_fields.keys()


# --- what pydantic can do


class Aliased(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    file_name: str = Field("a", alias="fileName")
    other: str = Field("b", validation_alias=AliasChoices("o", "p"), serialization_alias="q")


class Outer(BaseModel):
    inner: Aliased = Aliased()
    label: str = Field("", alias="theLabel")


def test_fields_are_stored_by_name_whatever_their_aliases() -> None:
    state = create_state(Outer)
    state.data.label = "l"
    edited(state, lambda data: setattr(data.inner, "file_name", "f"))
    edited(state, lambda data: setattr(data.inner, "other", "o"))
    assert state.raw == {"label": "l", "inner": {"file_name": "f", "other": "o"}}
    agreed(state)


class Counted(BaseModel):
    steps: list[str] = []
    hidden: list[int] = Field([], exclude=True)
    _calls: list[int] = PrivateAttr(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.steps)

    @cached_property
    def first(self) -> str:
        return self.steps[0]

    def add(self, step: str) -> int:
        self.steps = [*self.steps, step]
        return self.count

    def extend(self, steps: list[str]) -> None:
        self.steps.extend(steps)

    @property
    def last(self) -> str:
        return self.steps[-1]

    @last.setter
    def last(self, step: str) -> None:
        self.steps = [*self.steps[:-1], step]


def test_methods_and_properties_of_a_model_write_what_they_assign() -> None:
    state = create_state(Counted(steps=["a"]))
    assert state.data.add("b") == 2
    assert (state.data.count, state.data.first, state.data.last) == (2, "a", "b")
    state.data.last = "z"
    assert state.raw == {"steps": ["a", "z"]}
    with pytest.raises(InvalidError, match=r"state\.edit"):
        state.data.extend(["y"])
    edited(state, lambda data: data.extend(["y"]))
    assert state.raw == {"steps": ["a", "z", "y"]}
    assert state.data.first == "a"


def test_computed_private_and_excluded_fields_are_not_stored() -> None:
    state = create_state(Counted(steps=["a"], hidden=[1]))
    for change in (
        lambda: setattr(state.data, "hidden", [2]),
        lambda: setattr(state.data, "_calls", [5]),
        lambda: delattr(state.data, "_calls"),
    ):
        with pytest.raises(InvalidError, match="not stored"):
            change()
    with pytest.raises(AttributeError):
        state.data.count = 5  # type: ignore[misc]
    with state.edit() as data:
        data.hidden.append(2)
        data._calls.append(3)
    assert state.version == 2
    assert (state.data.hidden, state.data._calls) == ([], [])
    assert state.raw == {"steps": ["a"]}
    assert state.data.model_dump() == {"steps": ["a"], "count": 1}
    with pytest.raises(AttributeError, match="'Counted' object has no attribute 'none'"):
        state.data.none  # type: ignore[attr-defined]  # noqa: B018


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    goal: str = ""


def test_extra_fields_of_a_model_are_keys() -> None:
    state = create_state(Open.model_validate({"goal": "g", "more": {"a": [1]}}))
    data: Any = state.data
    data.new = {"x": 1}
    state.kv.set("third", [1])
    with pytest.raises(InvalidError, match=r"state\.edit"):
        data.more["a"].append(2)
    edited(state, lambda draft: (draft.more["a"].append(2), draft.third.append(2)))
    assert state.raw == {"goal": "g", "more": {"a": [1, 2]}, "new": {"x": 1}, "third": [1, 2]}
    agreed(state)
    del data.new
    edited(state, lambda draft: delattr(draft, "third"))
    assert not state.kv.has("new")
    assert not state.kv.has("third")
    assert not hasattr(data, "new")
    with pytest.raises(InvalidError):
        data.bad = object()
    with pytest.raises(InvalidError):
        setattr(data, "a\nb", 1)
    assert not hasattr(data, "bad")
    agreed(state)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    goal: str = ""


def test_model_that_forbids_extra_fields_is_respected() -> None:
    with StateStore(":memory:") as store:
        state = create_state(Closed, thread_id="t", store=store)
        with pytest.raises(InvalidError, match="more: unknown field of the model"):
            state.kv.set("more", 1)
        with pytest.raises(ValueError, match="no field"):
            state.data.more = 1  # type: ignore[attr-defined]
        assert state.raw == {"goal": ""}
        create_state(dict, thread_id="t", store=store).kv.set("more", 1)
        with pytest.raises(InvalidError, match="more: unknown field of the model"):
            create_state(Closed, thread_id="t", store=store)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    goal: str = ""
    files: dict[str, str] = {}


class WithFrozen(BaseModel):
    part: Frozen = Frozen()
    fixed: str = Field("", frozen=True)
    known: set[Frozen] = set()


def test_frozen_model_is_replaced_as_a_whole() -> None:
    state = create_state(Frozen(goal="g"))
    with pytest.raises(InvalidError):
        state.data.goal = "h"  # type: ignore[misc]
    state.data = state.data.model_copy(update={"goal": "h"})
    assert state.data.goal == "h"
    edited(state, lambda data: data.files.update(a="1"))
    state.update(lambda data: data.model_copy(update={"goal": "i"}))
    assert state.raw == {"goal": "i", "files": {"a": "1"}}
    agreed(state)


class Node(BaseModel):
    name: str = ""
    child: "Node | None" = None


def test_return_value_of_an_update_does_not_replace_a_mutable_model() -> None:
    state = create_state(Node(name="a", child=Node(name="b")))

    def rename(node: Node) -> Node:
        before = node.model_copy()
        node.name = "c"
        return before

    assert state.update(rename).name == "a"
    assert state.update(lambda node: node.child) == Node(name="b")
    assert state.data == Node(name="c", child=Node(name="b"))
    agreed(state)


def test_frozen_parts_of_a_model_are_respected() -> None:
    state = create_state(WithFrozen)
    with pytest.raises(ValidationError):
        edited(state, lambda data: setattr(data.part, "goal", "h"))
    with pytest.raises(InvalidError):
        state.data.fixed = "h"  # type: ignore[misc]
    state.data.part = Frozen(goal="h")
    assert state.raw["part"]["goal"] == "h"
    agreed(state)


class Checked(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    low: int = 0
    high: int = 10
    total: int = 10
    name: str = ""

    @field_validator("name")
    @classmethod
    def _lower(cls, value: str) -> str:
        return value.lower()

    @model_validator(mode="after")
    def _ordered(self) -> "Checked":
        if self.low > self.high:
            raise ValueError(f"low is above high: {self.low}")
        self.__dict__["total"] = self.low + self.high
        return self


@pytest.mark.parametrize("assigning", [True, False])
def test_validators_run_on_every_change(assigning: bool) -> None:
    class Here(Checked):
        model_config = ConfigDict(validate_assignment=assigning)

    state = create_state(Here)
    state.data.name = "ABC"
    state.data.low = 5
    assert state.data.name == "abc"
    assert state.raw == {"low": 5, "high": 10, "total": 15, "name": "abc"}
    with pytest.raises(InvalidError) as refused:
        state.data.low = 11
    assert "\n" not in str(refused.value)
    assert state.data.low == 5
    agreed(state)


class Moved(BaseModel):
    """Its field was called `title`."""

    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_before(cls, given: Any) -> Any:
        if isinstance(given, dict) and "title" in given and "name" not in given:
            return {**given, "name": given["title"]}
        return given


def test_model_may_convert_data_stored_by_its_previous_version() -> None:
    with StateStore(":memory:") as store:
        create_state({"title": "old"}, thread_id="t", store=store)
        state = create_state(Moved, thread_id="t", store=store)
        assert state.data.name == "old"
        state.data.name = "new"
        assert state.raw == {"title": "old", "name": "new"}
        agreed(state)


class Needs(BaseModel):
    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _with_a_title(cls, given: Any) -> Any:
        if isinstance(given, dict) and given and "title" not in given:
            raise ValueError("no title")
        return given


def test_validators_see_stored_keys_outside_the_fields() -> None:
    with StateStore(":memory:") as store:
        create_state({"title": "old"}, thread_id="t", store=store)
        state = create_state(Needs, thread_id="t", store=store)
        state.data.name = "new"
        assert state.raw == {"title": "old", "name": "new"}
        with pytest.raises(InvalidError, match="a validator rejected it"):
            state.kv.delete("title")
        agreed(state)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: list[int] = [9]


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Animal(BaseModel):
    name: str = ""


class Bird(Animal):
    wings: int = 2


class Zoo(BaseModel):
    animals: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    either: Animal | Bird | None = None


def test_unions_keep_the_type_they_hold() -> None:
    state = create_state(Zoo(either=Bird(name="b")))
    edited(state, lambda data: data.animals.extend([Dog(), Cat()]))
    assert isinstance(state.data.animals[0], Dog)
    edited(state, lambda data: data.animals[0].tricks.append("sit"))
    assert isinstance(state.data.either, Bird)
    edited(state, lambda data: setattr(data.either, "wings", 1))
    assert state.raw == {
        "animals": [{"kind": "dog", "tricks": ["sit"]}, {"kind": "cat", "lives": [9]}],
        "either": {"name": "b", "wings": 1},
    }
    agreed(state)
    with pytest.raises(InvalidError) as refused:
        edited(state, lambda data: data.animals.append({"kind": "wolf"}))
    assert "wolf" not in str(refused.value)


class Color(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Many(BaseModel):
    color: Color = Color.RED
    cost: Decimal = Decimal("1.10")
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    point: Point = Point(1, 2)
    names: frozenset[str] = frozenset({"a"})
    by_number: dict[int, list[int]] = {1: [1]}
    raw: bytes = b"x"
    anything: Any = None


def test_values_without_a_json_form_read_back_unchanged() -> None:
    state = create_state(Many)
    state.data.cost += 1
    state.data.point = Point(3, 4)
    state.data.names |= {"b"}
    state.data.anything = {"a": [1]}
    edited(
        state, lambda data: (data.by_number[1].append(4), data.by_number.update({2: [3]}), data.anything["a"].append(2))
    )
    state.data.at = datetime(2026, 1, 2, tzinfo=UTC)
    agreed(state)
    assert state.data.point == Point(3, 4)
    assert state.raw["by_number"] == {"1": [1, 4], "2": [3]}


class StrictTypes(BaseModel):
    model_config = ConfigDict(strict=True)
    due: date = date(2026, 1, 1)
    pair: tuple[int, int] = (1, 2)


class Boxed(BaseModel, Generic[Item]):
    items: list[Item] = []


class Names(RootModel[list[str]]):
    pass


class WithRoot(BaseModel):
    names: Names = Names(["a"])


def test_strict_generic_and_root_models_work() -> None:
    strict = create_state(StrictTypes)
    strict.data.due = date(2026, 1, 2)
    agreed(strict)
    boxed = create_state(Boxed[int])
    boxed.data.items = [1]
    with pytest.raises(InvalidError):
        boxed.data.items = ["x"]  # type: ignore[list-item]
    agreed(boxed)
    rooted = create_state(WithRoot)
    edited(rooted, lambda data: data.names.root.append("b"))
    assert rooted.raw == {"names": ["a", "b"]}
    agreed(rooted)
    with pytest.raises(InvalidError, match="RootModel"):
        create_state(Names(["a"]))


class Written(BaseModel):
    when: date = date(2026, 1, 2)

    @field_serializer("when")
    def _german(self, when: date) -> str:
        return when.strftime("%d.%m.%Y")

    @field_validator("when", mode="before")
    @classmethod
    def _from_german(cls, when: Any) -> Any:
        return datetime.strptime(when, "%d.%m.%Y").date() if isinstance(when, str) else when  # noqa: DTZ007


class NoObject(BaseModel):
    x: int = 0

    @model_serializer
    def _text(self) -> str:
        return "x"


def test_serializers_of_a_model_are_used() -> None:
    state = create_state(Written)
    state.data.when = date(2026, 3, 4)
    assert state.raw == {"when": "04.03.2026"}
    agreed(state)
    with pytest.raises(InvalidError, match="return an object"):
        create_state(NoObject)


class SameNames(BaseModel):
    """Names that we might have used, too."""

    shown: str = "s"
    kind: str = "k"
    change: list[int] = []
    _key: str = PrivateAttr("k")


def test_names_of_a_model_are_not_taken_by_its_view() -> None:
    state = create_state(SameNames)
    state.data.change = [1]
    state.data.shown = "q"
    assert (state.data._key, state.data.kind, state.data.shown, state.data.change) == ("k", "k", "q", [1])
    assert state.raw == {"shown": "q", "kind": "k", "change": [1]}


@dataclass
class Loose:
    x: int = 0


@dataclass(frozen=True)
class Firm:
    x: int = 0


class Box:
    pass


class HasAny(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    any: Any = None


class HasFirm(BaseModel):
    firm: Firm = Firm()


class HasSecret(BaseModel):
    key: SecretStr = SecretStr("s")


@pytest.mark.parametrize(
    "value",
    [SecretStr("s"), Box(), lambda: 1, [Box()], {"a": [SecretStr("s")]}, {SecretStr("s")}, HasSecret()],
    ids=lambda it: type(it).__name__,
)
def test_field_of_any_type_accepts_only_storable_values(value: Any) -> None:
    state = create_state(HasAny)
    with StateStore(":memory:") as store:
        for change in (
            lambda: setattr(state.data, "any", value),
            lambda: setattr(state, "data", HasAny(any=value)),
            lambda: state.kv.set("any", value),
            lambda: state.update(lambda data: setattr(data, "any", value)),
            lambda: edited(state, lambda data: setattr(data, "any", value)),
            lambda: create_state(HasAny(any=value), thread_id="t", store=store),
        ):
            with pytest.raises(InvalidError) as refused:
                change()
            assert "\n" not in str(refused.value)
        assert store.events().events == []
    assert state.data == HasAny()
    assert state.version == 2


def test_secret_is_refused_before_anything_is_stored() -> None:
    with StateStore(":memory:") as store:
        with pytest.raises(InvalidError, match="key: a secret cannot be stored") as refused:
            create_state(HasSecret, thread_id="t", store=store)
        assert "\n" not in str(refused.value)
        assert store.events().events == []


class HasMutable(BaseModel):
    last: collections.deque[int] = collections.deque([1])
    lists: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
    loose: Loose = Loose()


def test_values_of_any_declared_type_are_edited_and_read_back() -> None:
    state = create_state(HasMutable)
    with state.edit() as data:
        data.last.append(2)
        data.lists["a"].append(3)
        data.loose.x = 4
    assert state.raw == {"last": [1, 2], "lists": {"a": [3]}, "loose": {"x": 4}}
    state.data.last.append(9)
    state.data.loose.x = 9
    assert state.data == HasMutable(
        last=collections.deque([1, 2]), lists=collections.defaultdict(list, a=[3]), loose=Loose(4)
    )
    agreed(state)


def test_immutable_values_are_accepted() -> None:
    state = create_state(HasFirm)
    state.data.firm = Firm(3)
    assert state.raw == {"firm": {"x": 3}}
    agreed(state)


def test_change_of_a_model_is_one_event_of_the_changed_fields() -> None:
    state = plan()
    edited(state, lambda data: setattr(data.steps[0], "done", True))
    assert [it.version for it in state.history("steps")] == [3, 2]
    assert [it.version for it in state.history("goal")] == [2]
    assert [it.version for it in state.history("tags")] == [2]


def test_sets_are_written_only_when_they_change() -> None:
    words = {f"word {number}" for number in range(200)}
    state = create_state(Plan(tags=words))
    for number in range(20):
        state.data.goal = f"{number}"
    assert [it.version for it in state.history("tags")] == [2]
    other = set[str]()
    for word in sorted(words, reverse=True):
        other |= {word}
    state.data.tags = other
    assert [it.version for it in state.history("tags")] == [2]
