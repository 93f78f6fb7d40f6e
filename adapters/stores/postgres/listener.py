"""Notifications from PostgreSQL: LISTEN in a thread, with a probe of the connection after a silence."""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from holdlog.adapters.stores.postgres.connection import Connection, Target, connect

PROBE_SECONDS: Final = 10.0
"""Silence after which the listener sends a query: otherwise it would not notice that the database has stopped."""
RESPONSE_SECONDS: Final = 5.0
"""How long it waits for the response before it connects again."""
LONGEST_PAUSE: Final = 2.0
"""Between attempts to connect, in seconds."""


class Listener:
    """A thread that calls `wake` after each commit of another process, and again and again without a connection."""

    def __init__(self, target: Target, channel: str, wake: Callable[..., None]) -> None:
        """Start the thread, and wait for its first connection for at most `RESPONSE_SECONDS`."""
        self._target = target
        self._channel = channel
        self._wake = wake
        self._is_closed = False
        self._is_ready = threading.Event()
        self._readable, self._writable = os.pipe()
        self._thread = threading.Thread(target=self._run, name="holdlog-listener", daemon=True)
        self._thread.start()
        try:
            self._is_ready.wait(RESPONSE_SECONDS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._is_closed = True
        os.write(self._writable, b"x")
        self._thread.join()
        os.close(self._readable)
        os.close(self._writable)

    def _run(self) -> None:
        pause = 0.05
        while not self._is_closed:
            with suppress(psycopg.Error), connect(self._target, f"LISTEN {self._channel}") as connection:
                connection.silence = RESPONSE_SECONDS
                connection.add_notify_handler(lambda notification: None)  # without one, psycopg collects them
                self._is_ready.set()
                pause = 0.05
                self._listen(connection)
            if not self._is_closed:
                select.select([self._readable], [], [], pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                self._wake()  # the database may just have no connection left for this thread

    def _listen(self, connection: Connection) -> None:
        self._wake(True)  # a server that has taken over may lack commits
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._readable, select.POLLIN)
        while not self._is_closed:
            poll.poll(PROBE_SECONDS * 1000)
            connection.execute("SELECT 1")  # reads pending notifications; fails if the connection is lost
            self._wake()
