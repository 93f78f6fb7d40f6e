"""Views of threads. `threads`: each thread without its content. `thread_items`: where to find each of its events.
`thread_data`: the current values of its keys; deleted keys keep their rows, because rows are only put;
`value` is null if it was redacted."""

from holdlog.domain.threads.thread import Datum, ResultAppended, Thread, ThreadDataChanged, ThreadEvent, kind_of
from holdlog.domain.value import NULL, REDACTED, Json
from holdlog.projections.projection import Put, Row, Table

THREADS = Table(
    "threads",
    {
        "thread": str,
        "version": int,
        "data_version": int,
        "cleared": int,
        "messages": int,
        "results": int,
        "started_by": str,
        "started_at": int,
        "updated_by": str,
        "updated_at": int,
        "parent": str,
        "parent_version": int,
        "digest": bytes,
        "started_by_principal": str,
        "updated_by_principal": str,
    },
    key=1,
)
ITEMS = Table("thread_items", {"thread": str, "kind": str, "version": int, "name": str, "at": int}, key=4)
"""One row per message, result and clearing, and per key of a data change; rows are never replaced. `kind`: an
`ItemKind` of `domain.threads.thread`. `name`: the checksum of a result, the key of data, otherwise empty."""
DATA = Table("thread_data", {"thread": str, "key": str, "version": int, "live": int, "value": str}, key=2)


def row_of_thread(thread: Thread, digest: bytes) -> Row:
    return (*thread[:12], digest, *thread[12:])


def thread_of(row: Row) -> Thread:
    return Thread(*row[:12], *row[13:])


def datum_of(row: Row) -> Datum:
    """The datum of a row of `DATA`."""
    _, key, version, _, value = row
    return Datum(key, version, REDACTED if value is None else Json(value))


def details(thread: Thread, event: ThreadEvent, at: int) -> list[Put]:
    """The rows that an event adds to its thread's own row. `thread`: after the event."""
    kind = kind_of(event)
    if kind is None:
        return []
    if not isinstance(event, ThreadDataChanged):
        name = event.checksum if isinstance(event, ResultAppended) else ""
        return [Put(ITEMS, (thread.thread, kind, thread.version, name, at))]
    names = (*event.written, *event.deleted)
    items = [Put(ITEMS, (thread.thread, kind, thread.version, key, at)) for key in names]
    written = [_put_datum(thread, key, 1, value) for key, value in event.values().items()]
    return [*items, *written, *(_put_datum(thread, key, 0, NULL) for key in event.deleted)]


def _put_datum(thread: Thread, key: str, live: int, value: Json) -> Put:
    return Put(DATA, (thread.thread, key, thread.version, live, None if value is REDACTED else value.text))
