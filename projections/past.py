"""The board as it was, folded from the log. The log has no liveness: not until when a claim would have lasted, nor
whether a waiter was in a call."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import (
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    Ended,
    OfferExpired,
    describe_release,
    evolve,
)
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.results import utc
from holdlog.projections.board import Available, BoardPage, Held, describe_board, describe_resource
from holdlog.projections.results import AsOf, HoldEntry


class PastMoment(NamedTuple):
    """A state of the store: after the event at `position`, at a time in microseconds since 1970. `is_time`: the time
    was requested; then all that had expired by then has ended, whenever the log recorded it."""

    position: int
    at: int
    is_time: bool

    @property
    def as_of(self) -> AsOf:
        return AsOf(self.position, utc(self.at))


def begin_board(moment: PastMoment) -> Board:
    """The board before the first event."""
    board = Board(0)  # a clock at which nothing ends that has no deadline
    board.start(Moment(moment.at, moment.position, Caller(), 0))
    return board


def fold_claims(board: Board, events: Iterable[tuple[Any, int, int, int]]) -> None:
    """Change the board as the events do, which come with version, position and time. Only those of one stream need to
    be in their order."""
    for event, version, position, at in events:
        evolve(board.claims, event, version, position, at)
        if isinstance(event, ClaimReleased | ClaimExpired):
            end = describe_end(event, position, at)
            board.ends[end.resource] = end


def describe_end(event: ClaimReleased | ClaimExpired | OfferExpired, position: int, at: int) -> Ended:
    """How a hold ended."""
    if isinstance(event, ClaimReleased):
        return describe_release(event, position, at)
    resource = event.stream.partition(":")[2]
    if isinstance(event, OfferExpired):
        return Ended(position, resource, "not_collected", event.by, at, event.grant)
    return Ended(position, resource, "expired", event.by, event.due, event.grant, event.of_session)


def describe_hold(event: ClaimGranted, version: int, position: int, at: int, end: Ended | None) -> HoldEntry:
    """A hold of the history of a resource."""
    resource, principal = event.stream.partition(":")[2], event.of_principal
    start = (resource, event.by, version, event.mode, position, utc(at), event.note)
    if end is None:
        return HoldEntry(*start, principal=principal)
    return HoldEntry(*start, end.outcome, utc(end.at), end.note, end.moved_to, end.forced_by, principal)


def describe_past_resource(resource: str, board: Board, moment: PastMoment) -> Held | Available:
    """What `status` would have returned of one resource, as far as the log has it."""
    result = describe_resource(resource, None, board)
    if isinstance(result, Held):
        result = result._replace(expires_at=None, expires_in_seconds=None)
    return result._replace(as_of=moment.as_of)


def describe_past_board(board: Board, agent: str | None, after: str, limit: int, moment: PastMoment) -> BoardPage:
    """What `status` would have returned of the board, as far as the log has it."""
    page = describe_board(board, agent, after, limit)
    claims = [claim._replace(expires_at=None, expires_in_seconds=None) for claim in page.claims]
    queues = [queue._replace(line=[waiter._replace(present=None) for waiter in queue.line]) for queue in page.queues]
    return page._replace(claims=claims, queues=queues, as_of=moment.as_of)
