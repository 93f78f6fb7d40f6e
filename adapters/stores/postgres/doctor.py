"""Diagnosis of a store in PostgreSQL: the store itself, and the durability of its server. Repairs nothing."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import psycopg

from holdlog.adapters.operating_system.location import shown
from holdlog.adapters.stores.event_log.findings import REBUILD_LEFT, Finding, checks_of, contents, counted
from holdlog.adapters.stores.postgres.catalog import (
    INDEXES,
    KEYS,
    OF_VIEWS,
    TABLES,
    indexes_there,
    tables_there,
    views_to_replace,
)
from holdlog.adapters.stores.postgres.connection import SELECT_NOW, Connection, connect
from holdlog.adapters.stores.postgres.faults import first_line, is_lost, refusal_of
from holdlog.adapters.stores.postgres.inspection import PostgresInspection
from holdlog.adapters.stores.postgres.migrating import OLDER
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import MAJOR, MINOR, added_since, is_behind, minor_of
from holdlog.adapters.stores.postgres.session import connected
from holdlog.adapters.stores.postgres.shadow_tables import REBUILD
from holdlog.adapters.stores.postgres.target import database_target
from holdlog.domain.checkpoint import Checkpoint
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError
from holdlog.projections.fold import VIEWS

FEW_CONNECTIONS: Final = 10
"""Warn below this number. A server uses up to about twenty: one to write, one to listen, and readers."""
PAUSE_SECONDS: Final = 600
"""Seconds that the doctor may be stopped before the database ends its snapshot, which keeps rows from being
vacuumed."""


def examine(url: str, progress: Progress = ignore_progress, checkpoints: Sequence[Checkpoint] = ()) -> list[Finding]:
    """Report all findings about the store; `progress` counts events. Never raises for what it finds."""
    findings: list[Finding] = []
    try:
        target = database_target(url)
        with connect(target) as connection:
            connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, false),"
                # The audit reads whole tables.
                " set_config('enable_seqscan', 'on', false), set_config('enable_sort', 'on', false)",
                (f"{PAUSE_SECONDS}s",),
            )
            findings += _server(connection, target.schema)
            if not TABLES & tables_there(connection):
                return [*findings, Finding("tables", "bad", f"there is no store in the schema {shown(target.schema)}")]
            findings += _snapshot(
                connection, PostgresInspection(connection, PostgresEventRecorder(target)), progress, checkpoints
            )
            findings.append(_connected(connection, target.schema))
    except StoreError as error:
        findings.append(Finding("database", "bad", str(error)))
    except psycopg.Error as error:
        findings.append(Finding("database", "bad", shown(str(refusal_of(error)))))
    return findings


def _now(connection: Connection) -> int:
    row = connection.execute(f"SELECT {SELECT_NOW}").fetchone()
    return 0 if row is None else int(row[0])


def _snapshot(
    connection: Connection,
    inspection: PostgresInspection,
    progress: Progress,
    checkpoints: Sequence[Checkpoint],
) -> Iterator[Finding]:
    """Yield the findings from one snapshot."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    yield from _guarded(connection, "tables", lambda: [_tables(connection, inspection)])
    schema = list(_guarded(connection, "schema", lambda: _schema(inspection)))
    yield from schema
    yield from _guarded(connection, "contents", lambda: contents(inspection, inspection.size(), _now(connection)))
    if any(finding.name == "schema" and finding.level != "ok" for finding in schema):
        yield Finding("log", "warn", "not checked: its schema has another version")
    else:
        for name, check in checks_of(inspection, progress, checkpoints).items():
            yield from _guarded(connection, name, check)
    connection.execute("ROLLBACK")


def _guarded(connection: Connection, name: str, inspection: Callable[[], list[Finding]]) -> list[Finding]:
    """Run one check; if it cannot read something, only that check ends. Raises psycopg.Error if the connection is
    lost."""
    try:
        with connection.transaction():
            return inspection()
    except psycopg.Error as error:
        if is_lost(error) or connection.closed:
            raise
        return [Finding(name, "bad", f"cannot be read: {shown(first_line(error))}")]


def _server(connection: Connection, schema: str) -> Iterator[Finding]:
    at = connection.info
    where = shown(f"{at.host or 'a socket'}:{at.port}/{at.dbname}, schema {schema}")
    yield Finding("database", "ok", f"PostgreSQL {shown(_setting(connection, 'server_version'))} at {where}")
    encoding = _setting(connection, "server_encoding")
    yield Finding("encoding", "ok" if encoding == "UTF8" else "bad", shown(encoding))
    yield _durability(connection)
    checksums = _setting(connection, "data_checksums")
    pages = "detects damaged pages by their checksums" if checksums == "on" else "has no page checksums"
    yield Finding("integrity", "ok", f"the server {pages} (data_checksums is {shown(checksums)})")
    yield _connections(connection)


def _durability(connection: Connection) -> Finding:
    """Check the durability settings; `synchronous_commit` is the value that holdlog's connections set."""
    names = ("fsync", "full_page_writes", "synchronous_commit")
    settings = {name: _setting(connection, name) for name in names}
    off = {name for name, value in settings.items() if value == "off"}
    text = ", ".join(f"{name} is {shown(value)}" for name, value in settings.items())
    if "fsync" in off:
        return Finding(
            "durability",
            "warn",
            f"{text}: the server acknowledges writes before they are on the disk; if its machine fails, acknowledged"
            " writes are lost and the database may be damaged; switch fsync on",
        )
    if "full_page_writes" in off:
        return Finding(
            "durability",
            "warn",
            f"{text}: pages that were partly written when the machine failed remain damaged, unless the file system"
            " prevents such pages; switch full_page_writes on",
        )
    if "synchronous_commit" in off:
        return Finding(
            "durability",
            "warn",
            f"{text}: acknowledged writes may be lost if the server fails; switch synchronous_commit on",
        )
    return Finding("durability", "ok", text)


def _connections(connection: Connection) -> Finding:
    row = connection.execute(_SELECT_CONNECTIONS).fetchone()
    assert row is not None
    most, used, ours = row
    text = f"{most - used:,} of {most:,} are free; {ours:,} are holdlog's, including this one"
    if most - used >= FEW_CONNECTIONS:
        return Finding("connections", "ok", text)
    return Finding(
        "connections", "warn", f"{text}; a holdlog server that gets none returns unavailable; raise max_connections"
    )


def _tables(connection: Connection, inspection: PostgresInspection) -> Finding:
    there = tables_there(connection)
    if "meta" in there and inspection.meta("major") in OLDER:
        return Finding("tables", "warn", "not checked: its schema is older")
    later = added_since(inspection.meta("minor")) if "meta" in there else frozenset[str]()
    tables = sorted(TABLES - later - there)
    indexes = sorted(INDEXES.keys() - later - indexes_there(connection))
    checked_already = tuple({*tables, *(view.name for view in VIEWS)})
    keys = sorted(it for it in KEYS - indexes_there(connection) if not it.startswith(checked_already))
    odd = sorted(views_to_replace(connection) & there)
    if not tables and not indexes and not keys and not odd:
        return Finding("tables", "ok", f"{len(TABLES)} tables and {len(INDEXES)} indexes exist")
    missing = ", ".join([*(f"table {name}" for name in tables), *(f"index {name}" for name in [*indexes, *keys])])
    problems = [f"missing: {missing}"] if missing else []
    problems += [f"with wrong columns or keys: {', '.join(odd)}"] if odd else []
    if {*tables, *indexes, *keys} <= {view.name for view in VIEWS} | OF_VIEWS.keys():
        problems.append("run `holdlog rebuild` to create them again")
    return Finding("tables", "bad", "; ".join(problems))


def _schema(inspection: PostgresInspection) -> list[Finding]:
    major = inspection.meta("major")
    if major in OLDER:
        return [
            Finding("schema", "warn", f"{major} is older; the next program that opens the store migrates it to {MAJOR}")
        ]
    if major != str(MAJOR):
        text = f"the store has schema {shown(major or '')}, but this holdlog supports {MAJOR}; upgrade holdlog"
        return [Finding("schema", "bad", text)]
    minor = inspection.meta("minor")
    if is_behind(minor):
        found, ours = f"{MAJOR}.{minor_of(minor)}", f"{MAJOR}.{MINOR}"
        text = f"{found} is older; the next program that opens the store updates it to {ours}"
        return [Finding("schema", "warn", text)]
    left = [REBUILD_LEFT] if inspection.meta(REBUILD) is not None else []
    return [Finding("schema", "ok", major), *left]


def _connected(connection: Connection, schema: str) -> Finding:
    servers = [f"{it.server}, from {shown(it.host)}, since {shown(it.started)}" for it in connected(connection, schema)]
    text = counted(len(servers), "server") + (f": {'; '.join(servers)}" if servers else "")
    return Finding("connected", "ok", text)


def _setting(connection: Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


_SELECT_CONNECTIONS: Final = """SELECT
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - COALESCE(current_setting('reserved_connections', true)::int, 0),
    (SELECT SUM(numbackends)::int FROM pg_stat_database),
    (SELECT COUNT(*) FROM pg_stat_activity WHERE application_name LIKE 'holdlog%' AND datname = current_database())"""
"""Uses only statistics that a user without superuser rights may read."""
