"""The views, folded from the log. Engine, rebuild, verification and reads of the past all use this function."""

from typing import Any

from holdlog.domain.records import evolve
from holdlog.domain.state import Record, State


def fold(state: State, event: Any, position: int) -> int:
    """Change the rows of `state` as the event at `position` does. Returns the event's version."""
    record = state.records.get(event.stream) or Record(event.stream)
    record = state.records[event.stream] = evolve(record, event, position)
    return record.version
