"""The views, folded from the log. Engine, rebuild, verification and reads of the past all use this function."""

from typing import Any

from holdlog.domain.records import evolve
from holdlog.domain.state import Record, State


def fold(state: State, event: Any, position: int) -> int:
    """Change the rows of `state` as the event at `position` does. Returns the event's version."""
    records = state.records
    record = evolve(records.get(event.stream) or Record(event.stream), event, position)
    if type(event).__name__ == "ResultAppended" and (name := f"{event.stream} {event.checksum}") in records:
        records[name] = record._replace(exists=True)  # for the other commands of a batch
    records[event.stream] = record
    return record.version
