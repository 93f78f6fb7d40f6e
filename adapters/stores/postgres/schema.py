"""The tables in PostgreSQL, and the statements that each writing connection prepares."""

import os
import re
import zlib
from typing import Any, Final

from psycopg import sql

from holdlog.adapters.stores import sql as shared
from holdlog.adapters.stores.postgres.connection import Connection
from holdlog.domain.refusals import NoStoreError, StoreError

# PostgreSQL parses no JSON with \\u0000: the view replaces it meanwhile, and the index takes the end of a result, which
# is its checksum. That is in no envelope, as it has no salt: a redacted text could be guessed from it.
_OWN: Final = r"""
CREATE INDEX results ON events (stream, right(payload, 34)) WHERE topic = 'ResultAppended';
CREATE VIEW current_values AS SELECT
    replace(replace(substr(split_part(c.stream, '/', 1), 8), '%2F', '/'), '%25', '%') AS namespace,
    substr(c.stream, strpos(c.stream, '/') + 1) AS key, c.version AS version,
    replace(replace((replace(replace(e.payload, '~', '~1'), '\u0000', '\n~0')::json -> 'value')::text,
    '\n~0', '\u0000'), '~1', '~')::json AS value, e.meta::json ->> 'by' AS updated_by, e.at AS updated_at
    FROM current AS c JOIN events AS e ON e.position = c.position
    WHERE c.exists_now = 1 AND e.topic = 'ValueWritten'
"""


def number(query: str, *names: str) -> str:
    """A shared query with the parameters $1, $2 … instead of these names."""
    for position, name in enumerate(names, 1):
        query = query.replace(f":{name}", f"${position}")
    return translate(query)


def translate(query: str) -> str:
    """A shared query in the words of PostgreSQL, with psycopg's parameters."""
    query = re.sub(r"json_each\(([^)]+)\)", r"json_array_elements_text(CAST(\1 AS json))", query)
    query = re.sub(r"json_extract\((\w+), '\$\.(\w+)'\)", r"(CAST(\1 AS json) ->> '\2')", query)
    return re.sub(r":(\w+)", r"%(\1)s", query.replace("group_concat", "string_agg"))


def translate_table(statement: str) -> str:
    """A shared table in the words of PostgreSQL: texts compare bytewise, and replication needs a primary key."""
    words = {" WITHOUT ROWID": "", "id INTEGER": "id BIGSERIAL", "INTEGER": "BIGINT", "BLOB": "BYTEA"}
    words |= {"TEXT": 'TEXT COLLATE "C"'} | ({} if "PRIMARY KEY" in statement else {"UNIQUE": "PRIMARY KEY"})
    for word, own in words.items():
        statement = statement.replace(word, own)
    return statement


_RECORD: Final = "json_build_array(c.stream, c.version, c.position, c.exists_now, c.expires_at"
_SESSION: Final = ("session", "principal", "now")
PREPARE: Final = f"""
PREPARE load (text[], text[], text[], text[], text[], text[]) AS SELECT
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, head.position, head.digest, head.at,
    (SELECT value FROM meta WHERE name = 'schema'),
    (SELECT json_agg({_RECORD})) FROM current AS c WHERE c.stream = ANY ($1)),
    (SELECT json_agg({_RECORD}, e.payload)) FROM current AS c JOIN events AS e ON e.position = c.position
        WHERE c.stream = ANY ($2)),
    (SELECT json_agg({_RECORD})) FROM unnest($3, $4) AS range (first, last)
        JOIN current AS c ON c.stream >= range.first AND c.stream < range.last),
    (SELECT json_agg(json_build_array(r.principal, r.request_id, r.position, r.at, r.fingerprint, r.result))
        FROM unnest($5, $6) AS request (principal, request_id) JOIN requests AS r USING (principal, request_id))
    FROM (SELECT) AS one LEFT JOIN (SELECT position, digest, at FROM events ORDER BY position DESC LIMIT 1) AS head
    ON true;
PREPARE results (text[], text[]) AS SELECT s || ' ' || c FROM unnest($1, $2) AS name (s, c) WHERE EXISTS
    (SELECT 1 FROM events WHERE topic = 'ResultAppended' AND stream = s AND right(payload, 34) = c || '"}}'
    AND version > {shared.LAST_CLEAR.format("s")});
PREPARE append ({", ".join(["text[]"] * 10)}) AS INSERT INTO events
    SELECT p::bigint, s, v::bigint, t, a::bigint, m, c, decode(x, 'hex'), decode(h, 'hex'), decode(d, 'hex')
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS new (p, s, v, t, a, m, c, x, h, d);
PREPARE put (text[], text[], text[], text[], text[]) AS INSERT INTO current
    SELECT s, v::bigint, p::bigint, x::smallint, nullif(e, '')::bigint
    FROM unnest($1, $2, $3, $4, $5) AS new (s, v, p, x, e)
    ON CONFLICT (stream) DO UPDATE SET version = excluded.version, position = excluded.position,
    exists_now = excluded.exists_now, expires_at = excluded.expires_at;
PREPARE remember (text[], text[], text[], text[], text[], text[]) AS INSERT INTO requests
    SELECT p, r, n::bigint, a::bigint, f, t FROM unnest($1, $2, $3, $4, $5, $6) AS new (p, r, n, a, f, t);
PREPARE refuse (text[], text[], text[], text[], text[]) AS INSERT INTO refusals (position, at, code, stream, meta)
    SELECT p::bigint, a::bigint, c, s, m FROM unnest($1, $2, $3, $4, $5) AS new (p, a, c, s, m);
PREPARE claims (text, text, bigint, text, text, text) AS {number(shared.CLAIMS, *_SESSION, "names", "agent", "host")};
PREPARE session (text, text, bigint) AS {number(shared.SESSION, *_SESSION)};
PREPARE subtrees (text) AS {number(shared.SUBTREES, "subtrees")};
PREPARE beats (text, text, bigint) AS {number(shared.BEATS, *_SESSION)};
PREPARE board AS {shared.BOARD};
PREPARE streams (text) AS {number(shared.STREAMS, "streams")};
PREPARE silence AS {shared.LAST_COMMIT};
PREPARE mark (bigint) AS {number(shared.MARK, "now")};
PREPARE put_claims ({", ".join(["text[]"] * 15)}) AS INSERT INTO claims
    SELECT r, v::bigint, i::smallint, m, a, s, p, o::bigint, e::bigint, h::bigint, l, d::bigint, w::bigint,
    f::smallint, n FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
    AS new (r, v, i, m, a, s, p, o, e, h, l, d, w, f, n) ON CONFLICT (resource, version) DO UPDATE SET
    agent = excluded.agent, session = excluded.session, deadline = excluded.deadline,
    waits_until = excluded.waits_until, is_offered = excluded.is_offered, note = excluded.note;
PREPARE end_claims (text[], text[]) AS DELETE FROM claims AS c USING unnest($1, $2) AS old (r, v)
    WHERE c.resource = old.r AND c.version = old.v::bigint;
PREPARE put_holders ({", ".join(["text[]"] * 12)}) AS INSERT INTO holders
    SELECT s, p, a, e::bigint, n::bigint, l::bigint, i::bigint, h, r, t::smallint, o, x
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    AS new (s, p, a, e, n, l, i, h, r, t, o, x) ON CONFLICT (session, principal, agent) DO UPDATE SET
    (expires_at, seen_at, lease, idle_limit, host, handles, has_left, open_calls, lost) =
    (excluded.expires_at, excluded.seen_at, excluded.lease, excluded.idle_limit, excluded.host,
    excluded.handles, excluded.has_left, excluded.open_calls, excluded.lost)
"""


def require_store(connection: Connection, schema: str, creates: bool) -> None:
    """Check that the tables are those of a store, after it `creates` those that are missing. Raises StoreError,
    psycopg.Error."""
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise StoreError("the database has another encoding than UTF8; create one with UTF8")
    with connection.transaction():
        # Concurrent DDL is not safe: one process at a time.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (zlib.crc32(f"holdlog {schema}".encode()),))
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
        tables = {name for (name,) in connection.execute(query, (schema,))}
        if not tables and not creates:
            raise NoStoreError(f"there is no store in the schema {schema} yet; the first claim or set creates it")
        if not tables:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            connection.execute("; ".join((*map(translate_table, shared.TABLES), _OWN)))
            rows = (os.urandom(16).hex(), str(shared.SCHEMA))
            connection.execute("INSERT INTO meta VALUES ('id', %s), ('schema', %s)", rows)
            return
        if not {"meta", "events", "current"} <= tables:
            known = "is a store of holdlog 0.1" if "stored_events" in tables else "has tables that are not holdlog's"
            raise StoreError(f"the schema {schema} {known}; use another ?schema=")
        row: Any = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        require_schema(row[0] if row else None)


def require_schema(number: str | None) -> None:
    if number != str(shared.SCHEMA):
        raise StoreError(f"the store has schema {number}, and this holdlog {shared.SCHEMA}; update holdlog")
