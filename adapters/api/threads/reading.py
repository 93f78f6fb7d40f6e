"""Pages of a thread's messages and results. Each page is complete: it shows the thread at one version."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from holdlog.adapters.api.pagination import chunks, event_bytes, page
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.thread import ItemKind, Thread, require_started


class ThreadSlice(NamedTuple):
    """One page of a thread. `events`: current messages and results, in order. `version`: complete up to here; continue
    above it. `next_after`, `next_before`: there are more."""

    thread: Thread
    version: int
    events: list[Recorded[Event]]
    next_after: int | None
    next_before: int | None


def read_page(reader: Reader, name: str, after: int | None, before: int | None, limit: int) -> ThreadSlice:
    """The first page above a version, or the newest page without one. Raises NotFoundError, and InvalidError for a
    version beyond the end, where a caller would wait forever.
    Events never change. So the items as of the thread's version, which is read first, can be read after it in any
    number of reads, whatever other writers append or clear meanwhile.
    """
    thread = reader.thread(name)
    require_started(thread)
    if after is not None and after > thread.version:
        raise InvalidError(
            f"after_version: is {after}, but the thread ends at version {thread.version}; pass that or less"
        )
    end = thread.version + 1
    below = max((after or 0) + 1, end if before is None else min(before, end))
    newest = after is None
    found, more = page(_current(reader, thread, after or 0, below, newest), limit, event_bytes)
    if newest:
        found.reverse()
    if newest and more:
        return ThreadSlice(thread, below - 1, found, None, found[0].envelope.version)
    last = found[-1].envelope.version if more else None
    return ThreadSlice(thread, last or below - 1, found, last, None)


def _current(reader: Reader, thread: Thread, above: int, below: int, newest: bool) -> Iterator[Recorded[Event]]:
    """Items between two versions: only messages up to the version where results were cleared."""
    early = _stretch(reader, thread.thread, ("message",), above, min(below, thread.cleared), newest)
    late = _stretch(reader, thread.thread, ("message", "result"), max(above, thread.cleared), below, newest)
    return chain(late, early) if newest else chain(early, late)


def _stretch(
    reader: Reader, name: str, kinds: tuple[ItemKind, ...], above: int, below: int, newest: bool
) -> Iterator[Recorded[Event]]:
    if above + 1 >= below:
        return iter(())
    if newest:
        return chunks(
            lambda position, size: reader.thread_events(name, kinds, above, position, size, newest=True),
            below,
            lambda it: it.envelope.version,
        )
    return chunks(
        lambda position, size: reader.thread_events(name, kinds, position or 0, below, size, newest=False),
        above,
        lambda it: it.envelope.version,
    )
