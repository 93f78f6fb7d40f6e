"""Connections to PostgreSQL: where the store is, settings, deadlines, errors."""

import logging
import re
import time
from collections.abc import Generator
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdlog.adapters.engine.port import LOCK_SECONDS
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError

for _logger in ("psycopg", "psycopg_pool"):
    logging.getLogger(_logger).addHandler(logging.NullHandler())  # refusals report failures, and once

SCHEMA: Final = "holdlog"
"""The schema of a URL that names none with `?schema=`."""
MAX_SCHEMA: Final = 50
"""Bytes; PostgreSQL allows 63, and our names of channels append to it."""
SILENT_SECONDS: Final = 30.0
"""Silence after which a connection counts as lost. Longer than any lock timeout of the store."""
_NETWORK: Final = {"tcp_user_timeout": 5_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""Defaults for URLs without them: with those of the system, callers would wait a quarter of an hour for a network."""
OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True,
    "connect_timeout": 5,
    "application_name": "holdlog",
    "client_encoding": "utf8",
}
_SETTINGS: Final = """SET search_path = {schema}; SET synchronous_commit = on; SET standard_conforming_strings = on;
SET lock_timeout = {lock_timeout}; SET idle_in_transaction_session_timeout = '10s'; SET jit = off;
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_sort = off;
SET enable_hashjoin = off; SET enable_mergejoin = off;
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET default_transaction_isolation = 'read committed'"""
"""Plans are kept, and use the keys even if they were made while the tables were small. The database notices within
20 s that a host is gone, and ends the transaction of a stopped process after 10 s."""

_WRONG_URL: Final = re.compile(r"FATAL: .*(does not exist|not permitted|authentication failed|pg_hba)|no password")
"""In the message of a refused connection: libpq has no SQLSTATE of it."""


class Target(NamedTuple):
    """A database, as libpq takes it, and a schema."""

    url: str
    schema: str


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Raises OperationalError and closes itself if the database is silent for `silence` seconds: stopped, or behind a
    network that drops packets, which libpq alone does not notice."""

    silence = SILENT_SECONDS

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._limit(gen), *args, **kwargs)

    def _limit(self, waits: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + self.silence
        try:
            request = next(waits)
            while True:
                began = time.monotonic()
                ready = yield request  # for a tenth of a second at most
                now = time.monotonic()
                if ready:
                    deadline = now + self.silence
                elif now - began > 1:  # this process was stopped
                    deadline += now - began
                elif now >= deadline:
                    self.close()
                    raise psycopg.OperationalError(f"the database did not respond for {self.silence:g} s")
                request = waits.send(ready)
        except StopIteration as end:
            return end.value


def parse_url(url: str) -> Target:
    """Split a URL. Raises StoreError, which never shows the URL: it may contain a password."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        schema = options.pop("schema", SCHEMA)
        plain = parts._replace(query=urlencode(options)).geturl()
        conninfo_to_dict(plain)
    except (ValueError, psycopg.ProgrammingError):
        raise StoreError(
            "the URL cannot be parsed; write postgresql://user@host:5432/database?schema=name, with %40 for @, %3A for"
            " : and %2F for / in names and passwords"
        ) from None
    if not schema or schema != schema.strip() or "\0" in schema or len(schema.encode()) > MAX_SCHEMA:
        raise StoreError(f"schema: must have 1 to {MAX_SCHEMA} bytes, and no blank at its ends")
    return Target(plain, schema)


def connect(target: Target, statements: str = "") -> Connection:
    """Connect to the store's schema and execute the statements; later ones are committed one by one. Raises
    StoreError, psycopg.Error."""
    connection = Connection.connect(name_server(target), **OPTIONS)
    try:
        if not statements:  # the first connection, as the store is opened
            _refuse_pooler(connection, target)
        configure(connection, target)
        if statements:
            connection.prepare_threshold = None  # after a rollback, psycopg deallocates its statements, and ours
            connection.execute(statements)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_pooler(connection: Connection, target: Target) -> None:
    """Raise StoreError for a pooler that binds a client to a connection for one transaction only: another client gets
    the same. Poolers show by process ids of their own."""
    process = _read_process(connection)
    if process != connection.info.backend_pid:
        with Connection.connect(name_server(target), **OPTIONS) as other:
            if _read_process(other) == process:
                raise StoreError(
                    "this pooler (PgBouncer in transaction mode?) would lose notifications and prepared statements; use"
                    " the database's own URL, or session mode"
                )


def _read_process(connection: Connection) -> int:
    return int(connection.execute("SELECT pg_backend_pid()").fetchall()[0][0])


def name_server(target: Target) -> str:
    """The database with all parameters, for libpq. Reads of a standby would not see the last writes."""
    return make_conninfo("", **{"target_session_attrs": "primary", **_NETWORK, **conninfo_to_dict(target.url)})


def configure(connection: Connection, target: Target) -> None:
    connection.execute(
        sql.SQL(_SETTINGS).format(schema=sql.Identifier(target.schema), lock_timeout=sql.Literal(f"{LOCK_SECONDS}s"))
    )


def quote(text: str) -> str:
    """A literal of SQL. Raises ValueError for NUL, which PostgreSQL cannot store."""
    if "\0" in text:
        raise ValueError("a text with NUL")
    return "'" + text.replace("'", "''") + "'"


def quote_all(texts: Any, kind: str) -> str:
    """An array literal."""
    return f"ARRAY[{','.join(map(quote, texts))}]::{kind}[]"


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone. The database ends those that wait too long within a transaction."""
    lost = psycopg.OperationalError | psycopg.InterfaceError | errors.IdleInTransactionSessionTimeout
    return isinstance(error, lost) and not isinstance(
        error, errors.LockNotAvailable | errors.QueryCanceled | errors.DiskFull | errors.OutOfMemory
    )


def refuse(error: psycopg.Error, in_doubt: bool = False) -> HoldlogError:
    """The refusal for an error. It quotes the first line only, as details may contain stored values."""
    text = (error.diag.message_primary or str(error).strip() or type(error).__name__).splitlines()[0]
    if in_doubt:
        return UnavailableError(f"the write may have happened; the database reported an error: {text}", in_doubt=True)
    match error:
        case psycopg.OperationalError() if error.sqlstate is None and _WRONG_URL.search(text):
            return StoreError(f"{text}; check the user, the password and the database in the URL")
        case errors.InsufficientPrivilege():
            return StoreError(f"the database refused: {text}; grant the right to the role, or use another role")
        case errors.ReadOnlySqlTransaction():
            return UnavailableError(f"the database is read-only; use its primary: {text}")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StoreError(f"the store's tables are missing: {text}; restore a dump, or use another ?schema=")
        case psycopg.DataError() | psycopg.IntegrityError() | errors.ProgramLimitExceeded():
            return StoreError(f"the database does not accept this: {text}")
        case errors.LockNotAvailable():
            return UnavailableError("another session holds a lock on the store; try again")
        case _:
            return UnavailableError(f"the database reported an error: {text}")
