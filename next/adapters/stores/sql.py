"""The statements that both databases understand, with parameters `:name`. Streams compare bytewise in both."""

from typing import Final

SCHEMA: Final = 10
"""Number of the schema. 0.1 ended at 4."""

_RECORD = "c.stream, c.version, e.at, e.meta, e.payload, c.expires_at, c.exists_now"
_LIVE = "c.exists_now = 1 AND (c.expires_at IS NULL OR c.expires_at > :now)"
_JOINED = "FROM current AS c JOIN events AS e ON e.position = c.position"

RECORD: Final = f"SELECT {_RECORD} {_JOINED} WHERE c.stream = :stream"
RECORDS: Final = (
    f"SELECT {_RECORD} {_JOINED} WHERE c.stream > :after AND c.stream >= :first AND c.stream < :end AND {_LIVE}"
    " ORDER BY c.stream LIMIT :limit"
)
DELETED_RECORDS: Final = RECORDS.replace(_LIVE, f"NOT ({_LIVE})")
ALL_RECORDS: Final = RECORDS.replace(f" AND {_LIVE}", "")
LIVE_STREAMS: Final = (
    f"SELECT c.stream FROM current AS c WHERE c.stream >= :first AND c.stream < :end AND {_LIVE} ORDER BY c.stream"
)
HISTORY: Final = (
    "SELECT version, topic, at, meta, payload, position FROM events WHERE stream = :stream AND version < :before"
    " ORDER BY version DESC LIMIT :limit"
)
EVENT: Final = "SELECT at, meta, payload FROM events WHERE position = :position"
EVENTS: Final = (
    "SELECT position, stream, version, topic, at, meta, payload, digest FROM events"
    " WHERE position > :after ORDER BY position LIMIT :limit"
)
STREAMS_SINCE: Final = "SELECT position, stream FROM events WHERE position > :after ORDER BY position"
DIGEST: Final = "SELECT digest FROM events WHERE position = :position"
HEAD: Final = "SELECT position, digest, at FROM events ORDER BY position DESC LIMIT 1"
REMEMBER_FOR: Final = 24 * 3600 * 1_000_000
"""Microseconds that a request id is remembered at least."""
FORGET_EVERY: Final = 256
"""Positions after which old requests are deleted: a scan in each transaction would cost more than the write."""
FORGET_REQUESTS: Final = (
    "DELETE FROM requests WHERE at < :oldest AND position < (SELECT MAX(position) FROM events) - 10000"
)
