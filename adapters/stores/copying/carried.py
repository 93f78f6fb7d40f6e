"""The contents of a copy: rows in a form that both kinds of store share, in pages that fit in memory."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdlog.adapters.stores.event_log.codec import event_of, expected_digest
from holdlog.adapters.stores.sql.tables import LEASE_COLUMNS
from holdlog.domain.claims.lease import Lease, Loss
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.refusals import StoreError
from holdlog.projections import fold
from holdlog.projections.fold import VIEWS, Folded
from holdlog.projections.projection import Put
from holdlog.projections.rebuild import DetailRows, FoldStep, following, initial

PAGE_ROWS: Final = 4_000
PAGE_CHARACTERS: Final = 16 * 1024 * 1024
"""Maximum characters and bytes in a page; a page ends after the row that exceeds it."""

Row = tuple[Any, ...]


class Carried(NamedTuple):
    """A table to copy. `columns`: in the order of a row; `order`: the columns that sort its rows."""

    name: str
    columns: tuple[str, ...]
    order: str = ""


REQUESTS: Final = Carried(
    "requests",
    ("principal", "request_id", "at", "fingerprint", "outcome", "session"),
    "principal, session, request_id",
)
REFUSALS: Final = Carried("refusals", ("at", "code", "what", "by", "session"), "id")
LEASES: Final = Carried("leases", LEASE_COLUMNS, "resource, version")
LOSSES: Final = Carried("losses", Loss._fields, "resource, version")
BEFORE_COPY: Final = "before-copy"
"""Recorded as the session of leases and losses that had no session in the copied store."""

_VIEWS: Final = {view.name: Carried(view.name, tuple(view.columns)) for view in VIEWS}


class Fingerprint:
    """Fingerprint of a set of events. It covers the position and all fields of each event, but not the order in which
    they are added."""

    def __init__(self) -> None:
        self.events = 0
        self.last = 0
        self._sum = 0

    def add(self, row: Row) -> None:
        self.events += 1
        self.last = max(self.last, row[0])
        self._sum += int.from_bytes(hashlib.sha256(repr(row).encode()).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def pages(rows: Iterable[Row]) -> Iterator[list[Row]]:
    page: list[Row] = []
    characters = 0
    for row in rows:
        page.append(row)
        characters += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if len(page) == PAGE_ROWS or characters > PAGE_CHARACTERS:
            yield page
            page, characters = [], 0
    if page:
        yield page


def view_pages(events: Iterable[Row]) -> Iterator[tuple[Carried, list[Row]]]:
    """The rows of the views, folded from events in order of streams. Raises StoreError for an inconsistent log."""
    waiting: dict[str, list[Row]] = {name: [] for name in _VIEWS}
    for page in pages((table.name, *row) for table, row in _puts(events)):
        for name, *row in page:
            waiting[name].append(tuple(row))
        for name, rows in waiting.items():
            if rows:
                yield _VIEWS[name], rows
                waiting[name] = []


def _puts(events: Iterable[Row]) -> Iterator[Put]:
    for stream, of_stream in groupby(events, key=itemgetter(1)):
        folded = Folded(initial(stream))
        if folded.state.stream != stream:
            raise StoreError(f"the stream {stream[:80]!r} is not spelled as holdlog spells it; see holdlog doctor")
        added = DetailRows()
        for row in of_stream:
            version, topic, body, at = row[2:6]
            last = folded.state.version
            if version != last + 1:
                raise StoreError(
                    f"event {stream}@{version} follows version {last}: events are missing; see holdlog doctor"
                )
            event = event_of(stream, version, topic, body, row[13])
            folded = following(folded.state, FoldStep(stream, version, at, row[11], event, row[6]))
            yield from added.by(folded.state, event, at)
        yield from added.at_the_end()
        yield fold.put(*folded)


def verified(events: Iterable[Row], found: Fingerprint) -> Iterator[Row]:
    """Yield events, which must be in order of streams, after checking the digest of each. Adds each event to `found`.

    Raises StoreError."""
    stream, previous = None, NO_DIGEST
    for row in events:
        if row[1] != stream:
            stream, previous = row[1], NO_DIGEST
        if expected_digest(row, previous) != row[11]:
            raise StoreError(f"the digest of event {stream}@{row[2]} does not verify; see holdlog doctor")
        previous = row[11]
        found.add(row)
        yield row


def exhaust(rows: Iterable[object]) -> None:
    """Read all rows and discard them."""
    for _ in rows:
        pass


def leases_at(now: int, rows: Sequence[Row], then: int, ended_at: int, moved: bool) -> list[Row]:
    """The leases with as much time left as they had at `then`. Their sessions have ended, so another session with the
    holder's name can resume the claims.

    `now`: on the target's clock of leases; `then`: on the source's; `ended_at`: microseconds UTC. `moved`: as in
    `unreported_losses`."""
    return [
        it._replace(
            server="",
            waiting_until=0,
            deadline=now + it.deadline - then,
            last_call_at=now + it.last_call_at - then,
            last_seen_at=now + it.last_seen_at - then,
            ended_at=it.ended_at or ended_at,
            session=it.session if moved or it.session is not None else BEFORE_COPY,
            receipt=it.receipt if moved else None,
        )
        for it in map(Lease._make, rows)
    ]


def unreported_losses(rows: Sequence[Row], moved: bool) -> list[Row]:
    """The losses, without the names of the source's servers, which do not serve the copy.

    `moved`: the copy has the salt of its source. Otherwise receipts are dropped, because none would match its
    hash here."""
    return [
        it._replace(
            server="",
            session=it.session if moved or it.session is not None else BEFORE_COPY,
            receipt=it.receipt if moved else None,
        )
        for it in map(Loss._make, rows)
    ]
