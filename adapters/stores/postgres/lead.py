"""Elects the one relay of a database that publishes, by a lock that lasts as long as its connection."""

import zlib

import psycopg

from holdlog.adapters.stores.postgres.connection import Connection, connect, is_over
from holdlog.adapters.stores.postgres.target import database_target


class DatabaseLead:
    """The lead of one database. `target`: a number that identifies what the relays publish to."""

    def __init__(self, url: str, target: int) -> None:
        self._target = database_target(url)
        self._number = (1 << 32) + zlib.crc32(f"holdlog relay {self._target.schema} {target}".encode())
        self._connection: Connection | None = None

    def take(self) -> bool:
        if self._connection is not None and not is_over(self._connection):
            return True
        self.release()
        try:
            connection = connect(self._target)
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (self._number,)).fetchone()
        except psycopg.Error:
            return True  # this lock only prevents duplicate work
        if row is not None and row[0]:
            self._connection = connection
            return True
        connection.close()
        return False

    def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
