"""Filter of events: what the caller wants and may see."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, TypeAdapter, WithJsonSchema

from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.resource import overlap
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import acts_for, thread_stream
from holdlog.domain.ports import State
from holdlog.domain.record import Record
from holdlog.domain.refusals import InvalidError
from holdlog.domain.store_log import StoreLog
from holdlog.domain.threads.thread import Thread
from holdlog.projections import fold
from holdlog.projections.waiting import EVERYTHING, what_overlaps, whole_namespace

MAX_KINDS: Final = 32

_names_of: Final = lru_cache(4096)(fold.initial)


class EventFilter(NamedTuple):
    """None matches everything. `namespace` with `prefix` (of keys), `resource` (with what overlaps it) and `thread`
    select streams; an event matches if any of them does. `topics`: kinds of events. `agent`: events caused by this
    agent or its sub-agents. `sees`: whether the caller may see the stream of a name."""

    namespace: str | None = None
    prefix: str = ""
    resource: str | None = None
    thread: str | None = None
    topics: frozenset[str] | None = None
    agent: str | None = None
    sees: Callable[[str], bool] | None = None

    def may_fit(self, stream: str, topic: str) -> bool:
        """Whether an event of that stream may match; `fits` decides."""
        if self.topics is not None and topic not in self.topics:
            return False
        if self._needs_stream and not self._names(_names_of(stream)):
            return False
        return self.sees is None or self.sees(stream)

    def fits(self, recorded: Recorded[Event]) -> bool:
        """Whether an event matches for which `may_fit` is true."""
        return self.agent is None or acts_for(done_by(recorded), self.agent)

    @property
    def may_fit_all(self) -> bool:
        """Whether `may_fit` is true of every event."""
        return self.topics is None and self.sees is None and not self._needs_stream

    @property
    def concerns(self) -> tuple[str, ...]:
        """What must change before more events can match (projections/waiting.py)."""
        streams = () if self.namespace is None else whole_namespace(self.namespace)
        if self.resource is not None:
            streams += what_overlaps(self.resource)
        if self.thread is not None:
            streams += (thread_stream(self.thread),)
        return streams or EVERYTHING

    @property
    def _needs_stream(self) -> bool:
        return not (self.namespace is None and self.resource is None and self.thread is None)

    def _names(self, state: State) -> bool:
        match state:
            case Record(namespace=namespace, key=key):
                return namespace == self.namespace and key.startswith(self.prefix)
            case Claim(resource=resource):
                return self.resource is not None and overlap(resource, self.resource)
            case Thread(thread=thread):
                return thread == self.thread
            case _:
                return False


def done_by(recorded: Recorded[Event]) -> str:
    """The agent that caused an event: the author of a value or thread item, the agent that registered, the holder or
    waiter of a claim, or the person who forcibly released it. What expired is attributed to its owner."""
    event = recorded.event
    for field in _authors(type(event)):
        if name := getattr(event, field):
            return str(name)
    return names_in(recorded.envelope.stream).get("agent", "")


@cache
def _authors(kind: type[Event]) -> tuple[str, ...]:
    """The fields of a kind of event that name who caused it, the first choice first."""
    return tuple(field for field in ("forced_by", "by", "agent") if field in kind.model_fields)


def names_in(stream: str) -> dict[str, str]:
    """What the events of a stream are about: `namespace` and `key`, `resource`, `thread`, `agent` …"""
    state = _names_of(stream)
    match state:
        case Record(namespace=namespace, key=key):
            return {"namespace": namespace, "key": key}
        case StoreLog():
            return {}
        case _:
            return {state._fields[0]: state[0]}


def topics_of(kinds: object) -> frozenset[str] | None:
    """The topics of `kinds`, each of which is a topic or a kind of stream, such as `record`. Raises InvalidError."""
    if kinds is None:
        return None
    if isinstance(kinds, str) or not isinstance(kinds, Sequence) or not 1 <= len(kinds) <= MAX_KINDS:
        raise InvalidError(f"kinds: must be a list of 1 to {MAX_KINDS} kinds")
    found: set[str] = set()
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _ALL:
            raise InvalidError(f"kinds: {_NO_KIND}")
        found |= _GROUPS.get(kind, {kind})
    return frozenset(found)


def _kind(text: str) -> str:
    if text not in _ALL:
        raise ValueError(_NO_KIND)
    return text


_GROUPS: Final = {kind.prefix: {event.topic for event in kind.events} for kind in fold.KINDS.values()}
"""The topics of each kind of stream, by the word that its stream names begin with."""
_ALL: Final = (*_GROUPS, *fold.EVENTS)
_NO_KIND: Final = f"must be {', '.join(_GROUPS)}, or one of {', '.join(fold.EVENTS)}"
KINDS: Final = TypeAdapter(list[Annotated[str, AfterValidator(_kind), WithJsonSchema({"enum": list(_ALL)})]])
