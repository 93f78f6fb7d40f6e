"""The library's values: set, get, list, history, delete, clear, export, time to live. On every kind of store."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from inspect import iscoroutinefunction

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.waiting import until


def put(store, value=1, key="k", by="ann", **options):
    return store.set("n", key, value, updated_by=by, **options)


def events(store):
    """The whole log, to see that nothing was written."""
    return [(it.position, it.kind) for it in store.events(limit=1000).events]


def keys(records):
    return [it.key for it in records]


# --- set and get


def test_set_returns_version_previous_version_and_position(store):
    done = put(store, {"a": [1, None]})
    assert (done.status, done.namespace, done.key) == ("ok", "n", "k")
    assert (done.version, done.previous_version, done.position) == (1, None, 1)
    again = put(store, 2, expected_version=1)
    assert (again.version, again.previous_version, again.position) == (2, 1, 2)


def test_get_returns_value_author_and_time(store):
    put(store, {"a": [1, None]})
    found = store.get("n", "k")
    assert (found.value, found.version, found.updated_by) == ({"a": [1, None]}, 1, "ann")
    assert found.updated_at.utcoffset() == timedelta(0)
    assert found.expires_at is None


def test_set_without_a_version_is_unconditional(store):
    assert [put(store, number).version for number in range(3)] == [1, 2, 3]


def test_conflict_carries_its_detail_and_changes_nothing(store):
    put(store, "theirs", by="bob")
    for expected in (0, 2):
        with pytest.raises(holdlog.ConflictError) as conflict:
            put(store, "mine", expected_version=expected)
        detail = conflict.value.detail
        assert (detail.expected_version, detail.actual_version, detail.actual_value) == (expected, 1, "theirs")
        assert (detail.actual_updated_by, detail.actual_updated_at.utcoffset()) == ("bob", timedelta(0))
    assert len(events(store)) == 1
    assert put(store, "mine", expected_version=1).version == 2


def test_missing_key_is_not_found(store):
    for call in (store.get, lambda *at: store.delete(*at, deleted_by="ann")):
        with pytest.raises(holdlog.NotFoundError):
            call("n", "k")
    with pytest.raises(holdlog.ConflictError) as conflict:
        put(store, expected_version=1)
    assert conflict.value.detail.actual_version == 0


VALUES = [
    None,
    False,
    0,
    -0.0,
    5e-324,
    1e308,
    10**60,
    "",
    "\0\u2028é👩‍👧\U0010ffff",
    [],
    {},
    {"": {"a\0b": []}},
    {"_type_": "uuid_hex", "_data_": "x"},
    {"__class__": "x", "py/object": "os.system"},
    [[[1, {"z": 1, "a": [None]}]]],
]


def test_values_come_back_as_they_went_in(store):
    for number, value in enumerate(VALUES):
        put(store, value, f"{number:02}")
    assert [repr(it.value) for it in store.list_keys("n")] == [repr(value) for value in VALUES]
    assert [repr(store.get("n", f"{it:02}").value) for it in range(len(VALUES))] == [repr(value) for value in VALUES]


NAMES = ["a", "A", "a/b", "%", "a%b", "_", "a:b", "a b", "é", "日本", "\U0001f600", "a\\b", '"', "'; DROP", "x" * 512]


def test_similar_names_are_kept_apart(store):
    for name in NAMES:
        put(store, name, name)
        store.set(name, "k", name, updated_by="ann")
    assert keys(store.list_keys("n")) == sorted(NAMES)
    assert store.list_namespaces() == sorted([*NAMES, "n"])
    assert [store.get(name, "k").value for name in NAMES] == [store.get("n", name).value for name in NAMES] == NAMES


def test_names_are_normalised(store):
    put(store, 1, "cafe\u0301/1")
    assert store.get("n", "caf\u00e9/1").value == 1
    assert keys(store.list("n", prefix="cafe\u0301").records) == ["caf\u00e9/1"]


# --- lists


def test_list_comes_in_pages_of_one_snapshot(store):
    for key in ("b", "a", "c", "ab"):
        put(store, key.upper(), key)
    store.delete("n", "c", deleted_by="ann")
    page = store.list("n", limit=2)
    assert (keys(page.records), page.count, page.next_after, page.position) == (["a", "ab"], 2, "ab", 5)
    rest = store.list("n", after_key=page.next_after)
    assert (keys(rest.records), rest.next_after) == (["b"], None)
    assert [(it.key, it.value, it.version, it.updated_by) for it in rest.records] == [("b", "B", 1, "ann")]
    assert keys(store.list("n", deleted=True).records) == ["c"]


@pytest.mark.parametrize("prefix", ["", "a", "a%", "_", "é", "zz"])
def test_prefix_is_taken_literally(store, prefix):
    for name in NAMES:
        put(store, 1, name)
    assert keys(store.list("n", prefix=prefix).records) == sorted(it for it in NAMES if it.startswith(prefix))


def test_namespaces_of_live_values_are_listed(store):
    for namespace in ("b", "a", "gone"):
        store.set(namespace, "k", 1, updated_by="ann")
    store.delete("gone", "k", deleted_by="ann")
    assert store.list_namespaces() == ["a", "b"]
    assert store.list_keys("gone") == store.list_keys("never") == []


def test_pages_of_large_values_make_the_whole(store):
    for number in range(9):
        put(store, "é" * 100_000, f"{number}")
    found, after = [], None
    while after != "" and (page := store.list("n", after_key=after)):
        assert 1 <= page.count == len(page.records) <= 8
        found, after = found + keys(page.records), page.next_after or ""
    assert found == [f"{number}" for number in range(9)]
    assert len(store.list_keys("n")) == 9


# --- history


def test_history_is_newest_first_with_reasons(store):
    put(store, 1, reason="because")
    put(store, None, by="bob")
    store.delete("n", "k", deleted_by="cleo", reason="done")
    assert [(it.version, it.event_type, it.value, it.updated_by, it.reason) for it in store.history("n", "k")] == [
        (3, "delete", None, "cleo", "done"),
        (2, "write", None, "bob", None),
        (1, "write", 1, "ann", "because"),
    ]
    assert [it.version for it in store.history("n", "k", limit=1, before_version=3)] == [2]
    assert store.history("n", "never") == []


def test_history_says_what_a_write_was_based_on(store):
    put(store, 1)
    put(store, 2, expected_version=1)
    put(store, 3)
    assert [(it.based_on, it.forced) for it in store.history("n", "k")] == [(None, True), (1, None), (None, None)]


# --- delete and clear


def test_versions_are_never_reused_after_a_deletion(store):
    put(store, 1)
    with pytest.raises(holdlog.ConflictError):
        store.delete("n", "k", deleted_by="bob", expected_version=7)
    done = store.delete("n", "k", deleted_by="bob", expected_version=1)
    assert (done.deleted_by, done.deleted_version, done.version, done.position) == ("bob", 1, 2, 2)
    with pytest.raises(holdlog.NotFoundError):
        store.delete("n", "k", deleted_by="bob")
    with pytest.raises(holdlog.ConflictError):
        put(store, 2, expected_version=1)
    again = put(store, 2, expected_version=0)
    assert (again.version, again.previous_version) == (3, None)
    store.clear_namespace("n", deleted_by="bob")
    assert put(store, 3, expected_version=0).version == 5


def test_clear_namespace_returns_the_keys_in_order(store):
    for key in ("b", "a", "gone"):
        put(store, 1, key)
    store.delete("n", "gone", deleted_by="ann")
    store.set("other", "k", 1, updated_by="ann")
    done = store.clear_namespace("n", deleted_by="bob")
    assert (done.deleted_count, done.deleted_keys, done.deleted_by, done.position) == (2, ["a", "b"], "bob", 7)
    assert store.clear_namespace("n", deleted_by="bob").deleted_count == 0
    assert store.list_namespaces() == ["other"]


# --- export


def test_export_has_all_values_with_their_histories(store):
    for key in ("b", "a", "gone"):
        put(store, 1, key)
        put(store, 2, key)
    store.delete("n", "gone", deleted_by="ann")
    export = store.export_namespace("n")
    assert (export.namespace, export.record_count, export.history_count, export.position) == ("n", 2, 4, 7)
    assert [(it.key, it.value, it.version, len(it.history)) for it in export.records] == [
        ("a", 2, 2, 2),
        ("b", 2, 2, 2),
    ]
    assert [(it.version, it.value, it.event_type) for it in export.records[0].history] == [
        (2, 2, "write"),
        (1, 1, "write"),
    ]
    assert store.export_namespace("n", include_deleted=True).history_count == 7


# --- time to live


def test_time_to_live_is_shown_and_cleared_by_the_next_set(store):
    put(store, ttl_seconds=3600)
    found = store.get("n", "k")
    assert 3500 < found.expires_in_seconds <= 3600
    assert 3599 < (found.expires_at - found.updated_at).total_seconds() <= 3600
    put(store, 2)
    assert store.get("n", "k").expires_at is None


def test_expired_value_is_gone_for_every_reader_and_its_version_used_up(store):
    put(store, 1, "stays")
    put(store, 1, ttl_seconds=0.05)
    until(lambda: not _exists(store))
    assert keys(store.list_keys("n")) == keys(store.export_namespace("n").records) == ["stays"]
    with pytest.raises(holdlog.ConflictError) as conflict:
        put(store, 2, expected_version=1)
    assert conflict.value.detail.actual_version == 0
    assert put(store, 2, expected_version=0).version == 3
    assert [(it.version, it.event_type) for it in store.history("n", "k")] == [
        (3, "write"),
        (2, "expire"),
        (1, "write"),
    ]


def _exists(store):
    try:
        return store.get("n", "k")
    except holdlog.NotFoundError:
        return None


def test_namespace_of_expired_values_is_not_listed_nor_cleared(store):
    put(store, ttl_seconds=0.000_001)
    assert store.list_namespaces() == []
    assert store.clear_namespace("n", deleted_by="ann").deleted_count == 0


# --- many callers


def test_threads_share_a_store(store):
    def count(_):
        for _ in range(10):
            store.update("n", "k", lambda value: (value or 0) + 1, updated_by="ann")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
        written = list(pool.map(lambda number: put(store, number, f"k{number}").position, range(50)))
    assert store.get("n", "k").value == 80
    assert sorted(written) == list(range(81, 131))


@both_stores
def test_handles_of_one_store_see_each_other_at_once(open_store):
    one, two = open_store(), open_store()
    for number in range(20):
        writer, reader = (one, two) if number % 2 else (two, one)
        put(writer, number, expected_version=number)
        assert reader.get("n", "k").value == number
    one.close()
    assert put(two, 9).version == 21


@both_stores
def test_one_of_several_writers_with_the_same_version_wins(open_store):
    stores = [open_store() for _ in range(4)]

    def write(store):
        try:
            return put(store, expected_version=0).version
        except holdlog.ConflictError as conflict:
            return -conflict.detail.actual_version

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(write, stores)) == [-1, -1, -1, 1]


# --- opening and closing


def test_closed_store_raises(store):
    store.close()
    for call in (lambda: store.get("n", "k"), lambda: put(store), lambda: store.wait("r")):
        with pytest.raises(holdlog.HoldlogError, match="closed"):
            call()


@both_stores
def test_writes_during_a_close_are_done_or_refused(open_store):
    for _ in range(20):
        store = open_store()

        def write(number, store=store):
            try:
                while True:
                    put(store, number, f"k{number}")
            except holdlog.StoreError as refused:
                return str(refused)

        with ThreadPoolExecutor(6) as pool:
            writers = [pool.submit(write, number) for number in range(6)]
            until(lambda store=store: len(store.list_keys("n")) > 2)
            store.close()
            assert {it.result(40) for it in writers} == {"the store is closed"}


def test_values_outlive_the_handle(open_store, kind):
    with_file = kind != "memory"
    first = open_store()
    put(first, [1])
    first.close()
    again = open_store()
    assert (keys(again.list_keys("n")) == ["k"]) == with_file


@pytest.mark.parametrize("url", ["redis://user:secret@host/db", "mysql://host/db"])
def test_url_of_an_unknown_kind_is_refused_without_its_password(url):
    with pytest.raises(holdlog.HoldlogError) as refused:
        holdlog.StateStore(url)
    assert "secret" not in str(refused.value)


def test_both_libraries_have_the_same_methods():
    def methods(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    assert methods(holdlog.StateStore) == methods(holdlog.AsyncStateStore)
    assert iscoroutinefunction(holdlog.AsyncStateStore.set)


def test_every_refusal_is_a_holdlog_error():
    names = ("ConflictError", "NotFoundError", "FencedError", "InvalidError", "StoreError", "UnavailableError")
    assert all(issubclass(getattr(holdlog, name), holdlog.HoldlogError) for name in names)
