"""Group commit: each caller gets its own outcome, whoever it shares a transaction with."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.group_commit import MAX_BATCH, MAX_WAITING, Writer
from holdlog.domain.claims.commands import ClaimAcquired
from holdlog.domain.commands import AnyCommand, Outcome, RecordsChanged
from holdlog.domain.message import Caller
from holdlog.domain.ports import Prefetch, Store, Transaction
from holdlog.domain.record import Record, Set
from holdlog.domain.refusals import BusyError, ConflictError, NotFoundError, StoreError, UnavailableError
from tests.contracts.conftest import STORE_IN_A_FILE_IN_TIME
from tests.support.commands import (
    HERE,
    PATIENCE,
    check,
    drop,
    keys,
    noted_refusals,
    put,
    require_chained,
    require_views_equal_the_log,
    take,
    transact,
    until,
    until_async,
    whole_log,
    write,
)


class Broken(Exception):
    """What no command expects."""


Ahead = Callable[[], Prefetch] | None


class Turnstile:
    """A store that lets transactions through when the test says so, and breaks where the test says so."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.begun = 0
        self.begin = threading.Event()
        self.begin.set()
        self.errors: dict[str, BaseException] = {}
        self.reader, self.snapshot = store.reader, store.snapshot
        self.rollback_interrupted, self.detach_after_fork = store.rollback_interrupted, store.detach_after_fork

    @contextmanager
    def transaction(self, deadline: float, ahead: Ahead = None) -> Iterator[Transaction]:
        self.begun += 1
        assert self.begin.wait(PATIENCE)
        with self.store.transaction(time.monotonic() + PATIENCE, ahead) as transaction:
            yield Breaking(transaction, self.errors)

    def close(self) -> None:
        self.store.close()


class Breaking:
    """A transaction that raises when it comes to certain keys."""

    def __init__(self, transaction: Transaction, errors: dict[str, BaseException]) -> None:
        self._transaction = transaction
        self._errors = errors

    def record(self, namespace: str, key: str) -> Record:
        if key in self._errors:
            raise self._errors[key]
        return self._transaction.record(namespace, key)

    def records_of(self, addresses: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Record]:
        return {address: self.record(*address) for address in addresses}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


@pytest.fixture
def turnstile(store: Store) -> Turnstile:
    return Turnstile(store)


@pytest.fixture
def writer(turnstile: Turnstile) -> Iterator[Writer]:
    engine = Writer(turnstile, ProcessNotifier())
    yield engine
    turnstile.begin.set()
    engine.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as threads:
        yield threads


Threads = list[Future[Outcome]]


def in_one_batch(writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor, *commands: AnyCommand) -> Threads:
    """Run the commands in threads, all in one batch and in this order: they gather behind one that is held up."""
    turnstile.begin.clear()
    begun = turnstile.begun
    first = pool.submit(writer.run, transact(check("nothing", None)), HERE)
    until(lambda: turnstile.begun == begun + 1)
    queued = []
    for number, command in enumerate(commands, start=1):
        queued.append(pool.submit(writer.run, command, HERE))
        until(lambda number=number: len(writer._waiting) == number)  # type: ignore[misc]
    turnstile.begin.set()
    first.result(PATIENCE)
    return queued


def errors(futures: Threads) -> list[BaseException | None]:
    return [future.exception(PATIENCE) for future in futures]


# --- threads


def test_queued_commands_are_committed_together(writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor) -> None:
    written = in_one_batch(writer, turnstile, pool, *(transact(put(f"k{n}", n)) for n in range(20)))
    assert [future.result(PATIENCE).results[0].key for future in written] == [f"k{n}" for n in range(20)]  # type: ignore[union-attr]
    assert turnstile.begun == 2
    assert {it.envelope.at for it in whole_log(turnstile.store)} == {1_000_000_000}


def test_refusal_in_a_batch_concerns_its_command_alone(
    writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor
) -> None:
    futures = in_one_batch(
        writer,
        turnstile,
        pool,
        transact(put("a", 1, 0)),
        transact(put("a", 2, 0)),
        transact(drop("never")),
        take("r", "ann"),
        take("r", "bob"),
        transact(put("x", 1), put("a", 3, 99)),
        transact(put("a", 3, 1)),
    )
    kinds = [type(error) for error in errors(futures)]
    nothing = type(None)
    assert kinds == [nothing, ConflictError, NotFoundError, nothing, BusyError, ConflictError, nothing]
    assert turnstile.begun == 2
    assert [it.envelope.stream for it in whole_log(turnstile.store)] == ["record:n/a", "claim:r", "record:n/a"]
    assert [refusal.code for refusal in noted_refusals(turnstile.store)] == [
        "conflict",
        "not_found",
        "busy",
        "conflict",
    ]
    require_chained(turnstile.store)
    require_views_equal_the_log(turnstile.store)


def test_unexpected_error_in_a_batch_concerns_its_command_alone(
    writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor
) -> None:
    turnstile.errors["bad"] = Broken()
    commands = [transact(put(key, 1, 0)) for key in ("a", "bad", "b", "a", "c")]
    outcomes = errors(in_one_batch(writer, turnstile, pool, *commands))
    assert [type(error) for error in outcomes] == [type(None), Broken, type(None), ConflictError, type(None)]
    with turnstile.reader() as reader:
        assert keys(reader) == ["a", "b", "c"]
    assert len(whole_log(turnstile.store)) == 3
    assert [refusal.code for refusal in noted_refusals(turnstile.store)] == ["conflict"]


def test_interrupt_of_the_batch_leader_leaves_the_others_answered(
    writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor
) -> None:
    turnstile.errors["interrupt"] = KeyboardInterrupt()
    outcomes = errors(
        in_one_batch(writer, turnstile, pool, transact(put("interrupt", 1)), transact(put("a", 1)), take("r"))
    )
    assert [type(error) for error in outcomes] == [KeyboardInterrupt, UnavailableError, UnavailableError]
    assert whole_log(turnstile.store) == []
    assert isinstance(writer.run(transact(put("a", 1)), HERE), RecordsChanged)


async def test_error_during_delivery_leaves_no_caller_unanswered(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.errors["bad"] = StopIteration()
    good, bad = (asyncio.ensure_future(writer.run_async(transact(put(key, 1)), HERE)) for key in ("good", "bad"))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await bad
        assert isinstance(await good, RecordsChanged)


def test_single_caller_gets_its_error_and_the_next_one_succeeds(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.errors["bad"] = Broken()
    for _ in range(2):
        with pytest.raises(Broken):
            writer.run(transact(put("bad", 1)), HERE)
    writer.run(transact(put("good", 1)), HERE)
    assert len(whole_log(turnstile.store)) == 1


# --- coroutines


async def test_coroutines_share_a_commit_and_each_gets_its_outcome(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.begin.clear()
    turnstile.errors["bad"] = Broken()
    first = asyncio.create_task(writer.run_async(transact(put("first", 1)), HERE))
    await until_async(lambda: turnstile.begun == 1)
    commands = (transact(put("a", 1, 0)), transact(put("a", 2, 0)), transact(put("bad", 1)), take("r", "bob"))
    others = [asyncio.create_task(writer.run_async(command, HERE)) for command in commands]
    await until_async(lambda: len(writer._waiting) == 4)
    turnstile.begin.set()
    await first
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [RecordsChanged, ConflictError, Broken, ClaimAcquired]
    assert len(whole_log(turnstile.store)) == 3


async def test_no_batch_is_larger_than_its_limit(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.begin.clear()
    first = asyncio.create_task(writer.run_async(transact(check("k", 0)), HERE))
    await until_async(lambda: turnstile.begun == 1)
    others = [asyncio.create_task(writer.run_async(transact(put("k", n)), HERE)) for n in range(MAX_BATCH + 1)]
    await until_async(lambda: len(writer._waiting) == MAX_BATCH + 1)
    turnstile.begin.set()
    await asyncio.gather(first, *others)
    assert (turnstile.begun, len(whole_log(turnstile.store))) == (3, MAX_BATCH + 1)


async def test_cancelled_coroutine_withdraws_its_queued_command(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.begin.clear()
    first = asyncio.create_task(writer.run_async(transact(put("first", 1)), HERE))
    await until_async(lambda: turnstile.begun == 1)
    others = [asyncio.create_task(writer.run_async(transact(put(key, 1)), HERE)) for key in "abc"]
    await until_async(lambda: len(writer._waiting) == 3)
    others[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await others[1]
    turnstile.begin.set()
    await asyncio.gather(first, others[0], others[2])
    with turnstile.reader() as reader:
        assert keys(reader) == ["a", "c", "first"]


async def test_last_queued_command_can_be_withdrawn(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.begin.clear()
    first = asyncio.create_task(writer.run_async(transact(put("first", 1)), HERE))
    await until_async(lambda: turnstile.begun == 1)
    only = asyncio.create_task(writer.run_async(transact(put("a", 1)), HERE))
    await until_async(lambda: len(writer._waiting) == 1)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    turnstile.begin.set()
    await first
    await writer.run_async(transact(put("b", 1)), HERE)
    with turnstile.reader() as reader:
        assert keys(reader) == ["b", "first"]


async def test_cancelled_coroutine_in_a_running_batch_waits_and_its_command_is_kept(
    writer: Writer, turnstile: Turnstile
) -> None:
    turnstile.begin.clear()
    first = asyncio.create_task(writer.run_async(transact(put("first", 1)), HERE))
    await until_async(lambda: turnstile.begun == 1)
    second = asyncio.create_task(writer.run_async(transact(put("second", 1)), HERE))
    await until_async(lambda: len(writer._waiting) == 1)
    first.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    turnstile.begin.set()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    with turnstile.reader() as reader:
        assert keys(reader) == ["first", "second"]


def test_closed_event_loop_of_a_caller_does_not_block_the_batch(writer: Writer, turnstile: Turnstile) -> None:
    turnstile.begin.clear()

    async def give_up() -> None:
        asyncio.get_running_loop().call_soon(asyncio.create_task, writer.run_async(transact(put("a", 1)), HERE))
        await until_async(lambda: turnstile.begun == 1)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(give_up())
    loop.close()
    turnstile.begin.set()
    writer.run(transact(put("b", 1)), HERE)
    with turnstile.reader() as reader:
        assert keys(reader) == ["a", "b"]


@STORE_IN_A_FILE_IN_TIME
async def test_commands_beyond_the_queue_limit_are_refused_with_retry_advice(
    writer: Writer, turnstile: Turnstile
) -> None:
    turnstile.begin.clear()
    first = asyncio.create_task(writer.run_async(transact(check("k", 0)), HERE))
    await until_async(lambda: turnstile.begun == 1)
    waiting = [asyncio.create_task(writer.run_async(transact(check("k", 0)), HERE)) for _ in range(MAX_WAITING)]
    await until_async(lambda: len(writer._waiting) == MAX_WAITING)
    with pytest.raises(UnavailableError) as refusal:
        await writer.run_async(transact(put("k", 1)), HERE)
    assert (refusal.value.retry_after > 0, refusal.value.in_doubt) == (True, False)
    with pytest.raises(UnavailableError):
        await asyncio.to_thread(writer.run, transact(put("k", 1)), HERE)
    turnstile.begin.set()
    await asyncio.gather(first, *waiting)
    assert whole_log(turnstile.store) == []


# --- both


def read(store: Store, key: str) -> Record:
    with store.reader() as reader:
        return reader.record("n", key)


def test_threads_and_coroutines_count_exactly_with_compare_and_set(store: Store) -> None:
    writer = Writer(store, ProcessNotifier())
    together = threading.Barrier(9)

    def next_write() -> tuple[Set, int]:
        record = read(store, "total")
        number = record.value.value or 0
        return put("total", number + 1, expected=record.version), number + 1

    def count() -> None:
        together.wait()
        for _ in range(60):
            while True:
                try:
                    writer.run(transact(next_write()[0]), HERE)
                    break
                except ConflictError:
                    continue

    async def count_in_coroutine() -> None:
        for _ in range(60):
            while True:
                try:
                    await writer.run_async(transact(next_write()[0]), HERE)
                    break
                except ConflictError:
                    continue

    async def count_in_coroutines() -> None:
        together.wait()
        await asyncio.gather(*(count_in_coroutine() for _ in range(8)))

    with ThreadPoolExecutor(9) as pool:
        counting = [pool.submit(count) for _ in range(8)]
        counting.append(pool.submit(asyncio.run, count_in_coroutines()))
    for future in counting:
        future.result()
    writer.close()
    total = read(store, "total")
    assert (total.value.value, total.version, len(whole_log(store))) == (960, 960, 960)


def test_threads_and_coroutines_wait_for_each_other_in_one_queue(
    writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor
) -> None:
    async def writes(name: str) -> None:
        for number in range(50):
            await writer.run_async(transact(put(name, number)), HERE)

    async def three() -> None:
        await asyncio.gather(writes("x"), writes("y"), writes("z"))

    def write_many(name: str) -> None:
        for number in range(50):
            writer.run(transact(put(name, number)), HERE)

    for future in [pool.submit(asyncio.run, three()), *(pool.submit(write_many, name) for name in "abc")]:
        future.result(PATIENCE)
    with turnstile.reader() as reader:
        assert [(it.key, it.version, it.value.value) for it in reader.records("n", "", None, -1, deleted=False)] == [
            (key, 50, 49) for key in "abcxyz"
        ]


# --- bells, refusals, the end


def test_notifier_is_called_for_written_events_and_nothing_else(store: Store) -> None:
    bell = ProcessNotifier()
    writer = Writer(store, bell)
    rung: list[int] = []
    with bell.listen(lambda: rung.append(len(whole_log(store)))):
        writer.run(transact(put("k", 1)), HERE)
        with pytest.raises(ConflictError):
            writer.run(transact(put("k", 1, 0)), HERE)
        writer.run(transact(check("k", 1)), HERE)
        writer.run(take("r"), HERE)
        writer.run(take("r"), HERE)  # renews the lease: no event
        with pytest.raises(BusyError):
            writer.run(take("r", "bob"), HERE)
    writer.close()
    assert rung == [1, 2]


def test_refusals_alone_write_nothing_and_are_stored_with_the_next_write(writer: Writer, turnstile: Turnstile) -> None:
    write(turnstile.store, "k", "their-secret")
    for _ in range(2):
        with pytest.raises(ConflictError):
            writer.run(transact(put("k", "my-secret", 7), by="eve"), Caller(session="s"))
    assert noted_refusals(turnstile.store) == []
    writer.run(transact(put("other", 1)), HERE)
    first, second = noted_refusals(turnstile.store)
    assert first == second
    assert (first.at, first.code, first.by, first.session) == (1_000_000_000, "conflict", "eve", "s")
    assert "n/k" in first.what
    assert "secret" not in repr(first)


def test_closing_stores_refusals_that_no_write_stored(store: Store) -> None:
    writer = Writer(store, ProcessNotifier())
    with pytest.raises(NotFoundError):
        writer.run(transact(drop("k")), HERE)
    writer.close()
    assert [refusal.code for refusal in noted_refusals(store)] == ["not_found"]


def test_closing_waits_for_running_commands_and_accepts_no_more(
    writer: Writer, turnstile: Turnstile, pool: ThreadPoolExecutor
) -> None:
    turnstile.begin.clear()
    running = pool.submit(writer.run, transact(put("a", 1)), HERE)
    until(lambda: turnstile.begun == 1)
    queued = pool.submit(writer.run, transact(put("b", 1)), HERE)
    until(lambda: len(writer._waiting) == 1)
    closing = pool.submit(writer.close)
    until(lambda: writer._closed is not None)
    with pytest.raises(StoreError, match="closed"):
        writer.run(transact(put("c", 1)), HERE)
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(writer.run_async(transact(put("c", 1)), HERE))
    assert not closing.done()
    turnstile.begin.set()
    closing.result(PATIENCE)
    assert running.done()
    queued.result(PATIENCE)
    with turnstile.reader() as reader:
        assert keys(reader) == ["a", "b"]
