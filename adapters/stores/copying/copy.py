"""Copies a store: one snapshot of everything, with the same positions, versions and digests."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.copying.carried import (
    REQUESTS,
    Fingerprint,
    pages,
    shifted_leases,
    verified,
    view_pages,
    without_servers,
)
from holdlog.adapters.stores.copying.source import Contents, CopySource
from holdlog.adapters.stores.copying.writing import CopySteps, LogTally, OccupiedError, Target, write_log
from holdlog.adapters.stores.event_log.sealing import elsewhere, is_same
from holdlog.adapters.stores.sql.tables import LEASES, LOSSES, REFUSALS, SESSION_SALT
from holdlog.domain.claims.lease import Loss
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError


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


def copy_between(
    source: CopySource,
    target: Target,
    seal: bool = False,
    progress: Progress = ignore_progress,
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
                deque(view_pages(verified(steps.of(contents.events_by_stream()), Fingerprint())), maxlen=0)
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
    offset = target.steady() - then
    for page in pages(contents.rows(LEASES)):
        target.put(LEASES, shifted_leases(page, offset, platform.now(), moved))
    for page in pages(contents.rows(LOSSES)):
        target.put(LOSSES, without_servers(list(map(Loss._make, page)), moved))


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
        deque(verified(steps.of(ours.events_by_stream()), expected), maxlen=0)
        copied = (row for row in theirs.events_by_stream() if row[0] <= expected.last)
        deque(verified(steps.of(copied), found), maxlen=0)
    if found != expected:
        raise StoreError(
            f"{target.name} has the id of {source.name} but other events; one of the two was restored from a backup"
        )
    source.give(target.name, done=True)
    return CopyReport(
        source.name, target.name, found.events, found.last, store_id, kept_id=True, sealed=True, already=True
    )
