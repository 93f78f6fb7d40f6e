"""Connections to the store's database: their setup and state."""

import select
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from holdlog.adapters.stores.postgres.target import DatabaseTarget
from holdlog.adapters.stores.postgres.timeout_connection import TimeoutConnection

Connection = psycopg.Connection[tuple[Any, ...]]
SELECT_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The database's clock in microseconds UTC."""
CONNECT_SECONDS: Final = 5
STOPPED_SECONDS: Final = 10
"""Seconds after which the database ends a transaction whose server is idle, such as a stopped one."""
LOCK_SECONDS: Final = 5
"""Seconds that a statement waits for a lock; also readers, for a table that is being altered."""
_TIMEOUTS: Final = {
    "tcp_user_timeout": 5_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""TCP settings, unless the URL overrides them (https://www.postgresql.org/docs/current/libpq-connect.html): with the
system's defaults, callers would wait a quarter of an hour after a network failure."""


def connect(target: DatabaseTarget) -> TimeoutConnection:
    """Open a connection in the store's schema. Raises psycopg.Error."""
    given = make_conninfo("", **{**_TIMEOUTS, **conninfo_to_dict(target.url)})
    connection = TimeoutConnection.connect(
        given,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        application_name="holdlog",
        client_encoding="utf8",
    )
    connection.adapters.register_dumper(int, Int8Dumper)  # else each integer size makes a separate statement
    # Plans are kept: planning again costs more than it ever saves here. They use the keys, even if planned while the
    # table was small. Ordered rows are read by a key in that order; otherwise the whole table would be sorted.
    connection.execute(
        "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', 'on', false),"
        " set_config('idle_in_transaction_session_timeout', %s, false), set_config('lock_timeout', %s, false),"
        " set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),"
        " set_config('enable_sort', 'off', false), set_config('jit', 'off', false),"
        " set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '5', false),"
        # The database notices within 20 s that a host is gone, and then releases what its connections held.
        " set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '20s', false)",
        (sql.Identifier(target.schema).as_string(connection), f"{STOPPED_SECONDS}s", f"{LOCK_SECONDS}s"),
    )
    return connection


def is_over(connection: Connection) -> bool:
    """Whether the connection is unusable: the server closed it or sent unexpected data. Sends nothing."""
    return connection.closed or bool(readable([connection.fileno()], 0))


def readable(files: Sequence[int], seconds: float) -> set[int]:
    """The files that are readable or broken within `seconds`; `select.select` rejects file numbers from 1,024 on."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(seconds * 1000)}


def is_idle(connection: Connection) -> bool:
    """Whether it is in no transaction."""
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def has_failed(connection: Connection) -> bool:
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
