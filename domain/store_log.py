"""Facts about the log itself, which has one stream for them: redactions, forks, and how long payloads are kept."""

import sys
from bisect import bisect
from collections.abc import Iterable
from typing import ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from holdlog.domain.message import Event, Message
from holdlog.domain.names import Agent, Name

STORE_STREAM: Final = "store:log"
MAX_STREAM: Final = 4096
"""Characters of a stream's name, which is percent-encoded."""

Part = Literal["payload", "reason"]
"""What was removed from events: the text of the payload field, or the reason."""


class PayloadRedacted(Event):
    """The payload, or the reason, was removed from events of a stream. Their digests still verify.

    `target`: the stream; `versions`: first and last version of each range. The envelope's `reason` says why."""

    topic: ClassVar[str] = "PayloadRedacted"
    target: str = Field(max_length=MAX_STREAM)
    versions: tuple[tuple[int, int], ...] = Field(min_length=1)
    part: Part = "payload"
    by: Agent


class LogForked(Event):
    """The log was copied up to `at_position`, and continues here independently of its source.

    `source`: the store id of the source; `root`: root of the Merkle tree (merkle.py) over its events, in lower-case
    hexadecimal."""

    topic: ClassVar[str] = "LogForked"
    source: str = Field(max_length=200)
    at_position: int = Field(ge=0)
    root: str = Field(pattern="^[0-9a-f]{64}$")


class RetentionChanged(Event):
    """From now on, payloads of a namespace's values are removed `seconds` after they were overwritten or deleted. None:
    they are kept."""

    topic: ClassVar[str] = "RetentionChanged"
    namespace: Name
    seconds: int | None = Field(default=None, ge=1)
    by: Agent


StoreEvent = PayloadRedacted | LogForked | RetentionChanged


class Retention(Message):
    """How long the payloads of a namespace's former values are kept."""

    namespace: Name
    seconds: int


class StoreLog(NamedTuple):
    """The facts that apply now. `retention`: by namespace."""

    version: int = 0
    retention: tuple[Retention, ...] = ()

    @property
    def stream(self) -> str:
        return STORE_STREAM


def evolve(state: StoreLog, event: StoreEvent) -> StoreLog:
    retention = state.retention
    if isinstance(event, RetentionChanged):
        others = [it for it in retention if it.namespace != event.namespace]
        if event.seconds is not None:
            others.append(Retention(namespace=event.namespace, seconds=event.seconds))
        retention = tuple(sorted(others, key=lambda it: it.namespace))
    return StoreLog(state.version + 1, retention)


class EventTexts(NamedTuple):
    """The texts of an event that can be redacted, as stored. `payload`: JSON. `removed`: parts of which only the hash
    is left. `has_redactable_reason`: False for events of log format 1."""

    position: int
    stream: str
    version: int
    topic: str
    payload: str | None
    reason: str | None
    removed: tuple[Part, ...] = ()
    has_redactable_reason: bool = True

    def text(self, part: Part) -> str | None:
        return self.payload if part == "payload" else self.reason


class SearchText(NamedTuple):
    """A text to find in others. `within`: also as a part of them."""

    text: str
    within: bool

    def is_in(self, other: str) -> bool:
        return self.text in other if self.within else self.text == other


class Redactions:
    """The redactions of a log: a text that is missing without one was removed by something else. `events`: those of the
    stream `store:log`; other kinds count as none."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._ranges: dict[tuple[str, Part], list[tuple[int, int]]] = {}
        for event in events:
            if isinstance(event, PayloadRedacted):
                self._ranges.setdefault((event.target, event.part), []).extend(event.versions)
        for ranges in self._ranges.values():
            ranges[:] = merged(ranges)

    def concern(self, stream: str) -> bool:
        """Whether anything of this stream was redacted."""
        return (stream, "payload") in self._ranges or (stream, "reason") in self._ranges

    def cover(self, stream: str, version: int, part: Part) -> bool:
        """Whether this part of this event was redacted."""
        ranges = self._ranges.get((stream, part), ())
        index = bisect(ranges, (version, sys.maxsize)) - 1
        return index >= 0 and version <= ranges[index][1]


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same versions in as few ranges as possible, in order."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
