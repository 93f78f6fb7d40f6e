"""Limits pages by rows and by bytes: a larger response would block the server that sends it and the host that reads
it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.record import Record
from holdlog.domain.threads.thread import Datum
from holdlog.domain.value import Json

MAX_PAGE: Final = 1000
"""Rows."""
MAX_PAGE_BYTES: Final = 1024 * 1024
"""Bytes of values as JSON, plus `ROW_BYTES` per row or history entry; a page has at least one row, however large."""
ROW_BYTES: Final = 200
"""Approximate bytes that accompany a value in a response: version, author, time."""
_CONDITION_BYTES: Final = 40
"""Approximate bytes of a fencing condition in a response, without its resource."""
FIRST_CHUNK: Final = 8
LAST_CHUNK: Final = 128
"""Maximum rows fetched in one chunk. The first chunk is small, because rows may be large; each further one is twice as
large."""

Row = TypeVar("Row")
Cursor = TypeVar("Cursor", int, str)


def chunks(
    fetch: Callable[[Cursor | None, int], Sequence[Row]],
    start: Cursor | None,
    cursor_of: Callable[[Row], Cursor],
    largest: int = LAST_CHUNK,
) -> Iterator[Row]:
    """Iterate over all rows, fetching on demand. `fetch` gets the cursor of the previous row and the number of rows,
    at most `largest`."""
    size = FIRST_CHUNK
    while True:
        rows = fetch(start, size)
        yield from rows
        if len(rows) < size:
            return
        start, size = cursor_of(rows[-1]), min(2 * size, largest)


def page(rows: Iterable[Row], limit: int, size: Callable[[Row], int] = lambda row: 0) -> tuple[list[Row], bool]:
    """The rows of one page, and whether there are more. `size`: bytes of a row."""
    taken: list[Row] = []
    held = 0
    for row in rows:
        held += size(row)
        if taken and (len(taken) == limit or held > MAX_PAGE_BYTES):
            return taken, True
        taken.append(row)
    return taken, False


def record_bytes(record: Record) -> int:
    return ROW_BYTES + _bytes(record.value)


def event_bytes(recorded: Recorded[Event]) -> int:
    value = getattr(recorded.event, "value", None)
    guard = recorded.envelope.guard
    conditions = sum(_CONDITION_BYTES + len(it.resource) for it in guard) if guard else 0
    return ROW_BYTES + (_bytes(value) if isinstance(value, Json) else 0) + conditions


def datum_bytes(datum: Datum) -> int:
    return ROW_BYTES + _bytes(datum.value)


def up_to_a_page(sizes: Iterable[int]) -> int:
    """Sum the sizes, but stop once the sum exceeds a page."""
    held = 0
    for size in sizes:
        held += size
        if held > MAX_PAGE_BYTES:
            break
    return held


def _bytes(value: Json) -> int:
    return len(value.text) if value.text.isascii() else len(value.text.encode())
