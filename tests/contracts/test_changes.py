"""Difference and authorship of values, at any version, position and time, in every store."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdlog import InvalidError, NotFoundError, StateStore
from holdlog.adapters.api.changes import blame as blame_limits
from holdlog.adapters.api.changes import requests
from holdlog.adapters.api.changes.moments import NamedMoment, moment
from holdlog.adapters.api.changes.responses import Diff
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.refusals import DeniedError
from tests.support.kinds import InDatabase, InFile, Kind


@pytest.fixture
def store(place: str) -> Iterator[StateStore]:
    with StateStore(place) as opened:
        yield opened


def put(store: StateStore, key: str, value: Any, by: str = "ann", **more: Any) -> int:
    return store.set("n", key, value, updated_by=by, **more).position


def steps(diff: Diff) -> list[dict[str, Any]]:
    (change,) = diff.body()["changes"]
    paths: list[dict[str, Any]] = change["paths"]
    return paths


# --- difference


def test_difference_of_two_versions_names_the_changed_members(store: StateStore) -> None:
    put(store, "k", {"budget": 1000, "ads": ["a"], "note": "x"})
    put(store, "k", {"budget": 2000, "ads": ["a", "b"], "owner": None}, by="bob", reason="May")
    diff = store.diff("n", "k", from_version=1, to_version=2)
    assert steps(diff) == [
        {"op": "add", "path": "/ads/1", "value": "b"},
        {"op": "replace", "path": "/budget", "value": 2000, "previous": 1000},
        {"op": "remove", "path": "/note", "previous": "x"},
        {"op": "add", "path": "/owner", "value": None},
    ]
    (change,) = diff.changes
    assert (change.change, change.version_before, change.version_after) == ("changed", 1, 2)
    assert (change.updated_by, change.reason) == ("bob", "May")
    assert (diff.before.version, diff.after.version) == (1, 2)


def test_difference_to_version_zero_is_the_whole_value(store: StateStore) -> None:
    put(store, "k", None)
    assert steps(store.diff("n", "k", from_version=0)) == [{"op": "add", "path": "", "value": None}]
    assert steps(store.diff("n", "k", from_version=1, to_version=0)) == [{"op": "remove", "path": "", "previous": None}]


def test_versions_with_equal_values_do_not_differ(store: StateStore) -> None:
    put(store, "k", 1)
    put(store, "k", 1)
    assert store.diff("n", "k", from_version=1).changes == []
    put(store, "k", True)
    assert store.diff("n", "k", from_version=1).changes != []


def test_difference_of_a_namespace_lists_what_was_added_removed_and_changed(store: StateStore) -> None:
    for key in ("changed", "kept", "removed"):
        put(store, key, 1)
    start = put(store, "there and back", 1)
    put(store, "changed", 2, by="bob")
    put(store, "added", 1)
    put(store, "there and back", 2)
    put(store, "there and back", 1)
    store.delete("n", "removed", deleted_by="bob")
    middle = put(store, "come and gone", 1)
    end = store.delete("n", "come and gone", deleted_by="ann").position
    store.set("other", "added", 1, updated_by="ann")

    def listed(diff: Diff) -> dict[str, str]:
        return {it.key: it.change for it in diff.changes}

    diff = store.diff("n", from_position=start)
    assert listed(diff) == {"added": "added", "changed": "changed", "removed": "removed"}
    assert [it.updated_by for it in diff.changes] == ["ann", "bob", "bob"]
    assert [(it.version_before, it.version_after) for it in diff.changes] == [(None, 1), (1, 2), (1, 2)]
    assert "come and gone" in listed(store.diff("n", from_position=start, to_position=middle))
    assert listed(store.diff("n", from_position=middle, to_position=end)) == {"come and gone": "removed"}
    assert listed(store.diff("n", from_position=end, to_position=start)) == {
        "added": "removed",
        "changed": "changed",
        "removed": "added",
    }
    assert len(store.diff("n", from_position=0).changes) == 4


def test_difference_comes_in_pages_by_key(store: StateStore) -> None:
    for number in range(7):
        put(store, f"{number}", "x" * 200_000 if number > 1 else number)
    found: list[str] = []
    after: str | None = None
    pages = 0
    while True:
        page = store.diff("n", from_position=0, limit=3, after_key=after)
        found += [it.key for it in page.changes]
        assert len(page.changes) <= 3
        pages += 1
        if (after := page.next_after) is None:
            break
    assert (found, pages) == ([str(number) for number in range(7)], 3)


def test_page_compares_a_bounded_number_of_keys_and_continues_after_them(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = max(put(store, str(number), 0) for number in range(9))
    for number in range(9):
        put(store, str(number), number // 5)
    monkeypatch.setattr(requests, "MAX_COMPARED", 4)
    pages, after = [], None
    for _ in range(3):
        page = store.diff("n", from_position=position, after_key=after)
        after = page.next_after
        pages.append(([it.key for it in page.changes], after))
    assert pages == [([], "3"), (["5", "6", "7"], "7"), (["8"], None)]


def test_difference_between_times_is_that_between_the_positions_then(store: StateStore) -> None:
    put(store, "k", 1)
    between = store.get("n", "k").updated_at
    put(store, "k", 2)
    for time in (between, between.isoformat(), between.astimezone(UTC).isoformat().replace("+00:00", "Z")):
        diff = store.diff("n", from_time=time)
        assert steps(diff) == [{"op": "replace", "path": "", "value": 2, "previous": 1}]
        assert diff.before.position == 1
    put(store, "later", 1)
    assert [it.key for it in store.diff("n", from_time=between).changes] == ["k", "later"]
    assert [it.key for it in store.diff("n", from_position=0, to_time=between).changes] == ["k"]


def test_value_that_expired_between_two_moments_was_removed(store: StateStore) -> None:
    position = put(store, "k", 1, ttl_seconds=0.05)
    end = store.get("n", "k").expires_at
    assert end is not None
    while True:
        try:
            store.get("n", "k")
        except NotFoundError:
            break
    diff = store.diff("n", from_position=position)
    assert [(it.key, it.change, it.version_before, it.updated_by) for it in diff.changes] == [
        ("k", "removed", 1, "ann")
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "from_position: required"),
        ({"key": "k"}, "from_version: required"),
        ({"key": "k", "from_version": 9}, "from_version: is 9, but the key has version 1"),
        ({"from_version": 1}, "from_version: needs key"),
        ({"from_position": 0, "to_version": 1}, "to_version: needs key"),
        ({"from_position": 99}, "from_position: is 99, but the log ends at position 1"),
        ({"from_position": 0, "to_position": 99}, "to_position: is 99"),
        ({"from_position": 0, "from_time": datetime.now(UTC)}, "from_time: not together with from_position"),
        ({"from_position": -1}, "from_position: must be a whole number"),
        ({"from_time": "yesterday"}, "from_time: must be a time"),
        ({"from_time": datetime.now(UTC) + timedelta(days=1)}, "from_time: is in the future"),
        ({"from_time": datetime(1999, 1, 1, tzinfo=UTC)}, "from_time: is before the first event"),
        ({"from_position": 0, "limit": 0}, "limit: must be"),
    ],
)
def test_moments_that_cannot_be_are_refused_by_name(store: StateStore, arguments: dict[str, Any], said: str) -> None:
    put(store, "k", 1)
    with pytest.raises(InvalidError) as refused:
        store.diff("n", **arguments)
    assert str(refused.value).startswith(said)


# --- authorship


def test_blame_names_the_author_and_what_the_write_relied_on(store: StateStore) -> None:
    put(store, "k", 1)
    grant = store.claim("a.py", agent="bob")
    assert grant.status == "claimed"
    guard = [{"resource": "a.py", "version": grant.version}]
    put(store, "k", 2, by="bob", expected_version=1, guard=guard, reason="because")
    body = store.blame("n", "k").body()
    author = body["author"]
    assert body["value"] == 2
    assert {name: author[name] for name in ("version", "updated_by", "based_on", "guard", "reason", "event_type")} == {
        "version": 2,
        "updated_by": "bob",
        "based_on": 1,
        "guard": guard,
        "reason": "because",
        "event_type": "write",
    }
    assert author["session"].startswith("process-")
    assert "forced" not in author
    assert store.blame("n", "k", version=1).author.forced is None  # it created the key


def test_blame_of_fields_names_who_changed_each_of_them_last(store: StateStore) -> None:
    put(store, "k", {"a": 1, "b": 1, "c": [1], "gone": 1}, by="one")
    put(store, "k", {"a": 2, "b": 1, "c": [1], "gone": 1}, by="two")
    put(store, "k", {"a": 2, "b": 1, "c": [1, 2]}, by="three")
    position = put(store, "k", {"a": 2, "b": True, "c": [1, 2]}, by="four")
    put(store, "k", {"a": 2, "b": True, "c": [1, 2], "new": None}, by="five")

    def authors(**moment: Any) -> dict[str, str]:
        return {it.field: it.updated_by for it in store.blame("n", "k", fields=True, **moment).fields or ()}

    assert authors() == {"a": "two", "b": "four", "c": "three", "new": "five"}
    assert authors(position=position) == {"a": "two", "b": "four", "c": "three"}
    assert authors(version=2) == {"a": "two", "b": "one", "c": "one", "gone": "one"}


def test_a_field_that_was_deleted_in_between_belongs_to_who_wrote_it_again(store: StateStore) -> None:
    put(store, "k", {"a": 1}, by="one")
    store.delete("n", "k", deleted_by="two")
    put(store, "k", {"a": 1}, by="three")
    (field,) = store.blame("n", "k", fields=True).fields or ()
    assert (field.updated_by, field.version) == ("three", 3)


def test_blame_of_a_deleted_key_names_who_deleted_it(store: StateStore) -> None:
    put(store, "k", {"a": 1})
    store.delete("n", "k", deleted_by="bob", reason="done")
    found = store.blame("n", "k", fields=True)
    assert (found.missing, found.author.event_type, found.author.updated_by) == (True, "delete", "bob")
    assert (found.author.reason, found.fields) == ("done", [])


def test_blame_of_a_key_that_did_not_exist_yet_is_not_found(store: StateStore) -> None:
    position = put(store, "other", 1)
    put(store, "k", 1)
    with pytest.raises(NotFoundError):
        store.blame("n", "k", position=position)
    with pytest.raises(NotFoundError):
        store.blame("n", "none")
    with pytest.raises(InvalidError, match=r"^version: is 2, but"):
        store.blame("n", "k", version=2)
    with pytest.raises(InvalidError, match=r"^time: not together with version"):
        store.blame("n", "k", version=1, time="2026-01-01T00:00:00Z")


def test_fields_come_in_pages_by_name(store: StateStore) -> None:
    put(store, "k", {str(number): number for number in range(5)}, by="one")
    put(store, "k", {str(number): number % 4 for number in range(5)}, by="two")
    first = store.blame("n", "k", fields=True, limit=3)
    rest = store.blame("n", "k", fields=True, limit=3, after_field=first.next_after)
    assert [it.field for it in (*(first.fields or ()), *(rest.fields or ()))] == ["0", "1", "2", "3", "4"]
    assert [it.updated_by for it in rest.fields or ()] == ["one", "two"]
    assert rest.next_after is None


def test_blame_stops_at_its_limit_and_continues_from_there(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "k", {"old": 0, "n": 0}, by="one")
    for number in range(1, 20):
        put(store, "k", {"old": 0, "n": number}, by="two")
    monkeypatch.setattr(blame_limits, "MAX_VERSIONS", 12)
    found = store.blame("n", "k", fields=True)
    assert ([it.field for it in found.fields or ()], found.older, found.next_version) == (["n"], ["old"], 8)
    rest = store.blame("n", "k", fields=True, version=found.next_version)
    assert {it.field: it.updated_by for it in rest.fields or ()}["old"] == "one"


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return (
        InFile(tmp_path / "state.db") if request.param == "sqlite" else InDatabase(request.getfixturevalue("postgres"))
    )


def test_redacted_version_is_named_and_makes_older_authors_uncertain(kind: Kind) -> None:
    with StateStore(kind.place) as store:
        for number, by in enumerate(("one", "two", "three")):
            put(store, "fields", {"a": 1, "n": number}, by=by)
    kind.doctored(
        "UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = salt WHERE originator_version = 2"
    )
    with StateStore(kind.place) as store:
        fields = {it.field: it for it in store.blame("n", "fields", fields=True).fields or ()}
        assert {name: (it.updated_by, it.uncertain) for name, it in fields.items()} == {
            "a": ("three", True),
            "n": ("three", True),
        }
        then = store.blame("n", "fields", version=2)
        assert (then.value, then.author.redacted, then.author.updated_by) == (None, True, "two")
        (change,) = store.diff("n", "fields", from_version=1, to_version=2).changes
        assert (change.redacted, change.paths) == (True, None)


def test_callers_see_only_what_their_grants_allow(engine: Engine) -> None:
    engine.write(engine.requests.values.set("n", "k", 1, "ann", None), engine.caller)
    reads = engine.requests.within(Grants.parse(("read-values:n",))).changes
    administers = engine.requests.within(Grants.parse(("admin:n",))).changes
    denied = engine.requests.within(Grants.parse(("write:other",))).changes
    now = NamedMoment("")
    assert engine.read(reads.blame("n", "k", now)).author.session is None
    assert engine.read(administers.blame("n", "k", now)).author.session is not None
    with pytest.raises(DeniedError):
        denied.blame("n", "k", now)
    with pytest.raises(DeniedError):
        denied.diff("n", None, moment("from", position=1))
