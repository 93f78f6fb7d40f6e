"""The log for read models of programs: `from holdlog.eventsourcing import HoldlogApplication` (docs/eventsourcing.md).

As the library's `PERSISTENCE_MODULE`, this module serves applications that only read.
"""

from holdlog.adapters.eventsourcing.application import HoldlogApplication as HoldlogApplication
from holdlog.adapters.eventsourcing.events import (
    AgentRegisteredEvent as AgentRegisteredEvent,
    ClaimExpiredEvent as ClaimExpiredEvent,
    ClaimGrantedEvent as ClaimGrantedEvent,
    ClaimQueuedEvent as ClaimQueuedEvent,
    ClaimReleasedEvent as ClaimReleasedEvent,
    ClaimResumedEvent as ClaimResumedEvent,
    ClaimUnqueuedEvent as ClaimUnqueuedEvent,
    FileChangedEvent as FileChangedEvent,
    LogEvent as LogEvent,
    LogForkedEvent as LogForkedEvent,
    MessageAppendedEvent as MessageAppendedEvent,
    PayloadRedactedEvent as PayloadRedactedEvent,
    ResultAppendedEvent as ResultAppendedEvent,
    ResultsClearedEvent as ResultsClearedEvent,
    RetentionChangedEvent as RetentionChangedEvent,
    ThreadDataChangedEvent as ThreadDataChangedEvent,
    ThreadStartedEvent as ThreadStartedEvent,
    TokenIssuedEvent as TokenIssuedEvent,
    TokenRevokedEvent as TokenRevokedEvent,
    TokenRotatedEvent as TokenRotatedEvent,
    ValueDeletedEvent as ValueDeletedEvent,
    ValueExpiredEvent as ValueExpiredEvent,
    ValueWrittenEvent as ValueWrittenEvent,
)
from holdlog.adapters.eventsourcing.infrastructure import HoldlogFactory as HoldlogFactory
from holdlog.adapters.eventsourcing.mapper import LogMapper as LogMapper
