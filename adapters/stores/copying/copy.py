"""Copy a store: everything as it was at one moment, with its positions, versions and digests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.copying.carried import (
    EVENTS,
    LEASES,
    LOSSES,
    REFUSALS,
    REQUESTS,
    Carried,
    Fingerprint,
    Row,
    exhaust,
    leases_at,
    pages,
    unreported_losses,
    verified,
    view_pages,
)
from holdlog.adapters.stores.event_log.sealing import Seal, elsewhere, is_same
from holdlog.adapters.stores.sqlite.schema import SESSION_SALT
from holdlog.domain.refusals import StoreError

REPORT_EVERY: Final = 1_000
"""Events between two calls of `progress`."""

Progress = Callable[[int, int], None]
"""Called with events done, and how many there are."""


class CopyReport(NamedTuple):
    """`source`, `target`: without passwords. `kept_id`: the copy has the store id of its source, which is sealed.

    `already`: it was there from an earlier run, and was verified again.
    """

    source: str
    target: str
    events: int
    position: int
    store_id: str
    kept_id: bool
    sealed: bool
    already: bool = False


class Contents(Protocol):
    """A store as it was at one moment. `steady`: that moment, on its clock of leases."""

    steady: int

    def meta(self) -> Mapping[str, str]:
        """All remarks about the store."""

    def count(self) -> int:
        """How many events there are."""

    def rows(self, table: Carried) -> Iterator[Row]:
        """All rows, in order; one at a time is in memory."""

    def events_by_stream(self) -> Iterator[Row]:
        """The events in order of streams and versions."""


class CopySource(Protocol):
    """A store that is opened. `name`: where it is, without passwords."""

    name: str

    def sealed(self) -> Seal | None:
        """Its seal, if it has one."""

    def seal(self, to: str) -> Seal:
        """Seal it: when this returns, nothing is appended any more. Raises StoreError where its id was given away."""

    def give(self, to: str, done: bool) -> None:
        """Give its id to the store at `to`. Raises StoreError where another has it."""

    def contents(self) -> AbstractContextManager[Contents]:
        """Look at it as it is now."""


class OccupiedError(StoreError):
    """The location of the copy is not empty."""


class Target(Protocol):
    """An empty location, until `publish` makes a store of it: whole, or not at all."""

    name: str

    def prepared(self) -> AbstractContextManager[None]:
        """While the block runs, nobody else makes a store here; what was not published is gone after it.

        Raises OccupiedError, UnavailableError.
        """

    def put(self, table: Carried, rows: Sequence[Row]) -> None:
        """Add rows."""

    def events_by_stream(self) -> Iterator[Row]:
        """What was put, read back."""

    def steady(self) -> int:
        """Now, on the clock of leases here."""

    def publish(self, store_id: str, meta: Mapping[str, str]) -> None:
        """Make it a store, on the disk when this returns."""

    def as_source(self) -> AbstractContextManager[CopySource]:
        """The store at this location. Raises StoreError."""


def copy_between(
    source: CopySource,
    target: Target,
    seal: bool = False,
    progress: Progress = lambda done, total: None,
    report: Callable[[str], None] = lambda line: None,
) -> CopyReport:
    """Copy everything that `source` holds now, verify it, and make a store of it. Servers of the source go on.

    `seal`: nothing is written to the source from now on, which `tell` is called with, and the copy has its store id. A
    source that was sealed before gives its id to one copy in any case. Killed at any moment, it leaves no store at the
    target, and may be run again. Raises StoreError, UnavailableError.
    """
    if is_same(source.name, target.name):
        raise StoreError("both are the same store; name another place to copy to")
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
        if sealed is None:
            _require_sound(source, progress)  # what is sealed stays so: first see that it can be copied
        is_new, sealed = sealed is None, source.seal(target.name)
        if is_new:
            report(f"{source.name} is sealed from now on; should the copy fail, run it again")
        if sealed.done:
            raise elsewhere(sealed)
    keeps = sealed is not None and not sealed.done and (not sealed.given or is_same(sealed.to, target.name))
    with source.contents() as contents:
        steps = _Steps(contents.count(), progress)
        expected, found = Fingerprint(), Fingerprint()
        for page in pages(steps.of(contents.rows(EVENTS))):
            target.put(EVENTS, page)
        for view, rows in view_pages(verified(steps.of(contents.events_by_stream()), expected)):
            target.put(view, rows)
        exhaust(verified(steps.of(target.events_by_stream()), found))
        if found != expected:
            raise StoreError(f"what arrived at {target.name} is not what was sent; look after that disk or database")
        _copy_side_tables(contents, target, sealed.steady if sealed is not None else contents.steady, keeps)
        meta = contents.meta()
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
    return CopyReport(
        source.name, target.name, expected.events, expected.last, store_id, keeps, sealed=sealed is not None
    )


def _require_sound(source: CopySource, progress: Progress) -> None:
    with source.contents() as contents:
        steps = _Steps(contents.count(), progress, passes=1)
        exhaust(view_pages(verified(steps.of(contents.events_by_stream()), Fingerprint())))


def _copy_side_tables(contents: Contents, target: Target, then: int, moved: bool) -> None:
    for table in (REQUESTS, REFUSALS):
        for page in pages(contents.rows(table)):
            target.put(table, page)
    now = target.steady()
    for page in pages(contents.rows(LEASES)):
        target.put(LEASES, leases_at(now, page, then, platform.now(), moved))
    for page in pages(contents.rows(LOSSES)):
        target.put(LOSSES, unreported_losses(page, moved))


def _there_already(source: CopySource, target: Target, occupied: OccupiedError, progress: Progress) -> CopyReport:
    """An earlier run copied everything but could not report it. Later writes to the copy stay."""
    sealed = source.sealed()
    if sealed is None or not sealed.given or not is_same(sealed.to, target.name):
        raise occupied
    with source.contents() as ours, target.as_source() as there, there.contents() as theirs:
        store_id = ours.meta()["store_id"]
        if theirs.meta()["store_id"] != store_id:
            raise occupied
        steps = _Steps(ours.count(), progress, passes=2)
        expected, found = Fingerprint(), Fingerprint()
        exhaust(verified(steps.of(ours.events_by_stream()), expected))
        exhaust(verified(steps.of(row for row in theirs.events_by_stream() if row[0] <= expected.last), found))
    if found != expected:
        raise StoreError(f"{target.name} has the id of {source.name}, and other events; one of them was restored")
    source.give(target.name, done=True)
    return CopyReport(
        source.name, target.name, found.events, found.last, store_id, kept_id=True, sealed=True, already=True
    )


class _Steps:
    """Progress over several passes of the same events."""

    def __init__(self, events: int, progress: Progress, passes: int = 3) -> None:
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
