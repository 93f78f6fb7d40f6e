"""Which payloads and reasons of a log were redacted: what its PayloadRedacted events cover. A text that is missing
without such an event was removed by something else."""

from collections.abc import Iterable

from holdlog.domain.message import Event
from holdlog.domain.store_log import Part, PayloadRedacted


class Redactions:
    """The redactions of a log. `events`: those of the stream `store:log`; other kinds count as none."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._ranges: dict[tuple[str, Part], list[tuple[int, int]]] = {}
        for event in events:
            if isinstance(event, PayloadRedacted):
                self._ranges.setdefault((event.target, event.part), []).extend(event.versions)

    def cover(self, stream: str, version: int, part: Part) -> bool:
        """Whether this part of this event was redacted."""
        return any(first <= version <= last for first, last in self._ranges.get((stream, part), ()))
