"""Notifications from PostgreSQL: LISTEN in a thread, which asks a question of its own if it hears nothing."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from holdlog.adapters.stores.postgres.connection import Connection, Target, connect

ASK_SECONDS: Final = 10.0
"""Silence after which the listener asks whether the database is there: a stopped one is not noticed otherwise."""
ANSWER_SECONDS: Final = 5.0
LONGEST_PAUSE: Final = 2.0
"""Between attempts to connect."""


class Listener:
    """A thread that calls `wake` after each commit of another process."""

    def __init__(self, target: Target, channel: str, wake: Callable[[], None]) -> None:
        self._target = target
        self._channel = channel
        self._wake = wake
        self._ended = False
        self._ready = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        readable, writable = os.pipe()
        thread = threading.Thread(target=self._run, args=(readable,), name="holdlog-listener", daemon=True)
        thread.start()
        self._ready.wait(ANSWER_SECONDS)
        try:
            yield
        finally:
            self._ended = True
            os.write(writable, b"x")
            thread.join()
            os.close(readable)
            os.close(writable)

    def _run(self, pipe: int) -> None:
        pause = 0.05
        while not self._ended:
            with suppress(psycopg.Error), connect(self._target, f"LISTEN {self._channel}") as connection:
                connection.silence = ANSWER_SECONDS
                self._ready.set()
                pause = 0.05
                self._listen(connection, pipe)
            if not self._ended:
                select.select([pipe], [], [], pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _listen(self, connection: Connection, pipe: int) -> None:
        self._wake()  # notifications may have been missed
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(pipe, select.POLLIN)
        while not self._ended:
            poll.poll(ASK_SECONDS * 1000)
            connection.execute("SELECT 1")  # reads pending notifications; fails if the connection is lost
            self._wake()
