"""The calls of coroutines on an open store: decide, wait, decide again."""

import time
from collections.abc import Callable
from functools import partial

from holdlog.adapters.api.request import Answered, BlockingQuery, ClaimRequest, CommandRequest, Query
from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.runtime.open_store import OpenStore, answer_to, step_back, ticket_gone, timed_out
from holdlog.domain.claims.commands import CollectLostClaims, LostClaims, Queued, Sweep
from holdlog.domain.claims.lease import Loss
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.names import claim_stream
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.token import TokenChanged, TokenCommand


class AsyncCalls(OpenStore):
    """Runs requests for coroutines. A cancelled call that has not begun is withdrawn."""

    async def write_async(self, call: CommandRequest[Answered], caller: Caller) -> Answered:
        await self.check_async(call.command, caller)
        if not self.keeps:
            caller = self.joined(caller)
        return call.answer(await self._decided_async(call.command, caller))

    async def claim_async(self, call: ClaimRequest[Answered], caller: Caller) -> Answered:
        """Acquire a claim, or queue for it for up to `call.seconds`. An interrupted call stops waiting; its ticket
        keeps its place in the queue for a while."""
        await self.check_async(call.command, caller)
        caller = await self.run_off_loop_async(partial(self.joined, caller))

        def abandon(outcome: Outcome) -> None:
            if isinstance(outcome, Queued):
                self.stop_waiting_async(step_back(call, outcome), caller)

        outcome = await self._decided_async(call.command, caller, abandon)
        if isinstance(outcome, Queued) and call.seconds:
            try:
                await self.until_async(ticket_gone(call, outcome), call, (claim_stream(call.command.resource),))
                decided = await self._decided_async(call.again, caller)
            except BaseException:
                abandon(outcome)
                raise
            outcome = decided
        self.lease_maintenance.took(call.command.lease)
        answer = call.answer(outcome)
        return await self.read_async(answer) if isinstance(answer, Query) else answer

    async def wait_async(self, call: BlockingQuery[Answered]) -> Answered:
        started = time.monotonic()
        answer = partial(answer_to, call, started)
        found = await self.until_async(answer, call, call.concerns, call.large)
        return found if found is not None else await self.read_now_async(partial(timed_out, call, started))

    async def change_token_async(self, command: TokenCommand, caller: Caller) -> TokenChanged:
        """Change a token. This process applies the change before the call returns; other processes do so within a
        second."""
        outcome = await self._decided_async(command, caller)
        assert isinstance(outcome, TokenChanged)
        self.token_changes += 1
        return outcome

    async def losses_async(self, caller: Caller, receipt: str | None = None) -> tuple[Loss, ...]:
        """Claims that the caller's session, or the holder with this receipt, lost since the previous call."""
        if not await self.read_now_async(
            lambda reader: reader.leases.losses(caller.principal, caller.session, receipt)
        ):
            return ()
        command = CollectLostClaims(session=caller.session, receipt=receipt)
        outcome = await self.writer.run_async(command, Caller(principal=caller.principal))
        assert isinstance(outcome, LostClaims)
        return outcome.losses

    async def lost_async(self, caller: Caller, receipt: str | None = None) -> list[Lost]:
        """Like `losses`, with the current holders."""
        losses = await self.losses_async(caller, receipt)
        return await self.read_async(self.requests.claims.lost(losses)) if losses else []

    async def _decided_async(
        self, command: AnyCommand, caller: Caller, late: Callable[[Outcome], None] | None = None
    ) -> Outcome:
        """Run the command. If a holder whose process has ended is in its way, end that holder's claims and run it
        again. `late`: called with the outcome of a command that was cancelled when it was already running."""
        try:
            outcome = await self.writer.run_async(command, caller, late)
        except HoldlogError as refusal:
            if (sweep := await self._sweep_of_gone_async(refusal.servers)) is None:
                raise
        else:
            if not isinstance(outcome, Queued):
                return outcome
            try:
                if (sweep := await self._sweep_of_gone_async(outcome.hold.servers)) is None:
                    return outcome
                await self.writer.run_async(sweep, NOBODY)
            except BaseException:
                if late is not None:
                    late(outcome)
                raise
            return await self.writer.run_async(command, caller, late)
        await self.writer.run_async(sweep, NOBODY)
        return await self.writer.run_async(command, caller, late)

    async def _sweep_of_gone_async(self, servers: tuple[str, ...]) -> Sweep | None:
        return await self.run_off_loop_async(partial(self.sweep_of_gone, servers)) if servers else None
