"""View `current`: the current state of every record. Deleted records keep their rows: their versions continue.
`value` is null if it was redacted."""

from holdlog.domain.record import Record
from holdlog.domain.value import REDACTED, Json
from holdlog.projections.projection import Row, Table

CURRENT = Table(
    "current",
    {
        "namespace": str,
        "key": str,
        "version": int,
        "live": int,
        "value": str,
        "updated_by": str,
        "updated_at": int,
        "digest": bytes,
        "expires_at": int,
        "principal": str,
    },
    key=2,
)


def row_of_record(record: Record, digest: bytes) -> Row:
    namespace, key, version, live, value, by, at, expires_at, principal = record
    text = None if value is REDACTED else value.text
    return namespace, key, version, int(live), text, by, at, digest, expires_at, principal


def record_of(row: Row) -> Record:
    namespace, key, version, live, value, by, at, _, expires_at, principal = row
    known = REDACTED if value is None else Json(value)
    return Record(namespace, key, version, live == 1, known, by, at, expires_at, principal)
