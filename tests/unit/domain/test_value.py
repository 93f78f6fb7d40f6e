"""Which values are JSON, and that they come back as they went in."""

import json
from collections import OrderedDict
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.domain.record import Set
from holdlog.domain.value import MAX_NESTING, Json

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.none() | st.booleans() | st.integers() | texts
floats = st.floats(allow_nan=False, allow_infinity=False)


def json_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


json_values = json_of(plain | floats)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 2


def lists(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def objects(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = {"a": value}
    return value


def mixed(levels: int) -> Any:
    value: Any = None
    for level in range(levels):
        value = [value, "]"] if level % 2 else {"[": value}
    return value


@pytest.mark.check
@given(json_values)
def test_every_json_value_reads_back_unchanged(value: Any) -> None:
    assert repr(Json.of(value).value) == repr(value)


@given(json_values)
def test_encoded_value_is_equivalent_json(value: Any) -> None:
    assert repr(json.loads(Json.of(value).text)) == repr(value)


@given(json_of(plain))
def test_encoded_value_is_compact_json(value: Any) -> None:
    """But for floats, which have more than one shortest text."""
    assert Json.of(value).text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    "value",
    [
        {"_type_": "datetime_iso", "_data_": "2020-01-01T00:00:00"},
        {"_type_": "uuid_hex", "_data_": "x"},
        {"_type_": "os:system", "_data_": ["true"]},
        {"__class__": "x"},
        {"py/object": "os.system"},
        {"$ref": "#"},
        {"": 0},
        10**400,
        -(10**4000),
        2**63,
        2**53 + 1,
        0.1,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        "",
        "\0",
        "\u2028\u2029\x7f\x1b",
        "👩‍👧 e\u0301 é",
        "\U0010ffff\ufffe",
        "[" * 500,
        '"\\[{' * 200,
        [],
        {},
        [None, True, False],
    ],
)
def test_values_that_other_codecs_change_read_back_unchanged(value: Any) -> None:
    assert repr(Json.of(value).value) == repr(value)


def test_integers_stay_integers_and_floats_stay_floats() -> None:
    assert [type(number) for number in Json.of([1, 1.0, True]).value] == [int, float, bool]


def test_subclasses_of_the_types_of_json_are_encoded_as_these() -> None:
    assert Json.of([OrderedDict(a=Colour.RED), {Colour.RED: Size.BIG}]).text == '[{"a":"red"},{"red":2}]'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 1e999])
@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: {"a": [number]}])
def test_numbers_that_are_not_finite_are_refused(number: float, wrap: Any) -> None:
    with pytest.raises(ValueError, match="finite"):
        Json.of(wrap(number))


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", ["\ud83d"], {"a": "\udc00"}, {"\ud800": 1}, "\udc00\ud800"])
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        Json.of(value)


@pytest.mark.parametrize("build", [lists, objects, mixed])
def test_a_value_may_be_nested_100_levels_deep(build: Any) -> None:
    value = build(MAX_NESTING)
    assert Json.of(value).value == value


@pytest.mark.parametrize("build", [lists, objects, mixed])
@pytest.mark.parametrize("levels", [101, 254, 255, 256, 300, 900, 20_000])
def test_value_nested_too_deeply_is_refused_with_the_limit(build: Any, levels: int) -> None:
    with pytest.raises(ValueError, match="100 levels"):
        Json.of(build(levels))


def test_brackets_in_strings_do_not_count_as_nesting() -> None:
    assert Json.of(["[" * 150, '"[' * 150, "\\" * 151 + "[{" * 150]).value[0] == "[" * 150
    assert len(Json.of([[]] * 200).value) == 200


def test_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    circle: dict[str, Any] = {}
    circle["a"] = [circle]
    for value in (loop, circle):
        with pytest.raises(ValueError, match="100 levels"):
            Json.of(value)


def test_value_used_twice_in_another_is_not_a_cycle() -> None:
    shared = {"a": 1}
    assert Json.of([shared, shared]).value == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    "value", [{1: "a"}, {1: "a", "1": "b"}, {None: 1}, {True: 1}, {1.5: 1}, {"a": {2: 3}}, {(): 1}]
)
def test_keys_that_are_not_strings_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="keys of an object must be strings"):
        Json.of(value)


@pytest.mark.parametrize("value", [b"a", (1, 2), {1}, object(), 1j, bytearray(b"x"), range(3), [b"a"], {"a": (1,)}])
def test_objects_without_a_json_form_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be JSON"):
        Json.of(value)


class Comparing(type):
    """Compares classes, so these have no hash."""

    def __eq__(cls, other: object) -> bool:
        return cls is other


class WithoutHash(metaclass=Comparing):
    pass


@pytest.mark.parametrize("value", [WithoutHash(), [1, {"a": WithoutHash()}]])
def test_objects_whose_class_has_no_hash_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be JSON"):
        Json.of(value)


def test_number_with_more_digits_than_python_reads_is_refused() -> None:
    with pytest.raises(ValueError, match="digits"):
        Json.of(10**5000)


def test_refusal_of_a_value_never_contains_it() -> None:
    for value in ({"secret": b"secret"}, {"secret": float("nan")}, ["secret\ud800"], {("secret",): 1}):
        with pytest.raises(ValueError, match=r".") as refusal:
            Json.of(value)
        assert "secret" not in str(refusal.value)


def test_value_is_a_fresh_copy_each_time() -> None:
    kept = Json.of({"a": [1]})
    kept.value["a"].append(2)
    assert kept.value == {"a": [1]}


def test_changing_the_original_later_does_not_change_the_value() -> None:
    original = {"a": [1]}
    kept = Json.of(original)
    original["a"].append(2)
    assert kept.value == {"a": [1]}


def test_equal_values_have_equal_encodings() -> None:
    assert Json.of([1]) == Json.of([1])
    assert hash(Json.of([1])) == hash(Json.of([1]))
    assert Json.of([1]) != Json.of([1.0])
    assert Json.of(1) != 1
    assert Json.of(Json.of([1])) == Json.of([1])


def test_command_takes_a_checked_value_and_encodes_it_as_json() -> None:
    command = Set(namespace="n", key="k", value=Json.of({"a": 1}))
    assert json.loads(command.model_dump_json())["value"] == {"a": 1}
    with pytest.raises(ValueError, match="instance of Json"):
        Set.model_validate({"namespace": "n", "key": "k", "value": {"a": 1}})
