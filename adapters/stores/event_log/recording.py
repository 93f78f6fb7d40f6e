"""Turns decided changes into events of the log and rows of the views: the same for every store."""

from collections.abc import Callable, Sequence
from typing import Any

from holdlog.adapters.stores.event_log.codec import EncodedEvent, encode
from holdlog.domain.envelope import NO_BASIS, NO_DIGEST
from holdlog.domain.message import Caller
from holdlog.domain.ports import Change, State
from holdlog.projections import fold
from holdlog.projections.projection import Row, RowChange, Table


class ChangeRecorder:
    """Records the changes of one transaction. `read_digest`: reads the digest of an event from the log, by stream and
    version."""

    def __init__(self, read_digest: Callable[[str, int], bytes], at: int, clock: int) -> None:
        self._read_digest = read_digest
        self._at = at
        self._clock = clock
        self._digests: dict[str, bytes] = {}

    def state_of(self, view: Table, row: Row) -> Any:
        """The state of a row that the transaction read. Notes its digest: the next event of its stream continues it."""
        state = fold.state_of(view, row)
        self._digests[state.stream] = row[fold.DIGEST_COLUMN[view.name]]
        return state

    def record(self, changes: Sequence[Change], caller: Caller) -> tuple[list[EncodedEvent], list[RowChange]]:
        """Encode the events, chained by their digests. Returns them, and the changes of the views' rows."""
        events: list[EncodedEvent] = []
        last: dict[str, State] = {}
        rows: list[RowChange] = []
        for before, event, after, basis in changes:
            stream = after.stream
            previous = self._digests.get(stream) if before.version else NO_DIGEST
            if previous is None:
                previous = self._read_digest(stream, before.version)
            encoded = encode(event, stream, after.version, previous, basis or NO_BASIS, self._at, self._clock, caller)
            self._digests[stream] = encoded.digest
            events.append(encoded)
            last[stream] = after
            rows += fold.detail_rows(after, event, self._at)
        rows += [fold.put(state, self._digests[stream]) for stream, state in last.items()]
        return events, rows
