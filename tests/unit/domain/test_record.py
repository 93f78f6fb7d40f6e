"""What may happen to a record."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdlog.domain.record import (
    MAX_TTL_SECONDS,
    Check,
    Delete,
    Merge,
    Operation,
    Set,
    Transact,
    ValueDeleted,
    ValueExpired,
    ValueWritten,
    seen,
)
from holdlog.domain.refusals import ConflictError, NotFoundError, TooLargeError
from holdlog.domain.value import NULL, Json
from tests.support.given import SECOND, given


def written(value: Any, by: str = "ann", until: int | None = None) -> ValueWritten:
    """`until`: seconds after 1970."""
    return ValueWritten(value=Json.of(value), by=by, expires_at=None if until is None else until * SECOND)


def expired(due: int, by: str = "ann") -> ValueExpired:
    return ValueExpired(due=due * SECOND, by=by)


def deleted(by: str = "bob") -> ValueDeleted:
    return ValueDeleted(by=by)


def set_(value: Any, expected_version: int | None = None, ttl: float | None = None) -> Set:
    return Set(namespace="shop", key="tea", value=Json.of(value), expected_version=expected_version, ttl_seconds=ttl)


def delete(expected_version: int | None = None) -> Delete:
    return Delete(namespace="shop", key="tea", expected_version=expected_version)


def merge(patch: Any, expected_version: int | None = None, ttl: float | None = None, keeps: bool = True) -> Merge:
    return Merge(
        namespace="shop",
        key="tea",
        patch=Json.of(patch),
        max_bytes=20,
        expected_version=expected_version,
        ttl_seconds=ttl,
        keeps_end=keeps,
    )


def check(expected_version: int | None = None) -> Check:
    return Check(namespace="shop", key="tea", expected_version=expected_version)


def test_a_first_write_needs_no_version() -> None:
    given().when(set_(1), by="ann").then(written(1, by="ann"))


def test_version_0_means_that_no_value_exists() -> None:
    given().when(set_(1, expected_version=0), by="ann").then(written(1))
    given(written(1)).when(set_(2, expected_version=0)).refused(ConflictError)


def test_write_on_the_current_version_succeeds() -> None:
    given(written(1), written(2)).when(set_(3, expected_version=2), by="bob").then(written(3, by="bob"))


@pytest.mark.parametrize("expected", [1, 3, 99])
def test_write_on_any_other_version_is_refused(expected: int) -> None:
    given(written(1), written(2)).when(set_(3, expected_version=expected)).refused(ConflictError)


def test_write_without_a_version_always_succeeds() -> None:
    given(written(1), written(2)).when(set_(3), by="bob").then(written(3, by="bob"))


def test_deletion_on_the_current_version_succeeds() -> None:
    given(written(1)).when(delete(expected_version=1), by="bob").then(deleted())
    given(written(1)).when(delete(), by="bob").then(deleted())


def test_a_deletion_on_another_version_is_refused() -> None:
    given(written(1), written(2)).when(delete(expected_version=1)).refused(ConflictError)


@pytest.mark.parametrize("expected", [None, 0, 1, 2])
def test_missing_value_cannot_be_deleted_with_any_version(expected: int | None) -> None:
    given().when(delete(expected)).refused(NotFoundError)
    given(written(1), deleted()).when(delete(expected)).refused(NotFoundError)


def test_version_0_is_current_after_a_deletion() -> None:
    given(written(1), deleted()).when(set_(2, expected_version=0), by="ann").then(written(2))


@pytest.mark.parametrize("expected", [1, 2, 3])
def test_no_version_matches_a_deleted_value_not_even_its_tombstone(expected: int) -> None:
    given(written(1), deleted()).when(set_(2, expected_version=expected)).refused(ConflictError)


def test_version_from_before_a_deletion_never_matches_again() -> None:
    given(written(1), deleted(), written(2)).when(set_(3, expected_version=1)).refused(ConflictError)
    given(written(1), deleted(), written(2)).when(set_(3, expected_version=3), by="bob").then(written(3, by="bob"))


@pytest.mark.parametrize(
    ("past", "expected"), [([], 0), ([written(1)], 1), ([written(1), deleted()], 0), ([written(1)], None)]
)
def test_version_check_that_holds_changes_nothing(past: list[Any], expected: int | None) -> None:
    given(*past).when(check(expected)).then()


@pytest.mark.parametrize(("past", "expected"), [([], 1), ([written(1)], 0), ([written(1), deleted()], 2)])
def test_version_check_that_fails_is_refused(past: list[Any], expected: int) -> None:
    given(*past).when(check(expected)).refused(ConflictError)


def test_conflict_shows_the_current_value() -> None:
    refusal = (
        given(written(1), written({"price": 3}, by="bob")).when(set_(3, expected_version=1)).refused(ConflictError)
    )
    assert refusal.detail.model_dump() == {
        "namespace": "shop",
        "key": "tea",
        "expected_version": 1,
        "actual_version": 2,
        "actual_value": {"price": 3},
        "actual_updated_by": "bob",
        "actual_updated_at": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
        "actual_principal": None,
        "redacted": None,
    }


def test_conflict_with_a_deletion_names_its_author_and_no_value() -> None:
    refusal = given(written("secret"), deleted(by="bob")).when(set_(3, expected_version=1)).refused(ConflictError)
    assert (refusal.detail.actual_version, refusal.detail.actual_value) == (0, None)
    assert refusal.detail.actual_updated_by == "bob"


def test_conflict_over_a_missing_value_names_no_author() -> None:
    refusal = given().when(set_(3, expected_version=1)).refused(ConflictError)
    assert refusal.detail.actual_updated_by is None
    assert refusal.detail.actual_updated_at is None


def test_not_found_names_author_and_time_of_the_deletion() -> None:
    refusal = given(written(1), deleted(by="bob")).when(delete()).refused(NotFoundError)
    assert refusal.facts == {
        "namespace": "shop",
        "key": "tea",
        "version": 2,
        "deleted_by": "bob",
        "deleted_at": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
    }
    never = given().when(delete()).refused(NotFoundError)
    assert never.facts == {"namespace": "shop", "key": "tea"}


def test_message_of_a_refusal_never_contains_the_value() -> None:
    for command in (set_("mine-secret", 7), delete(7), check(7)):
        assert "secret" not in str(given(written("their-secret")).when(command).refused(ConflictError))


def test_null_is_a_value() -> None:
    assert given(written(None)).record.live
    given(written(None)).when(set_(1, expected_version=0)).refused(ConflictError)


def test_versions_continue_after_deletions() -> None:
    assert given(written(1), deleted(), written(2), deleted()).record.version == 4


def test_deletion_removes_the_value_from_the_state() -> None:
    state = given(written("x", by="ann"), deleted(by="bob")).record
    assert (state.live, state.value, state.updated_by, state.updated_at) == (False, NULL, "bob", 2_000_000)


def test_state_has_author_time_and_digest_of_the_last_event() -> None:
    state = given(written(1), written(2, by="bob")).record
    assert (state.updated_by, state.updated_at) == ("bob", 2_000_000)


@pytest.mark.parametrize("expected", [-1, 1.5, "x"])
def test_expected_version_is_a_non_negative_integer(expected: Any) -> None:
    with pytest.raises(ValueError, match="expected_version"):
        Operation(namespace="shop", key="tea", expected_version=expected)


def test_commands_refuse_unknown_fields_and_are_immutable() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        Transact.model_validate({"operations": (), "by": "ann", "force": True})
    with pytest.raises(ValueError, match="frozen"):
        set_(1).key = "coffee"  # type: ignore[misc]


# --- a time to live


def test_value_lives_for_its_time_to_live_from_the_transaction_time() -> None:
    given().when(set_(1, ttl=60), by="ann", at=100).then(written(1, until=160))


def test_a_time_to_live_is_rounded_to_the_microsecond() -> None:
    (made,) = given().when(set_(1, ttl=0.123_456_7), at=0)._decide()
    assert isinstance(made, ValueWritten)
    assert made.expires_at == 123_457


def test_set_without_a_time_to_live_creates_a_value_without_expiry() -> None:
    given(written(1, until=160)).when(set_(2, expected_version=1), by="ann", at=159).then(written(2))


def test_value_before_its_expiry_behaves_like_any_other() -> None:
    past = given(written(1, until=160))
    past.when(set_(2, expected_version=0), at=159).refused(ConflictError)
    past.when(delete(expected_version=1), by="bob", at=159).then(deleted())


@pytest.mark.parametrize("expected", [None, 0])
def test_write_over_an_expired_value_records_its_expiry_first(expected: int | None) -> None:
    given(written(1, until=160)).when(set_(2, expected), by="bob", at=160).then(expired(160), written(2, by="bob"))


@pytest.mark.parametrize("expected", [1, 2, 3])
def test_no_version_matches_an_expired_value(expected: int) -> None:
    past = given(written(1, until=160))
    for command in (set_(2, expected), check(expected)):
        refusal = past.when(command, at=160).refused(ConflictError)
        assert (refusal.detail.actual_version, refusal.detail.actual_value) == (0, None)


@pytest.mark.parametrize("expected", [None, 0, 1, 2])
def test_expired_value_cannot_be_deleted_with_any_version(expected: int | None) -> None:
    refusal = given(written(1, until=160)).when(delete(expected), at=200).refused(NotFoundError)
    assert (refusal.facts["version"], refusal.facts["deleted_by"]) == (2, "ann")
    assert refusal.facts["deleted_at"] == refusal.facts["expires_at"] == datetime(1970, 1, 1, 0, 2, 40, tzinfo=UTC)


def test_version_check_for_an_expired_value_changes_nothing() -> None:
    given(written(1, until=160)).when(check(0), at=160).then()


def test_versions_continue_after_an_expiry() -> None:
    past = given(written(1, until=2), expired(2), written(2))
    assert past.record.version == 3
    past.when(set_(3, expected_version=1)).refused(ConflictError)
    past.when(set_(3, expected_version=3), by="ann").then(written(3))


def test_expiry_removes_the_value_from_the_state_and_keeps_its_time() -> None:
    state = given(written("x", by="ann", until=160), expired(160)).record
    assert (state.live, state.value, state.updated_by) == (False, NULL, "ann")
    assert (state.updated_at, state.expires_at) == (160 * SECOND, 160 * SECOND)


def test_expired_value_reads_as_it_will_once_its_expiry_is_recorded() -> None:
    due, noticed = given(written("x", until=160)).record, given(written("x", until=160), expired(160)).record
    assert seen(due, 159 * SECOND) == due
    assert seen(due, 160 * SECOND) == noticed
    assert seen(noticed, 1_000 * SECOND) == noticed


def test_deletion_and_new_value_discard_the_expiry() -> None:
    assert given(written(1, until=160), deleted()).record.expires_at is None
    assert given(written(1, until=160), written(2)).record.expires_at is None


@pytest.mark.parametrize("seconds", [0, -1, 0.000_000_9, MAX_TTL_SECONDS + 1, float("inf"), float("nan")])
def test_time_to_live_has_limits(seconds: float) -> None:
    with pytest.raises(ValueError, match="ttl_seconds"):
        set_(1, ttl=seconds)


def test_merge_applies_to_the_current_value_or_to_nothing() -> None:
    given(written({"a": 1, "b": 2})).when(merge({"a": None, "c": 3}), by="bob").then(
        written({"b": 2, "c": 3}, by="bob")
    )
    given().when(merge({"a": 1, "b": None}), by="ann").then(written({"a": 1}))
    given(written({"a": 1}), deleted()).when(merge({"b": 2}), by="ann").then(written({"b": 2}))
    given(written({"a": 1}, until=2)).when(merge({"b": 2}), by="ann", at=5).then(expired(2), written({"b": 2}))


def test_merge_on_another_version_is_refused() -> None:
    given(written({})).when(merge({}, expected_version=0)).refused(ConflictError)
    given().when(merge({}, expected_version=1)).refused(ConflictError)


def test_merge_keeps_the_expiry_unless_it_sets_one() -> None:
    given(written({}, until=9)).when(merge({"a": 1}, ttl=60), by="ann", at=5).then(written({"a": 1}, until=9))
    given(written({}, until=9)).when(merge({"a": 1}, ttl=60, keeps=False), at=5, by="ann").then(
        written({"a": 1}, until=65)
    )
    given(written({}, until=9)).when(merge({"a": 1}, keeps=False), at=5, by="ann").then(written({"a": 1}))
    given().when(merge({"a": 1}, ttl=60), at=5, by="ann").then(written({"a": 1}, until=65))


def test_merge_that_would_make_a_value_too_large_is_refused() -> None:
    given(written({"a": "0123456"})).when(merge({"b": "01234"})).refused(TooLargeError)
    given(written({"a": "0123456"})).when(merge({"a": "01234567890"}), by="ann").then(written({"a": "01234567890"}))
