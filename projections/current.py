"""View `current`: the current state of every record. Deleted records keep their rows: their versions continue."""

from holdlog.domain.record import Record
from holdlog.domain.value import Json
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
    return namespace, key, version, int(live), value.text, by, at, digest, expires_at, principal


def record_of(row: Row) -> Record:
    namespace, key, version, live, value, by, at, _, expires_at, principal = row
    return Record(namespace, key, version, live == 1, Json(value), by, at, expires_at, principal)
