"""Writes a log and its views to a new store, and verifies them before anybody sees it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.copying.carried import BadEventError, Fingerprint, pages, verified, view_pages
from holdlog.adapters.stores.copying.source import CopySource
from holdlog.adapters.stores.event_log.codec import encode
from holdlog.domain.envelope import NO_BASIS, NO_DIGEST
from holdlog.domain.merkle import SUBTREE, log_root, subtree_root
from holdlog.domain.message import NOBODY
from holdlog.domain.progress import Progress
from holdlog.domain.refusals import StoreError
from holdlog.domain.store_log import STORE_STREAM, LogForked
from holdlog.projections.projection import Row, Table
from holdlog.projections.tree import TREE

REPORT_EVERY: Final = 1_000
"""Events between two calls of `progress`."""


class OccupiedError(StoreError):
    """The location of the copy is not empty."""


class Target(Protocol):
    """An empty location to copy to. `publish` turns it into a store atomically."""

    name: str

    def prepared(self) -> AbstractContextManager[None]:
        """Reserve the location while the block runs, so that nobody else creates a store there. Afterwards removes
        everything that was not published.

        Raises OccupiedError, UnavailableError.
        """

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows to a table."""

    def put_events(self, rows: Sequence[Row]) -> None:
        """Add events to the log, at their positions."""

    def events_by_stream(self) -> Iterator[Row]:
        """Read back the events that were put, in order of streams and versions."""

    def steady(self) -> int:
        """The current time on the target's clock of leases."""

    def publish(self, store_id: str, meta: Mapping[str, str]) -> None:
        """Turn the location into a store, which is durable when this returns."""

    def as_source(self) -> AbstractContextManager[CopySource]:
        """Open the store that already exists at this location. Raises StoreError."""


class LogTally:
    """What the events of a log add up to, read in its order. `roots`: of the complete subtrees of its Merkle tree, by
    the position of their last event."""

    def __init__(self) -> None:
        self.size = 0
        self.roots: dict[int, bytes] = {}
        self._digests: list[bytes] = []
        self._at = self._version = 0
        self._previous = NO_DIGEST

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the events after adding each. Raises BadEventError for a gap in the positions."""
        for row in rows:
            position, stream, version, at, digest = row[0], row[1], row[2], row[5], row[11]
            self.size += 1
            if position != self.size:
                raise BadEventError(self.size, f"the position of an event is {position}, but must be {self.size}")
            if not (isinstance(version, int) and isinstance(at, int) and isinstance(digest, bytes)):
                raise BadEventError(position, f"the event at position {position:,} cannot be read")
            self._digests.append(digest)
            if len(self._digests) == SUBTREE:
                self.roots[position] = subtree_root(self._digests)
                self._digests.clear()
            self._at = at
            if stream == STORE_STREAM:
                self._version, self._previous = version, digest
            yield row

    def forked(self, rows: Iterable[Row], source: str) -> Iterator[Row]:
        """Yield the events as `of`, then one that records that they were copied from the store `source`."""
        yield from self.of(rows)
        now, root = platform.now(), self.root().hex()
        fork = LogForked(source=source, at_position=self.size, root=root)
        at, version = max(now, self._at), self._version + 1
        encoded = encode(fork, STORE_STREAM, version, self._previous, NO_BASIS, at, now, NOBODY)
        yield from self.of([tuple(encoded._replace(id=self.size + 1))])

    def root(self) -> bytes:
        """The root of the tree."""
        return log_root(self.roots.values(), self._digests)


class CopySteps:
    """Reports progress over several passes over the same events."""

    def __init__(self, events: int, progress: Progress, passes: int = 2) -> None:
        self._events = events
        self._progress = progress
        self._passes = passes
        self._done = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._done += 1
            if self._done % REPORT_EVERY == 0:
                self._progress(min(self._events, self._done // self._passes), self._events)
            yield row


def write_log(target: Target, rows: Iterable[Row], tally: LogTally, steps: CopySteps) -> None:
    """Write events, in the order of their log, and the views to `target`. Then read its log back, compare it with
    what was written, and derive each digest again. `tally` must have the rows that were yielded. Raises StoreError, and
    BadEventError as `view_pages`."""
    written, found = Fingerprint(), Fingerprint()
    for page in pages(written.of(rows)):
        target.put_events(page)
    for view, view_rows in view_pages(verified(steps.of(target.events_by_stream()), found)):
        target.put(view, view_rows)
    if found != written:
        raise StoreError(
            f"{target.name} differs from what was written; check that disk or database, then run the command again"
        )
    target.put(TREE, list(tally.roots.items()))
