"""The log for read models of programs: `from holdlog.eventsourcing import HoldlogApplication` (docs/eventsourcing.md).

As the library's `PERSISTENCE_MODULE`, this module serves applications that only read.
"""

from holdlog.adapters.eventsourcing.application import HoldlogApplication
from holdlog.adapters.eventsourcing.events import (
    AgentRegisteredEvent,
    ClaimExpiredEvent,
    ClaimGrantedEvent,
    ClaimQueuedEvent,
    ClaimReleasedEvent,
    ClaimResumedEvent,
    ClaimUnqueuedEvent,
    LogEvent,
    MessageAppendedEvent,
    ResultAppendedEvent,
    ResultsClearedEvent,
    ThreadDataChangedEvent,
    ThreadStartedEvent,
    TokenIssuedEvent,
    TokenRevokedEvent,
    TokenRotatedEvent,
    ValueDeletedEvent,
    ValueExpiredEvent,
    ValueWrittenEvent,
)
from holdlog.adapters.eventsourcing.infrastructure import HoldlogFactory
from holdlog.adapters.eventsourcing.mapper import LogMapper

__all__ = [
    "AgentRegisteredEvent",
    "ClaimExpiredEvent",
    "ClaimGrantedEvent",
    "ClaimQueuedEvent",
    "ClaimReleasedEvent",
    "ClaimResumedEvent",
    "ClaimUnqueuedEvent",
    "HoldlogApplication",
    "HoldlogFactory",
    "LogEvent",
    "LogMapper",
    "MessageAppendedEvent",
    "ResultAppendedEvent",
    "ResultsClearedEvent",
    "ThreadDataChangedEvent",
    "ThreadStartedEvent",
    "TokenIssuedEvent",
    "TokenRevokedEvent",
    "TokenRotatedEvent",
    "ValueDeletedEvent",
    "ValueExpiredEvent",
    "ValueWrittenEvent",
]
