"""The deciders of values: given events, when a command, then events or a refusal."""

from typing import Any

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from holdlog.adapters.operations.values import ClearNamespace, Delete, SetValue, Transact, Update
from holdlog.domain.claims.board import Board
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.names import value_stream
from holdlog.domain.records import ValueDeleted, ValueExpired, ValueWritten
from holdlog.domain.refusals import (
    ConflictError,
    FencedError,
    HoldlogError,
    InapplicableError,
    InvalidError,
    NotFoundError,
)
from holdlog.domain.results import utc
from holdlog.domain.state import Record, State
from holdlog.domain.values import Json, count_levels, increment, merge
from holdlog.projections.fold import fold

AT = 1_000_000_000
KEY = value_stream("n", "k")
WRITTEN = ValueWritten(KEY, "ann", Json("1"))
DELETED = ValueDeleted(KEY, "bob")


class Story:
    """What happened before, and what a command does then."""

    def __init__(self, *events: Any) -> None:
        self.state = State({value_stream("n", key): Record(value_stream("n", key)) for key in "abk"}, Board(0))
        self.moment = Moment(AT, len(events), Caller(), 1000)
        for position, event in enumerate(events, 1):
            fold(self.state, event, position)

    def when(self, kind: Any, **arguments: Any) -> "Story":
        before = dict(self.state.records)
        self.result: Any = None
        self.events: list[Any] = []
        self.refusal: HoldlogError | None = None
        try:
            self.events, self.result = kind.parse(arguments).decide(self.state, self.moment)
        except HoldlogError as refusal:
            self.refusal = refusal
        assert self.state.records == before, "a decider changes nothing"
        return self

    def then(self, *events: Any) -> "Story":
        assert (self.refusal, self.events) == (None, [*events])
        return self

    def refused(self, kind: type[HoldlogError]) -> Any:
        assert type(self.refusal) is kind
        return self.refusal


def given(*events: Any) -> Story:
    return Story(*events)


def put(**arguments: Any) -> dict[str, Any]:
    return {"kind": SetValue, "namespace": "n", "key": "k", "value": 2, "updated_by": "cleo"} | arguments


def remove(**arguments: Any) -> dict[str, Any]:
    return {"kind": Delete, "namespace": "n", "key": "k", "deleted_by": "cleo"} | arguments


def change(**arguments: Any) -> dict[str, Any]:
    return {"kind": Update, "namespace": "n", "key": "k", "updated_by": "cleo"} | arguments


def run(*operations: Any) -> dict[str, Any]:
    steps = [{"namespace": "n", "key": "k"} | it for it in operations]
    return {"kind": Transact, "operations": steps, "updated_by": "cleo"}


def test_first_write_has_no_basis_and_is_not_forced():
    story = given().when(**put()).then(ValueWritten(KEY, "cleo", Json("2")))
    assert story.result[2:5] == (1, None, 1)


def test_write_without_a_version_over_a_value_is_forced():
    given(WRITTEN).when(**put()).then(ValueWritten(KEY, "cleo", Json("2"), forced=True))


def test_write_records_the_version_that_it_was_based_on():
    given(WRITTEN).when(**put(expected_version=1)).then(ValueWritten(KEY, "cleo", Json("2"), based_on=1))


def test_version_from_before_a_deletion_never_matches_again():
    refusal = given(WRITTEN, DELETED, WRITTEN).when(**put(expected_version=1)).refused(ConflictError)
    assert (refusal.detail.expected_version, refusal.detail.actual_version, refusal.position) == (1, 3, 3)


def test_version_zero_means_that_there_is_no_value_now():
    given(WRITTEN, DELETED).when(**put(expected_version=0)).then(ValueWritten(KEY, "cleo", Json("2"), based_on=0))
    given(WRITTEN).when(**put(expected_version=0)).refused(ConflictError)


def test_deletion_of_nothing_is_refused_before_its_version_is_looked_at():
    given().when(**remove(expected_version=7)).refused(NotFoundError)
    given(WRITTEN).when(**remove(expected_version=7)).refused(ConflictError)
    given(WRITTEN).when(**remove(expected_version=1)).then(ValueDeleted(KEY, "cleo", based_on=1))


def test_guard_without_its_claim_is_refused_before_a_conflict():
    guard = [{"resource": "a.py", "version": 3}]
    given(WRITTEN).when(**put(guard=guard, expected_version=9)).refused(FencedError)
    given().when(**remove(guard=guard)).refused(NotFoundError)


def test_time_to_live_is_set_cleared_by_a_set_and_kept_by_an_update():
    lasting = ValueWritten(KEY, "cleo", Json("2"), expires_at=AT + 3_000_000)
    given().when(**put(ttl_seconds=3)).then(lasting)
    given(lasting).when(**put()).then(ValueWritten(KEY, "cleo", Json("2"), forced=True))
    given(lasting).when(**change(increment=1)).then(ValueWritten(KEY, "cleo", Json("3"), None, AT + 3_000_000))


def test_first_write_after_an_expiry_records_it():
    old = ValueWritten(KEY, "ann", Json("1"), expires_at=AT)
    story = given(old).when(**put(expected_version=0))
    story.then(ValueExpired(KEY, AT), ValueWritten(KEY, "cleo", Json("2"), based_on=0))
    assert story.result[2:5] == (3, None, 3)
    given(old).when(**put(expected_version=1)).refused(ConflictError)
    given(old).when(**remove()).refused(NotFoundError)
    given(old).when(**change(increment=1)).then(ValueExpired(KEY, AT), ValueWritten(KEY, "cleo", Json("1")))


def test_conflict_over_an_expired_value_has_the_time_of_its_expiry():
    old = ValueWritten(KEY, "ann", Json("1"), expires_at=AT - 1_000_000)
    refusal = given(old).when(**put(expected_version=1)).refused(ConflictError)
    refusal.explain("ann", utc(AT - 5_000_000), 1)  # what the engine reads of the last event
    detail = refusal.detail
    expected = (0, None, "ann", utc(AT - 1_000_000))
    assert (detail.actual_version, detail.actual_value, detail.actual_updated_by, detail.actual_updated_at) == expected


def test_check_of_an_expired_value_leaves_its_expiry_to_the_write_that_follows():
    old = ValueWritten(KEY, "ann", Json("1"), expires_at=AT)
    story = given(old).when(**run({"op": "check", "expected_version": 0}, {"op": "set", "value": 2}))
    story.then(ValueExpired(KEY, AT), ValueWritten(KEY, "cleo", Json("2")))
    assert [step.version for step in story.result.results] == [2, 3]


def test_transaction_of_too_much_work_names_its_operation_once():
    large = ValueWritten(KEY, "ann", Json(f'["{"x" * 20_000}"]'))
    steps = [{"op": "append", "value": "x" * 20_000, "unique": True}] * 1000
    story = given(large)
    story.moment = story.moment._replace(max_value_bytes=10**6)
    refusal = story.when(**run(*steps)).refused(InvalidError)
    assert str(refusal).count("operations") == 1


def test_clear_deletes_what_is_live_in_order_of_the_keys():
    others = [ValueWritten(value_stream("n", key), "ann", Json("1")) for key in "ba"]
    elsewhere = ValueWritten(value_stream("m", "k"), "ann", Json("1"))
    expired = ValueWritten(KEY, "ann", Json("1"), expires_at=AT)
    story = given(*others, elsewhere, expired).when(ClearNamespace, namespace="n", deleted_by="cleo")
    story.then(*(ValueDeleted(value_stream("n", key), "cleo") for key in "ab"))
    assert (story.result.deleted_keys, story.result.position) == (["a", "b"], 6)


def test_update_that_changes_nothing_has_no_event():
    listed = ValueWritten(KEY, "ann", Json("[1]"))
    story = given(listed).when(**change(append=1, unique=True)).then()
    assert (story.result.value, story.result.version, story.result.position) == ([1], 1, 1)
    given(listed).when(**change(append=True, unique=True)).then(ValueWritten(KEY, "cleo", Json("[1,true]")))


def test_update_of_another_type_is_refused():
    given(ValueWritten(KEY, "ann", Json('"x"'))).when(**change(increment=1)).refused(InapplicableError)
    given(WRITTEN).when(**change(append=1)).refused(InapplicableError)


def test_value_above_the_limit_is_refused_also_if_the_store_computed_it():
    given().when(**put(value="x" * 999)).refused(InvalidError)
    given(ValueWritten(KEY, "ann", Json(f'["{"x" * 990}"]'))).when(**change(append="xxxx")).refused(InvalidError)


def test_later_operation_of_a_transaction_sees_the_earlier_ones():
    steps = ({"op": "set", "value": 1}, {"op": "increment", "by": 1}, {"op": "delete", "expected_version": 2})
    story = given().when(**run(*steps, {"op": "check", "expected_version": 0}))
    story.then(
        ValueWritten(KEY, "cleo", Json("1")), ValueWritten(KEY, "cleo", Json("2")), ValueDeleted(KEY, "cleo", None, 2)
    )
    assert [it.version for it in story.result.results] == [1, 2, 3, 3]


def test_refused_operation_names_its_index_and_what_an_earlier_one_wrote():
    refusal = (
        given().when(**run({"op": "set", "value": 5}, {"op": "check", "expected_version": 7})).refused(ConflictError)
    )
    assert (refusal.operation, refusal.detail.actual_value, refusal.detail.actual_version) == (1, 5, 1)


NUMBERS = st.integers(-(10**20), 10**20)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
)


@given_any(one=NUMBERS, other=NUMBERS)
def test_whole_numbers_are_added_exactly(one, other):
    assert increment(Json(one), Json(other)) == str(one + other)


@pytest.mark.parametrize(
    ("value", "by", "result"),
    [
        ("0.1", "0.2", "0.3"),
        ("1e2", "1", "101.0"),
        ("2.5", "-2.5", "0.0"),
        ("1e308", "1e308", None),
        ("1e17", "1", None),
    ],
)
def test_decimals_are_added_as_they_are_written(value, by, result):
    if result is None:
        with pytest.raises(InapplicableError):
            increment(Json(value), Json(by))
    else:
        assert increment(Json(value), Json(by)) == result


@given_any(value=JSON, patch=JSON)
def test_merge_keeps_no_null_of_a_patch(value, patch):
    """RFC 7396: what is not an object replaces the value, and a null removes a member."""
    from json import dumps, loads

    merged = loads(merge(Json(dumps(value)), Json(dumps(patch))))
    if not isinstance(patch, dict):
        assert merged == patch
    else:
        assert all(name not in merged for name, part in patch.items() if part is None)
        assert all(merged.get(name) == part for name, part in patch.items() if not isinstance(part, dict | None))


@given_any(value=JSON)
def test_levels_of_nesting_are_counted_outside_texts(value):
    from json import dumps

    def depth(part: Any) -> int:
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else None
        return 0 if parts is None else 1 + max(map(depth, parts), default=0)

    assert count_levels(dumps([value, '[{"\\'])) == depth([value])
