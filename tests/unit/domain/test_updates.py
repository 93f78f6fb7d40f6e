"""What updates compute: numbers, lists, merge patches and JSON patches."""

import json
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import jsonpatch
import pytest
from hypothesis import given
from pydantic_core import to_json

from holdlog.domain import json_patch, updates
from holdlog.domain.refusals import InapplicableError, TooLargeError, TooMuchWorkError
from holdlog.domain.updates import Work
from holdlog.domain.value import MAX_NESTING, Json, nesting

LARGEST = 256 * 1024


def increment(value: str, by: str) -> str:
    return updates.increment(Json(value), Json(by), Work()).text


def append(value: Any, item: Any, unique: bool = False, most: int = LARGEST) -> Any:
    appended = updates.append(Json.of(value), Json.of(item), unique, most, Work())
    return appended and appended.value


def patch(value: Any, *steps: dict[str, Any], most: int = LARGEST) -> Any:
    return json_patch.patch(Json.of(value), Json.of(list(steps)), most, Work()).value


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


# --- numbers


@pytest.mark.parametrize(
    ("value", "by", "result"),
    [
        ("1", "2", "3"),
        ("-0", "0", "0"),
        ("9007199254740993", "1", "9007199254740994"),
        ("9" * 4299, "1", "1" + "0" * 4299),
        ("0.1", "0.2", "0.3"),
        ("1.1", "-1", "0.1"),
        ("1", "0.5", "1.5"),
        ("0.5", "0.5", "1.0"),
        ("1e300", "1e300", "2e300"),
        ("1.7976931348623157e308", "0.0", "1.7976931348623157e308"),
        ("5e-324", "5e-324", "1e-323"),
        ("0.30000000000000004", "0.1", "0.4"),
        ("9007199254740992", "0.0", "9007199254740992.0"),
    ],
)
def test_numbers_are_added_as_they_are_written(value: str, by: str, result: str) -> None:
    assert json.loads(increment(value, by)) == json.loads(result)
    assert type(json.loads(increment(value, by))) is type(json.loads(result))


@pytest.mark.parametrize(
    ("value", "by", "text"),
    [
        ('"1"', "1", "the value is not a number"),
        ("true", "1", "the value is not a number"),
        ("null", "1", "the value is not a number"),
        ("[1]", "1", "the value is not a number"),
        ("{}", "1", "the value is not a number"),
        ("9" * 4300, "1", "the result would have more than 4300 digits"),
        ("-" + "9" * 4300, "-1", "the result would have more than 4300 digits"),
        ("1.7976931348623157e308", "1e308", "too large for a decimal number"),
        ("9" * 4300, "0.5", "too large for a decimal number"),
        ("9007199254740993", "0.5", "more digits than a decimal number can have"),
        ("1e300", "1", "more digits than a decimal number can have"),
    ],
)
def test_sum_that_no_json_number_can_be_is_refused(value: str, by: str, text: str) -> None:
    with pytest.raises(InapplicableError, match=text):
        increment(value, by)


@given(st.integers(), st.integers())
def test_integers_are_added_exactly(value: int, by: int) -> None:
    assert increment(str(value), str(by)) == str(value + by)


@given(st.decimals(-(10**6), 10**6, places=4), st.decimals(-(10**6), 10**6, places=4))
def test_decimals_of_up_to_fifteen_digits_are_added_exactly(value: Decimal, by: Decimal) -> None:
    first, second = repr(float(value)), repr(float(by))
    assert Decimal(increment(first, second)) == value + by


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_any_accepted_sum_reads_back_as_the_nearest_number(value: float, by: float) -> None:
    exact = Decimal(repr(value)) + Decimal(repr(by))
    try:
        text = increment(to_json(value).decode(), to_json(by).decode())
    except InapplicableError:
        assert abs(exact) > 2**53
    else:
        assert json.loads(text) == float(exact)
        assert to_json(json.loads(text)).decode() == text


# --- lists


def test_append_adds_to_the_end() -> None:
    assert append([], 1) == [1]
    assert append([1], [2]) == [1, [2]]
    assert append(["]"], {"a": "é\0"}) == ["]", {"a": "é\0"}]


def test_unique_compares_json_values() -> None:
    assert append([1, "1", None], 1.0, unique=True) is None
    assert append([{"a": 1, "b": [2]}], {"b": [2.0], "a": 1}, unique=True) is None
    assert append([1], True, unique=True) == [1, True]
    assert append([[0]], [False], unique=True) == [[0], [False]]
    assert append([{"a": 1}], {"a": True}, unique=True) == [{"a": 1}, {"a": True}]
    assert append([1, 1], 2, unique=True) == [1, 1, 2]


@pytest.mark.parametrize("value", [None, 1, "[]", {"a": []}, True])
def test_append_to_anything_but_a_list_is_refused(value: Any) -> None:
    with pytest.raises(InapplicableError, match="the value is not a list"):
        append(value, 1)


def test_appended_value_has_limits() -> None:
    assert append([1], 2, most=5) == [1, 2]
    with pytest.raises(TooLargeError):
        append([1], 2, most=4)
    with pytest.raises(TooLargeError):
        append(["é"], "é", most=10)
    deepest: Any = 1
    for _ in range(MAX_NESTING - 1):
        deepest = [deepest]
    assert append([], deepest) == [deepest]
    with pytest.raises(InapplicableError, match="more than 100 levels"):
        append([], [deepest])


# --- JSON patches


@pytest.mark.parametrize(
    ("value", "steps", "result"),
    [  # https://www.rfc-editor.org/rfc/rfc6902#appendix-A
        ({"foo": "bar"}, [add("/baz", "qux")], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [add("/foo/1", "qux")], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": 1}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        ({"foo": "bar"}, [add("/child", {"grandchild": {}})], {"foo": "bar", "child": {"grandchild": {}}}),
        ({"foo": "bar"}, [{**add("/baz", "qux"), "xyz": 123}], {"foo": "bar", "baz": "qux"}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [add("/foo/-", ["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}),
        ([1], [add("", {"whole": True})], {"whole": True}),
        ({"a": [1]}, [{"op": "copy", "from": "", "path": "/b"}, add("/a/-", 2)], {"a": [1, 2], "b": {"a": [1]}}),
        ({"a": [{"x": 0}, 1]}, [{"op": "move", "from": "/a/1", "path": "/a/0/x"}], {"a": [{"x": 1}]}),
        ("text", [], "text"),
    ],
)
def test_patch_applies_its_steps_in_order(value: Any, steps: list[dict[str, Any]], result: Any) -> None:
    assert patch(value, *steps) == result


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"op": "test", "path": "/secret", "value": "x"}, "the test failed"),
        ({"op": "test", "path": "/nothing", "value": "x"}, "the test failed"),
        ({"op": "test", "path": "/list/0", "value": True}, "the test failed"),
        (add("/nothing/there", 1), "add does not apply"),
        (add("/list/9", 1), "add does not apply"),
        (add("/list/01", 1), "add does not apply"),
        (add("/secret/a", 1), "add does not apply"),
        ({"op": "remove", "path": "/nothing"}, "remove does not apply"),
        ({"op": "remove", "path": "/list/-"}, "remove does not apply"),
        ({"op": "remove", "path": ""}, "remove does not apply"),
        ({"op": "replace", "path": "/nothing", "value": 1}, "replace does not apply"),
        ({"op": "replace", "path": "/list/-", "value": 1}, "replace does not apply"),
        ({"op": "move", "from": "/object", "path": "/object/a"}, "move does not apply"),
        ({"op": "move", "from": "/nothing", "path": "/a"}, "move does not apply"),
        ({"op": "copy", "from": "/list/-", "path": "/a"}, "copy does not apply"),
        ({"op": "copy", "from": "/list/" + "9" * 5000, "path": "/a"}, "copy does not apply"),
        (add("/a" * 200, 1), "the result would have more than 100 levels"),
    ],
)
def test_step_that_does_not_apply_is_named_without_the_value(step: dict[str, Any], text: str) -> None:
    value = {"secret": "s3cret", "list": [1], "object": {}}
    with pytest.raises(InapplicableError) as refusal:
        patch(value, add("/first", 1), step)
    assert str(refusal.value).startswith(f"patch[1]: {text}")
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_every_step_of_a_patch_is_checked_for_size() -> None:
    doubled = {"op": "copy", "from": "", "path": "/-"}
    assert len(json.dumps(patch(["x" * 1000], *[doubled] * 7), separators=(",", ":"))) < 130_000
    with pytest.raises(TooLargeError, match=r"patch\[6\]: value: must have at most 100000 bytes"):
        patch(["x" * 1000], *[doubled] * 40, most=100_000)
    grown = [add("/b", "x" * 50), {"op": "remove", "path": "/b"}]
    with pytest.raises(TooLargeError, match=r"patch\[0\]"):
        patch({"a": "x" * 30}, *grown, most=80)
    assert patch({"a": "x" * 30}, *grown * 20, most=110) == {"a": "x" * 30}
    assert patch({"a": "x" * 60}, *[{"op": "replace", "path": "/a", "value": "y" * 60}] * 20, most=68)
    moved = [{"op": "move", "from": "/a", "path": "/bb"}, {"op": "move", "from": "/bb", "path": "/a"}]
    assert patch({"a": "x" * 60}, *moved * 20, most=69) == {"a": "x" * 60}
    with pytest.raises(TooLargeError):
        patch({"a": "x" * 60}, *moved, most=68)


def test_patch_cannot_nest_a_value_too_deeply() -> None:
    deeper = {"op": "copy", "from": "", "path": "/0"}
    assert nesting(json.dumps(patch([0], *[add("", [0])]))) == 1
    value: Any = [0]
    for _ in range(MAX_NESTING - 1):
        value = [value]
    with pytest.raises(InapplicableError, match=r"patch\[0\]: the result would have more than 100 levels"):
        patch(value, deeper)
    with pytest.raises(InapplicableError, match=r"patch\[0\]: the result would have more than 100 levels"):
        patch({"a": value[0], "b": [[]]}, {"op": "move", "from": "/a", "path": "/b/0/0"})
    assert patch({"a": value[0], "b": []}, {"op": "move", "from": "/a", "path": "/c"}) == {"b": [], "c": value[0]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "é", "[{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "~/"]), inner, max_size=3),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from(["a", "b", "~0~1", "0", "1", "-"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
STEPS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": PATHS},
    optional={"from": PATHS, "value": JSON},
)


@given(JSON, st.lists(STEPS, max_size=6))
def test_patch_does_what_the_library_does(value: Any, steps: list[dict[str, Any]]) -> None:
    steps = [{"from": "", "value": 1} | step for step in steps]
    try:
        expected = jsonpatch.apply_patch(value, steps)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(InapplicableError):
            patch(value, *steps)
    else:
        assert to_json(patch(value, *steps)) == to_json(expected)


@given(JSON)
def test_nesting_counts_levels(value: Any) -> None:
    def levels(part: Any) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return (1 if isinstance(part, dict | list) else 0) + max(map(levels, inner), default=0)

    assert nesting(Json.of(value).text) == levels(value)


# --- work


def of_size(part: str, count: int) -> Json:
    return Json(f"[{','.join([part] * count)}]")


VALUES = {
    "numbers": of_size("0", LARGEST // 2 - 1),
    "texts": of_size('""', LARGEST // 3 - 1),
    "lists": of_size("[]", LARGEST // 3 - 1),
    "objects": of_size('{"a":1,"b":"xyz","c":[1]}', LARGEST // 26 - 1),
    "deep": of_size("[" * 90 + "]" * 90, LARGEST // 181 - 1),
    "some deep": Json(of_size("[" * 90 + "]" * 90, 90).text[:-1] + f',"{"x" * 240_000}"]'),
    "digits": of_size("9" * 4300, LARGEST // 4301 - 1),
    "members": Json("{" + ",".join(f'"{n:x}":0' for n in range(LARGEST // 10)) + "}"),
}
COSTLY: dict[str, list[dict[str, Any]]] = {
    "tests": [{"op": "test", "path": "/0", "value": 0}],
    "insertions": [add("/0", 0), {"op": "remove", "path": "/0"}],
    "copies": [{"op": "copy", "from": "", "path": "/0"}, {"op": "remove", "path": "/0"}],
    "moves": [{"op": "move", "from": "/0", "path": "/1"}],
    "replacements": [{"op": "replace", "path": "/0", "value": 1}],
    "deep places": [{"op": "test", "path": "/0" * 89, "value": [[]]}],
    "missing members": [add("/q", 1), {"op": "remove", "path": "/q"}],
}


@pytest.mark.parametrize("steps", ["replacements", "insertions", "tests"])
@pytest.mark.parametrize("value", ["numbers", "texts", "objects"])
def test_value_of_the_largest_size_accepts_a_patch_of_fifty_steps(value: str, steps: str) -> None:
    first = VALUES[value].value[0]
    given_steps = [step | ({"value": first} if step["op"] == "test" else {}) for step in (COSTLY[steps] * 50)[:50]]
    patched = json_patch.patch(VALUES[value], Json.of(given_steps), 2 * LARGEST, Work())
    assert patched.text.startswith("[")


@pytest.mark.parametrize("value", ["lists", "deep"])
def test_value_that_takes_long_to_parse_is_refused_before_it_is_parsed(value: str) -> None:
    for refused in (
        lambda: json_patch.patch(VALUES[value], Json("[]"), LARGEST, Work()),
        lambda: updates.merge(VALUES[value], Json("{}"), LARGEST, Work()),
        lambda: updates.append(VALUES[value], Json("1"), True, 2 * LARGEST, Work()),
    ):
        with pytest.raises(TooMuchWorkError):
            refused()
    assert updates.append(VALUES[value], Json("1"), False, 2 * LARGEST, Work()) is not None


def test_costly_steps_run_out_of_work() -> None:
    for value in ("numbers", "texts", "members"):
        steps = [step | {"path": "/q"} if value == "members" else step for step in COSTLY["copies"] * 50]
        with pytest.raises((TooMuchWorkError, TooLargeError), match=r"patch\[\d+\]: "):
            json_patch.patch(VALUES[value], Json.of(steps), 2 * LARGEST + 9, Work())
