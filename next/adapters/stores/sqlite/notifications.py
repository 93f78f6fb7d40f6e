"""Notifications between the processes of a machine that share a store file: a datagram to each process that waits, and
a look at the file ten times a second for what was lost."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from holdlog.adapters.stores.sqlite.lock import WriteLock

POLL_SECONDS: Final = 0.1
_LOOPBACK: Final = "127.0.0.1"
_sender: list[Any] = []


def send_datagrams(ports: list[int]) -> None:
    """Wake the processes that wait at these ports. A lost datagram costs them one poll."""
    import socket  # hooks do not load it

    for port in ports:
        try:
            if not _sender:
                _sender.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
            _sender[0].sendto(b"", (_LOOPBACK, port))
        except OSError:
            continue


class Listener:
    """A thread that calls `wake` after each commit of another process."""

    def __init__(self, lock: WriteLock, connection: sqlite3.Connection, wake: Callable[[], None]) -> None:
        self._lock = lock
        self._connection = connection
        self._wake = wake
        self._ended = False

    @contextmanager
    def running(self) -> Iterator[None]:
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind((_LOOPBACK, 0))
            receiver.setblocking(False)
            self._lock.enter(receiver.getsockname()[1])
            thread = threading.Thread(target=self._run, args=(receiver,), name="holdlog-listener", daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._ended = True
                send_datagrams([receiver.getsockname()[1]])
                thread.join()
                self._lock.leave()
                self._connection.close()

    def _run(self, receiver: Any) -> None:
        import select

        version = 0
        while not self._ended:
            if select.select([receiver], [], [], POLL_SECONDS)[0]:
                try:
                    while True:
                        receiver.recv(1)
                except BlockingIOError:
                    pass
                self._wake()
                continue
            try:
                seen, version = version, self._connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:
                seen = -1  # those who wait read again and get the error
            if seen != version:
                self._wake()
