"""The fold: computes the next state from a state and an event, and the rows of the views. Writers and rebuild both use
it."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from holdlog.domain import agent, record, store_log, token
from holdlog.domain.agent import Profile
from holdlog.domain.claims import claim
from holdlog.domain.claims.claim import Claim
from holdlog.domain.envelope import NO_DIGEST, Envelope
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream, thread_stream
from holdlog.domain.ports import State
from holdlog.domain.record import Record
from holdlog.domain.store_log import StoreLog
from holdlog.domain.threads import thread
from holdlog.domain.threads.thread import Thread
from holdlog.domain.token import Token
from holdlog.projections import claims
from holdlog.projections.agents import AGENTS, profile_of, row_of_profile
from holdlog.projections.claims import CLAIMS, TICKETS, claim_of, row_of_claim
from holdlog.projections.current import CURRENT, record_of, row_of_record
from holdlog.projections.projection import Put, Row, RowChange, Table
from holdlog.projections.store_log import STORE_LOG, row_of_store_log, store_log_of
from holdlog.projections.threads import DATA, ITEMS, THREADS, details, row_of_thread, thread_of
from holdlog.projections.tokens import TOKENS, row_of_token, token_of


class Kind(NamedTuple):
    """A kind of streams. `prefix`: how their names begin; `initial`: the empty state, from the rest of a name;
    `evolve`: the state after an event, from its time and principal; `row`: the row of `view` for a state and the digest
    of its last event; `decode`: the state of a row; `details`: what an event changes in other views."""

    prefix: str
    events: tuple[type[Event], ...]
    initial: Callable[[str], State]
    evolve: Callable[[Any, Any, int, str | None], State]
    view: Table
    row: Callable[[Any, bytes], Row]
    decode: Callable[[Row], State]
    details: Callable[[Any, Any, int], Sequence[RowChange]] | None = None


class Folded(NamedTuple):
    """The state of a stream, and the digest of its last event."""

    state: State
    digest: bytes = NO_DIGEST


def _initial_record(rest: str) -> Record:
    namespace, _, key = rest.partition("/")
    return Record(unquote(namespace), unquote(key))


KINDS: Final[dict[type[State], Kind]] = {
    Record: Kind(
        "record",
        (record.ValueWritten, record.ValueDeleted, record.ValueExpired),
        _initial_record,
        record.evolve,
        CURRENT,
        row_of_record,
        record_of,
    ),
    Claim: Kind(
        "claim",
        (
            claim.ClaimGranted,
            claim.ClaimResumed,
            claim.ClaimReleased,
            claim.ClaimExpired,
            claim.ClaimQueued,
            claim.ClaimUnqueued,
            claim.FileChanged,
        ),
        lambda rest: Claim(unquote(rest)),
        lambda state, event, at, principal: claim.evolve(state, event, at),
        CLAIMS,
        row_of_claim,
        claim_of,
        claims.details,
    ),
    Profile: Kind(
        "agent",
        (agent.AgentRegistered,),
        lambda rest: Profile(unquote(rest)),
        agent.evolve,
        AGENTS,
        row_of_profile,
        profile_of,
    ),
    Token: Kind(
        "token",
        (token.TokenIssued, token.TokenRotated, token.TokenRevoked),
        lambda rest: Token(unquote(rest)),
        lambda state, event, at, principal: token.evolve(state, event, at),
        TOKENS,
        row_of_token,
        token_of,
    ),
    Thread: Kind(
        "thread",
        (
            thread.ThreadStarted,
            thread.MessageAppended,
            thread.ResultAppended,
            thread.ResultsCleared,
            thread.ThreadDataChanged,
        ),
        lambda rest: Thread(unquote(rest)),
        thread.evolve,
        THREADS,
        row_of_thread,
        thread_of,
        details,
    ),
    StoreLog: Kind(
        "store",
        (store_log.PayloadRedacted, store_log.LogForked, store_log.RetentionChanged),
        lambda rest: StoreLog(),
        lambda state, event, at, principal: store_log.evolve(state, event),
        STORE_LOG,
        row_of_store_log,
        store_log_of,
    ),
}

STATES: tuple[Table, ...] = tuple(kind.view for kind in KINDS.values())
"""Views with one row per stream."""
ADDED: tuple[Table, ...] = (ITEMS, DATA, TICKETS)
"""Views whose rows come from single events (see `detail_rows`)."""
VIEWS: tuple[Table, ...] = (*STATES, *ADDED)

EVENTS: dict[str, type[Event]] = {event.topic: event for kind in KINDS.values() for event in kind.events}
"""All known topics. A row with another topic is an error; its topic is never imported as code."""

_BY_PREFIX: Final = {kind.prefix: kind for kind in KINDS.values()}
_BY_VIEW: Final = {kind.view.name: kind for kind in KINDS.values()}
DIGEST_COLUMN: Final = {view.name: list(view.columns).index("digest") for view in STATES}
"""Where the digest of a stream's last event is in the rows of a view."""


def evolve(state: State, event: Event, at: int, principal: str | None) -> State:
    """The state after an event of its stream, recorded at a time (microseconds UTC) for a principal."""
    return KINDS[type(state)].evolve(state, event, at, principal)


def put(state: State, digest: bytes) -> Put:
    """The row of a stream. `digest`: that of its last event."""
    kind = KINDS[type(state)]
    return Put(kind.view, kind.row(state, digest))


def detail_rows(state: State, event: Event, at: int) -> Sequence[RowChange]:
    """What an event changes next to its stream's own row. `state`: after the event; `at`: the time of the event."""
    add = KINDS[type(state)].details
    return () if add is None else add(state, event, at)


def decoder(view: Table) -> Callable[[Row], State]:
    """The function that turns a row of the view into a state. `view`: one of `STATES`."""
    return _BY_VIEW[view.name].decode


def state_of(view: Table, row: Row) -> State:
    """The state that a row represents. `view`: one of `STATES`."""
    return _BY_VIEW[view.name].decode(row)


def folded_of(view: Table, row: Row) -> Folded:
    """The state and digest that a row represents: the inverse of `put`. `view`: one of `STATES`."""
    return Folded(_BY_VIEW[view.name].decode(row), row[DIGEST_COLUMN[view.name]])


def stream_of(view: Table, row: Row) -> str:
    """The stream that a row of any view belongs to."""
    if view is TICKETS:
        return claim_stream(row[0])
    return thread_stream(row[0]) if view in ADDED else _BY_VIEW[view.name].decode(row).stream


def initial(stream: str) -> State:
    """The empty state of a stream, from its name. Raises ValueError if the name is of no known kind."""
    prefix, _, rest = stream.partition(":")
    kind = _BY_PREFIX.get(prefix)
    if kind is None:
        raise ValueError(f"stream {stream!r} is of an unknown kind")
    return kind.initial(rest)


def apply(state: State, envelope: Envelope, event: Event) -> Folded:
    """The state after a recorded event."""
    return Folded(evolve(state, event, envelope.at, envelope.caller.principal), envelope.digest)
