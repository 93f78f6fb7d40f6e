"""An open store: what it consists of, and what the calls of threads and coroutines are made of."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from holdlog.adapters.api.request import Answered, BlockingQuery, ClaimRequest, Query, always_valid
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.operating_system.liveness import Liveness
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.group_commit import Writer
from holdlog.adapters.runtime.lease_maintenance import LeaseMaintenance
from holdlog.adapters.runtime.log_tailer import LogTailer
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.domain.claims.commands import EndSession, Queued, StopWaiting, Sweep
from holdlog.domain.claims.lease import BY_CALLS, BY_LEASE, SECOND
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Reader, Store
from holdlog.domain.refusals import HoldlogError, SealedError, TokenError
from holdlog.projections.waiting import wait_until, wait_until_async

Found = TypeVar("Found")

Waiting = BlockingQuery[Any] | ClaimRequest[Any]

TOKEN_CHECKED_EVERY: Final = 1.0
"""Seconds; as often as a process reads from the store whether another one revoked a token (verifier.py)."""
_DONE: Final = object()


class OpenStore:
    """A store with its notifier and group commit. `caller`: the default caller."""

    check_quota: Callable[[AnyCommand], Awaitable[None]] | None = None
    """Quota check, awaited before each async write; raises to reject it."""
    own_names: Callable[[AnyCommand, Caller], Awaitable[None]] | None = None
    """Name check, awaited before each async write and claim; raises to refuse a name that belongs to somebody else."""

    location: Path | str = ":memory:"
    """What the store was opened by."""

    kept_by = ""
    """What keeps the session alive instead of this process: another process, or `BY_LEASE` for a session that lives
    until its leases expire, such as a named session of the command line."""

    def __init__(
        self,
        store: Store,
        notifier: ProcessNotifier,
        caller: Caller,
        calls: Requests,
        server: Liveness,
    ) -> None:
        settings = calls.rules.settings
        self.store = store
        self.notifier = notifier
        self.caller = caller
        self.identity = calls.rules.identity
        self.requests = calls
        self.liveness = server
        self.writer = Writer(store, notifier)
        self.lease_maintenance = LeaseMaintenance(
            store,
            self.writer,
            calls.rules.steady,
            server.connected,
            settings.grace,
            settings.idle_limit,
            partial(_heirs, server),
            server.is_paused,
            server.resume,
        )
        self._grace = settings.grace
        self.settings = settings
        self.keeps = settings.keeps
        self._began = calls.rules.steady()
        self._process = os.getpid()
        self._log_tailers: dict[asyncio.AbstractEventLoop, LogTailer] = {}
        self._waits_end = False
        self.closed = False
        self.token_changes = 0
        """Counts the changes that this process made to tokens."""

    @property
    def log_tailer(self) -> LogTailer:
        """The log tailer of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._log_tailers:
            self._log_tailers = {it: tailer for it, tailer in self._log_tailers.items() if not it.is_closed()}
            self._log_tailers[loop] = LogTailer(self.store, self.notifier)
        return self._log_tailers[loop]

    # --- what calls are made of, for threads and for coroutines

    async def check_async(self, command: AnyCommand, caller: Caller) -> None:
        """Refuse a name that belongs to somebody else, or a write above the quota."""
        if self.own_names is not None:
            await self.own_names(command, caller)
        if self.check_quota is not None:
            await self.check_quota(command)

    def read_now(self, read: Callable[[Reader], Found]) -> Found:
        with self.store.reader() as reader:
            return read(reader)

    async def read_now_async(self, read: Callable[[Reader], Found]) -> Found:
        """Run a read of a few rows as `run_off_loop` does; batch it with other reads if the store is remote
        (read_batcher.py)."""
        return await (
            self.log_tailer.read_batcher.take(read)
            if self.store.remote
            else self.run_off_loop_async(partial(self.read_now, read))
        )

    def run_off_loop(self, work: Callable[[], Found]) -> Found:
        """Run the work: a thread has no loop to keep free."""
        return work()

    async def run_off_loop_async(self, work: Callable[[], Found]) -> Found:
        """Run short work, such as a read of a few rows: on the loop for a local store (a few µs), in a thread for a
        remote store."""
        return await asyncio.to_thread(work) if self.store.remote else work()

    def read(self, call: Query[Found]) -> Found:
        with self.store.snapshot() if call.large else self.store.reader() as reader:
            return call.answer(reader)

    async def read_async(self, call: Query[Found]) -> Found:
        """Like `read`, for coroutines, except that a large query runs in a thread so that it does not block the
        loop."""
        return await (
            asyncio.to_thread(self.read, call) if call.large else self.run_off_loop_async(partial(self.read, call))
        )

    def until(
        self, read: Callable[[Reader], Found | None], call: Waiting, interests: Sequence[str], large: bool = False
    ) -> Found | None:
        """Return what `read` finds, or None after the seconds of the call or at shutdown."""
        with self.lease_maintenance.waiting():
            return wait_until(partial(self.read_now, read), self.notifier, call.seconds, self.waiting_is_over)

    async def until_async(
        self, read: Callable[[Reader], Found | None], call: Waiting, interests: Sequence[str], large: bool = False
    ) -> Found | None:
        """Like `until`, for coroutines. `interests`: the streams that wake it; `large`: read in a thread. Raises
        TokenError within about a second after the caller's token became invalid."""
        again = partial(asyncio.to_thread, self.read_now, read) if large else partial(self.read_now_async, read)
        listening = self.log_tailer.listen(interests)
        with self.lease_maintenance.waiting():
            work = wait_until_async(again, listening, call.seconds, self.waiting_is_over)
            return await (work if call.still is always_valid else _while_valid(call.still, work))

    def stop_waiting(self, command: StopWaiting, caller: Caller) -> None:
        self.writer.run(command, caller)

    def stop_waiting_async(self, command: StopWaiting, caller: Caller) -> None:
        """Like `stop_waiting`, without waiting for it: the call that waited is being cancelled."""
        asyncio.ensure_future(self.writer.run_async(command, caller)).add_done_callback(_ignore)

    # --- sessions

    def join(self) -> None:
        """Register this process as one that keeps the engine's session alive."""
        self.caller = self.joined(self.caller)

    def keep_sessions(self) -> None:
        """Renew the leases of all sessions that call through this process, for as long as it runs."""
        self.join()
        self.lease_maintenance.keep_sessions(self.caller.server, self.caller.session)

    async def end_session(self, caller: Caller) -> None:
        """End the caller's session, which its calls kept alive, after its client disconnected."""
        if caller.session is not None:
            await self.writer.run_async(EndSession(session=caller.session), Caller(principal=caller.principal))

    # --- shutdown

    def finish_waiting(self) -> None:
        """Make all current and future blocking calls return immediately, as after a timeout."""
        self._waits_end = True
        self.notifier.wake()
        for tailer in tuple(self._log_tailers.values()):
            tailer.wake_all()

    def waiting_is_over(self) -> bool:
        return self._waits_end

    def close(self) -> None:
        """Finish running commands, release resources, and fail pending waits with "store is closed".
        A repeated call, or one after a fork, does nothing.
        """
        if self.writer.leads_here():
            self.writer.refuse()  # in a signal handler: waiting would deadlock; process exit closes the store
        elif self._process == os.getpid():
            self.closed = True
            self.lease_maintenance.close()
            self._announce_exit()
            self.writer.close()
            self.notifier.close()
            self.store.close()
            self.liveness.close()
            self.notifier.wake()

    def detach_after_fork(self) -> None:
        """Detach from the parent's store in a forked child, which must neither use nor close it."""
        self.lease_maintenance.detach_after_fork()
        self.writer.detach_after_fork()
        self.store.detach_after_fork()
        self.notifier.detach_after_fork()
        self.notifier = ProcessNotifier()
        self._log_tailers = {}

    def _announce_exit(self) -> None:
        """Record that this process ended. Claims of a process that ran only briefly keep their full lease, for the
        agent's next process."""
        server = self.caller.server
        if not server:
            return
        self.caller = self.caller.model_copy(update={"server": ""})
        lived = self.requests.rules.steady() - self._began
        try:
            with self.store.reader() as reader:
                if server not in reader.leases.servers():
                    return
                heirs = _heirs(self.liveness, [server], reader)
            cut = lived > self._grace * SECOND
            self.writer.run(Sweep(ended=(server,), heirs=heirs, grace=round(self._grace * SECOND), cut=cut), NOBODY)
        except HoldlogError:
            return  # another process will detect that this one is gone

    def joined(self, caller: Caller) -> Caller:
        """Return `caller` with `server` set to what keeps its session alive: this process, its calls or its leases
        (`BY_LEASE`, if the caller says so)."""
        if caller.server == BY_LEASE:
            return caller
        if not self.keeps:
            return caller if caller.session is None else caller.model_copy(update={"server": BY_CALLS})
        if self.kept_by:
            return caller.model_copy(update={"server": self.kept_by})
        server = self.liveness.join()
        if self.caller.server != server:
            self.caller = self.caller.model_copy(update={"server": server})
        return caller if caller.server == server else caller.model_copy(update={"server": server})

    def sweep_of_gone(self, servers: tuple[str, ...]) -> Sweep | None:
        """Build a sweep of the blocking holders' processes that have ended; None if all are alive."""
        gone = tuple(server for server in servers if server and not self.liveness.connected(server))
        if not gone:
            return None
        with self.store.reader() as reader:
            return Sweep(ended=gone, heirs=_heirs(self.liveness, gone, reader), grace=round(self._grace * SECOND))


async def _while_valid(still: Callable[[], Awaitable[bool]], work: Coroutine[Any, Any, Found]) -> Found:
    """Run the work and return its result, unless the token is no longer valid by then."""
    working = asyncio.ensure_future(work)
    try:
        while True:
            await asyncio.wait([working], timeout=TOKEN_CHECKED_EVERY)
            if not await still():
                raise TokenError
            if working.done():
                return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def _heirs(server: Liveness, gone: Sequence[str], reader: Reader) -> tuple[tuple[str, str, str], ...]:
    """Sessions of ended processes that continue in other processes, as (ended process, session, surviving process), for
    `Sweep.heirs`."""
    found = ((name, session) for name in gone for session in reader.leases.sessions_of(name))
    others = ((name, session, server.others_of(session)) for name, session in found)
    return tuple((name, session, alive[0]) for name, session, alive in others if alive)


def step_back(call: ClaimRequest[Answered], outcome: Queued) -> StopWaiting:
    command = call.command
    return StopWaiting(resource=command.resource, agent=command.agent, ticket=outcome.ticket, receipt=outcome.receipt)


def ticket_gone(call: ClaimRequest[Answered], outcome: Queued) -> Callable[[Reader], object]:
    def read(reader: Reader) -> object:
        return None if reader.is_queued(call.command.resource, outcome.ticket) else _DONE

    return read


def answer_to(call: BlockingQuery[Answered], started: float, reader: Reader) -> Answered | None:
    return call.read(reader, time.monotonic() - started)


def timed_out(call: BlockingQuery[Answered], started: float, reader: Reader) -> Answered:
    if (moved := line_of(reader.meta(SEAL))) is not None:
        raise SealedError(moved)  # a sealed store gets no more events
    return call.timed_out(reader, time.monotonic() - started)


def _ignore(task: "asyncio.Task[Outcome]") -> None:
    if not task.cancelled():
        task.exception()
