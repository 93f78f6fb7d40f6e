"""Group commit: one transaction makes all waiting commands durable, and each caller gets its own outcome.

If no batch is running, a calling thread becomes the leader: it runs one batch, then hands over to the first waiting
caller, so that no caller leads forever. Coroutines cannot lead; a background thread, started with their first write,
leads for them (docs/decisions/0002-group-commit.md).
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from holdlog.adapters.operating_system.deadline import STOPPED, Deadline
from holdlog.adapters.runtime.command_handler import handle, prefetch
from holdlog.adapters.runtime.observer import CommandObserver
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.message import Caller
from holdlog.domain.ports import Notifier, Refusal, Store
from holdlog.domain.refusals import ConnectionLostError, HoldlogError, SealedError, StoreError, UnavailableError

MAX_BATCH: Final = 256
MAX_WAITING: Final = 10_000
MAX_REFUSALS_KEPT: Final = 1_000
COMMIT_TIMEOUT: Final = 5.0
"""Seconds that a caller waits for the store to accept its command."""
CLOSING_TIMEOUT: Final = 0.5
"""Minimum seconds that a batch waits for the store: after a suspension all deadlines have passed, but it must still try
once before it refuses."""

MAX_ATTEMPTS: Final = 5
ATTEMPT_PAUSE: Final = 0.02
"""A batch whose connection was lost runs again, after so many seconds times the number of its attempts."""

_log = logging.getLogger("holdlog")


class Job:
    """A pending command. A waiting thread blocks on `baton` until its job is done or the thread should lead. A
    coroutine's job has `loop` and `future` instead."""

    __slots__ = ("baton", "caller", "command", "deadline", "done", "future", "leads", "loop", "outcome", "seen")

    def __init__(self, command: AnyCommand, caller: Caller) -> None:
        self.command = command
        self.caller = caller
        self.deadline = time.monotonic() + COMMIT_TIMEOUT
        self.done = False
        self.leads = False
        self.outcome: Outcome | BaseException | None = None
        self.baton: threading.Lock | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Outcome] | None = None
        self.seen: object = None  # returned by the observer


class Writer:
    """Runs commands from threads and coroutines of this process. Thread-safe."""

    watch: CommandObserver | None = None

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._led = False
        self._leader = 0  # id of the thread that runs a batch
        self._thread: ThreadPoolExecutor | None = None
        self._refusals: deque[Refusal] = deque(maxlen=MAX_REFUSALS_KEPT)
        self._closed: Callable[[], StoreError] | None = None

    def run(self, command: AnyCommand, caller: Caller) -> Outcome:
        """Run the command and block until it is durable or refused. Raises the refusal."""
        job = Job(command, caller)
        try:
            with self._lock:
                self._admit(job)
                if self._led:
                    job.baton = threading.Lock()
                    job.baton.acquire()
                else:
                    self._led = job.leads = True
            if job.baton is not None:
                self._await_baton(job)
            if not job.done and self._lead_once():
                self._start_thread()
        except BaseException:
            self._handle_interrupt(job)
            raise
        if isinstance(job.outcome, BaseException):
            raise job.outcome
        assert job.outcome is not None
        return job.outcome

    async def run_async(
        self, command: AnyCommand, caller: Caller, late: Callable[[Outcome], None] | None = None
    ) -> Outcome:
        """Like `run`, for coroutines. Cancellation withdraws the command if no batch has taken it. Otherwise the
        command still runs, and `late` is called with its outcome."""
        job = Job(command, caller)
        job.loop = asyncio.get_running_loop()
        job.future = job.loop.create_future()
        with self._lock:
            self._admit(job)
            lead = not self._led
            self._led = True
        if lead:
            self._start_thread()
        timer = job.loop.call_at(due := job.loop.time() + COMMIT_TIMEOUT, self._give_up, job, due)
        try:
            return await asyncio.shield(job.future)
        except asyncio.CancelledError:
            if not self._withdraw(job):
                job.future.add_done_callback(partial(_resolve_late, late))  # a second cancellation may end this wait
                await asyncio.wait([job.future])
            raise
        finally:
            timer.cancel()

    @property
    def waiting(self) -> int:
        """Number of commands that no batch has taken yet."""
        return len(self._waiting)

    def leads_here(self) -> bool:
        """Whether this thread is running a batch. If so, the caller is a signal handler that interrupted the batch."""
        return self._leader == threading.get_ident()

    def refuse(self) -> None:
        """Accept no more commands."""
        self._closed = StoreError.closed

    def close(self) -> None:
        """Accept no more commands, wait until none runs, and write the refusals that no batch has written yet."""
        self.refuse()
        while self._led:
            time.sleep(0.001)
        if self._thread is not None:
            self._thread.shutdown()
        if self._refusals:
            with suppress(HoldlogError), self._store.transaction(time.monotonic() + COMMIT_TIMEOUT) as transaction:
                transaction.note_refusals(tuple(self._refusals))

    def detach_after_fork(self) -> None:
        """Refuse all commands in a forked child, where the threads that held the lock are gone."""
        self._lock = threading.Lock()
        self._closed = StoreError.forked

    def _admit(self, job: Job) -> None:
        if self._closed:
            raise self._closed()
        if len(self._waiting) >= MAX_WAITING:
            raise self._rejected(
                UnavailableError(f"{MAX_WAITING} commands are already waiting; try again", retry_after=1.0)
            )
        if self.watch is not None:
            job.seen = self.watch.received()
        self._waiting.append(job)

    def _rejected(self, refusal: UnavailableError) -> UnavailableError:
        if self.watch is not None:
            self.watch.turned_away()
        return refusal

    def _await_baton(self, job: Job) -> None:
        assert job.baton is not None
        if Deadline(job.deadline).acquire(job.baton):
            return
        if not job.leads and self._withdraw(job):
            raise self._rejected(_too_busy())
        job.baton.acquire()

    def _give_up(self, job: Job, due: float) -> None:
        """Time out a coroutine's command, unless a batch has taken it.

        If the event loop calls this late, the process was suspended. That time does not count, so wait again.
        """
        assert job.loop is not None
        if (late := job.loop.time() - due) > STOPPED:
            job.loop.call_at(again := job.loop.time() + min(late, COMMIT_TIMEOUT), self._give_up, job, again)
            return
        if self._withdraw(job) and job.future is not None and not job.future.done():
            job.future.set_exception(self._rejected(_too_busy()))

    def _handle_interrupt(self, job: Job) -> None:
        """Handle an interrupt: withdraw the command, and hand over the lead if this thread has it."""
        self._store.rollback_interrupted()
        self._withdraw(job)
        if job.leads and not job.done and self._lead_once():
            self._start_thread()

    def _withdraw(self, job: Job) -> bool:
        with self._lock:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
            return True

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdlog-writer")
        try:
            self._thread.submit(self._lead_coroutines)
        except RuntimeError:  # no more threads available: lead in this one
            self._lead_coroutines()

    def _lead_coroutines(self) -> None:
        while self._lead_once():
            pass

    def _lead_once(self) -> bool:
        """Run one batch, then hand over the lead. Returns True if a coroutine's command is next, for which the
        background thread must lead."""
        batch: list[Job] = []
        try:
            self._leader = threading.get_ident()
            with self._lock:
                waiting = self._waiting
                batch, self._waiting = list(islice(waiting, MAX_BATCH)), deque(islice(waiting, MAX_BATCH, None))
            if batch:
                self._commit(batch)
            self._leader = 0
            coroutine_next = self._hand_over()
            _wake_callers(batch)
        except BaseException:  # KeyboardInterrupt in the leading thread must not fail the other callers of the batch
            self._leader = 0
            self._store.rollback_interrupted()
            for job in batch:
                if not job.done:
                    job.outcome = UnavailableError("the write was interrupted", retry_after=0.0, in_doubt=True)
            if self._hand_over():
                self._start_thread()
            _wake_callers(batch)
            raise
        return coroutine_next

    def _hand_over(self) -> bool:
        with self._lock:
            if not self._waiting:
                self._led = False
                return False
            next_job = self._waiting[0]
            if next_job.baton is None:
                return True
            if not next_job.leads:
                next_job.leads = True
                next_job.baton.release()
            return False

    def _commit(self, batch: Sequence[Job], attempt: int = 1) -> None:
        """Set the outcome of each job. If an unexpected error rolls the batch back, run its commands one by one. If the
        connection to the store is lost meanwhile, run them again.

        StopIteration is replaced by RuntimeError, because a future rejects StopIteration: setting it would raise here,
        and the other callers would never get an outcome.
        """
        begun = False
        refusals: list[Refusal] = []
        committed: Sequence[str] = ()
        try:
            deadline = max(batch[0].deadline, time.monotonic() + CLOSING_TIMEOUT)
            with self._store.transaction(deadline, lambda: prefetch(job.command for job in batch)) as transaction:
                if transaction.sealed is not None:
                    raise SealedError(transaction.sealed)
                begun = True
                for job in batch:
                    try:
                        job.outcome = handle(job.command, job.caller, transaction)
                    except (StoreError, UnavailableError):
                        raise
                    except HoldlogError as refusal:
                        job.outcome = refusal
                        refusals.append(_refusal_row(refusal, job, transaction.at))
                if transaction.wrote and (refusals or self._refusals):
                    transaction.note_refusals([*self._refusals, *refusals])
                # Read inside the block: afterwards the store may reuse this object for another thread.
                wrote, grew, topics = transaction.wrote, transaction.grew, transaction.topics
        except Exception as error:
            doubt = isinstance(error, UnavailableError) and error.in_doubt
            lost = isinstance(error, ConnectionLostError)
            if begun and lost and attempt < MAX_ATTEMPTS:
                time.sleep(attempt * ATTEMPT_PAUSE)
                self._commit(batch, attempt + 1)
                return
            if begun and not doubt and not lost and len(batch) > 1:
                for job in batch:
                    self._commit([job])
                return
            for job in batch:
                job.outcome = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
        else:
            committed = topics
            if wrote:
                self._refusals.clear()
                if grew:
                    self._notifier.notify()
            else:
                self._refusals.extend(refusals)
        if self.watch is not None:
            try:
                self.watch.ran(batch, committed)
            except Exception:  # must not reach the callers
                _log.exception("an observer failed to record a batch")


def _too_busy() -> UnavailableError:
    return UnavailableError("this process is busy writing; try again")


def _refusal_row(refusal: HoldlogError, job: Job, at: int) -> Refusal:
    command = job.command
    by = getattr(command, "agent", None) or getattr(command, "by", None) or ""
    return Refusal(at, refusal.code, str(refusal)[:500], by, job.caller.session)


def _wake_callers(batch: Sequence[Job]) -> None:
    """Wake the callers of finished jobs, with one callback per event loop. Safe to call again after an interrupt."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        if job.loop is not None:
            loops.setdefault(job.loop, []).append(job)
        elif not job.done:
            job.done = True
            if job.baton is not None:
                job.baton.release()
    for loop, jobs in loops.items():
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits for the outcome
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve_late(late: Callable[[Outcome], None] | None, future: "asyncio.Future[Outcome]") -> None:
    if not future.cancelled() and future.exception() is None and late is not None:
        late(future.result())


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        future = job.future
        assert future is not None
        if future.done():
            continue
        if isinstance(job.outcome, BaseException):
            future.set_exception(job.outcome)
        else:
            assert job.outcome is not None
            future.set_result(job.outcome)
