"""Whoever waits is woken by what it waits for, and leaves nothing behind."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.request import BlockingQuery
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.values import responses
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.log_tailer import LogTailer
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import InvalidError, StoreError
from holdlog.projections.waiting import EVERYTHING, wait_until, wait_until_async
from tests.support.commands import PATIENCE, until, until_async, write

LONG = 50.0
"""Seconds that no wait of these tests should last; a wake-up that is lost ends in a timeout that the test sees."""


def put(engine: Engine, value: Any, key: str = "k") -> responses.SetResult:
    return engine.write(engine.requests.values.set("n", key, value, "ann", None), NOBODY)


def drop(engine: Engine, key: str = "k") -> responses.DeleteResult:
    return engine.write(engine.requests.values.delete("n", key, "bob", None), NOBODY)


def claim(engine: Engine, agent: str = "ann") -> Any:
    return engine.claim(engine.requests.claims.claim("r", agent), NOBODY)


def release(engine: Engine, agent: str = "ann") -> Any:
    return engine.write(engine.requests.claims.release("r", agent), NOBODY)


def watch(engine: Engine, since: int, seconds: float = LONG) -> BlockingQuery[Any]:
    return engine.requests.values.watch("n", "k", since, seconds)


def wait(engine: Engine, seconds: float = LONG) -> BlockingQuery[Any]:
    return engine.requests.claims.wait("r", seconds)


class InThread:
    """Waits in a thread of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(8)

    def start(self, engine: Engine, call: BlockingQuery[Any]) -> Future[Any]:
        before = len(engine.notifier._wakers)
        future = self._pool.submit(engine.wait, call)
        until(lambda: len(engine.notifier._wakers) > before or future.done())
        return future

    def close(self) -> None:
        self._pool.shutdown()


class InCoroutine:
    """Waits as a coroutine, on a loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def start(self, engine: Engine, call: BlockingQuery[Any]) -> Future[Any]:
        before = listeners(engine)
        future = asyncio.run_coroutine_threadsafe(engine.wait_async(call), self._loop)
        until(lambda: listeners(engine) > before or future.done())
        return future

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def listeners(engine: Engine) -> int:
    """How many coroutines wait."""
    return sum(tailer._listeners for tailer in engine._log_tailers.values())


@pytest.fixture(params=[InThread, InCoroutine])
def waiter(request: pytest.FixtureRequest) -> Iterator[InThread | InCoroutine]:
    """Who waits; `start` answers when it has begun to."""
    started = request.param()
    yield started
    started.close()


Waiter = InThread | InCoroutine


# --- what wakes


def test_release_wakes_waiters(engine: Engine, waiter: Waiter) -> None:
    claim(engine)
    waiting = waiter.start(engine, wait(engine))
    release(engine)
    answer = waiting.result(PATIENCE)
    assert (answer.status, answer.previous_holder, answer.previous_outcome) == ("available", "ann", "released")


def test_wait_for_a_free_resource_returns_at_once(engine: Engine, waiter: Waiter) -> None:
    assert waiter.start(engine, wait(engine)).result(PATIENCE).status == "available"
    claim(engine)
    release(engine)
    assert waiter.start(engine, wait(engine, seconds=0)).result(PATIENCE).previous_holder == "ann"


def test_write_wakes_watchers_of_the_key(engine: Engine, waiter: Waiter) -> None:
    version = put(engine, 1).version
    watching = waiter.start(engine, watch(engine, version))
    put(engine, {"a": 2})
    answer = watching.result(PATIENCE)
    assert (answer.status, answer.value, answer.version, answer.updated_by) == ("ok", {"a": 2}, 2, "ann")


def test_deletion_wakes_watchers_of_the_key(engine: Engine, waiter: Waiter) -> None:
    version = put(engine, 1).version
    watching = waiter.start(engine, watch(engine, version))
    drop(engine)
    answer = watching.result(PATIENCE)
    assert (answer.status, answer.version, answer.deleted_by) == ("deleted", 2, "bob")


def test_clearing_a_namespace_wakes_watchers_of_its_keys(engine: Engine, waiter: Waiter) -> None:
    version = put(engine, 1).version
    watching = waiter.start(engine, watch(engine, version))
    engine.write(engine.requests.values.clear("n", "bob"), NOBODY)
    assert watching.result(PATIENCE).status == "deleted"


def test_new_value_wakes_watchers_that_knew_the_tombstone(engine: Engine, waiter: Waiter) -> None:
    put(engine, 1)
    tombstone = drop(engine).version
    watching = waiter.start(engine, watch(engine, tombstone))
    put(engine, 3)
    answer = watching.result(PATIENCE)
    assert (answer.status, answer.value, answer.version) == ("ok", 3, 3)


def test_watch_never_misses_a_quick_deletion_and_new_value(engine: Engine, waiter: Waiter) -> None:
    version = put(engine, 1).version
    watching = waiter.start(engine, watch(engine, version))
    drop(engine)
    put(engine, 3)
    assert watching.result(PATIENCE).version in (2, 3)


def test_watch_reports_earlier_changes_at_once(engine: Engine, waiter: Waiter) -> None:
    put(engine, 1)
    put(engine, 2)
    assert waiter.start(engine, watch(engine, 1, seconds=0)).result(PATIENCE).version == 2
    drop(engine)
    assert waiter.start(engine, watch(engine, 2, seconds=0)).result(PATIENCE).status == "deleted"
    assert waiter.start(engine, watch(engine, 1, seconds=0)).result(PATIENCE).version == 3


def test_watch_from_version_0_waits_until_the_key_exists(engine: Engine, waiter: Waiter) -> None:
    watching = waiter.start(engine, watch(engine, 0))
    put(engine, 1, key="other")
    put(engine, 1)
    assert watching.result(PATIENCE).version == 1
    assert waiter.start(engine, watch(engine, 0, seconds=0)).result(PATIENCE).version == 1


def test_watch_from_version_0_waits_until_a_deleted_key_exists_again(engine: Engine, waiter: Waiter) -> None:
    put(engine, 1)
    drop(engine)
    assert waiter.start(engine, watch(engine, 0, seconds=0)).result(PATIENCE).status == "timeout"
    watching = waiter.start(engine, watch(engine, 0))
    put(engine, 3)
    assert watching.result(PATIENCE).version == 3


def test_watch_from_a_future_version_waits_for_it(engine: Engine, waiter: Waiter) -> None:
    put(engine, 1)
    watching = waiter.start(engine, watch(engine, 3))
    put(engine, 2)
    put(engine, 3)
    assert not watching.done()
    put(engine, 4)
    assert watching.result(PATIENCE).version == 4


def test_one_change_wakes_all_its_watchers(engine: Engine, waiter: Waiter) -> None:
    claim(engine)
    waiting = [waiter.start(engine, wait(engine)) for _ in range(4)]
    watching = [waiter.start(engine, watch(engine, 0)) for _ in range(4)]
    put(engine, 1)
    release(engine)
    assert {it.result(PATIENCE).status for it in waiting} == {"available"}
    assert {it.result(PATIENCE).status for it in watching} == {"ok"}


def test_no_wake_up_is_lost_in_any_race(engine: Engine, waiter: Waiter) -> None:
    """The write may come before the listening, between listening and looking, or after: each round by chance."""
    for version in range(150):
        call = watch(engine, version)
        together = threading.Barrier(2)
        with ThreadPoolExecutor(1) as pool:

            def write(together: threading.Barrier = together) -> None:
                together.wait()
                put(engine, "x")

            writing = pool.submit(write)
            together.wait()
            watching = waiter.start(engine, call)
            writing.result(PATIENCE)
            assert watching.result(PATIENCE).version == version + 1


def test_notification_between_registering_and_checking_is_received() -> None:
    """The order that loses a wake-up when `wait_until` looks first and listens then."""
    for make in (_wait_until, _wait_until_async):
        bell, store = ProcessNotifier(), open_memory()
        looks = 0

        def look(bell: ProcessNotifier = bell, store: SqliteStore = store) -> str | None:
            nonlocal looks
            looks += 1
            if looks == 1:
                write(store, "k", 1)  # the log grows right after this look
                bell.notify()
                return None
            return "found"

        assert make(look, bell, store) == "found"
        assert (looks, bell._wakers) == (2, [])
        looks = 0


def _wait_until(look: Callable[[], str | None], bell: ProcessNotifier, store: SqliteStore) -> str | None:
    return wait_until(look, bell, LONG)


def _wait_until_async(look: Callable[[], str | None], bell: ProcessNotifier, store: SqliteStore) -> str | None:
    async def look_async() -> str | None:
        return look()

    async def wait() -> str | None:
        return await wait_until_async(look_async, LogTailer(store, bell).listen(EVERYTHING), LONG)

    return asyncio.run(wait())


def test_notifications_without_a_reason_wake_no_caller(engine: Engine, waiter: Waiter) -> None:
    claim(engine)
    waiting = waiter.start(engine, wait(engine))
    for _ in range(20):
        engine.notifier.notify()
    assert not waiting.done()
    release(engine)
    assert waiting.result(PATIENCE).status == "available"


# --- the end of a wait


def test_wait_that_times_out_names_the_holder(engine: Engine, waiter: Waiter) -> None:
    claim(engine)
    answer = waiter.start(engine, wait(engine, seconds=0)).result(PATIENCE)
    assert (answer.status, answer.held_by, answer.capped_at_seconds) == ("timeout", "ann", None)


def test_watch_that_times_out_returns_the_current_version_and_its_time(engine: Engine, waiter: Waiter) -> None:
    put(engine, 1)
    answer = waiter.start(engine, watch(engine, 1, seconds=0.01)).result(PATIENCE)
    assert (answer.status, answer.since_version) == ("timeout", 1)
    assert answer.elapsed_seconds >= 0.01


def test_finished_wait_leaves_no_listener(engine: Engine, waiter: Waiter) -> None:
    claim(engine)
    waiter.start(engine, wait(engine, seconds=0)).result(PATIENCE)
    waiting = waiter.start(engine, wait(engine))
    release(engine)
    waiting.result(PATIENCE)
    assert engine.notifier._wakers == []


async def test_a_cancelled_wait_leaves_no_listener(engine: Engine) -> None:
    claim(engine)
    for _ in range(3):
        waiting = [asyncio.create_task(engine.wait_async(wait(engine))) for _ in range(5)]
        await until_async(lambda: listeners(engine) == 5)
        for task in waiting:
            task.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 5
        assert engine.notifier._wakers == []


def test_failed_check_ends_the_wait_and_leaves_no_listener(engine: Engine, waiter: Waiter) -> None:
    def fail(reader: Any, elapsed: float) -> None:
        raise StoreError("cannot be read")

    with pytest.raises(StoreError, match="cannot be read"):
        waiter.start(engine, BlockingQuery(fail, fail, LONG)).result(PATIENCE)
    assert engine.notifier._wakers == []


def test_closing_the_store_ends_waits(engine: Engine, waiter: Waiter) -> None:
    claim(engine)
    waiting = [waiter.start(engine, wait(engine)), waiter.start(engine, watch(engine, 0))]
    engine.close()
    for it in waiting:
        with pytest.raises(StoreError, match="closed"):
            it.result(PATIENCE)


def test_closed_event_loop_of_a_waiter_does_not_block_the_writer(engine: Engine) -> None:
    claim(engine)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(engine.wait_async(wait(engine)))
    while not engine.notifier._wakers:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    release(engine)
    assert put(engine, 1).version == 1
    assert not waiting.done()
    del waiting


def test_waits_are_cut_at_the_cap_and_report_it(place: str) -> None:
    engine = open_holdlog(place, Settings(max_wait=0.01))
    claim(engine)
    capped, free = engine.wait(wait(engine, seconds=3600)), engine.wait(wait(engine, seconds=0.01))
    watched = engine.wait(watch(engine, 0, seconds=51))
    engine.close()
    assert (capped.status, capped.capped_at_seconds, free.capped_at_seconds) == ("timeout", 0.01, None)
    assert (watched.status, watched.capped_at_seconds) == ("timeout", 0.01)


def test_wait_cap_is_50_seconds_by_default(engine: Engine) -> None:
    assert wait(engine, seconds=3600).seconds == watch(engine, 0, seconds=1e9).seconds == 50
    assert wait(engine, seconds=50).seconds == 50


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan"), float("inf"), "1", None, True, 1j])
def test_wait_timeout_must_be_a_finite_number_of_seconds(engine: Engine, seconds: Any) -> None:
    with pytest.raises(InvalidError, match="timeout_seconds"):
        wait(engine, seconds)
    with pytest.raises(InvalidError, match="timeout_seconds"):
        watch(engine, 0, seconds)


@pytest.mark.parametrize("version", [-1, 1.0, "1", None, True, 2**63, 2**70])
def test_since_version_of_a_watch_must_be_a_version(engine: Engine, version: Any) -> None:
    with pytest.raises(InvalidError, match="since_version"):
        watch(engine, version)


# --- over stores and processes that share a file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def other(file: Path) -> Iterator[Engine]:
    """A second opening of the same file, as another process has it."""
    holdlog = open_holdlog(file)
    yield holdlog
    holdlog.close()


@pytest.fixture
def mine(file: Path) -> Iterator[Engine]:
    holdlog = open_holdlog(file)
    yield holdlog
    holdlog.close()


def test_write_through_a_second_connection_wakes_waiters(mine: Engine, other: Engine, waiter: Waiter) -> None:
    for version in range(1, 40, 3):
        watching = waiter.start(mine, watch(mine, version - 1))
        put(other, 1)
        assert watching.result(PATIENCE).version == version
        watching = waiter.start(mine, watch(mine, version))
        drop(other)
        assert watching.result(PATIENCE).status == "deleted"
        watching = waiter.start(mine, watch(mine, version + 1))
        put(other, 1)
        assert watching.result(PATIENCE).version == version + 2


def test_release_through_a_second_connection_wakes_waiters(mine: Engine, other: Engine, waiter: Waiter) -> None:
    for _ in range(10):
        claim(other)
        waiting = waiter.start(mine, wait(mine))
        release(other)
        assert waiting.result(PATIENCE).status == "available"


def test_write_without_a_notification_is_noticed(mine: Engine, other: Engine, waiter: Waiter) -> None:
    """As when its datagram is lost."""
    watching = waiter.start(mine, watch(mine, 0))
    other.writer._notifier = ProcessNotifier()
    put(other, 1)
    assert watching.result(PATIENCE).version == 1


def test_no_wake_up_between_two_connections_is_lost_in_any_race(mine: Engine, other: Engine, waiter: Waiter) -> None:
    with ThreadPoolExecutor(1) as pool:
        for version in range(60):
            writing = pool.submit(put, other, version)
            assert waiter.start(mine, watch(mine, version)).result(PATIENCE).version == version + 1
            writing.result(PATIENCE)


ECHO = """
import sys
from holdlog import StateStore
with StateStore(sys.argv[1]) as store:
    print("open", flush=True)
    while True:
        found = store.watch("n", "ping", int(sys.stdin.readline()), timeout_seconds=50)
        if found.status == "deleted":
            break
        store.set("n", "pong", found.value, updated_by="echo")
"""


def test_waits_work_across_processes_in_both_directions(mine: Engine, file: Path, waiter: Waiter) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        for version in range(10):
            watching = waiter.start(mine, mine.requests.values.watch("n", "pong", version, LONG))
            process.stdin.write(f"{version}\n")
            process.stdin.flush()
            put(mine, f"ball {version}", key="ping")
            assert watching.result(PATIENCE).value == f"ball {version}"
        process.stdin.write("10\n")
        process.stdin.flush()
        drop(mine, key="ping")
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_wait_in_a_file_leaves_no_registration(mine: Engine, file: Path, waiter: Waiter) -> None:
    folder = file.with_name(file.name + ".bells")
    claim(mine)
    waiting = waiter.start(mine, wait(mine))
    until(lambda: folder.is_dir() and len(list(folder.iterdir())) == 1)
    release(mine)
    waiting.result(PATIENCE)
    mine.close()
    assert list(folder.iterdir()) == []


def test_store_in_memory_creates_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_holdlog(MEMORY).close()
    assert list(tmp_path.iterdir()) == []
