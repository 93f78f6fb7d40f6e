"""An open store that runs requests from threads and coroutines."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from holdlog.adapters.api.request import Answered, BlockingQuery, ClaimRequest, CommandRequest, Query, Settings
from holdlog.adapters.api.values.requests import Requests
from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.operating_system.liveness import Liveness
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.group_commit import Writer
from holdlog.adapters.runtime.lease_maintenance import LeaseMaintenance
from holdlog.adapters.runtime.log_tailer import LogTailer
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.domain.claims.commands import CollectLostClaims, EndSession, LostClaims, Queued, StopWaiting, Sweep
from holdlog.domain.claims.lease import BY_CALLS, BY_LEASE, SECOND, Loss
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader, Store
from holdlog.domain.refusals import HoldlogError, SealedError
from holdlog.domain.token import TokenChanged, TokenCommand
from holdlog.projections.waiting import wait_until, wait_until_async

Found = TypeVar("Found")

_DONE: Final = object()


class Engine:
    """A store with its notifier and group commit. `caller`: the default caller. Refusals are raised unchanged."""

    check_quota: Callable[[AnyCommand], Awaitable[None]] | None = None
    """Quota check, awaited before each async write; raises to reject it."""
    own_names: Callable[[AnyCommand, Caller], Awaitable[None]] | None = None
    """Name check, awaited before each async write and claim; raises to refuse a name that belongs to somebody else."""

    lives_by_leases = False
    """Whether the session outlives this process: a named session of the command line, until its leases expire."""

    def __init__(
        self,
        store: Store,
        notifier: ProcessNotifier,
        caller: Caller,
        calls: Requests,
        server: Liveness,
        settings: Settings,
        identity: Identity,
    ) -> None:
        self.store = store
        self.notifier = notifier
        self.caller = caller
        self.identity = identity
        self.requests = calls
        self.liveness = server
        self.writer = Writer(store, notifier)
        self.lease_maintenance = LeaseMaintenance(
            store,
            self.writer,
            calls.steady,
            server.connected,
            settings.grace,
            settings.idle_limit,
            partial(_heirs, server),
        )
        self._grace = settings.grace
        self.settings = settings
        self.keeps = settings.keeps
        self._began = calls.steady()
        self._process = os.getpid()
        self._followers: dict[asyncio.AbstractEventLoop, LogTailer] = {}
        self._waits_end = False
        self.token_changes = 0
        """Counts the changes that this process made to tokens."""

    @property
    def log_tailer(self) -> LogTailer:
        """The log tailer of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._followers:
            self._followers = {it: tailer for it, tailer in self._followers.items() if not it.is_closed()}
            self._followers[loop] = LogTailer(self.store, self.notifier)
        return self._followers[loop]

    # --- for threads

    def write(self, call: CommandRequest[Answered], caller: Caller) -> Answered:
        return call.answer(self._decided(call.command, caller))

    def claim(self, call: ClaimRequest[Answered], caller: Caller) -> Answered:
        """Acquire a claim, or queue for it for up to `call.seconds`."""
        caller = self._joined(caller)
        outcome = self._decided(call.command, caller)
        if isinstance(outcome, Queued) and call.seconds:
            try:
                with self.lease_maintenance.waiting():
                    read = partial(self._read_now, self._ticket_gone(call, outcome))
                    wait_until(read, self.notifier, call.seconds, self.waiting_is_over)
            except BaseException:
                self.writer.run(_step_back(call, outcome), caller)
                raise
            outcome = self._decided(call.again, caller)
        self.lease_maintenance.took(call.command.lease)
        return self._answered(call, outcome)

    def read(self, call: Query[Answered]) -> Answered:
        with self.store.snapshot() if call.large else self.store.reader() as reader:
            return call.answer(reader)

    def wait(self, call: BlockingQuery[Answered]) -> Answered:
        started = time.monotonic()
        with self.lease_maintenance.waiting():
            read = partial(self._read_now, partial(self._answer_to, call, started))
            found = wait_until(read, self.notifier, call.seconds, self.waiting_is_over)
        return found if found is not None else self._read_now(partial(self._timed_out, call, started))

    # --- for coroutines

    async def write_async(self, call: CommandRequest[Answered], caller: Caller) -> Answered:
        if self.own_names is not None:
            await self.own_names(call.command, caller)
        if self.check_quota is not None:
            await self.check_quota(call.command)
        if not self.keeps:
            caller = self._joined(caller)
        return call.answer(await self._decided_async(call.command, caller))

    async def claim_async(self, call: ClaimRequest[Answered], caller: Caller) -> Answered:
        """Like `claim`, for coroutines. A cancelled call stops waiting; its ticket keeps its place in the queue for a
        while."""
        if self.own_names is not None:
            await self.own_names(call.command, caller)
        caller = await self.run_off_loop(partial(self._joined, caller))

        def abandon(outcome: Outcome) -> None:
            if isinstance(outcome, Queued):
                stepping = asyncio.ensure_future(self.writer.run_async(_step_back(call, outcome), caller))
                stepping.add_done_callback(_ignore)

        outcome = await self._decided_async(call.command, caller, abandon)
        if isinstance(outcome, Queued) and call.seconds:
            try:
                with self.lease_maintenance.waiting():
                    read = partial(self.read_batched, self._ticket_gone(call, outcome))
                    listening = self.log_tailer.listen((claim_stream(call.command.resource),))
                    await wait_until_async(read, listening, call.seconds, self.waiting_is_over)
                decided = await self._decided_async(call.again, caller)
            except BaseException:
                abandon(outcome)
                raise
            outcome = decided
        self.lease_maintenance.took(call.command.lease)
        return await self.run_off_loop(partial(self._answered, call, outcome))

    async def read_async(self, call: Query[Answered]) -> Answered:
        """Like `read`, for coroutines, except that a large query runs in a thread so that it does not block the
        loop."""
        return await (asyncio.to_thread(self.read, call) if call.large else self.run_off_loop(partial(self.read, call)))

    async def wait_async(self, call: BlockingQuery[Answered]) -> Answered:
        started = time.monotonic()
        with self.lease_maintenance.waiting():
            answer = partial(self._answer_to, call, started)
            read = (
                partial(asyncio.to_thread, self._read_now, answer) if call.large else partial(self.read_batched, answer)
            )
            listening = self.log_tailer.listen(call.concerns)
            found = await wait_until_async(read, listening, call.seconds, self.waiting_is_over)
        return found if found is not None else await self.read_batched(partial(self._timed_out, call, started))

    async def read_batched(self, read: Callable[[Reader], Found]) -> Found:
        """Run a read of a few rows as `run_off_loop` does; batch it with other reads if the store is remote
        (read_batcher.py)."""
        return await (
            self.log_tailer.read_batcher.take(read)
            if self.store.remote
            else self.run_off_loop(partial(self._read_now, read))
        )

    async def run_off_loop(self, work: Callable[[], Answered]) -> Answered:
        """Run short work, such as a read of a few rows: on the loop for a local store (a few µs), in a thread for a
        remote store."""
        return await asyncio.to_thread(work) if self.store.remote else work()

    # --- tokens

    def change_token(self, command: TokenCommand, caller: Caller) -> TokenChanged:
        """Change a token. This process applies the change before the call returns; other processes do so within a
        second."""
        return self._noted(self._decided(command, caller))

    async def change_token_async(self, command: TokenCommand, caller: Caller) -> TokenChanged:
        return self._noted(await self._decided_async(command, caller))

    def _noted(self, outcome: Outcome) -> TokenChanged:
        assert isinstance(outcome, TokenChanged)
        self.token_changes += 1
        return outcome

    # --- sessions

    def join(self) -> None:
        """Register this process as one that keeps the engine's session alive."""
        self.caller = self._joined(self.caller)

    def keep_sessions(self) -> None:
        """Renew the leases of all sessions that call through this process, for as long as it runs."""
        self.join()
        self.lease_maintenance.keep_sessions(self.caller.server, self.caller.session)

    async def losses(self, caller: Caller, receipt: str | None = None) -> tuple[Loss, ...]:
        """Claims that the caller's session, or the holder with this receipt, lost since the previous call."""
        if not await self.read_batched(lambda reader: reader.leases.losses(caller.principal, caller.session, receipt)):
            return ()
        command = CollectLostClaims(session=caller.session, receipt=receipt)
        outcome = await self.writer.run_async(command, Caller(principal=caller.principal))
        assert isinstance(outcome, LostClaims)
        return outcome.losses

    def lost(self, caller: Caller, receipt: str | None = None) -> list[Lost]:
        """Like `lost_async`, for threads."""
        with self.store.reader() as reader:
            if not reader.leases.losses(caller.principal, caller.session, receipt):
                return []
        command = CollectLostClaims(session=caller.session, receipt=receipt)
        outcome = self.writer.run(command, Caller(principal=caller.principal))
        assert isinstance(outcome, LostClaims)
        return self.read(self.requests.lost(outcome.losses))

    async def lost_async(self, caller: Caller, receipt: str | None = None) -> list[Lost]:
        """Claims that the caller's session, or the holder with this receipt, lost since the previous call, with their
        current holders."""
        losses = await self.losses(caller, receipt)
        return await self.read_async(self.requests.lost(losses)) if losses else []

    async def end_session(self, caller: Caller) -> None:
        """End the caller's session, which its calls kept alive, after its client disconnected."""
        if caller.session is not None:
            await self.writer.run_async(EndSession(session=caller.session), Caller(principal=caller.principal))

    # --- shutdown

    def finish_waiting(self) -> None:
        """Make all current and future blocking calls return immediately, as after a timeout."""
        self._waits_end = True
        self.notifier.wake()
        for tailer in tuple(self._followers.values()):
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
        self._followers = {}

    def _announce_exit(self) -> None:
        """Record that this process ended. Claims of a process that ran only briefly keep their full lease, for the
        agent's next process."""
        server = self.caller.server
        if not server:
            return
        self.caller = self.caller.model_copy(update={"server": ""})
        lived = self.requests.steady() - self._began
        try:
            with self.store.reader() as reader:
                if server not in reader.leases.servers():
                    return
                heirs = _heirs(self.liveness, [server], reader)
            cut = lived > self._grace * SECOND
            self.writer.run(Sweep(ended=(server,), heirs=heirs, grace=round(self._grace * SECOND), cut=cut), NOBODY)
        except HoldlogError:
            return  # another process will detect that this one is gone

    # --- steps

    def _joined(self, caller: Caller) -> Caller:
        """Return `caller` with `server` set to what keeps its session alive: this process, its calls or its leases."""
        if not self.keeps:
            return caller if caller.session is None else caller.model_copy(update={"server": BY_CALLS})
        if self.lives_by_leases:
            return caller.model_copy(update={"server": BY_LEASE})
        server = self.liveness.join()
        if self.caller.server != server:
            self.caller = self.caller.model_copy(update={"server": server})
        return caller if caller.server == server else caller.model_copy(update={"server": server})

    def _decided(self, command: AnyCommand, caller: Caller) -> Outcome:
        try:
            outcome = self.writer.run(command, caller)
        except HoldlogError as refusal:
            if (sweep := self._sweep_of_gone(refusal.servers)) is None:
                raise
        else:
            if not isinstance(outcome, Queued) or (sweep := self._sweep_of_gone(outcome.hold.servers)) is None:
                return outcome
        self.writer.run(sweep, NOBODY)
        return self.writer.run(command, caller)

    async def _decided_async(
        self, command: AnyCommand, caller: Caller, late: Callable[[Outcome], None] | None = None
    ) -> Outcome:
        try:
            outcome = await self.writer.run_async(command, caller, late)
        except HoldlogError as refusal:
            if (sweep := await self._notice_async(refusal.servers)) is None:
                raise
        else:
            if not isinstance(outcome, Queued):
                return outcome
            try:
                if (sweep := await self._notice_async(outcome.hold.servers)) is None:
                    return outcome
                await self.writer.run_async(sweep, NOBODY)
            except BaseException:
                if late is not None:
                    late(outcome)
                raise
            return await self.writer.run_async(command, caller, late)
        await self.writer.run_async(sweep, NOBODY)
        return await self.writer.run_async(command, caller, late)

    def _sweep_of_gone(self, servers: tuple[str, ...]) -> Sweep | None:
        """Build a sweep of the blocking holders' processes that have ended; None if all are alive."""
        gone = tuple(server for server in servers if server and not self.liveness.connected(server))
        if not gone:
            return None
        with self.store.reader() as reader:
            return Sweep(ended=gone, heirs=_heirs(self.liveness, gone, reader), grace=round(self._grace * SECOND))

    async def _notice_async(self, servers: tuple[str, ...]) -> Sweep | None:
        return await self.run_off_loop(partial(self._sweep_of_gone, servers)) if servers else None

    def _answered(self, call: ClaimRequest[Answered], outcome: Outcome) -> Answered:
        with self.store.reader() as reader:
            return call.answer(outcome, reader)

    def _ticket_gone(self, call: ClaimRequest[Answered], outcome: Queued) -> Callable[[Reader], object]:
        def read(reader: Reader) -> object:
            line = reader.claim(call.command.resource).line
            return None if any(ticket.version == outcome.ticket for ticket in line) else _DONE

        return read

    def _read_now(self, read: Callable[[Reader], Found]) -> Found:
        with self.store.reader() as reader:
            return read(reader)

    def _answer_to(self, call: BlockingQuery[Answered], started: float, reader: Reader) -> Answered | None:
        return call.read(reader, time.monotonic() - started)

    def _timed_out(self, call: BlockingQuery[Answered], started: float, reader: Reader) -> Answered:
        if (moved := line_of(reader.meta(SEAL))) is not None:
            raise SealedError(moved)  # a sealed store gets no more events
        return call.timed_out(reader, time.monotonic() - started)


def _heirs(server: Liveness, gone: Sequence[str], reader: Reader) -> tuple[tuple[str, str, str], ...]:
    """Sessions of ended processes that continue in other processes, as (ended process, session, surviving process), for
    `Sweep.heirs`."""
    found = ((name, session) for name in gone for session in reader.leases.sessions_of(name))
    others = ((name, session, server.others_of(session)) for name, session in found)
    return tuple((name, session, alive[0]) for name, session, alive in others if alive)


def _step_back(call: ClaimRequest[Answered], outcome: Queued) -> StopWaiting:
    command = call.command
    return StopWaiting(resource=command.resource, agent=command.agent, ticket=outcome.ticket, receipt=outcome.receipt)


def _ignore(task: "asyncio.Task[Outcome]") -> None:
    if not task.cancelled():
        task.exception()
