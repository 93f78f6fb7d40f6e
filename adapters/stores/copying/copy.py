"""Copies a store: one snapshot of everything, with the same positions, versions and digests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.copying.carried import (
    REQUESTS,
    BadEventError,
    Fingerprint,
    at_target,
    pages,
    verified,
    view_pages,
    without_sessions,
)
from holdlog.adapters.stores.copying.source import Contents, CopySource
from holdlog.adapters.stores.event_log.codec import encode
from holdlog.adapters.stores.event_log.sealing import elsewhere, is_same
from holdlog.adapters.stores.sql.tables import LEASES, LOSSES, REFUSALS, SESSION_SALT
from holdlog.domain.claims.lease import Loss
from holdlog.domain.envelope import NO_BASIS, NO_DIGEST
from holdlog.domain.merkle import SUBTREE, Frontier, leaf, subtree_root
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import StoreError
from holdlog.domain.store_log import STORE_STREAM, LogForked
from holdlog.projections.projection import Row, Table
from holdlog.projections.tree import TREE

REPORT_EVERY: Final = 1_000
"""Events between two calls of `progress`."""

Progress = Callable[[int, int], None]
"""Called with the number of events copied so far, and the total."""


class CopyReport(NamedTuple):
    """Describes a finished copy or import. `source`, `target`: locations without passwords. `events`: of the source.
    `position`: of the last event of the copy. `kept_id`: the copy has the store id of its source, which is sealed;
    otherwise its last event is a LogForked.

    `already`: an earlier run made the copy; this run only verified it again.
    """

    source: str
    target: str
    events: int
    position: int
    store_id: str
    kept_id: bool
    sealed: bool
    already: bool = False


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
            position, digest = row[0], row[11]
            self.size += 1
            if position != self.size:
                raise BadEventError(self.size, f"the position of an event is {position}, but must be {self.size}")
            if not isinstance(digest, bytes):
                raise BadEventError(position, f"the event at position {position:,} has no digest")
            self._digests.append(digest)
            if len(self._digests) == SUBTREE:
                self.roots[position] = subtree_root(self._digests)
                self._digests.clear()
            self._at = row[5]
            if row[1] == STORE_STREAM:
                self._version, self._previous = row[2], digest
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
        tree = Frontier()
        for root in self.roots.values():
            tree.add(root, SUBTREE)
        for digest in self._digests:
            tree.add(leaf(digest))
        return tree.root()


def write_log(target: Target, rows: Iterable[Row], tally: LogTally, steps: "CopySteps") -> None:
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


def copy_between(
    source: CopySource,
    target: Target,
    seal: bool = False,
    progress: Progress = lambda done, total: None,
    report: Callable[[str], None] = lambda line: None,
) -> CopyReport:
    """Copy a snapshot of `source` to `target`, verify it, and publish it as a store. Servers of the source can continue
    meanwhile.

    `seal`: first seal the source, so that nothing more is written to it; call `report` with a line about this; and give
    the copy the source's store id. A source that is already sealed gives its id to one copy even without `seal`. If the
    process is killed before the copy is published, no store exists at the target, and the caller can run this again.
    Raises StoreError, UnavailableError.
    """
    if is_same(source.name, target.name):
        raise StoreError("source and target are the same store; name another target")
    try:
        with target.prepared():
            return _copied(source, target, seal, progress, report)
    except OccupiedError as occupied:
        return _there_already(source, target, occupied, progress)


def _copied(
    source: CopySource, target: Target, seal: bool, progress: Progress, report: Callable[[str], None]
) -> CopyReport:
    sealed = source.sealed()
    if seal:
        if sealed is None:  # sealing cannot be undone: first check that the store can be copied
            with source.contents() as contents:
                steps = CopySteps(contents.count(), progress, passes=1)
                _exhaust(view_pages(verified(steps.of(contents.events_by_stream()), Fingerprint())))
        is_new, sealed = sealed is None, source.seal(target.name)
        if is_new:
            report(f"{source.name} is now sealed; if the copy fails, run the command again")
        if sealed.done:
            raise elsewhere(sealed)
    keeps = sealed is not None and not sealed.done and (not sealed.given or is_same(sealed.to, target.name))
    with source.contents() as contents:
        meta, tally, steps = contents.meta(), LogTally(), CopySteps(contents.count(), progress)
        events = steps.of(contents.events())
        write_log(target, tally.of(events) if keeps else tally.forked(events, meta["store_id"]), tally, steps)
        _copy_side_tables(contents, target, sealed.steady if sealed is not None else contents.steady, keeps)
    if keeps:
        source.give(target.name, done=False)
    store_id = meta["store_id"] if keeps else str(uuid4())
    # Positions of relays belong to the stream of one store id, and hashes of sessions to the salt of one store.
    target.publish(
        store_id,
        {name: it for name, it in meta.items() if keeps and (name.startswith("relay:") or name == SESSION_SALT)},
    )
    if keeps:
        source.give(target.name, done=True)
    last = tally.size
    return CopyReport(
        source.name, target.name, last if keeps else last - 1, last, store_id, keeps, sealed=sealed is not None
    )


def _copy_side_tables(contents: Contents, target: Target, then: int, moved: bool) -> None:
    for table in (REQUESTS, REFUSALS):
        for page in pages(contents.rows(table)):
            target.put(table, page)
    elapsed = target.steady() - then
    for page in pages(contents.rows(LEASES)):
        target.put(LEASES, at_target(page, elapsed, platform.now(), moved))
    for page in pages(contents.rows(LOSSES)):
        target.put(LOSSES, without_sessions(list(map(Loss._make, page)), moved))


def _there_already(source: CopySource, target: Target, occupied: OccupiedError, progress: Progress) -> CopyReport:
    """Handle a target that an earlier run completed without reporting it: verify it again. Events written to the copy
    since then are kept."""
    sealed = source.sealed()
    if sealed is None or not sealed.given or not is_same(sealed.to, target.name):
        raise occupied
    with source.contents() as ours, target.as_source() as there, there.contents() as theirs:
        store_id = ours.meta()["store_id"]
        if theirs.meta()["store_id"] != store_id:
            raise occupied
        steps = CopySteps(ours.count(), progress)
        expected, found = Fingerprint(), Fingerprint()
        _exhaust(verified(steps.of(ours.events_by_stream()), expected))
        _exhaust(verified(steps.of(row for row in theirs.events_by_stream() if row[0] <= expected.last), found))
    if found != expected:
        raise StoreError(
            f"{target.name} has the id of {source.name} but other events; one of the two was restored from a backup"
        )
    source.give(target.name, done=True)
    return CopyReport(
        source.name, target.name, found.events, found.last, store_id, kept_id=True, sealed=True, already=True
    )


def _exhaust(rows: Iterable[object]) -> None:
    """Read all rows and discard them."""
    for _ in rows:
        pass


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
