"""Claims: acquire, release, who holds what, and wait."""

import json
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import (
    Agent,
    BlockingQuery,
    Claimable,
    Command,
    Label,
    Limit,
    Note,
    Query,
    Resource,
    Seconds,
    Version,
    refuse_bool,
)
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.board import read_board
from holdlog.domain.claims import acquire
from holdlog.domain.claims.board import LAST, Board
from holdlog.domain.claims.claim import Mode, Outcome, read_end
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.resource import list_covering
from holdlog.domain.claims.results import (
    AlreadyClaimed,
    AlreadyFree,
    Busy,
    Claimed,
    Deadlock,
    Expired,
    NeverClaimed,
    NotHolder,
    Released,
)
from holdlog.domain.moment import SECOND, Moment
from holdlog.domain.results import Fenced, utc
from holdlog.domain.state import Reads, State
from holdlog.projections.board import Available, BoardPage, Held, WaitTimeout, describe_board, describe_resource

Lease = Annotated[float, Field(ge=1, allow_inf_nan=False, le=10**9), BeforeValidator(refuse_bool)]
MAX_TOGETHER = 99


class Claim(Command, name="claim", group="claims", route="POST /claims/{resource}", scope="claim", waits=True):
    """Claim a file, a folder (trailing slash) or custom://name before you change it. claimed or already_claimed: you
    hold it; call release() when done. busy: another agent holds it; work on something else, or queue with wait_seconds.
    deadlock: release one of your claims first. Claim again to renew."""

    results = (Claimed, AlreadyClaimed, Busy, Deadlock, Expired)
    reads, decide = acquire.declare_claim, acquire.acquire
    resource: Claimable = Field(description="src/main.py, src/ for all below it, or custom://name")
    agent: Agent = Field(description="A name unique to you; a sub-agent appends /task")
    receipt: Label | None = Field(default=None, description="The one returned with your grant, if any")
    also: list[Claimable] | None = Field(
        default=None, max_length=MAX_TOGETHER, description="More resources: all are granted or none"
    )
    lease_seconds: Lease | None = Field(default=None, description="The claim ends after this time, whatever you do")
    wait_seconds: Seconds = Field(default=0, description="How long to queue for it", repr=False)
    mode: Mode = "exclusive"
    note: Note | None = Field(default=None, description="For others: what you do, how long it takes")
    continues: ClassVar[bool] = False
    """Set by a call that waits when it runs again."""

    def recall(self, result: Any, state: State, moment: Moment) -> Any:
        """A claim that has ended meanwhile is not claimed any more."""
        board: Board = state.board
        board.start(moment)
        claimed = super().recall(result, state, moment)
        receipt = getattr(claimed, "receipt", None)
        who = HolderId(self.agent, receipt or moment.caller.session, moment.caller.principal)
        end = LAST
        for resource, version in [(claimed.resource, claimed.version), *(claimed.also or ())]:
            own = board.find_own(resource, who)
            if own is None or own.version != version:
                held = describe_resource(resource, None, board)
                return Expired(resource, getattr(held, "held_by", None))
            end = min(end, board.find_claim_end(own))
        left = end - board.now
        return claimed._replace(expires_at=utc(moment.at + left), expires_in_seconds=left / SECOND)


class Release(Command, name="release", group="claims", route="DELETE /claims/{resource}", scope="claim"):
    """Release what you hold, or leave the queue; without resource, all that you hold and wait for. Say in outcome what
    you did, so that the next holder knows."""

    results = (Released, AlreadyFree, NeverClaimed, NotHolder, Expired)
    reads, decide = acquire.declare_release, acquire.release
    resource: Resource | None = None
    agent: Agent
    receipt: Label | None = None
    also: list[Resource] | None = Field(default=None, max_length=MAX_TOGETHER)
    outcome: Outcome | None = None
    moved_to: Claimable | None = Field(default=None, description="The new name, with outcome moved")
    note: Note | None = Field(default=None, description="For the next holder")

    @model_validator(mode="after")
    def _require_together(self) -> "Release":
        if self.resource is None and self.also:
            raise ValueError("also: needs a resource")
        if (self.outcome == "moved") != (self.moved_to is not None):
            raise ValueError("moved_to: is required with outcome moved, and allowed only with it")
        return self


class EndClaims(Command):
    """End all claims of a resource, of any holder. For people: no tool does it."""

    results = (Released, AlreadyFree, NotHolder)
    reads, decide = acquire.declare_release, acquire.end_claims
    resource: Resource
    agent: Agent = Field(description="Who ends them")
    reason: Note = Field(description="The holder reads it")
    also: ClassVar[None] = None
    receipt: ClassVar[None] = None


class Status(Query, name="status", group="claims", route="GET /claims/{resource}", positional="resource version"):
    """Who holds a resource, or how its last hold ended. Without resource, the board: all claims and queues; with agent,
    what that agent and its sub-agents hold and wait for."""

    results = (Available, Held, BoardPage)
    resource: Claimable | None = None
    version: Version | None = Field(default=None, description="Is the grant with this version still current?")
    agent: Agent | None = None
    after: Resource | None = Field(default=None, description="The next_after of the page before")
    limit: Limit = 100

    @model_validator(mode="after")
    def _require_one_kind(self) -> "Status":
        if self.resource is None and self.version is not None:
            raise ValueError("version: needs a resource")
        if self.resource is not None and (self.agent or self.after):
            raise ValueError("resource: cannot be combined with agent or after")
        return self

    def read(self, reader: Reader) -> Available | Held | BoardPage:
        if self.resource is not None:
            board = read_board(reader, Reads(resources=(self.resource,)))
            return describe_resource(self.resource, self.version, board)
        return describe_board(read_board(reader, Reads(claims="all")), self.agent, self.after or "", self.limit)


class TimeInQueue(Query):
    """For how many seconds the call of a ticket waits, None if it is not in the queue: then it was granted, or left;
    and the session that it was handed over to, None if it was not."""

    is_quick = True
    resource: str
    version: int

    def read(self, reader: Reader) -> tuple[float | None, str | None]:
        stream = f"claim:{self.resource}"
        rows = reader.read(sql.TICKET, {"resource": self.resource, "stream": stream, "version": self.version})
        until, session = rows[0]
        return None if until is None else (int(until) - reader.steady()) / SECOND, session


class FindHolders(Query):
    """Who holds each of some resources; None if nobody does."""

    resources: list[str]

    def read(self, reader: Reader) -> list[str | None]:
        board = read_board(reader, Reads(resources=tuple(self.resources)))
        held = [describe_resource(resource, None, board) for resource in self.resources]
        return [getattr(it, "held_by", None) for it in held]


class FindEnd(Query):
    """How a grant, or what replaced it, ended without its holder's doing; None if its holder released it."""

    resource: str
    version: int

    def read(self, reader: Reader) -> Fenced | None:
        rows = reader.read(sql.ENDS, {"stream": f"claim:{self.resource}", "version": self.version})
        end, current = None, self.version
        for version, *row in rows:
            if row[1] == "ClaimGranted":
                current = version if json.loads(row[3]).get("instead_of") == current else current
            elif (ended := read_end(self.resource, *row)).grant == current:
                end = ended
                break
        if end is None or (end.outcome != "expired" and end.forced_by is None):
            return None
        held = describe_resource(self.resource, None, read_board(reader, Reads(resources=(self.resource,))))
        reason = end.note if end.forced_by is not None else None
        if isinstance(held, Held) and held.covered_by is None:
            return Fenced(self.resource, self.version, held.version, held.held_by, reason)
        return Fenced(self.resource, self.version, reason=reason)


class WaitFor(
    BlockingQuery, name="wait", group="claims", route="GET /waits/{resource}", positional="resource timeout_seconds"
):
    """Wait until nobody holds a resource. This only notifies you, it does not give you the claim: call claim() next,
    or queue with claim() and wait_seconds."""

    results = (Available, WaitTimeout)
    resource: Claimable
    timeout_seconds: Seconds = 30

    def list_topics(self) -> tuple[str, ...]:
        """A subtree overlaps any number of names, a file those alone that cover it."""
        if self.resource.endswith("/"):
            return ("claim:",)
        return tuple(f"claim:{name}" for name in list_covering(self.resource))

    def read(self, reader: Reader) -> Available | Wait:
        board = read_board(reader, Reads(resources=(self.resource,)))
        result = describe_resource(self.resource, None, board)
        if isinstance(result, Available):
            return result._replace(elapsed_seconds=0.0)
        end = min(board.find_claim_end(claim) for claim in board.list_grants(self.resource))
        return Wait(board.moment.at + end - board.now)

    def give_up(self, reader: Reader, elapsed: float) -> Available | WaitTimeout:
        held = describe_resource(self.resource, None, read_board(reader, Reads(resources=(self.resource,))))
        if isinstance(held, Available):
            return self.finish(held, elapsed)
        return WaitTimeout(held.resource, held.held_by, held.claimed_at, held.held_for_seconds, elapsed)

    def finish(self, result: Available, elapsed: float) -> Available:
        return result._replace(elapsed_seconds=elapsed)
