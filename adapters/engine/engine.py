"""The path of a command: queue, lock, begin, decide, append, commit, notify.

A caller that finds the engine free commits in its own thread. One that finds it busy leaves its command to the writer
thread, which commits all waiting commands in one transaction (docs/decisions/engine.md). Between begin and commit there
is only SQL and pure Python, and every refusal is raised before the first statement that writes.
"""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import repeat, starmap
from typing import Any, Final, Protocol

from holdlog.adapters.engine.beat import Beats
from holdlog.adapters.engine.port import LOCK_SECONDS, Batch, Request, Store, find_key
from holdlog.adapters.engine.waiting import Wait, Waiters
from holdlog.adapters.stores.codec import SALT_BYTES, Foreign, digest_event, encode_event, encode_refusal, hash_payload
from holdlog.adapters.stores.sql import EVENT
from holdlog.domain.claims.queue import settle
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.refusals import HoldlogError, InvalidError, LostError, StoreError, UnavailableError, ValueRefusal
from holdlog.domain.results import RedactedRequest, utc
from holdlog.domain.state import Decision, Reads, State
from holdlog.projections.fold import fold

MAX_BATCH: Final = 256
BATCH_SECONDS: Final = 0.5
"""After this time a transaction runs no more commands, because other processes wait for the lock."""
MAX_WAITING: Final = 10_000
ATTEMPTS: Final = 5
"""How often a transaction is tried that loses its connection."""
MAX_VALUE_BYTES: Final = 262_144
_LINGER_PART: Final = 0.15
"""The writer waits for this part of the last batch's duration, so that the callers it has just woken can queue their
next commands for the same transaction."""
MAX_UNRECORDED: Final = 1_000
"""How many refusals a process keeps until a transaction records them."""
_SALTS: Final = 256 * SALT_BYTES


class Command(Protocol):
    """What changes the store: attributes for its decider."""

    def reads(self) -> Reads: ...
    def decide(self, state: State, moment: Moment) -> Decision: ...


class Job:
    """A command in the queue. Its caller waits for `wake_lock` in a thread, or for `future` in the event loop `loop`.
    `done`: the caller has been woken; set in the thread of the event loop, if there is one."""

    __slots__ = ("caller", "command", "done", "error", "future", "loop", "result", "wake_lock")

    def __init__(self, command: Command, caller: Caller) -> None:
        self.command = command
        self.caller = caller
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.wake_lock: threading.Lock | None = None
        self.loop: Any = None
        self.future: Any = None


class Engine:
    """Runs commands from all threads and event loops of this process."""

    def __init__(self, store: Store, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.store = store
        self.waiters = Waiters(store)
        self.beats = Beats(self)
        self._max_value_bytes = max_value_bytes
        self._busy = threading.Lock()
        self._caller_commits = False
        self._queue: deque[Job] = deque()
        self._wake = threading.Event()
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed: StoreError | None = None
        self._process = os.getpid()
        self._salts = b""
        self._refusals: list[Any] = []
        """Rows for the next transaction that writes something: a refusal alone must not cause a write."""

    # --- for callers

    def run(self, command: Command, caller: Caller) -> Any:
        """Run the command and return its result once it is durable. Raises its refusal, a HoldlogError."""
        if self._closed is not None or self._process != os.getpid():
            self.require_open()
        job = Job(command, caller)
        if self._caller_commits or self._busy.locked():
            self._wait(job)
        else:
            self._commit_own(job)
        if job.error is not None:
            raise self.explain(job.error)
        return job.result

    def submit(self, command: Command, caller: Caller, loop: Any, future: Any) -> Job:
        """Run the command in the writer thread, which sets the future in its event loop."""
        self.require_open()
        job = Job(command, caller)
        job.loop, job.future = loop, future
        self._enqueue(job)
        return job

    def withdraw(self, job: Job) -> bool:
        """Remove a command from the queue. Returns False if it already runs: then its result will follow."""
        try:
            self._queue.remove(job)
        except ValueError:
            return False
        return True

    def query(self, query: Any) -> Any:
        """Return the result of a query. Raises StoreError, UnavailableError."""
        self.require_open()
        return query.read(self.store)

    @contextmanager
    def write_alone(self, reads: Sequence[tuple[Reads, Caller]] = ()) -> Iterator[Batch]:
        """A transaction for statements, and for commands that need these `reads` (see `decide`). Commits at the end of
        the block; an exception undoes everything. While it runs, all other writers of the store wait, and are refused
        after LOCK_SECONDS."""
        self.require_open()
        with self._busy:
            try:
                batch = self.store.begin(reads)
                if batch.state.board is not None and not batch.state.board.is_quiet:
                    self._settle(batch, reads)
                yield batch
                self.store.commit(batch)
            except BaseException:
                self.store.abort()
                raise
        self.waiters.wake_all()

    def decide(self, command: Command, caller: Caller, batch: Batch) -> Any:
        """Run a command in the block of `write_alone`. Its result does not contain the session's lost claims: a later
        response reports them. Raises its refusal."""
        job = Job(command, caller)
        self._decide(job, batch, reports=False)
        if job.error is not None:
            raise job.error
        return job.result

    def erase(self) -> None:
        """Remove copies of redacted texts outside of the tables. Raises UnavailableError."""
        with self._busy:
            self.store.erase()

    def require_open(self) -> None:
        """Raises StoreError if the store is closed, or was opened before a fork."""
        if self._process != os.getpid():
            raise StoreError("this store was opened before a fork; open it again in the child process")
        if self._closed is not None:
            raise self._closed

    def seconds_until(self, wait: Wait, left: float) -> float:
        """How many of the `left` seconds a blocking query may sleep before it must read again."""
        return left if wait.until is None else min(left, max(0.0, (wait.until - self.store.now()) / 1_000_000))

    def explain(self, error: BaseException) -> BaseException:
        """Complete a refusal about a value with the event that explains it."""
        if isinstance(error, ValueRefusal) and error.position:
            with suppress(HoldlogError):  # if the store cannot be read now, the refusal is raised without these fields
                for at, meta, payload in self.store.read(EVENT, {"position": error.position}):
                    value = json.loads(payload).get("value") if payload is not None else None
                    error.explain(json.loads(meta).get("by"), utc(at), value)
        return error

    def close_unused(self) -> None:
        """Close a store that nothing refers to any more. The garbage collector may run in any thread, also within a
        call of a store that holds locks: then a new thread closes the store."""
        frame = sys._getframe().f_back
        while frame is not None and not frame.f_globals.get("__name__", "").startswith("holdlog."):
            frame = frame.f_back
        self.close() if frame is None else threading.Thread(target=self.close).start()

    def close(self) -> None:
        """Finish the current transaction, refuse all waiting commands, and close the store."""
        if self._process != os.getpid():
            return
        with self._starting:
            if self._closed is not None:
                return
            calling = self.beats.list_in_calls()
            self._closed = StoreError("the store is closed")
        self._wake.set()
        if self._writer is not None:
            self._writer.join()
        is_free = self._busy.acquire(timeout=LOCK_SECONDS)  # an interrupted thread may have it
        self._fail(self._take_all(), self._closed)
        leaving = self.beats.stop(calling)
        try:
            for command, caller in leaving if is_free else ():  # if one fails, holders expire as after a kill
                self._commit_or_fail([Job(command, caller)])
            self._record_refusals()
        finally:
            self.waiters.close()
            if is_free:
                self.store.close()
                self._busy.release()

    def _record_refusals(self) -> None:
        """Record the remaining refusals: no later transaction of this process will."""
        if self._refusals:
            with suppress(HoldlogError):
                batch = self.store.begin(())
                batch.refusals = self._refusals
                self.store.commit(batch)

    # --- queue

    def _enqueue(self, job: Job) -> None:
        if len(self._queue) >= MAX_WAITING:
            raise UnavailableError(f"{MAX_WAITING} commands are already waiting; try again")
        self._queue.append(job)
        if self._closed is not None and self.withdraw(job):
            raise self._closed
        self._wake_writer()

    def _commit_own(self, job: Job) -> None:
        """Commit all waiting commands, and this one. The writer thread may be faster and commit it first."""
        self._caller_commits = True  # one caller at a time waits for `_busy`: others queue their commands
        try:
            self._queue.append(job)
            with self._busy:  # only `with` releases the lock for sure if an interrupt comes between two lines
                while not job.done:
                    self._commit_queued()
        except BaseException:
            self.withdraw(job)
            raise
        finally:
            self._caller_commits = False

    def _wait(self, job: Job) -> None:
        job.wake_lock = threading.Lock()
        job.wake_lock.acquire()
        try:
            self._enqueue(job)
            if not job.wake_lock.acquire(timeout=LOCK_SECONDS):
                if self.withdraw(job):
                    raise UnavailableError("this process is busy writing; try again")
                job.wake_lock.acquire()
        except BaseException:
            self.withdraw(job)
            raise

    def _wake_writer(self) -> None:
        if self._writer is None:
            with self._starting:
                if self._writer is None:
                    writer = threading.Thread(target=self._write, name="holdlog-writer", daemon=True)
                    writer.start()
                    self._writer = writer
        if not self._wake.is_set():
            self._wake.set()

    def _write(self) -> None:
        """Run the writer thread. It clears its flag before it reads the queue, so that no wake-up is lost."""
        while self._closed is None:
            self._wake.wait()
            self._wake.clear()
            while self._queue and self._closed is None:
                began = time.monotonic()
                if not self._busy.acquire(timeout=LOCK_SECONDS):  # `write_alone` has it
                    self._fail(self._take_all(), UnavailableError("this process is busy writing; try again"))
                    continue
                try:
                    jobs = self._commit_queued()
                finally:
                    self._busy.release()
                if jobs > 1 and not self.store.is_local:
                    time.sleep(min(0.002, _LINGER_PART * (time.monotonic() - began)))

    # --- transaction

    def _commit_queued(self) -> int:
        """Commit all waiting commands in one transaction; the caller holds `_busy`. Returns how many there were."""
        jobs: list[Job] = []
        try:
            try:  # noqa: SIM105  # in one call of C, so that an interrupt loses no command
                jobs.extend(starmap(self._queue.popleft, repeat((), min(MAX_BATCH, len(self._queue)))))
            except IndexError:  # a caller withdrew one; `suppress` costs three calls
                pass
            if self._closed is not None:
                self._fail(jobs, self._closed)
            elif jobs:
                self._commit_or_fail(jobs)
        except BaseException:  # an interrupt of this thread must not leave the callers of other threads waiting
            try:
                self.store.abort()
            finally:
                self._fail(jobs, UnavailableError("the write was interrupted", retry_after=0.0, in_doubt=True))
            raise
        return len(jobs)

    def _commit_or_fail(self, jobs: list[Job]) -> None:
        try:
            batch = self._commit(jobs)
        except HoldlogError as error:
            if isinstance(error, StoreError) and len(jobs) > 1:
                return self._commit_each(jobs)
            is_stuck = isinstance(error, UnavailableError) and not error.in_doubt
            self._fail([*jobs, *(self._take_all() if is_stuck else ())], error)  # the others would fail, too
        except Exception:
            self.store.abort()
            self._commit_each(jobs)
        else:
            if self.waiters.by_topic:
                self.waiters.wake(row[1] for row in batch.rows)
            _resolve(jobs)

    def _commit_each(self, jobs: Sequence[Job]) -> None:
        """Commit each command alone, after an error that one of them may have caused, such as a text that the database
        does not accept."""
        for job in jobs:
            try:
                batch = self._commit([job])
            except Exception as error:
                self.store.abort()
                job.error = error
            else:
                self.waiters.wake(row[1] for row in batch.rows)
        _resolve(jobs)

    def _commit(self, jobs: list[Job], attempt: int = 1) -> Batch:
        """Run one transaction; again, if its connection is lost before it has committed. Commands that do not fit into
        BATCH_SECONDS are removed from `jobs` and go back to the queue."""
        holds = self.beats.holders
        reads: list[tuple[Reads, Caller]] = []
        for job in jobs:
            read = job.command.reads()
            if read.receipt is not None:
                job.caller = job.caller._replace(session=read.receipt)
            if (read.resources or read.claims == "all") and job.caller.handle is not None and not self.beats.is_running:
                self.beats.start()
            if (holds or job.caller.handle is None or job.caller.is_shared) and not (read.claims or read.resources):
                read = read._replace(claims="holders")  # to count the call
            reads.append((read, job.caller))
        batch = self.store.begin(reads)
        try:
            if batch.state.board is not None and not batch.state.board.is_quiet:
                self._settle(batch, reads)
            began = time.monotonic()
            for number, job in enumerate(jobs):
                if number and time.monotonic() - began > BATCH_SECONDS:
                    self._queue.extendleft(reversed(jobs[number:]))
                    del jobs[number:]
                    break
                job.error = None
                self._decide(job, batch)
        except BaseException:
            self.store.abort()
            raise
        refusals, board = self._refusals + batch.refusals, batch.state.board
        writes = batch.rows or (board is not None and (board.changed_claims or board.changed_holders))
        batch.refusals = refusals if writes else []
        try:
            self.store.commit(batch)
        except LostError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(0.02 * attempt)
            return self._commit(jobs, attempt + 1)
        self._refusals = [] if writes else refusals[-MAX_UNRECORDED:]
        return batch

    def _decide(self, job: Job, batch: Batch, reports: bool = True) -> None:
        command, caller = job.command, job.caller
        try:
            position = batch.head.position + len(batch.rows)
            moment = Moment(batch.at, position, caller, self._max_value_bytes, batch.steady)
            key = find_key(caller) if caller.request_id is not None else None
            if key is not None and key in batch.requests:
                job.result = self._recall(command, batch.requests[key], batch.state, moment)
                return
            events, result = command.decide(batch.state, moment)
        except HoldlogError as refusal:
            job.error = refusal
            batch.refusals.append(encode_refusal(command, refusal, position, batch.at, caller))
            return
        if (
            not result
            and hasattr(result, "status")
            and not (result.status == "busy" and getattr(command, "wait_seconds", 0))
        ):
            batch.refusals.append(encode_refusal(command, result, position, batch.at, caller))
        board = batch.state.board
        if board is not None and events is board.events:  # the board has already evolved with these events
            for event, version in zip(events, board.event_versions, strict=True):
                self.append(event, version, caller, batch)
        else:
            for event in events:
                self.append(event, fold(batch.state, event, position := position + 1), caller, batch)
        if board is not None:
            for who in board.entered:
                self.beats.follow(who, caller)
            board.entered = []
            if reports and not board.is_quiet and getattr(result, "lost", events) is None:
                result = result._replace(lost=board.take_losses() or None)
        if job.result is not None:
            result = _keep_reported(job.result, result)
        if key is not None and result:
            request = Request(
                batch.head.position + len(batch.rows), batch.at, fingerprint(command), json.dumps(result, default=str)
            )
            batch.requests[key] = request
            batch.remembered.append(key)
        job.result = result

    def _settle(self, batch: Batch, reads: Sequence[tuple[Reads, Caller]]) -> None:
        """Record what has expired, and grant what is free, before any command."""
        board, caller = batch.state.board, Caller()
        board.start(Moment(batch.at, batch.head.position, caller, 0, batch.steady))
        settle(board, tuple(resource for read, _ in reads for resource in read.resources))
        for event, version in zip(board.events, board.event_versions, strict=True):
            self.append(event, version, caller, batch)

    def append(self, event: Any, version: int, caller: Caller, batch: Batch) -> None:
        """Append the event to the rows of the batch. A Foreign event already has its topic and payload."""
        head = batch.rows[-1] if batch.rows else None
        position, previous = (head[0], head[-1]) if head else (batch.head.position, batch.head.digest)
        position += 1
        if type(event) is Foreign:
            topic, meta, payload = event.topic, "{}", event.payload
        else:
            topic = type(event).__name__
            meta, payload = encode_event(event, caller)
        self._salts = self._salts or os.urandom(_SALTS)  # one system call for many; only the committing thread is here
        salt, self._salts = self._salts[:SALT_BYTES], self._salts[SALT_BYTES:]
        hashed = hash_payload(payload, salt)
        digest = digest_event(previous, position, event.stream, version, topic, batch.at, meta, hashed)
        batch.rows.append((position, event.stream, version, topic, batch.at, meta, payload, salt, None, digest))

    def _recall(self, command: Any, earlier: Request, state: State, moment: Moment) -> Any:
        if not earlier.fingerprint:
            return RedactedRequest(earlier.position)
        if earlier.fingerprint != fingerprint(command):
            raise InvalidError("request_id: this id belongs to an earlier request with other arguments; use a new one")
        return command.recall(json.loads(earlier.result), state, moment)

    def _take_all(self) -> list[Job]:
        """Empty the queue."""
        jobs: list[Job] = []
        with suppress(IndexError):
            while True:
                jobs.append(self._queue.popleft())
        return jobs

    def _fail(self, jobs: Sequence[Job], error: BaseException) -> None:
        for job in jobs:
            if not job.done:
                job.error = error
        _resolve(jobs)


def _keep_reported(earlier: Any, result: Any) -> Any:
    """Choose the result of a command that runs twice, because it is not known whether its first commit happened. The
    first run may have collected a grant of the queue, or the losses, which are reported only once."""
    statuses = getattr(earlier, "status", None), getattr(result, "status", None)
    if statuses == ("claimed", "already_claimed") and earlier.version == result.version:
        return earlier
    if getattr(earlier, "lost", None) and getattr(result, "lost", earlier) is None:
        return result._replace(lost=earlier.lost)
    return result


def fingerprint(command: Any) -> str:
    """Identify a command and its arguments, so that a request id cannot name two different requests."""
    return sha256(repr(command).encode()).hexdigest()


def _resolve(jobs: Sequence[Job]) -> None:
    """Wake the callers, with one call for each event loop."""
    loops: dict[Any, list[Job]] = {}
    for job in jobs:
        if job.loop is not None:
            loops.setdefault(job.loop, []).append(job)
            continue
        if job.wake_lock is not None:
            with suppress(RuntimeError):  # released already: an interrupt came between this call and the next
                job.wake_lock.release()
        job.done = True
    for loop, finished in loops.items():
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits for the result
            loop.call_soon_threadsafe(_set_futures, finished)


def _set_futures(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.done = True
        if job.future.done():  # cancelled, or set before an interrupt
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
