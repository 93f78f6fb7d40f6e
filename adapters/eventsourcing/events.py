"""Events of the log as projections get them: one class per topic, with the fields of the event (docs/events.md), the
names in its stream, and its envelope."""

from datetime import datetime
from typing import Any, ClassVar, Final

from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.events.event_filter import done_by, names_in
from holdlog.domain.agent import AgentRegistered
from holdlog.domain.claims.claim import (
    ClaimExpired,
    ClaimGranted,
    ClaimQueued,
    ClaimReleased,
    ClaimResumed,
    ClaimUnqueued,
    FileChanged,
)
from holdlog.domain.envelope import Envelope, Recorded
from holdlog.domain.message import Event
from holdlog.domain.record import ValueDeleted, ValueExpired, ValueWritten
from holdlog.domain.store_log import LogForked, PayloadRedacted, RetentionChanged
from holdlog.domain.threads.thread import (
    MessageAppended,
    ResultAppended,
    ResultsCleared,
    ThreadDataChanged,
    ThreadStarted,
)
from holdlog.domain.times import utc
from holdlog.domain.token import TokenIssued, TokenRevoked, TokenRotated

LOG_EVENTS: Final[dict[str, type["LogEvent"]]] = {}
"""The class of each topic; subclasses of `LogEvent` add themselves."""


class LogEvent(Event):
    """An event with its envelope. `redacted`: its payload was removed and reads as null.

    `originator_id`, `originator_version` and `timestamp` are the library's names for the stream, the version and the
    time. `author`: the agent that caused the event; what expired is attributed to its owner. `author_principal`: the
    principal that was authenticated for the author; None: the local user.
    """

    TOPIC: ClassVar[str]
    """The stored name, which the library's `get_topic` returns for the class."""
    envelope: Envelope
    redacted: bool

    @property
    def originator_id(self) -> str:
        return self.envelope.stream

    @property
    def originator_version(self) -> int:
        return self.envelope.version

    @property
    def timestamp(self) -> datetime:
        return utc(self.envelope.at)

    @property
    def author(self) -> str:
        return done_by(self._recorded)

    @property
    def author_principal(self) -> str | None:
        return principal_of(self._recorded)

    @property
    def _recorded(self) -> Recorded[Event]:
        return Recorded(self.envelope, self)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.TOPIC = getattr(cls, "topic", "")
        if cls.TOPIC:
            LOG_EVENTS.setdefault(cls.TOPIC, cls)

    def _named(self, name: str) -> str:
        return names_in(self.envelope.stream)[name]


# --- values


class RecordLogEvent(LogEvent):
    @property
    def namespace(self) -> str:
        return self._named("namespace")

    @property
    def key(self) -> str:
        return self._named("key")


class ValueWrittenEvent(RecordLogEvent, ValueWritten): ...


class ValueDeletedEvent(RecordLogEvent, ValueDeleted): ...


class ValueExpiredEvent(RecordLogEvent, ValueExpired): ...


# --- claims


class ClaimLogEvent(LogEvent):
    @property
    def resource(self) -> str:
        return self._named("resource")


class ClaimGrantedEvent(ClaimLogEvent, ClaimGranted): ...


class ClaimResumedEvent(ClaimLogEvent, ClaimResumed): ...


class ClaimReleasedEvent(ClaimLogEvent, ClaimReleased): ...


class ClaimExpiredEvent(ClaimLogEvent, ClaimExpired): ...


class ClaimQueuedEvent(ClaimLogEvent, ClaimQueued): ...


class ClaimUnqueuedEvent(ClaimLogEvent, ClaimUnqueued): ...


class FileChangedEvent(ClaimLogEvent, FileChanged): ...


# --- threads


class ThreadLogEvent(LogEvent):
    @property
    def thread(self) -> str:
        return self._named("thread")


class ThreadStartedEvent(ThreadLogEvent, ThreadStarted): ...


class MessageAppendedEvent(ThreadLogEvent, MessageAppended): ...


class ResultAppendedEvent(ThreadLogEvent, ResultAppended): ...


class ResultsClearedEvent(ThreadLogEvent, ResultsCleared): ...


class ThreadDataChangedEvent(ThreadLogEvent, ThreadDataChanged): ...


# --- agents and tokens


class AgentRegisteredEvent(LogEvent, AgentRegistered):
    """`name` is the agent's name for people; `agent` is the one in calls."""

    @property
    def agent(self) -> str:
        return self._named("agent")


class TokenLogEvent(LogEvent):
    @property
    def name(self) -> str:
        return self._named("name")


class TokenIssuedEvent(TokenLogEvent, TokenIssued): ...


class TokenRotatedEvent(TokenLogEvent, TokenRotated): ...


class TokenRevokedEvent(TokenLogEvent, TokenRevoked): ...


# --- the log itself


class PayloadRedactedEvent(LogEvent, PayloadRedacted): ...


class LogForkedEvent(LogEvent, LogForked): ...


class RetentionChangedEvent(LogEvent, RetentionChanged): ...


def log_event(recorded: Recorded[Event]) -> LogEvent:
    """An event of the log, with its envelope."""
    event = recorded.event
    return LOG_EVENTS[event.topic].model_construct(
        **event.__dict__, envelope=recorded.envelope, redacted=recorded.redacted
    )
