"""A forked child may use nothing of its parent's store, and does not disturb it."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdlog import AsyncStateStore, StateStore, StoreError
from tests.processes.conftest import Start
from tests.support.processes.soundness import require_sound
from tests.support.processes.workers import PATIENCE

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def in_child(function: Callable[[], object]) -> None:
    """Run it in a fork; fails when it does, or when the child does not end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0


def put(store: StateStore) -> int:
    return store.set("n", "k", 1, updated_by="test").version


def refuses_everything(store: StateStore) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: put(store),
        lambda: store.get("n", "k"),
        lambda: store.list_keys("n"),
        lambda: store.claim("src/", agent="ann"),
        lambda: store.status("src/"),
        lambda: store.wait("src/", 5),
        lambda: store.watch("n", "k", 0, 5),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="before a fork"):
            call()
    store.close()


def test_every_call_of_a_forked_child_is_refused_and_the_parent_continues(path: Path) -> None:
    with StateStore(path) as store:
        put(store)
        store.wait("src/", 1)  # the ear is up
        before = sorted(os.listdir(f"{path}.bells"))
        in_child(lambda: refuses_everything(store))
        assert sorted(os.listdir(f"{path}.bells")) == before
        assert put(store) == 2
    require_sound(path)


def test_store_closed_before_the_fork_does_not_hide_an_open_one(path: Path, tmp_path: Path) -> None:
    closed = [StateStore(tmp_path / f"{number}.db") for number in range(3)]
    for store in closed:
        store.wait("src/", 1)
        store.close()
    with StateStore(path) as store:
        in_child(lambda: refuses_everything(store))


def test_forked_child_may_not_open_what_its_parent_had_open(path: Path) -> None:
    with StateStore(path) as store:
        put(store)

        def anew() -> None:
            with pytest.raises(StoreError, match="was open when this process was forked"):
                StateStore(path)

        in_child(anew)
        assert put(store) == 2


def test_forked_child_may_open_what_its_parent_had_closed(path: Path) -> None:
    with StateStore(path) as store:
        put(store)

    def its_own() -> None:
        with StateStore(path) as its:
            assert put(its) == 2

    in_child(its_own)
    require_sound(path)


def test_forked_child_that_exits_removes_no_write_ahead_log_in_use(path: Path, start: Start) -> None:
    # SQLite in the child takes itself for the last user of the file, and would delete the write-ahead log.
    parent = start("fork_and_close", path)
    parent.hear()  # the child runs, the parent closed the store
    writer = start("write_and_stop", path)
    acknowledged = writer.hear()["version"]
    writer.kill()
    writer.process.wait(PATIENCE)
    parent.tell("end")
    assert parent.hear()["code"] == 0
    with StateStore(path) as store:
        assert store.get("n", "k").version == acknowledged
    require_sound(path)


def test_fork_during_a_batch_leaves_the_write_lock_with_the_parent(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        put(store)
        begun, forked = threading.Event(), threading.Event()

        def batch() -> None:
            with store._engine.store.transaction(10**9) as transaction:
                begun.set()
                forked.wait(PATIENCE)
                transaction.wrote = True

        writer = threading.Thread(target=batch)
        writer.start()
        begun.wait(PATIENCE)

        def disturb() -> None:
            refuses_everything(store)
            from holdlog.adapters.operating_system.write_lock import WriteLock

            gate = WriteLock(path.with_name(path.name + ".gate"))
            with pytest.raises(Exception, match="does not release it"):
                gate.acquire(0.0)

        in_child(disturb)
        forked.set()
        writer.join()
        assert put(store) == 2
    require_sound(path)


@pytest.mark.check
@pytest.mark.parametrize("how", ["sys.exit", "multiprocessing"])
def test_forked_child_that_exits_normally_disturbs_nobody(path: Path, start: Start, how: str) -> None:
    worker = start("fork_and_write", path, how)
    said = worker.rest()
    assert worker.process.returncode == 0, worker.complaints
    assert [line["code"] for line in said if "code" in line] == [0] * 20
    versions = [line["version"] for line in said if "version" in line]
    assert versions == sorted(versions)
    require_sound(path)


async def test_coroutines_of_a_forked_child_are_refused(path: Path) -> None:
    async with AsyncStateStore(path) as store:
        await store.set("n", "k", 1, updated_by="test")
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_refused_in_a_loop_of_its_own, args=(store,))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert (await store.set("n", "k", 1, updated_by="test")).version == 2


def _refused_in_a_loop_of_its_own(store: AsyncStateStore) -> None:
    import asyncio

    async def run() -> None:
        for call in (store.set("n", "k", 1, updated_by="x"), store.get("n", "k"), store.wait("src/", 5)):
            with pytest.raises(StoreError, match="before a fork"):
                await call

    loop = asyncio.new_event_loop()
    asyncio.events._set_running_loop(None)
    loop.run_until_complete(run())
    sys.stdout.flush()


def test_registration_of_a_dead_parent_is_removed_while_its_child_lives(path: Path, start: Start) -> None:
    parent = start("wait_and_fork", path)
    child = parent.hear()["child"]
    try:
        registered = set(os.listdir(f"{path}.bells"))
        assert registered
        parent.kill()
        parent.process.wait(PATIENCE)
        with StateStore(path) as store:
            store.wait("src/", 1)
            assert not registered & set(os.listdir(f"{path}.bells"))
            assert put(store) == 1
    finally:
        os.kill(child, 9)
