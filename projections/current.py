"""View `current`: the current state of every record. Deleted records keep their rows: their versions continue."""

from typing import Any

from holdlog.domain.record import Record
from holdlog.domain.value import Json
from holdlog.projections.projection import Put, Table

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


def put_record(record: Record) -> Put:
    namespace, key, version, live, value, by, at, digest, expires_at, principal = record
    return Put(CURRENT, (namespace, key, version, int(live), value.text, by, at, digest, expires_at, principal))


def record_of(row: tuple[Any, ...]) -> Record:
    namespace, key, version, live, value, by, at, digest, expires_at, principal = row
    return Record(namespace, key, version, live == 1, Json(value), by, at, digest, expires_at, principal)
