"""The one fold: state and event give the next state, which gives its row. Writers and rebuild both use it."""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from holdlog.domain import claim, record
from holdlog.domain.claim import Claim, ClaimEvent
from holdlog.domain.envelope import Envelope
from holdlog.domain.message import Event
from holdlog.domain.record import Record, RecordEvent
from holdlog.projections.claims import CLAIMS, claim_of, put_claim
from holdlog.projections.current import CURRENT, put_record, record_of
from holdlog.projections.projection import Put, Table

State = Record | Claim

VIEWS: tuple[Table, ...] = (CURRENT, CLAIMS)

EVENTS: dict[str, type[Event]] = {
    event.topic: event
    for event in (
        record.ValueWritten,
        record.ValueDeleted,
        record.ValueExpired,
        claim.ClaimGranted,
        claim.ClaimReleased,
    )
}
"""Every topic that this build knows; a row with another topic is an error, never an import."""


def evolve(state: State, event: RecordEvent | ClaimEvent, at: int, digest: bytes) -> State:
    match state:
        case Record():
            return record.evolve(state, event, at, digest)  # type: ignore[arg-type]
        case Claim():
            return claim.evolve(state, event, at, digest)  # type: ignore[arg-type]


def put(state: State) -> Put:
    return put_record(state) if isinstance(state, Record) else put_claim(state)


def state_of(view: Table, row: tuple[Any, ...]) -> State:
    """The state whose row this is: the way back from `put`."""
    return record_of(row) if view is CURRENT else claim_of(row)


def initial(stream: str) -> State:
    """The empty state of a stream, from its name. Raises ValueError for a name that no aggregate of ours has."""
    kind, _, rest = stream.partition(":")
    build = _INITIAL.get(kind)
    if build is None:
        raise ValueError(f"stream {stream!r} is of no known kind")
    return build(rest)


def apply(state: State, envelope: Envelope, event: Event) -> State:
    """The state after a recorded event."""
    return evolve(state, event, envelope.at, envelope.digest)  # type: ignore[arg-type]


def _initial_record(rest: str) -> Record:
    namespace, _, key = rest.partition("/")
    return Record(unquote(namespace), unquote(key))


_INITIAL: dict[str, Callable[[str], State]] = {"record": _initial_record, "claim": lambda rest: Claim(unquote(rest))}
