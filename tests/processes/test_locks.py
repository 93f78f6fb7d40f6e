"""Locks that others hold: writes are refused in time and name the holder, everything else goes on."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdlog import AsyncStateStore, HoldlogError, StateStore, StoreError, UnavailableError
from holdlog.adapters.operating_system.write_lock import WriteLock
from tests.processes.conftest import Start
from tests.support.processes.soundness import require_sound
from tests.support.processes.strace import STRACE
from tests.support.processes.workers import PROMISED, until
from tests.support.slow import slow


def refused(write: Callable[[], Any]) -> UnavailableError:
    """The write is refused in the time that is promised."""
    started = time.monotonic()
    with pytest.raises(UnavailableError) as error:
        write()
    assert time.monotonic() - started < PROMISED
    assert not error.value.in_doubt
    return error.value


def put(store: StateStore, key: str = "k") -> int:
    return store.set("n", key, 1, updated_by="test").version


@pytest.mark.check
@pytest.mark.parametrize("holder", ["hold_lock", *slow("inside", "hold_gate")])
def test_writes_behind_an_endless_lock_are_refused_while_reads_continue(path: Path, start: Start, holder: str) -> None:
    with StateStore(path) as store:
        put(store)
        store.claim("src/", agent="ann")
        worker = start(holder, path)
        worker.hear()
        worker.stop()
        refusals: list[UnavailableError] = []
        writer = threading.Thread(target=lambda: refusals.append(refused(lambda: put(store))))
        writer.start()
        until(lambda: store._engine.writer._led)
        reads = 0
        while writer.is_alive():
            assert store.get("n", "k").version == 1
            assert store.status("src/").status == "claimed"
            assert store.wait("src/", 0.01).status == "timeout"
            assert store.watch("n", "k", 1, 0.01).status == "timeout"
            assert len(store.list_keys("n")) == 1
            reads += 1
        writer.join()
        assert reads > 10
        named = "a program other than holdlog" if holder == "hold_lock" else f"process {worker.pid}"
        assert named in str(refusals[0])
        worker.go_on()
        worker.tell()
        worker.hear()
        assert put(store) == 2
    require_sound(path)


@pytest.mark.check
@pytest.mark.parametrize("how", ["thread", "async"])
@pytest.mark.parametrize("holder", ["hold_gate", "hold_lock"])
def test_stopped_writer_resumes_its_wait_and_blames_nobody(path: Path, start: Start, holder: str, how: str) -> None:
    worker = start("write_hastily", path, PATIENCE, how)
    worker.hear()
    healthy = start(holder, path)
    healthy.hear()
    worker.tell()
    worker.hear()
    worker.stop()
    passed = time.monotonic() + 2 * PATIENCE
    until(lambda: time.monotonic() > passed)  # nothing else shows that its deadline has passed
    worker.go_on()
    beats = [worker.hear() for _ in range(5)]
    assert all("beat" in beat for beat in beats), beats
    healthy.tell()
    outcome = next(line for line in worker.rest() if "done" in line)
    assert outcome["answer"]["version"] == 1
    require_sound(path)


@pytest.mark.check
@pytest.mark.parametrize("how", ["thread", "async"])
def test_writer_that_ran_all_the_time_names_the_holder_of_the_lock(path: Path, start: Start, how: str) -> None:
    worker = start("write_hastily", path, 0.2, how)
    worker.hear()
    holder = start("hold_gate", path)
    holder.hear()
    worker.tell()
    outcome = next(line for line in worker.rest() if "done" in line)
    assert outcome["error"] == "UnavailableError"
    assert f"process {holder.pid}" in outcome["message"]


@pytest.mark.check
def test_alternating_writers_are_never_reported_as_stuck(path: Path, start: Start) -> None:
    worker = start("write_hastily", path, PATIENCE, "thread")
    worker.hear()
    gate = path.with_name(path.name + ".gate")
    holder = WriteLock(gate)
    holder.acquire(time.monotonic() + 5)
    worker.tell()
    worker.hear()
    with gate.open("r+b") as file:
        file.write(b"1 another writer went through".ljust(28))
    outcome = next(line for line in worker.rest() if "done" in line)
    holder.release()
    assert outcome["error"] == "UnavailableError"
    assert "other processes that write to the store" in outcome["message"]


@pytest.mark.slow
def test_every_writer_behind_a_lock_is_answered_in_time(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        put(store)
        holder = start("hold_lock", path)
        holder.hear()

        async def coroutines() -> None:
            async with AsyncStateStore(path) as other:

                async def late(number: int) -> None:
                    await asyncio.sleep(number / 10)
                    started = time.monotonic()
                    with pytest.raises(UnavailableError):
                        await other.set("n", "k", 1, updated_by="test")
                    assert time.monotonic() - started < PROMISED

                await asyncio.gather(*map(late, range(20)))

        failures: list[BaseException] = []

        def late(number: int) -> None:
            time.sleep(number / 10)
            try:
                refused(lambda: put(store))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=late, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        asyncio.run(coroutines())
        for thread in threads:
            thread.join()
        assert not failures
        holder.tell()
        holder.hear()
        assert put(store) == 2


PATIENCE = 1.5
"""Seconds of the writers that the tests stop: long enough for their beats after they go on."""
SLOW = "delay_enter=7500000"


@pytest.mark.check
@STRACE
def test_writers_outside_the_batch_on_a_hanging_disk_are_answered_in_time(path: Path, start: Start) -> None:
    StateStore(path).close()
    hang = ("strace", "-qq", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", f"inject=fdatasync:{SLOW}:when=9")
    worker = start("queue_behind_a_slow_disk", path, before=hang)
    said = worker.rest()
    followers = [line for line in said if line["who"] != "first"]
    assert len(followers) == 4
    for follower in followers:
        assert follower["error"] == "UnavailableError"
        assert not follower["in_doubt"]
        assert follower["seconds"] < PROMISED
    (first,) = (line for line in said if line["who"] == "first")
    assert first["answer"]["version"] == 1


@pytest.mark.check
def test_two_processes_with_separate_write_locks_return_to_one(path: Path, start: Start) -> None:
    gate = path.with_name(path.name + ".gate")
    with StateStore(path) as store:
        worker = start("serve", path)
        worker.hear()
        worker.tell("set a")
        worker.hear()
        gate.unlink()
        worker.tell("set a")
        assert worker.hear()["version"] == 2
        holder = start("hold_gate", path)
        holder.hear()
        worker.tell("set a")  # both wait at the one new gate
        assert f"process {holder.pid}" in str(refused(lambda: put(store)))
        assert worker.hear()["error"] == "UnavailableError"
        holder.tell()
        holder.hear()
        assert put(store, "b") == 1
        worker.tell("set a")
        assert worker.hear()["version"] == 3


def test_state_learnt_under_a_deleted_write_lock_is_discarded(path: Path, start: Start) -> None:
    """Another one may have written through the new gate: the time of its event must not lie after the next."""
    from holdlog.adapters.stores.sqlite.opening import open_sqlite
    from tests.support.clock import Clock
    from tests.support.commands import write

    early, late = Clock(1_000), Clock(2_000)
    first = open_sqlite(path, early)
    write(first, "k", 1)
    path.with_name(path.name + ".gate").unlink()
    second = open_sqlite(path, late)
    write(second, "k", 2)
    write(first, "k", 3)
    first.close()
    second.close()
    require_sound(path)


@pytest.mark.check
def test_interrupt_while_waiting_for_the_write_lock_leaves_it_free(path: Path, start: Start) -> None:
    holder = start("hold_gate", path)
    holder.hear()
    gate = WriteLock(path.with_name(path.name + ".gate"))
    interrupted = start("interrupted_at_the_gate", path)
    holder_knows = interrupted.hear()
    assert holder_knows["waits"]
    interrupted.process.send_signal(2)
    assert interrupted.hear()["interrupted"]
    holder.tell()
    holder.hear()
    assert interrupted.hear()["version"] == 1
    gate.acquire(time.monotonic() + 5)
    gate.release()


def test_newer_major_version_at_runtime_refuses_writes_and_locks_nobody_out(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        put(store)
        start("newer_major", path).rest()
        for _ in range(2):
            with pytest.raises(StoreError, match="upgrade holdlog"):
                put(store)
        lock = start("hold_lock", path)
        assert lock.hear()["held"], "the newer one can write"


def test_store_file_deleted_at_runtime_is_reported_at_the_next_write(path: Path) -> None:
    with StateStore(path) as store:
        put(store)
        for left in path.parent.glob("state.db*"):
            if left.is_file():
                left.unlink()
        assert "deleted or replaced" in str(refused(lambda: put(store)))
        assert not path.exists()


def test_store_file_replaced_at_runtime_is_reported_and_never_read(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with StateStore(other) as replacement:
        replacement.set("n", "k", "another world", updated_by="test")
    with StateStore(path) as store:
        put(store)
        os.replace(other, path)
        assert "deleted or replaced" in str(refused(lambda: put(store)))
        answers: list[Any] = []

        def read() -> None:
            try:
                answers.append(store.get("n", "k").value)
            except HoldlogError as refusal:
                answers.append(str(refusal))

        readers = [threading.Thread(target=read) for _ in range(40)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert "another world" not in answers


def test_store_folder_deleted_at_runtime_is_reported(path: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "folder"
    folder.mkdir()
    with StateStore(folder / "state.db") as store:
        put(store)
        shutil.rmtree(folder)
        for _ in range(2):
            refused(lambda: put(store))
        assert not folder.exists()
        assert "deleted or replaced" in str(refused(lambda: store.wait("src/", 0.05)))
