"""The fold: computes the next state from a state and an event, and the row from a state. Writers and rebuild both use
it."""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from holdlog.domain import agent, record, token
from holdlog.domain.agent import AgentRegistered, Profile
from holdlog.domain.claims import claim
from holdlog.domain.claims.claim import Claim, ClaimEvent
from holdlog.domain.envelope import Envelope
from holdlog.domain.message import Event
from holdlog.domain.names import thread_stream
from holdlog.domain.record import Record, RecordEvent
from holdlog.domain.threads import thread
from holdlog.domain.threads.thread import Thread, ThreadEvent
from holdlog.domain.token import Token, TokenEvent
from holdlog.projections.agents import AGENTS, profile_of, put_agent
from holdlog.projections.claims import CLAIMS, claim_of, put_claim
from holdlog.projections.current import CURRENT, put_record, record_of
from holdlog.projections.projection import Put, Table
from holdlog.projections.threads import DATA, ITEMS, THREADS, details, put_thread, thread_of
from holdlog.projections.tokens import TOKENS, put_token, token_of

State = Record | Claim | Profile | Token | Thread

STATES: tuple[Table, ...] = (CURRENT, CLAIMS, AGENTS, TOKENS, THREADS)
"""Views with one row per stream."""
ADDED: tuple[Table, ...] = (ITEMS, DATA)
"""Views to which some events add detail rows (see `detail_rows`)."""
VIEWS: tuple[Table, ...] = (*STATES, *ADDED)

KINDS: dict[type[State], tuple[type[Event], ...]] = {
    Record: (record.ValueWritten, record.ValueDeleted, record.ValueExpired),
    Claim: (
        claim.ClaimGranted,
        claim.ClaimResumed,
        claim.ClaimReleased,
        claim.ClaimExpired,
        claim.ClaimQueued,
        claim.ClaimUnqueued,
    ),
    Profile: (agent.AgentRegistered,),
    Token: (token.TokenIssued, token.TokenRotated, token.TokenRevoked),
    Thread: (
        thread.ThreadStarted,
        thread.MessageAppended,
        thread.ResultAppended,
        thread.ResultsCleared,
        thread.ThreadDataChanged,
    ),
}
"""The events of each kind of stream."""

EVENTS: dict[str, type[Event]] = {event.topic: event for events in KINDS.values() for event in events}
"""All known topics. A row with another topic is an error; its topic is never imported as code."""


def evolve(
    state: State,
    event: RecordEvent | ClaimEvent | AgentRegistered | TokenEvent | ThreadEvent,
    at: int,
    digest: bytes,
    principal: str | None = None,
) -> State:
    match state:
        case Record():
            return record.evolve(state, event, at, digest, principal)  # type: ignore[arg-type]
        case Claim():
            return claim.evolve(state, event, at, digest)  # type: ignore[arg-type]
        case Profile():
            return agent.evolve(state, event, at, digest, principal)  # type: ignore[arg-type]
        case Token():
            return token.evolve(state, event, at, digest)  # type: ignore[arg-type]
        case Thread():
            return thread.evolve(state, event, at, digest, principal)  # type: ignore[arg-type]


def put(state: State) -> Put:
    match state:
        case Record():
            return put_record(state)
        case Claim():
            return put_claim(state)
        case Profile():
            return put_agent(state)
        case Token():
            return put_token(state)
        case Thread():
            return put_thread(state)


def detail_rows(state: State, event: Event, at: int) -> list[Put]:
    """The rows that an event adds to its stream's own row. `state`: after the event; `at`: the time of the event."""
    return details(state, event, at) if isinstance(state, Thread) else []  # type: ignore[arg-type]


def state_of(view: Table, row: tuple[Any, ...]) -> State:
    """The state that a row represents: the inverse of `put`. `view`: one of `STATES`."""
    return _STATES[view.name](row)


def stream_of(view: Table, row: tuple[Any, ...]) -> str:
    """The stream that a row of any view belongs to."""
    return thread_stream(row[0]) if view in ADDED else state_of(view, row).stream


def initial(stream: str) -> State:
    """The empty state of a stream, from its name. Raises ValueError if the name is of no known kind."""
    kind, _, rest = stream.partition(":")
    build = _INITIAL.get(kind)
    if build is None:
        raise ValueError(f"stream {stream!r} is of an unknown kind")
    return build(rest)


def apply(state: State, envelope: Envelope, event: Event) -> State:
    """The state after a recorded event."""
    return evolve(state, event, envelope.at, envelope.digest, envelope.caller.principal)  # type: ignore[arg-type]


def _initial_record(rest: str) -> Record:
    namespace, _, key = rest.partition("/")
    return Record(unquote(namespace), unquote(key))


_INITIAL: dict[str, Callable[[str], State]] = {
    "record": _initial_record,
    "claim": lambda rest: Claim(unquote(rest)),
    "agent": lambda rest: Profile(unquote(rest)),
    "token": lambda rest: Token(unquote(rest)),
    "thread": lambda rest: Thread(unquote(rest)),
}
_STATES: dict[str, Callable[[tuple[Any, ...]], State]] = {
    CURRENT.name: record_of,
    CLAIMS.name: claim_of,
    AGENTS.name: profile_of,
    TOKENS.name: token_of,
    THREADS.name: thread_of,
}
