"""The views, folded from the log. Engine, rebuild, verification and reads of the past all use these functions."""

from typing import Any

from holdlog.domain.claims import claim
from holdlog.domain.records import evolve
from holdlog.domain.state import Record, State


def fold(state: State, event: Any, position: int) -> int:
    """Change the rows of `state` as the event at `position` does. Returns the event's version."""
    records = state.records
    record = evolve(records.get(event.stream) or Record(event.stream), event, position)
    if type(event).__name__ == "ResultAppended" and (name := f"{event.stream} {event.checksum}") in records:
        records[name] = record._replace(exists=True)  # for the other commands of a batch
    elif type(event).__name__ == "ResultsCleared":
        names = [name for name in records if name.startswith(f"{event.stream} ")]
        records.update((name, Record(name)) for name in names)
    records[event.stream] = record
    return record.version


def refold(records: dict[str, Record], claims: claim.Claims, event: Any, version: int, position: int, at: int) -> None:
    """Change the rows of both views as an event of the log does. `version`: that of the event in its stream, so that
    `records` need not have the row before it. None is a foreign event, which no view has."""
    if event is None:
        return
    if event.stream.startswith("claim:"):
        claim.evolve(claims, event, version, position, at)
    else:
        records[event.stream] = evolve(Record(event.stream, version - 1), event, position)
