"""The difference of two JSON values, applied to the first, makes the second; and who changed a field last."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.api.changes.diff import DiffStep, difference, same

NAMES = st.sampled_from(["a", "b", "a/b", "~", "", "0"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, "", "x"]),
    lambda parts: st.lists(parts, max_size=5) | st.dictionaries(NAMES, parts, max_size=4),
    max_leaves=20,
)


def applied(value: Any, steps: list[DiffStep]) -> Any:
    """RFC 6902 for the operations that a difference has. Also checks that `previous` is what was there."""
    value = json.loads(json.dumps(value))
    for step in steps:
        if step.path == "":
            assert step.op == "replace"
            assert same(value, step.previous)
            value = step.value
            continue
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step.path[1:].split("/")]
        inside = value
        for name in parents:
            inside = inside[int(name)] if isinstance(inside, list) else inside[name]
        at: Any = int(last) if isinstance(inside, list) else last
        if step.op == "add":
            assert at not in inside if isinstance(inside, dict) else at <= len(inside)
            inside.insert(at, step.value) if isinstance(inside, list) else inside.__setitem__(at, step.value)
            continue
        assert same(inside[at], step.previous)
        if step.op == "remove":
            del inside[at]
        else:
            inside[at] = step.value
    return value


@given(VALUES, VALUES)
def test_steps_turn_the_first_value_into_the_second(before: Any, after: Any) -> None:
    steps = difference(before, after)
    assert same(applied(before, steps), after)
    assert (steps == []) is same(before, after)


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ("1", 1), ([], {}), (None, False)])
def test_values_that_python_may_take_for_equal_differ(one: Any, other: Any) -> None:
    assert difference({"k": [one]}, {"k": [other]}) == [DiffStep("replace", "/k/0", other, one)]


def test_order_of_members_is_no_difference() -> None:
    assert difference({"a": 1, "b": 2}, {"b": 2, "a": 1}) == []


def test_an_item_inserted_first_is_one_step() -> None:
    assert difference([1, 2, 3], [0, 1, 2, 3]) == [DiffStep("add", "/0", 0)]
    assert difference([1, 2, 3], [1, 3]) == [DiffStep("remove", "/1", previous=2)]


def test_members_are_named_by_json_pointers() -> None:
    before, after = {"a/b": {"~": 1}}, {"a/b": {"~": 2}}
    assert difference(before, after) == [DiffStep("replace", "/a~1b/~0", 2, 1)]


def test_difference_that_would_be_larger_than_the_limit_replaces_the_whole() -> None:
    before, after = {"n" * 1000: [0] * 50}, {"n" * 1000: [1] * 50}
    assert len(difference(before, after)) == 50
    assert difference(before, after, limit=10_000) == [DiffStep("replace", "", after, before)]
