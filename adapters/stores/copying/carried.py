"""The contents of a copy: rows in a form that both kinds of store share, in pages that fit in memory."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from holdlog.adapters.stores.event_log.codec import UNREADABLE, event_of, is_intact
from holdlog.domain.claims.lease import Lease, Loss
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.refusals import StoreError
from holdlog.projections import fold
from holdlog.projections.fold import VIEWS, Folded
from holdlog.projections.projection import Put, Row, Table
from holdlog.projections.rebuild import DetailRows, FoldStep, following, initial

PAGE_ROWS: Final = 4_000
PAGE_CHARACTERS: Final = 16 * 1024 * 1024
"""Maximum characters and bytes in a page; a page ends after the row that exceeds it."""

REQUESTS: Final = Table(
    "requests",
    dict.fromkeys(("principal", "session", "request_id"), str) | {"at": int, "fingerprint": bytes, "outcome": str},
    key=3,
)
BEFORE_COPY: Final = "before-copy"
"""Recorded as the session of leases and losses that had no session in the copied store."""

_TEXT: Final = (str, bytes)
_VIEWS: Final = {view.name: view for view in VIEWS}


class BadEventError(StoreError):
    """An event that does not verify or cannot be folded. `position`: in the log; `problem`: without advice."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"{problem}; see holdlog doctor")
        self.position = position
        self.problem = problem


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

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows after adding each."""
        for row in rows:
            self.add(row)
            yield row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def pages(rows: Iterable[Row]) -> Iterator[list[Row]]:
    page: list[Row] = []
    characters = 0
    for row in rows:
        page.append(row)
        characters += sum(len(cell) for cell in row if isinstance(cell, _TEXT))
        if len(page) == PAGE_ROWS or characters > PAGE_CHARACTERS:
            yield page
            page, characters = [], 0
    if page:
        yield page


def view_pages(events: Iterable[Row]) -> Iterator[tuple[Table, list[Row]]]:
    """The rows of the views, folded from events in order of streams. Raises BadEventError for an inconsistent log."""
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
        folded, added = None, DetailRows()
        for row in of_stream:
            try:
                folded, details = _following(folded, row, added)
            except StoreError as error:
                raise BadEventError(row[0], str(error)) from None
            except UNREADABLE:
                raise BadEventError(row[0], f"event {stream}@{row[2]} cannot be read") from None
            yield from details
        assert folded is not None
        yield from added.at_the_end()
        yield fold.put(*folded)


def _following(folded: Folded | None, row: Row, added: DetailRows) -> tuple[Folded, list[Put]]:
    """The state after an event, and the detail rows that can be written now. `folded`: before it; None: it must be the
    first of its stream."""
    stream, version, topic, body, at = row[1:6]
    if folded is None:
        folded = Folded(initial(stream))
        if folded.state.stream != stream:
            raise StoreError(f"the stream {stream[:80]!r} is not spelled as holdlog spells it")
    if version != folded.state.version + 1:
        raise StoreError(f"event {stream}@{version} follows version {folded.state.version}: events are missing")
    event = event_of(stream, version, topic, body, row[13])
    folded = following(folded.state, FoldStep(stream, version, at, row[11], event, row[6]))
    return folded, added.by(folded.state, event, at)


def verified(events: Iterable[Row], found: Fingerprint) -> Iterator[Row]:
    """Yield events, which must be in order of streams, after checking the digest of each. Adds each event to `found`.

    Raises BadEventError."""
    stream, previous = None, NO_DIGEST
    for row in events:
        if row[1] != stream:
            stream, previous = row[1], NO_DIGEST
        try:
            problem = "" if is_intact(row, previous) else f"the digest of event {stream}@{row[2]} does not verify"
        except StoreError as error:
            problem = str(error)
        if problem:
            raise BadEventError(row[0], problem)
        previous = row[11]
        found.add(row)
        yield row


def shifted_leases(rows: Sequence[Row], offset: int, ended_at: int, moved: bool) -> list[Row]:
    """Leases with as much time left as they had in the source. Their sessions have ended, so another session with the
    holder's name can resume the claims.

    `offset`: from the source's clock of leases to the target's; `ended_at`: microseconds UTC. `moved`: as
    in `without_servers`."""
    return without_servers(
        [
            it._replace(
                waiting_until=0,
                deadline=it.deadline + offset,
                last_call_at=it.last_call_at + offset,
                last_seen_at=it.last_seen_at + offset,
                ended_at=it.ended_at or ended_at,
            )
            for it in map(Lease._make, rows)
        ],
        moved,
    )


def without_servers(rows: Sequence[Lease | Loss], moved: bool) -> list[Row]:
    """Leases or losses without the source's servers, which do not serve the copy. `moved`: the copy has the salt of its
    source. Otherwise receipts are dropped, because none would match its hash here."""
    return [
        it._replace(
            server="",
            session=it.session if moved or it.session is not None else BEFORE_COPY,
            receipt=it.receipt if moved else None,
        )
        for it in rows
    ]
