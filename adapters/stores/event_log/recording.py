"""Turns decided changes into events of the log and rows of the views: the same for every store."""

from collections.abc import Callable, Sequence

from holdlog.adapters.stores.event_log.codec import EncodedEvent, encode
from holdlog.domain.envelope import NO_BASIS, NO_DIGEST
from holdlog.domain.message import Caller
from holdlog.domain.ports import Change
from holdlog.projections import fold
from holdlog.projections.projection import Put, RowChange


class ChangeRecorder:
    """Records the changes of a connection's transactions. `digests`: of the last events of streams, as far as the
    transaction has read or recorded them; each next event continues them. `read_digest`: reads the digest of an event
    from the log, by stream and version."""

    def __init__(self, digests: dict[str, bytes], read_digest: Callable[[str, int], bytes]) -> None:
        self._digests = digests
        self._read_digest = read_digest

    def record(
        self, changes: Sequence[Change], caller: Caller, at: int, clock: int
    ) -> tuple[list[EncodedEvent], list[RowChange]]:
        """Encode the events, chained by their digests. Returns them, and the changes of the views' rows."""
        events: list[EncodedEvent] = []
        details: list[RowChange] = []
        states: dict[str, Put] = {}
        for before, event, after, basis in changes:
            stream = after.stream
            previous = self._digests.get(stream) if before.version else NO_DIGEST
            if previous is None:
                previous = self._read_digest(stream, before.version)
            encoded = encode(event, stream, after.version, previous, basis or NO_BASIS, at, clock, caller)
            self._digests[stream] = encoded.digest
            events.append(encoded)
            details += fold.detail_rows(after, event, at)
            states[stream] = fold.put(after, encoded.digest)
        return events, [*details, *states.values()]
