"""The log as an application of the eventsourcing library, and as its `PERSISTENCE_MODULE`. Each kind of event of the
log has a class here, such as `ValueWritten`."""

from typing import Any

from holdlog.adapters.eventsourcing.application import (
    EVENTS as _EVENTS,
    HoldlogApplication as HoldlogApplication,
    HoldlogFactory as HoldlogFactory,
    LogEvent as LogEvent,
    LogMapper as LogMapper,
)


def __getattr__(name: str) -> Any:
    if name in _EVENTS:
        return _EVENTS[name]
    raise AttributeError(f"module holdlog.eventsourcing has no attribute {name}")
