"""Who changed each field of an object last, from its versions, newest first."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdlog.adapters.api.changes.diff import same
from holdlog.adapters.api.pagination import event_bytes
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.record import ValueWritten

MAX_VERSIONS: Final = 10_000
MAX_BYTES: Final = 32 * 1024 * 1024
"""Versions and bytes of values that one call reads."""


class Origin(NamedTuple):
    """The event that changed a field last. `is_certain`: False if the version before it is redacted, so that the change
    may be older."""

    recorded: Recorded[Event]
    is_certain: bool = True


class Origins(NamedTuple):
    """The origins of fields by name. `older`: fields that are the same in all versions that were read; `last`: the
    oldest of these versions."""

    found: dict[str, Origin]
    older: list[str]
    last: int


def origins(fields: dict[str, Any], newest: Recorded[Event], history: Iterable[Recorded[Event]]) -> Origins:
    """Find the event that changed each field last. `fields`: of the object that `newest` wrote; `history`: the events
    before it, newest first. Reads as few of them as possible, and at most `MAX_VERSIONS` and `MAX_BYTES`."""
    found: dict[str, Origin] = {}
    older, last, spent = dict(fields), newest, 0
    for count, recorded in enumerate(history):
        spent += event_bytes(recorded)
        if not older or count == MAX_VERSIONS or spent > MAX_BYTES:
            break
        members = _members(recorded.event)
        for name, part in list(older.items()):
            if name not in members or not same(members[name], part):
                found[name] = Origin(last, not recorded.redacted)
                del older[name]
        last = recorded
    else:  # there is no older version
        found |= dict.fromkeys(older, Origin(last))
        older = {}
    return Origins(found, sorted(older), last.envelope.version)


def _members(event: Event) -> dict[str, Any]:
    value = event.value.value if isinstance(event, ValueWritten) else None
    return value if isinstance(value, dict) else {}
