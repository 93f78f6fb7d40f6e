"""`changes` of the library: every event once and in order, however often it is cut and resumed from a bookmark."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdlog import AsyncStateStore, InvalidError, StateStore, UnavailableError, copy
from holdlog.adapters.compose import MEMORY
from holdlog.adapters.python import changes
from tests.support.commands import PATIENCE, until, until_async

CUT_EVERY = 0.05
WRITES = 400


def fill(store: StateStore, count: int = 5) -> None:
    for number in range(count):
        store.set("n", f"k{number}", number, updated_by="ann")


def positions(found: Iterator[Any]) -> list[int]:
    return [event.position for event in found]


def following(store: StateStore, pool: ThreadPoolExecutor, found: list[int], **arguments: Any) -> "Future[None]":
    """Another thread that follows the log until its iterator ends; returns once it waits for events."""

    def follow() -> None:
        found.extend(event.position for event in store.changes(**arguments))

    following = pool.submit(follow)
    until(lambda: store._engine.lease_maintenance.waiters == 1 or following.done())
    return following


def test_iterator_without_a_wait_ends_with_the_last_event(place: str) -> None:
    with StateStore(place) as store:
        fill(store)
        assert positions(store.changes(0, wait_seconds=0)) == [1, 2, 3, 4, 5]
        assert positions(store.changes(3, wait_seconds=0)) == [4, 5]
        assert positions(store.changes(wait_seconds=0)) == []


def test_bookmark_resumes_behind_the_event_that_was_returned_last(place: str) -> None:
    with StateStore(place) as store:
        fill(store)
        changes = store.changes(0, wait_seconds=0)
        assert changes.bookmark == 0
        assert positions(islice(changes, 2)) == [1, 2]
        bookmark = changes.bookmark
        assert isinstance(bookmark, str)
        assert bookmark.endswith(":2")
        assert positions(changes) == [3, 4, 5]
        assert positions(store.changes(bookmark, wait_seconds=0)) == [3, 4, 5]
        assert positions(store.changes(changes.bookmark, wait_seconds=0)) == []


def test_bookmark_advances_past_events_that_do_not_match(place: str) -> None:
    with StateStore(place) as store:
        fill(store)
        changes = store.changes(0, namespace="other", wait_seconds=0)
        assert list(changes) == []
        assert str(changes.bookmark).endswith(":5")


def test_every_filter_of_events_is_one_of_changes(place: str) -> None:
    with StateStore(place) as store:
        store.set("n", "a/1", 1, updated_by="ann")
        store.set("n", "b", 1, updated_by="bob")
        store.set("m", "a/1", 1, updated_by="ann/tests")
        store.claim("src/a.py", agent="bob")
        store.delete("n", "b", deleted_by="ann")

        def chosen(**filters: Any) -> list[int]:
            return positions(store.changes(0, wait_seconds=0, **filters))

        assert chosen(namespace="n") == [1, 2, 5]
        assert chosen(namespace="n", prefix="a/") == [1]
        assert chosen(agent="ann") == [1, 3, 5]
        assert chosen(resource="src/") == [4]
        assert chosen(kinds=["ValueDeleted", "claim"]) == [4, 5]
        assert chosen(thread="run-7") == []


@pytest.mark.parametrize(
    "after", [-1, True, "17", "nonsense", ":17", "id:", "id:-1", "id:1.5", "id:²", "id:" + "9" * 30, 1.5]
)
def test_malformed_bookmark_is_refused_by_name(after: Any) -> None:
    with StateStore(MEMORY) as store, pytest.raises(InvalidError, match=r"^after: must be a "):
        store.changes(after)


def test_bookmark_of_another_store_is_refused_by_name(place: str, tmp_path: Path) -> None:
    with StateStore(place) as store, StateStore(tmp_path / "other.db") as other:
        fill(store)
        fill(other)
        theirs = other.changes(0, wait_seconds=0)
        next(theirs)
        ours = store.changes(theirs.bookmark, wait_seconds=0)
        with pytest.raises(InvalidError, match=r"^after: is a bookmark of another store"):
            next(ours)


def test_bookmark_beyond_the_end_of_a_restored_log_is_refused(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:
        fill(store)
        changes = store.changes(0, wait_seconds=0)
        next(changes)
        store_id = str(changes.bookmark).rpartition(":")[0]
        with pytest.raises(InvalidError, match="after: is 6, but the log ends at position 5"):
            next(store.changes(f"{store_id}:6"))


def test_bookmark_of_a_moved_store_continues_there(tmp_path: Path) -> None:
    with StateStore(tmp_path / "old.db") as store:
        fill(store)
        changes = store.changes(0, wait_seconds=0)
        next(changes)
    copy(tmp_path / "old.db", tmp_path / "new.db", seal=True)
    with StateStore(tmp_path / "new.db") as moved:
        assert positions(moved.changes(changes.bookmark, wait_seconds=0)) == [2, 3, 4, 5]


def test_waiting_iterator_gets_new_events_and_ends_when_the_store_is_closed(place: str) -> None:
    found: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        with StateStore(place) as store:
            fill(store)
            done = following(store, pool, found, namespace="n")
            store.set("other", "k", 1, updated_by="ann")
            store.set("n", "k", 1, updated_by="ann")
            until(lambda: found == [7])
        done.result(PATIENCE)
    assert found == [7]


async def test_waiting_iterator_of_a_coroutine_ends_when_the_store_is_closed(place: str) -> None:
    found = asyncio.Queue[int]()

    async def follow() -> None:
        async for event in store.changes(0):
            found.put_nowait(event.position)

    async with asyncio.timeout(PATIENCE):
        async with AsyncStateStore(place) as store:
            await store.set("n", "k", 1, updated_by="ann")
            task = asyncio.create_task(follow())
            assert await found.get() == 1
            await until_async(lambda: store._engine.lease_maintenance.waiters == 1)
            await store.set("n", "k", 2, updated_by="ann")
            assert await found.get() == 2
        await task


async def test_cancelled_step_of_an_iterator_loses_no_event() -> None:
    async with AsyncStateStore(MEMORY) as store:
        changes = store.changes()
        step = asyncio.ensure_future(anext(changes))
        await until_async(lambda: store._engine.lease_maintenance.waiters == 1)
        step.cancel()
        with suppress(asyncio.CancelledError):
            await step
        await store.set("n", "k", 1, updated_by="ann")
        async with asyncio.timeout(PATIENCE):
            assert (await anext(changes)).position == 1


def test_iterator_ends_after_its_wait_without_an_event(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LONGEST_WAIT", 0.01)  # several waits, one after the other
    with StateStore(place) as store:
        fill(store)
        assert positions(store.changes(2, wait_seconds=0.05)) == [3, 4, 5]


class Outage:
    """Makes the reads of a store fail for a while, as a lost database does."""

    def __init__(self, store: StateStore, failures: int, retry_after: float) -> None:
        self._snapshot, self._reader = store._engine.store.snapshot, store._engine.store.reader
        self.left = failures
        self._retry_after = retry_after
        store._engine.store.snapshot = lambda: self._fail() or self._snapshot()  # type: ignore[method-assign]
        store._engine.store.reader = lambda: self._fail() or self._reader()  # type: ignore[method-assign]

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise UnavailableError("gone", self._retry_after)


def test_iterator_tries_again_while_the_store_is_unavailable() -> None:
    with StateStore(MEMORY) as store:
        fill(store)
        outage = Outage(store, failures=3, retry_after=0.001)
        assert positions(islice(store.changes(0), 5)) == [1, 2, 3, 4, 5]
        assert outage.left == 0


def test_iterator_raises_what_outlasts_its_wait() -> None:
    with StateStore(MEMORY) as store:
        Outage(store, failures=10, retry_after=1.0)
        with pytest.raises(UnavailableError):
            next(store.changes(0, wait_seconds=0.5))


# --- cut and resumed


class Writing:
    """A thread that writes to a store through an object of its own."""

    def __init__(self, place: str) -> None:
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(place,))
        self._thread.start()

    def _write(self, place: str) -> None:
        with StateStore(place) as store:
            for number in range(WRITES):
                self._write_once(store, number)
        self.ended.set()

    def _write_once(self, store: StateStore, number: int) -> None:
        namespace, key = "n" if number % 3 else "m", f"k{number % 7}"
        while True:
            with suppress(UnavailableError):  # the same request again resolves whatever doubt there is
                store.set(namespace, key, number, updated_by="ann", request_id=f"r-{number}")
                return

    def join(self) -> None:
        self._thread.join(PATIENCE)


@contextmanager
def cut_every(seconds: float, cut: Any) -> Iterator[None]:
    """Call `cut` every so many seconds while the block runs."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            cut()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("filters", [{}, {"namespace": "m", "prefix": "k"}], ids=["all", "namespace"])
@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_watcher_whose_store_is_closed_every_50_ms_sees_each_event_once(place: str, filters: dict[str, Any]) -> None:
    with StateStore(place) as store:
        bookmark: Any = 0
        writing = Writing(place)
        found: list[int] = []
        cuts = 0
        while not (writing.ended.is_set() and cuts > 3 and found and found[-1] >= WRITES - 2):
            watcher = StateStore(place)
            timer = threading.Timer(CUT_EVERY, watcher.close)
            timer.start()
            changes = watcher.changes(bookmark, **filters)
            found.extend(event.position for event in changes)
            bookmark = changes.bookmark
            timer.join()
            cuts += 1
        writing.join()
        assert found == positions(store.changes(0, wait_seconds=0, **filters))
        assert len(found) == (WRITES if not filters else len(range(0, WRITES, 3)))


def test_watcher_whose_connections_are_ended_every_50_ms_sees_each_event_once(postgres: str) -> None:
    schema = postgres.rpartition("schema=")[2]

    def cut() -> None:
        with psycopg.connect(postgres.rpartition("&")[0], autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'holdlog%%' AND pid <> pg_backend_pid() AND query LIKE %s",
                (f"%{schema}%",),
            )

    with StateStore(postgres) as watcher:
        writing = Writing(postgres)
        found: list[int] = []
        with cut_every(CUT_EVERY, cut):
            found.extend(event.position for event in islice(watcher.changes(0), WRITES))
        writing.join()
    assert found == list(range(1, WRITES + 1))
