"""Pages end by bytes too: put together they are the whole, and none is so long that it holds up a server."""

import json
from collections.abc import Iterator

import pytest

from holdlog.adapters.api.values.responses import Export, History, RecordList, Result
from holdlog.adapters.python.store import StateStore
from holdlog.adapters.runtime.engine import Engine
from tests.contracts.conftest import IN_A_FILE_IN_TIME

BOUND = 1.3 * 1024 * 1024
"""Bytes of a page as JSON, what stands beside the values included."""

LIMIT = 200 * 1000
SIZES = [LIMIT, 1, 10, LIMIT, LIMIT, 3, LIMIT, LIMIT, LIMIT, LIMIT, LIMIT, 1, 1, LIMIT, LIMIT, 100_000, 100_000] * 3


def write(engine: Engine, key: str, size: int) -> None:
    engine.write(engine.requests.values.set("n", key, "é" * (size // 2), "ann", None), engine.caller)


def size_of(page: Result) -> int:
    return len(json.dumps(page.body(), ensure_ascii=False).encode())


def lists(engine: Engine, limit: int = 1000, deleted: bool = False) -> Iterator[RecordList]:
    after: str | None = None
    while True:
        page = engine.read(engine.requests.values.records("n", "", limit, after, deleted))
        yield page
        if (after := page.next_after) is None:
            return


def histories(engine: Engine, limit: int = 1000) -> Iterator[History]:
    before: int | None = None
    while True:
        page = engine.read(engine.requests.values.history("n", "k", limit, before))
        yield page
        if (before := page.next_before) is None:
            return


def exports(engine: Engine, include_deleted: bool = False) -> Iterator[Export]:
    after: str | None = None
    while True:
        page = engine.read(engine.requests.values.export("n", include_deleted, after))
        yield page
        if (after := page.next_after) is None:
            return


def test_lists_of_large_values_come_in_pages_that_make_the_whole(engine: Engine) -> None:
    for number, size in enumerate(SIZES):
        write(engine, f"{number:03}", size)
    pages = list(lists(engine))
    assert [it.key for page in pages for it in page.records] == [f"{number:03}" for number in range(len(SIZES))]
    assert all(page.count == len(page.records) and size_of(page) < BOUND for page in pages)
    assert 6 < len(pages) < 20
    assert [page.count for page in lists(engine, limit=1)] == [1] * len(SIZES)


def test_histories_of_large_values_come_in_pages_that_make_the_whole(engine: Engine) -> None:
    for size in SIZES:
        write(engine, "k", size)
    pages = list(histories(engine))
    assert [it.version for page in pages for it in page.history] == list(range(len(SIZES), 0, -1))
    assert all(size_of(page) < BOUND for page in pages)
    assert [len(page.history) for page in histories(engine, limit=1)] == [1] * len(SIZES)


@pytest.mark.check
@pytest.mark.parametrize("include_deleted", [False, True])
def test_exports_of_large_histories_come_in_pages_that_make_the_whole(engine: Engine, include_deleted: bool) -> None:
    keys = [f"{number:03}" for number in range(30)]
    for number, key in enumerate(keys):
        for size in SIZES[: number % 9 + 1]:  # nine of them have more bytes than a page
            write(engine, key, size)
        if number % 4 == 0:
            engine.write(engine.requests.values.delete("n", key, "ann", None), engine.caller)
    pages = list(exports(engine, include_deleted))
    live = [key for number, key in enumerate(keys) if number % 4]
    assert [it.key for page in pages for it in page.records] == (keys if include_deleted else live)
    for page in pages:
        assert page.record_count == 1 or size_of(page) < BOUND
        assert all([it.version for it in record.history][-1] == 1 for record in page.records)
    whole = engine.read(engine.requests.values.all_exported("n", include_deleted))
    assert whole.records == [record for page in pages for record in page.records]
    assert (whole.next_after, whole.history_count) == (None, sum(page.history_count for page in pages))


def test_row_larger_than_a_page_is_a_page_by_itself(engine: Engine) -> None:
    for _ in range(9):
        write(engine, "b", LIMIT)
    for key in ("a", "c"):
        write(engine, key, 1)
    assert [[it.key for it in page.records] for page in exports(engine)] == [["a"], ["b"], ["c"]]


@pytest.mark.check
@IN_A_FILE_IN_TIME
def test_many_small_entries_are_split_into_pages_too(engine: Engine) -> None:
    for number in range(7):
        for _ in range(1000):
            write(engine, str(number), 1)
    pages = list(exports(engine))
    assert [page.history_count for page in pages] == [5000, 2000]
    assert all(size_of(page) < BOUND for page in pages)


@pytest.mark.check
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 24, 25, 1000, 1001])
def test_small_values_come_in_pages_of_rows(engine: Engine, count: int) -> None:
    for number in range(count):
        write(engine, f"{number:04}", 1)
    expected = [1000, 1] if count == 1001 else [count]
    assert [page.count for page in lists(engine)] == expected
    assert [page.count for page in lists(engine, deleted=True)] == [0]


def test_results_without_a_page_cursor_are_never_cut(place: str) -> None:
    with StateStore(place) as store:
        for number in range(10):
            for key in ("k", f"{number}"):
                store.set("n", key, "x" * LIMIT, updated_by="ann")
        assert len(store.list_keys("n")) == 11
        assert len(store.history("n", "k")) == 10
        assert store.export_namespace("n").history_count == 20
        assert store.list_records("n").count == 5
