"""The claims at an earlier position: folded from the log, beginning with the newest snapshot before it."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, cast, get_args

from holdlog.domain.claims.board import Key
from holdlog.domain.claims.claim import (
    Claim,
    ClaimEvent,
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    ClaimResumed,
    Grant,
    PastHold,
    Ticket,
    ended_ticket,
    ends_grant,
    evolve,
    new_ticket,
)
from holdlog.domain.envelope import Recorded
from holdlog.domain.history import newest_first, of_topics, oldest_first
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.projections import fold

CLAIM_TOPICS: Final = tuple(event.topic for event in get_args(ClaimEvent))
_ENDINGS: Final = tuple(event.topic for event in (ClaimReleased, ClaimExpired, ClaimResumed, ClaimGranted))
"""Topics of events that can end a grant."""
_PAGE: Final = 2_000
"""Events of the log folded at once."""
_CHUNK: Final = 32
"""Events of a stream read at once."""


class PastBoard(NamedTuple):
    """The claims that were held or waited for, by resource, and their tickets, in the order of the log. `past` of a
    claim is None if its last hold ended before the snapshot: see `past_hold`."""

    claims: Mapping[str, Claim]
    tickets: Mapping[Key, Ticket]


class Ending(NamedTuple):
    """How a grant ended. `at`: when, and `noticed_at`: when its event was recorded; both in microseconds UTC. They
    differ for an expiry. `resumed`: another session of the holder's name got the claim; `replaced`: its holder claimed
    it again in another mode. `forced_by`: the person who took it."""

    outcome: Literal["released", "modified", "created", "deleted", "moved", "expired", "forced", "resumed", "replaced"]
    at: int
    noticed_at: int
    forced_by: str | None = None


def past_board(reader: Reader, position: int) -> PastBoard:
    """The board at a position. Reads the events of claims since the snapshot before it."""
    after, claims, found = reader.snapshot_before(position)
    states = {claim.resource: claim for claim in claims}
    tickets = {ticket[:2]: ticket for ticket in found}
    fold_board(states, tickets, of_topics(reader, CLAIM_TOPICS, after, position, size=_PAGE))
    return PastBoard({name: it for name, it in states.items() if it.grants or it.waiting}, tickets)


def fold_board(states: dict[str, Claim], tickets: dict[Key, Ticket], events: Iterable[Recorded[Event]]) -> None:
    """Apply events of claims, in the order of the log. A claim that is not in `states` was free until then."""
    for recorded in events:
        envelope, event = recorded.envelope, cast("ClaimEvent", recorded.event)
        resource = resource_of(envelope.stream)
        before = states.get(resource) or Claim(resource, envelope.version - 1)
        states[resource] = after = evolve(before, event, envelope.at)
        if (ended := ended_ticket(event)) is not None:
            tickets.pop((resource, ended), None)
        elif (ticket := new_ticket(after, event, envelope.at)) is not None:
            tickets[ticket[:2]] = ticket


def past_hold(reader: Reader, resource: str, version: int) -> tuple[PastHold, int] | None:
    """How the last hold of a claim had ended when it had this version, and when the log recorded that (microseconds
    UTC); None if none had ended."""
    stream = claim_stream(resource)
    for recorded in newest_first(reader, stream, version + 1):
        event, envelope = recorded.event, recorded.envelope
        if isinstance(event, ClaimReleased) or (isinstance(event, ClaimExpired) and event.collected):
            grant = _grant_before(reader, stream, envelope.version, event.grant)
            held = Claim(resource, envelope.version - 1, () if grant is None else (grant,))
            past = evolve(held, event, envelope.at).past
            return None if past is None else (past, envelope.at)
    return None


def endings(reader: Reader, claims: Sequence[Claim], position: int) -> dict[Key, Ending]:
    """How those grants of these claims ended that have ended by now, by resource and version. `claims`: as they were at
    the position."""
    found: dict[Key, Ending] = {}
    held = {claim_stream(claim.resource): claim for claim in claims if claim.grants}
    for recorded in reader.next_events(list(held), position, _ENDINGS):
        claim = held[recorded.envelope.stream]
        for grant in claim.grants:
            if (last := _end_of(reader, claim, grant, recorded)) is not None:
                found[claim.resource, grant.version] = ending_of(last)
    return found


def _end_of(reader: Reader, claim: Claim, grant: Grant, first: Recorded[Event]) -> Recorded[Event] | None:
    """The event that ended a grant. `first`: the first event that may have."""
    if ends_grant(cast("ClaimEvent", first.event), grant.version):
        return first
    if reader.claim(claim.resource).grant(grant.version) is not None:
        return None
    later = oldest_first(reader, claim.stream, first.envelope.version, size=_CHUNK)
    return next((it for it in later if ends_grant(cast("ClaimEvent", it.event), grant.version)), None)


def ending_of(recorded: Recorded[Event]) -> Ending:
    """How an event ended the grant that it ended."""
    at = recorded.envelope.at
    match recorded.event:
        case ClaimReleased(forced_by=by, outcome=outcome):
            return Ending("forced" if by else outcome, at, at, by)
        case ClaimExpired(due=due):
            return Ending("expired", due, at)
        case ClaimResumed():
            return Ending("resumed", at, at)
        case _:
            return Ending("replaced", at, at)


def _grant_before(reader: Reader, stream: str, version: int, grant: int | None) -> Grant | None:
    """The grant that an event of this version ended. `grant`: its version; None in logs of major 1, where a claim had
    one grant."""
    for recorded in newest_first(reader, stream, version if grant is None else grant + 1):
        event, envelope = recorded.event, recorded.envelope
        if isinstance(event, ClaimGranted | ClaimResumed):
            return Grant(envelope.version, event.agent, event.principal, event.mode, envelope.at, event.session)
    return None


@lru_cache(_PAGE)
def resource_of(stream: str) -> str:
    """The resource of a claim's stream."""
    return cast("Claim", fold.initial(stream)).resource
