# Generated from adapters/runtime/async_calls.py by `make generate`. Do not edit.
"""The calls of threads on an open store: decide, wait, decide again."""

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


class Calls(OpenStore):
    """Runs requests for threads."""

    def write(self, call: CommandRequest[Answered], caller: Caller) -> Answered:
        if not self.keeps:
            caller = self.joined(caller)
        return call.answer(self._decided(call.command, caller))

    def claim(self, call: ClaimRequest[Answered], caller: Caller) -> Answered:
        """Acquire a claim, or queue for it for up to `call.seconds`. An interrupted call stops waiting; its ticket
        keeps its place in the queue for a while."""
        caller = self.run_off_loop(partial(self.joined, caller))

        def abandon(outcome: Outcome) -> None:
            if isinstance(outcome, Queued):
                self.stop_waiting(step_back(call, outcome), caller)

        outcome = self._decided(call.command, caller, abandon)
        if isinstance(outcome, Queued) and call.seconds:
            try:
                self.until(ticket_gone(call, outcome), call, (claim_stream(call.command.resource),))
                decided = self._decided(call.again, caller)
            except BaseException:
                abandon(outcome)
                raise
            outcome = decided
        self.lease_maintenance.took(call.command.lease)
        answer = call.answer(outcome)
        return self.read(answer) if isinstance(answer, Query) else answer

    def wait(self, call: BlockingQuery[Answered]) -> Answered:
        started = time.monotonic()
        answer = partial(answer_to, call, started)
        found = self.until(answer, call, call.concerns, call.large)
        return found if found is not None else self.read_now(partial(timed_out, call, started))

    def change_token(self, command: TokenCommand, caller: Caller) -> TokenChanged:
        """Change a token. This process applies the change before the call returns; other processes do so within a
        second."""
        outcome = self._decided(command, caller)
        assert isinstance(outcome, TokenChanged)
        self.token_changes += 1
        return outcome

    def losses(self, caller: Caller, receipt: str | None = None) -> tuple[Loss, ...]:
        """Claims that the caller's session, or the holder with this receipt, lost since the previous call."""
        if not self.read_now(lambda reader: reader.leases.losses(caller.principal, caller.session, receipt)):
            return ()
        command = CollectLostClaims(session=caller.session, receipt=receipt)
        outcome = self.writer.run(command, Caller(principal=caller.principal))
        assert isinstance(outcome, LostClaims)
        return outcome.losses

    def lost(self, caller: Caller, receipt: str | None = None) -> list[Lost]:
        """Like `losses`, with the current holders."""
        losses = self.losses(caller, receipt)
        return self.read(self.requests.claims.lost(losses)) if losses else []

    def _decided(self, command: AnyCommand, caller: Caller, late: Callable[[Outcome], None] | None = None) -> Outcome:
        """Run the command. If a holder whose process has ended is in its way, end that holder's claims and run it
        again. `late`: called with the outcome of a command that was cancelled when it was already running."""
        try:
            outcome = self.writer.run(command, caller)
        except HoldlogError as refusal:
            if (sweep := self._sweep_of_gone(refusal.servers)) is None:
                raise
        else:
            if not isinstance(outcome, Queued):
                return outcome
            try:
                if (sweep := self._sweep_of_gone(outcome.hold.servers)) is None:
                    return outcome
                self.writer.run(sweep, NOBODY)
            except BaseException:
                if late is not None:
                    late(outcome)
                raise
            return self.writer.run(command, caller)
        self.writer.run(sweep, NOBODY)
        return self.writer.run(command, caller)

    def _sweep_of_gone(self, servers: tuple[str, ...]) -> Sweep | None:
        return self.run_off_loop(partial(self.sweep_of_gone, servers)) if servers else None
