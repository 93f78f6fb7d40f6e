"""The statements that both databases understand, with parameters `:name`. Streams compare bytewise in both."""

from typing import Final

from holdlog.domain.claims.holder import SILENCE

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
SIZE: Final = (
    f"SELECT COALESCE(SUM(LENGTH(e.payload)), 0) {_JOINED} WHERE c.stream >= :first AND c.stream < :end AND {_LIVE}"
)
"""Characters of the current values of a range of streams."""
HISTORY: Final = (
    "SELECT version, topic, at, meta, payload, position FROM events WHERE stream = :stream AND version < :before"
    " ORDER BY version DESC LIMIT :limit"
)
HISTORY_AFTER: Final = (
    "SELECT version, topic, at, meta, payload, position FROM events WHERE stream = :stream AND version > :after"
    " AND version < :before ORDER BY version LIMIT :limit"
)
FILE_CHANGES: Final = (
    "SELECT position, version, at, meta FROM events WHERE stream = :stream AND topic = 'FileChanged'"
    " AND version < :before ORDER BY version DESC LIMIT :limit"
)
LAST_FILE_CHANGES: Final = (
    "SELECT e.stream, e.at, e.meta FROM json_each(:streams) AS n JOIN events AS e ON e.stream = n.value AND e.version ="
    " (SELECT MAX(version) FROM events WHERE stream = n.value AND topic = 'FileChanged')"
)
FILE_CHANGES_BELOW: Final = (
    "SELECT stream, at, meta FROM events WHERE stream >= :first AND stream < :end AND topic = 'FileChanged'"
    " ORDER BY stream, version LIMIT :limit"
)
VERSIONS: Final = HISTORY.replace("payload,", "payload IS NULL,")
"""The history of a key without its values."""
TEXTS: Final = "SELECT version, payload FROM events WHERE stream = :stream AND version IN (:first, :second)"
RUN_OF_SESSION: Final = (
    "SELECT stream, MIN(version) FROM events WHERE stream >= :first AND stream < :end AND position > :after"
    " AND at >= :since AND topic IN ('ValueWritten', 'ValueDeleted') AND json_extract(meta, '$.session') = :name"
    " AND substr(json_extract(meta, '$.by') || '/', 1, length(:agent)) = :agent"
    " GROUP BY stream ORDER BY stream LIMIT :limit"
)
"""The streams that a session wrote, and its first version of each. `agent` ends with a slash, or is empty."""
RUN_OF_TASK: Final = RUN_OF_SESSION.replace("$.session", "$.correlation_id")
EVENT: Final = "SELECT at, meta, payload FROM events WHERE position = :position"
EVENTS: Final = (
    "SELECT position, stream, version, topic, at, meta, payload, digest FROM events"
    " WHERE position > :after ORDER BY position LIMIT :limit"
)
TIME: Final = "SELECT position, at FROM events WHERE position = :position"
TIME_OF_VERSION: Final = "SELECT position, at FROM events WHERE stream = :stream AND version = :version"
_EVERY: Final = 16
"""One in this many positions, and versions of a stream, is in an index, from which reads of the past start. So they are
as fast in a long log, and most writes do not change these indexes."""
TABLES: Final = (
    """CREATE TABLE events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, version INTEGER NOT NULL,
    topic TEXT NOT NULL, at INTEGER NOT NULL, meta TEXT NOT NULL, payload TEXT, salt BLOB, payload_hash BLOB,
    digest BLOB NOT NULL, UNIQUE (stream, version))""",
    "CREATE INDEX clears ON events (stream, version) WHERE topic = 'ResultsCleared'",
    f"CREATE INDEX times ON events (at, position) WHERE position & {_EVERY - 1} = 0",
    f"CREATE INDEX versions ON events (stream, position, version) WHERE version & {_EVERY - 1} = 0",
    """CREATE TABLE current (stream TEXT PRIMARY KEY, version INTEGER NOT NULL, position INTEGER NOT NULL,
    exists_now INTEGER NOT NULL, expires_at INTEGER) WITHOUT ROWID""",
    """CREATE TABLE requests (principal TEXT NOT NULL, request_id TEXT NOT NULL, position INTEGER NOT NULL,
    at INTEGER NOT NULL, fingerprint TEXT NOT NULL, result TEXT NOT NULL, UNIQUE (principal, request_id))""",
    """CREATE TABLE refusals (id INTEGER PRIMARY KEY, position INTEGER NOT NULL, at INTEGER NOT NULL,
    code TEXT NOT NULL, stream TEXT NOT NULL, meta TEXT NOT NULL)""",
    """CREATE TABLE claims (resource TEXT NOT NULL, version INTEGER NOT NULL, is_ticket INTEGER NOT NULL,
    mode TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, principal TEXT NOT NULL, position INTEGER NOT NULL,
    since INTEGER NOT NULL, hold INTEGER NOT NULL, also TEXT, deadline INTEGER, waits_until INTEGER NOT NULL,
    is_offered INTEGER NOT NULL, note TEXT, UNIQUE (resource, version))""",
    "CREATE INDEX tickets ON claims (resource) WHERE is_ticket = 1",
    "CREATE INDEX own_claims ON claims (session, principal, agent)",
    """CREATE TABLE holders (session TEXT NOT NULL, principal TEXT NOT NULL, agent TEXT NOT NULL,
    expires_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, lease INTEGER NOT NULL, idle_limit INTEGER NOT NULL,
    host TEXT, handles TEXT NOT NULL, has_left INTEGER NOT NULL, open_calls TEXT, lost TEXT,
    UNIQUE (session, principal, agent))""",
    "CREATE INDEX left_holders ON holders (agent) WHERE has_left = 1",
    """CREATE TABLE conversations (session TEXT NOT NULL, agent TEXT NOT NULL, name TEXT NOT NULL, host TEXT NOT NULL,
    seen_at INTEGER NOT NULL, calls TEXT NOT NULL, has_ended INTEGER NOT NULL, told TEXT NOT NULL,
    PRIMARY KEY (session, agent)) WITHOUT ROWID""",
    """CREATE TABLE files (session TEXT NOT NULL, agent TEXT NOT NULL, resource TEXT NOT NULL, path TEXT NOT NULL,
    digest TEXT NOT NULL, at INTEGER NOT NULL, made INTEGER NOT NULL,
    PRIMARY KEY (session, agent, resource)) WITHOUT ROWID""",
    "CREATE TABLE silence (committed_at INTEGER NOT NULL, began_at INTEGER NOT NULL, ended_at INTEGER NOT NULL)",
    "INSERT INTO silence VALUES (0, 0, 0)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
"""All tables, in the words of SQLite. There, tables with texts that may be redacted have rowids: SQLite leaves parts of
them between the rows of others."""
LAST_CLEAR: Final = "COALESCE((SELECT MAX(version) FROM events WHERE topic = 'ResultsCleared' AND stream = {}), 0)"
"""After which version of a thread its results begin."""
_FIRST_POSITION = (
    f"COALESCE((SELECT position FROM events WHERE position & {_EVERY - 1} = 0 AND at <= :at"
    " ORDER BY at DESC, position DESC LIMIT 1), 0)"
)
POSITION_AT: Final = (
    f"SELECT MAX(position) FROM events WHERE position >= {_FIRST_POSITION} AND position < {_FIRST_POSITION} + {_EVERY}"
    " AND at <= :at"
)
"""The last event until a time. Times never decrease."""
_PAST_RECORD = "e.stream, e.version, e.at, e.meta, e.payload, e.topic"
_FIRST_VERSION = (
    f"COALESCE((SELECT version FROM events WHERE stream = :stream AND version & {_EVERY - 1} = 0"
    " AND position <= :position ORDER BY position DESC LIMIT 1), 0)"
)
RECORD_AT: Final = (
    f"SELECT {_PAST_RECORD}, (SELECT at FROM events WHERE position = :position) FROM events AS e"
    f" WHERE stream = :stream AND version >= {_FIRST_VERSION} AND version < {_FIRST_VERSION} + {_EVERY}"
    " AND position <= :position ORDER BY version DESC LIMIT 1"
)
"""The last event of a stream until a position, and the time of that position."""
RECORDS_AT: Final = (
    f"SELECT {_PAST_RECORD} FROM (SELECT stream, MAX(version) AS version FROM events WHERE stream > :after"
    " AND stream >= :first AND stream < :end AND position <= :position GROUP BY stream ORDER BY stream LIMIT :limit)"
    " AS c JOIN events AS e ON e.stream = c.stream AND e.version = c.version ORDER BY e.stream"
)
"""The last event of each stream of a range until a position."""
CLAIMS_AT: Final = (
    "SELECT stream, group_concat(CASE topic WHEN 'ClaimGranted' THEN version WHEN 'ClaimQueued' THEN version"
    " WHEN 'ClaimHandedOver' THEN CAST(json_extract(meta, '$.claim') AS BIGINT) END || ' ' || position, ','),"
    " group_concat(CASE topic WHEN 'ClaimUnqueued' THEN json_extract(meta, '$.ticket')"
    " WHEN 'ClaimGranted' THEN NULL ELSE json_extract(meta, '$.grant') END, ','),"
    " group_concat(CASE topic WHEN 'ClaimGranted' THEN version || ' ' || json_extract(meta, '$.ticket') END, ','),"
    " group_concat(CASE topic WHEN 'ClaimGranted' THEN version || ' ' || json_extract(meta, '$.instead_of') END, ','),"
    " MAX(CASE WHEN topic IN ('ClaimReleased', 'ClaimExpired') THEN position END) FROM events WHERE stream > :after"
    " AND stream >= 'claim:' AND stream < 'claim;' AND position <= :position GROUP BY stream ORDER BY stream"
    " LIMIT :limit"
)
"""Of each resource until a position: versions of grants and tickets with the positions of their events, versions that
ended, grants with their tickets, and with the grants that they replaced, and the position of the last end."""
EVENTS_AT: Final = (
    "SELECT e.stream, e.version, e.position, e.topic, e.at, e.meta, e.payload FROM json_each(:positions) AS n"
    " JOIN events AS e ON e.position = CAST(n.value AS BIGINT) ORDER BY e.position"
)
EXPIRIES: Final = (
    "SELECT e.stream, e.version, e.position, e.topic, e.at, e.meta, e.payload FROM json_each(:streams) AS n"
    " JOIN events AS e ON e.stream = n.value WHERE e.position > :position AND e.topic = 'ClaimExpired'"
)
"""What was noticed after a position."""
CLAIM_HISTORY: Final = (
    "SELECT e.position, e.stream, e.version, e.topic, e.at, e.meta, e.payload FROM ("
    "SELECT e.position FROM json_each(:streams) AS n JOIN events AS e ON e.stream = n.value WHERE e.position < :before"
    " UNION SELECT position FROM events WHERE stream >= :first AND stream < :end AND position < :before"
    " ORDER BY position DESC LIMIT :limit) AS c JOIN events AS e ON e.position = c.position ORDER BY e.position DESC"
)
"""The events of some streams and of a range before a position, the newest first."""
ROWS: Final = (
    "SELECT position, stream, version, topic, at, meta, payload, salt, payload_hash, digest FROM events"
    " WHERE position > :after ORDER BY position LIMIT :limit"
)
"""All that the log has."""
STORE_ID: Final = "SELECT value FROM meta WHERE name = 'id'"
COPY: Final = "VACUUM INTO :path"
"""SQLite alone: to an empty file, without what redaction left between rows. Writers are not blocked."""
STREAMS_SINCE: Final = "SELECT position, stream FROM events WHERE position > :after ORDER BY position"
TOPICS_SINCE: Final = "SELECT topic, COUNT(*), MAX(position) FROM events WHERE position > :after GROUP BY topic"
DIGEST: Final = "SELECT digest FROM events WHERE position = :position"
HEAD: Final = "SELECT position, digest, at FROM events ORDER BY position DESC LIMIT 1"
REMEMBER_FOR: Final = 24 * 3600 * 1_000_000
"""Microseconds that a request id is remembered at least."""
FORGET_EVERY: Final = 256
"""Positions after which old requests and holders are deleted: a scan in each transaction costs more than the write."""
MAX_REFUSALS: Final = 10_000
"""The last ones, which a store keeps."""
_FORGET_REFUSALS: Final = f"DELETE FROM refusals WHERE id <= (SELECT MAX(id) FROM refusals) - {MAX_REFUSALS}"
REFUSALS: Final = (
    "SELECT position, at, code, stream, meta, id FROM refusals WHERE (position, id) > (:first, :id)"
    " AND position <= :last AND at >= :since AND at <= :until ORDER BY position, id"
)
_FORGET_REQUESTS: Final = (
    "DELETE FROM requests WHERE at < :oldest AND position < (SELECT MAX(position) FROM events) - 10000"
)

# --- the board: a row has a holder's id, its columns unless it is unknown, and one of its claims or nulls

_HOLDER = "h.expires_at, h.seen_at, h.lease, h.idle_limit, h.host, h.handles, h.has_left, h.open_calls, h.lost"
HOLDER_COLUMNS: Final = 12
_CLAIM = (
    f"c.agent, c.session, c.principal, {_HOLDER}, c.resource, c.version, c.is_ticket, c.mode, c.position, c.since,"
    " c.hold, c.also, c.deadline, c.waits_until, c.is_offered, c.note,"
    " (SELECT MAX(version) FROM events WHERE stream = 'claim:' || c.resource)"
)
_NO_CLAIM = f"h.agent, h.session, h.principal, {_HOLDER}{', NULL' * 13}"
_WITH_HOLDERS = "LEFT JOIN holders AS h ON h.session = c.session AND h.principal = c.principal AND h.agent = c.agent"
_ROWS = f"SELECT {_CLAIM} FROM claims AS c {_WITH_HOLDERS}"
_MATTERS = (
    "(h.lost IS NOT NULL OR EXISTS (SELECT 1 FROM claims AS o"
    " WHERE o.session = h.session AND o.principal = h.principal AND o.agent = h.agent))"
)
_HOLDERS = (
    f"SELECT {_NO_CLAIM} FROM holders AS h"
    f" WHERE h.session = :session AND h.principal = :principal AND (h.expires_at > :now OR {_MATTERS})"
)
_LEFT_TO_AGENT = (
    f"SELECT {_NO_CLAIM} FROM holders AS h"
    f" WHERE h.has_left = 1 AND h.agent = :agent AND h.principal = :principal AND h.host = :host AND {_MATTERS}"
)
SESSION: Final = (
    f"{_HOLDERS} UNION ALL {_ROWS} WHERE c.session = :session AND c.principal = :principal AND c.deadline <= :now"
)
"""The holders of a session, and its claims that expire before their holders."""
CLAIMS: Final = (
    f"SELECT {_CLAIM} FROM json_each(:names) AS n JOIN claims AS c ON c.resource = n.value {_WITH_HOLDERS}"
    f" UNION ALL {_ROWS} WHERE c.is_ticket = 1 UNION ALL {SESSION} UNION ALL {_LEFT_TO_AGENT}"
)
"""The claims that are or contain some resources, all tickets, a session's holders, and those that left to an agent. An
OR would scan all claims."""
SUBTREES: Final = (
    f"SELECT {_CLAIM} FROM json_each(:subtrees) AS s JOIN claims AS c"
    f" ON c.resource > s.value AND c.resource < substr(s.value, 1, length(s.value) - 1) || '0' {_WITH_HOLDERS}"
)
"""The claims within some subtrees."""
BOARD: Final = f"{_ROWS} UNION ALL SELECT {_NO_CLAIM} FROM holders AS h"
"""All claims, tickets and holders."""
BEATS: Final = (
    f"{_ROWS} WHERE c.session = :session AND c.principal = :principal UNION ALL {_HOLDERS}"
    f" UNION ALL {_ROWS} WHERE c.is_ticket = 1 UNION ALL SELECT * FROM ({_ROWS} WHERE c.deadline <= :now"
    " OR NOT EXISTS (SELECT 1 FROM holders AS a WHERE a.session = c.session AND a.principal = c.principal"
    " AND a.agent = c.agent AND a.expires_at > :now) LIMIT 1) AS due"
)
"""What a session holds, its holders, all tickets, and one claim that may have expired, if there is any."""
CONVERSATION_HOSTS: Final = "SELECT session, host, has_ended FROM conversations"
STREAMS: Final = (
    "SELECT n.value, (SELECT MAX(version) FROM events WHERE stream = n.value), e.position, e.topic, e.at, e.meta,"
    " e.payload FROM json_each(:streams) AS n LEFT JOIN events AS e ON e.stream = n.value AND e.version ="
    " (SELECT version FROM events WHERE stream = n.value AND topic IN ('ClaimReleased', 'ClaimExpired')"
    " ORDER BY version DESC LIMIT 1)"
)
"""Of each stream the last version, and how the last hold ended."""
ENDS: Final = (
    "SELECT version, position, topic, at, meta, payload FROM events WHERE stream = :stream AND version > :version"
    " AND topic IN ('ClaimGranted', 'ClaimReleased', 'ClaimExpired') ORDER BY version LIMIT 100"
)
"""The grants of a resource after the one with a version, and how holds ended."""
HOLDERS_OF_HOST: Final = (
    "SELECT h.agent, h.session FROM holders AS h WHERE h.host = :host AND h.principal = '' AND h.expires_at > :now AND"
    " EXISTS (SELECT 1 FROM claims AS c WHERE c.session = h.session AND c.principal = '' AND c.agent = h.agent) AND"
    " EXISTS (SELECT 1 FROM conversations AS v WHERE v.session = h.session AND v.host = h.host AND v.has_ended = 0)"
)
"""The agents of the conversations below a host that hold or wait for something."""
TICKET: Final = (
    "SELECT (SELECT waits_until FROM claims WHERE resource = :resource AND version = :version AND is_ticket = 1),"
    " (SELECT json_extract(meta, '$.of_session') FROM events WHERE stream = :stream AND version > :version"
    " AND topic = 'ClaimHandedOver' AND CAST(json_extract(meta, '$.claim') AS BIGINT) = :version"
    " ORDER BY version DESC LIMIT 1)"
)
"""Until when the call of a ticket waits, and the session that the ticket was handed over to."""
LAST_COMMIT: Final = "SELECT committed_at, began_at, ended_at FROM silence"
_IS_SILENCE = f"CASE WHEN :now - committed_at > {SILENCE} OR ended_at > :now THEN"
MARK: Final = (
    f"UPDATE silence SET committed_at = :now, began_at = {_IS_SILENCE} committed_at ELSE began_at END,"
    f" ended_at = {_IS_SILENCE} :now ELSE ended_at END"
)
"""Record the time of a commit, and those of the commits around a silence of all. If the clock was set back, the last
one ends now: else it would last until then."""
FORGET_HOLDERS: Final = (
    "DELETE FROM holders WHERE (expires_at < :silent_since OR (expires_at < :now AND lost IS NULL)) AND NOT EXISTS"
    " (SELECT 1 FROM claims AS c WHERE c.session = holders.session AND c.principal = holders.principal"
    " AND c.agent = holders.agent)"
)
"""Those that have ended and hold nothing: at once, or if they do not know of a loss, after a day."""

# --- what hooks remember: no views, but liveness

CONVERSATIONS: Final = (
    "SELECT session, agent, name, host, seen_at, calls, has_ended, told FROM conversations"
    " WHERE host = :host OR session = :session ORDER BY seen_at, session, agent"
)
PUT_CONVERSATION: Final = (
    "INSERT INTO conversations (session, agent, name, host, seen_at, calls, has_ended, told)"
    " VALUES (:session, :agent, :name, :host, :seen_at, :calls, :has_ended, :told) ON CONFLICT (session, agent)"
    " DO UPDATE SET name = excluded.name, host = excluded.host, seen_at = excluded.seen_at, calls = excluded.calls,"
    " has_ended = excluded.has_ended, told = excluded.told"
)
MOVE_CONVERSATION: Final = (
    "UPDATE conversations SET host = :session, has_ended = 1 WHERE session = :before OR host = :before"
)
"""A conversation that continues under another id is stored as ended, with that id as its host."""
END_CONVERSATION: Final = "DELETE FROM conversations WHERE session = :session OR host = :session"
END_AGENT: Final = "DELETE FROM conversations WHERE session = :session AND agent = :agent"
_FORGET_CONVERSATIONS: Final = "DELETE FROM conversations WHERE seen_at < :silent_since"
MADE: Final = (
    "SELECT resource, path, digest, at, made FROM files WHERE session = :session AND agent = :agent AND made > 0"
)
"""What an agent read or wrote last of the files that its hook has claimed; `made`: the versions of these grants."""
FILES: Final = f"{MADE.removesuffix('made > 0')}resource IN (SELECT value FROM json_each(:names))"
PUT_FILE: Final = (
    "INSERT INTO files (session, agent, resource, path, digest, at, made) VALUES"
    " (:session, :agent, :resource, :path, :digest, :at, :made) ON CONFLICT (session, agent, resource)"
    " DO UPDATE SET path = excluded.path, digest = excluded.digest, at = excluded.at, made = excluded.made"
)
MARKS: Final = "SELECT resource, digest, at FROM files WHERE session = :session AND agent = :agent"
FORGET_MARKS: Final = "DELETE FROM files WHERE session = :session AND agent = :agent"
NAMESAKES: Final = "SELECT DISTINCT session FROM conversations WHERE name = :name"
STASHED: Final = "SELECT resource, agent, session FROM files WHERE resource >= 'stash:' AND resource < 'stash;'"
_FORGET_FILES: Final = "DELETE FROM files WHERE at < :oldest"
CHANGES_SINCE: Final = (
    "SELECT at, json_extract(meta, '$.by'), json_extract(meta, '$.session'), json_extract(meta, '$.sha256') FROM events"
    " WHERE stream = :stream AND version > :version AND topic = 'FileChanged' ORDER BY version DESC LIMIT 100"
)
MOVE_FILES: Final = "UPDATE files SET session = :session WHERE session = :before"
FORGET: Final = (_FORGET_REFUSALS, _FORGET_REQUESTS, FORGET_HOLDERS, _FORGET_CONVERSATIONS, _FORGET_FILES)
"""What a writer runs every FORGET_EVERY events. REMEMBER_FOR ago is `:oldest` in microseconds since 1970, and
`:silent_since` by the clock of leases, whose time is `:now`."""
