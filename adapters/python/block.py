"""What a block of `claimed` consists of: its claim, and what it makes of the engine's answers."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from holdlog.adapters.api.claims import responses
from holdlog.adapters.api.pagination import chunks
from holdlog.adapters.api.request import ClaimRequest, Query
from holdlog.adapters.api.validation import checked
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.board_storage import load_board
from holdlog.domain.claims.claim import ClaimGranted, ClaimReleased
from holdlog.domain.claims.commands import ClaimAcquired, Queued, ReleaseClaim, ReleaseOutcome
from holdlog.domain.claims.fencing import fence
from holdlog.domain.claims.lease import Lease, Who
from holdlog.domain.commands import Outcome
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import (
    BusyError,
    ExpiredError,
    FencedError,
    HoldlogError,
    NotFoundError,
    NotHolderError,
)

Grants = tuple[tuple[str, int], ...]
"""Resources and the versions of their grants."""


class HeldClaim:
    """The claim of a `claimed` block.
    `version` and `position` are those of the grant of `resource`; external systems can compare `position` to reject
    writes of an earlier holder. `guard`: pass it as `guard=` to a write, which then raises FencedError once the claim
    is lost. `answer`: the whole response, including what the previous holder did.
    `outcome`, `note` and `moved_to` may be set inside the block and are shown to the next holder; setting an invalid
    value raises InvalidError at once.
    """

    def __init__(
        self, release: ReleaseClaim, acquired: ClaimAcquired, answer: Any, resource: Callable[[str, str], str]
    ) -> None:
        self.resource = acquired.resource
        self.version = acquired.version
        self.position = acquired.position
        self.answer: responses.Claimed | responses.AlreadyClaimed = answer
        self.grants: Grants = ((acquired.resource, acquired.version), *acquired.also)
        self._release = release
        self._resource = resource

    @property
    def guard(self) -> list[dict[str, Any]]:
        return [{"resource": resource, "version": version} for resource, version in self.grants]

    @property
    def outcome(self) -> str | None:
        """`released`, `modified`, `created`, `deleted` or `moved`; setting `moved_to` also sets this."""
        return self._release.outcome

    @outcome.setter
    def outcome(self, outcome: str | None) -> None:
        self._change(outcome=outcome, moved_to=None)

    @property
    def note(self) -> str | None:
        return self._release.note

    @note.setter
    def note(self, note: str | None) -> None:
        self._change(note=note)

    @property
    def moved_to(self) -> str | None:
        return self._release.moved_to

    @moved_to.setter
    def moved_to(self, resource: str) -> None:
        self._change(outcome="moved", moved_to=self._resource(resource, "moved_to"))

    def release(self, resource: str, version: int) -> ReleaseClaim:
        """The command that releases exactly this grant."""
        return self._release.model_copy(update={"resource": resource, "version": version})

    def _change(self, **details: str | None) -> None:
        self._release = checked(lambda: ReleaseClaim.model_validate(self._release.model_dump() | details))


class HoldOptions(NamedTuple):
    """Parameters of a block. `request` builds the request that queues for the given rest of `seconds`."""

    request: Callable[[float], ClaimRequest[Any]]
    seconds: float
    outcome: str | None


class Block:
    """A `claimed` block: what it asks of the engine, and what it makes of the answers."""

    def __init__(self, engine: Engine, options: HoldOptions) -> None:
        self._engine = engine
        self._options = options
        self._until = time.monotonic() + options.seconds
        self._command = options.request(0).command
        self._ending = checked(
            lambda: ReleaseClaim(
                resource=self._command.resource,
                agent=self._command.agent,
                outcome=options.outcome,  # type: ignore[arg-type]
            )
        )
        self._who = Who(self._command.agent, engine.caller.principal, engine.caller.session)
        self._before = self._held()
        self._queued = False
        self._claim: HeldClaim | None = None
        self._own: Grants = ()
        self._gone: list[tuple[str, int]] = []
        self._refusal: HoldlogError | None = None

    def request(self) -> ClaimRequest[Any]:
        """The request that claims. Its response is a pair of the outcome and the usual response."""
        call = self._options.request(max(0.0, self._until - time.monotonic()))

        def answer(outcome: Outcome) -> Any:
            found = call.answer(outcome)
            if isinstance(found, Query):
                return Query(lambda reader: (outcome, found.answer(reader)))
            return outcome, found

        return ClaimRequest(call.command, call.again, answer, call.seconds)

    def acquired(self, details: tuple[Outcome, Any]) -> HeldClaim | None:
        """Return the claim, or None to queue again. Raises BusyError on a timeout."""
        outcome, answer = details
        if isinstance(outcome, Queued):
            self._queued = True
            if time.monotonic() < self._until:
                return None
            raise BusyError(outcome.hold)
        assert isinstance(outcome, ClaimAcquired)
        self._claim = HeldClaim(self._ending, outcome, answer, self._engine.requests.rules.claimable)
        self._own = tuple(grant for grant in self._claim.grants if grant not in self._before)
        if outcome.already:
            self._own = ()
        for grant in self._claim.grants:
            self._engine.lease_maintenance.keep(*grant)
        return self._claim

    def undoing(self) -> list[ReleaseClaim]:
        """Commands that release whatever an interrupted call may have acquired, and its place in the queue."""
        return self._all_but(self._before)

    def leave_queue(self) -> list[ReleaseClaim]:
        """Commands that leave the queue after a failed wait: they release the ticket, or a grant that came too late."""
        return self._all_but(self._held()) if self._queued else []

    def _all_but(self, held: set[tuple[str, int]]) -> list[ReleaseClaim]:
        kept = {resource for resource, _ in held}
        wanted = dict.fromkeys((self._command.resource, *self._command.also))
        return [self._ending.model_copy(update={"resource": it, "outcome": None}) for it in wanted if it not in kept]

    def _held(self) -> set[tuple[str, int]]:
        with self._engine.store.reader() as reader:
            return {lease.key for lease in self._leases(reader) if lease.kind == "held"}

    def _leases(self, reader: Reader) -> list[Lease]:
        named = reader.leases.of_agent(self._who.agent, self._who.principal)
        return [lease for lease in named if lease.is_of(self._who)]

    def release(self) -> list[ReleaseClaim]:
        assert self._claim is not None
        for grant in self._claim.grants:
            self._engine.lease_maintenance.stop_keeping(*grant)
        self._gone = [grant for grant in self._claim.grants if grant not in self._own]
        return [self._claim.release(*grant) for grant in self._own]

    def released(self, command: ReleaseClaim, outcome: Outcome) -> None:
        assert isinstance(outcome, ReleaseOutcome)
        if outcome.already and command.resource is not None and command.version is not None:
            self._gone.append((command.resource, command.version))

    def refused(self, refusal: HoldlogError, judge: bool) -> None:
        if isinstance(refusal, ExpiredError | NotHolderError | NotFoundError):
            self._gone = list(self._claim.grants) if self._claim else []
        elif judge:
            self._refusal = refusal

    def require_kept(self) -> None:
        """Raise FencedError if a grant ended before its block did; this takes precedence over other refusals."""
        with self._engine.store.reader() as reader:
            for grant in self._gone:
                lost = self._loss(reader, *grant)
                if lost is not None:
                    raise lost
        if self._refusal is not None:
            raise self._refusal

    def _loss(self, reader: Reader, resource: str, version: int) -> FencedError | None:
        """The loss of a grant; None if it is current or the agent itself released it."""
        stream = claim_stream(resource)
        for recorded in chunks(
            lambda before, size: reader.history(stream, before, size), None, lambda it: it.envelope.version
        ):
            match recorded.event:
                case ClaimReleased(grant=ended, forced_by=None, former_session=None, released_by_name=None) if (
                    ended == version
                ):
                    return None
                case ClaimGranted(instead_of=ended) if ended == version:
                    return None
            if recorded.envelope.version <= version:
                break
        board = load_board(reader, [resource], self._engine.requests.rules.steady(), at=0)
        return fence(FencingCondition(resource=resource, version=version), self._who, board)


def to_its_end(work: Callable[[], None]) -> None:
    """Run the work: no other thread can cancel it."""
    work()


async def to_its_end_async(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run to completion even if each further `await` of a cancelled task is cancelled again, as with anyio."""
    task = asyncio.ensure_future(work())
    _running.add(task)
    task.add_done_callback(_running.discard)
    await asyncio.shield(task)


_running: Final[set["asyncio.Task[None]"]] = set()
