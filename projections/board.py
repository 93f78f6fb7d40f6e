"""What queries about claims return, and how they see the board."""

from datetime import datetime
from typing import Any, Literal, NamedTuple

from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import Claim, Mode, wants
from holdlog.domain.claims.describe import list_previous
from holdlog.domain.claims.resource import list_covering
from holdlog.domain.moment import SECOND
from holdlog.domain.names import is_of_agent
from holdlog.domain.results import Lost, utc
from holdlog.projections.results import AsOf, EventEntry, StateRecord


class Held(NamedTuple):
    """Who holds a resource, or something that overlaps it (`covered_by`). `current`: whether the version that was asked
    for is that of a grant of exactly this resource. The past has no lease and no connection."""

    resource: str
    held_by: str
    claimed_at: datetime
    held_for_seconds: float
    version: int
    mode: Mode
    queue_length: int
    expires_at: datetime | None = None
    expires_in_seconds: float | None = None
    holder_connected: bool | None = None
    holder_idle_seconds: float | None = None
    covered_by: str | None = None
    holders: list[str] | None = None
    holder_note: str | None = None
    current: bool | None = None
    as_of: AsOf | None = None
    lost: list[Lost] | None = None
    status: Literal["claimed"] = "claimed"


class Available(NamedTuple):
    """Nobody holds it. The `previous_` fields are those of Claimed; `elapsed_seconds`: how long `wait` waited."""

    resource: str
    elapsed_seconds: float | None = None
    previous_resource: str | None = None
    previous_outcome: str | None = None
    previous_holder: str | None = None
    previous_outcome_at: datetime | None = None
    previous_note: str | None = None
    moved_to: str | None = None
    as_of: AsOf | None = None
    lost: list[Lost] | None = None
    status: Literal["available"] = "available"


class WaitTimeout(NamedTuple):
    """The resource did not become free in time."""

    resource: str
    held_by: str
    claimed_at: datetime
    held_for_seconds: float
    elapsed_seconds: float
    hint: str = "Still held. Call wait() again, or claim() with wait_seconds to queue for it."
    status: Literal["timeout"] = "timeout"

    def __bool__(self) -> bool:
        return False


class BoardClaim(NamedTuple):
    """A claim of the board."""

    resource: str
    held_by: str
    claimed_at: datetime
    held_for_seconds: float
    version: int
    mode: Mode
    queue_length: int
    expires_at: datetime | None = None
    expires_in_seconds: float | None = None
    holder_connected: bool | None = None
    holder_idle_seconds: float | None = None
    holder_note: str | None = None
    principal: str | None = None


class BoardWaiter(NamedTuple):
    """A place in a queue. `present`: its agent waits in a call."""

    agent: str
    mode: Mode
    since_seconds: float
    present: bool | None = None
    note: str | None = None
    also: list[str] | None = None
    principal: str | None = None


class Queue(NamedTuple):
    """Who waits for a resource, the first first."""

    resource: str
    length: int
    line: list[BoardWaiter]


class BoardAgent(NamedTuple):
    """An agent that holds or waits for something, with the number of its claims."""

    agent: str
    claims: int


class BoardPage(NamedTuple):
    """What is held and waited for, in order of resources. Pass `next_after` as `after` to get the next page."""

    claims: list[BoardClaim]
    queues: list[Queue]
    agents: list[BoardAgent]
    next_after: str | None = None
    as_of: AsOf | None = None
    status: Literal["ok"] = "ok"


class Replayed(NamedTuple):
    """Events of a range, and the state at its end. `next_start`: pass it as `start` to get more events; `is_cut`: the
    state has more values or claims, which `at` returns in pages."""

    events: list[EventEntry]
    values: list[StateRecord]
    claims: list[BoardClaim]
    queues: list[Queue]
    as_of: AsOf
    next_start: int | None = None
    is_cut: bool | None = None
    status: Literal["ok"] = "ok"


def describe_resource(resource: str, version: int | None, board: Board) -> Held | Available:
    """What `status` returns of one resource."""
    claims = list(board.list_grants(resource))
    if not claims:
        end = board.find_last_end(list_covering(resource))
        return Available(resource, None, *(() if end is None else list_previous(end, resource)))
    claim = next((claim for claim in claims if claim.resource == resource), claims[0])
    return Held(
        resource,
        **_describe_hold(claim, resource, board, board.list_tickets(resource)),
        covered_by=claim.resource if claim.resource != resource else None,
        holders=[it.who.agent for it in claims] if len(claims) > 1 else None,
        current=None if version is None else (resource, version) in [it.key for it in claims],
    )


def describe_board(board: Board, agent: str | None, after: str, limit: int) -> BoardPage:
    """What is held and waited for, in order of resources after one; with `agent`, by it and its sub-agents. A page has
    whole resources."""
    ends = {True: board.find_ticket_end, False: board.find_claim_end}
    rows = [claim for claim in board.claims.values() if ends[claim.is_ticket](claim) > board.now]
    tickets = [claim for claim in rows if claim.is_ticket]
    rows = [claim for claim in rows if is_of_agent(claim.who.agent, agent)]
    rows.sort(key=lambda claim: (claim.resource, claim.position))
    counts: dict[str, int] = {}
    for claim in rows:
        counts[claim.who.agent] = counts.get(claim.who.agent, 0) + (not claim.is_ticket)
    rows = [claim for claim in rows if claim.resource > after]
    page = rows[:limit]
    if len(rows) > limit and page[0].resource != rows[limit].resource:
        page = [claim for claim in page if claim.resource != rows[limit].resource]
    elif len(rows) > limit:
        page = [claim for claim in rows if claim.resource == page[0].resource]
    queues: dict[str, list[BoardWaiter]] = {}
    for ticket in sorted((claim for claim in page if claim.is_ticket), key=lambda claim: claim.position):
        queues.setdefault(ticket.resource, []).append(_describe_waiter(ticket, board))
    return BoardPage(
        [_describe_claim(claim, board, tickets) for claim in page if not claim.is_ticket],
        [Queue(resource, len(line), line) for resource, line in sorted(queues.items())],
        [BoardAgent(name, counts[name]) for name in sorted({claim.who.agent for claim in page})],
        page[-1].resource if len(page) < len(rows) else None,
    )


def _describe_claim(claim: Claim, board: Board, tickets: list[Claim]) -> BoardClaim:
    fields = _describe_hold(claim, claim.resource, board, tickets)
    return BoardClaim(claim.resource, **fields, principal=claim.who.principal)


def _describe_hold(claim: Claim, resource: str, board: Board, tickets: list[Claim]) -> dict[str, Any]:
    """The fields that Held and BoardClaim share."""
    left = board.find_claim_end(claim) - board.now
    return {
        "held_by": claim.who.agent,
        "claimed_at": utc(claim.since),
        "held_for_seconds": (board.moment.at - claim.since) / SECOND,
        "expires_at": utc(board.moment.at + left),
        "expires_in_seconds": left / SECOND,
        "version": claim.version,
        "mode": claim.mode,
        "queue_length": sum(wants(ticket, (resource,)) for ticket in tickets),
        "holder_connected": board.is_connected(claim.who),
        "holder_idle_seconds": board.count_idle_seconds(claim.who),
        "holder_note": claim.note,
    }


def _describe_waiter(ticket: Claim, board: Board) -> BoardWaiter:
    since, present = (board.moment.at - ticket.since) / SECOND, ticket.waits_until > board.now
    also = list(ticket.also) or None
    return BoardWaiter(ticket.who.agent, ticket.mode, since, present, ticket.note, also, ticket.who.principal)
