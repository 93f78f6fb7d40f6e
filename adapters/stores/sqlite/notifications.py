"""Notifications between the processes of a machine that share a store file: a datagram to each process that waits.

Datagrams may be lost, so each of these processes also polls the file ten times a second.
"""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Final

from holdlog.adapters.stores.sqlite.lock import WriteLock

POLL_SECONDS: Final = 0.1
_LOOPBACK: Final = "127.0.0.1"
_sender: list[Any] = []


def send_datagrams(ports: list[int]) -> None:
    """Wake the processes that wait at these ports. A lost datagram delays its receiver until the next poll."""
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
        """Start the thread, which uses the connection until `close`. Raises OSError."""
        import socket

        self._lock = lock
        self._connection = connection
        self._wake = wake
        self._is_closed = False
        self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._run, name="holdlog-listener", daemon=True)
        try:
            self._receiver.bind((_LOOPBACK, 0))
            self._receiver.setblocking(False)
            lock.enter(self._receiver.getsockname()[1])
            self._thread.start()
        except BaseException:  # an interrupt may come after the start
            self.close()
            raise

    def close(self) -> None:
        self._is_closed = True
        if self._thread.is_alive():
            send_datagrams([self._receiver.getsockname()[1]])
            self._thread.join()
        self._lock.leave()
        self._receiver.close()
        self._connection.close()

    def _run(self) -> None:
        import select

        version = 0
        while not self._is_closed:
            if select.select([self._receiver], [], [], POLL_SECONDS)[0]:
                self._drain()
                self._wake()
                continue
            try:
                before, version = version, self._connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:
                before = -1  # those who wait read again and get the error
            if version != before:
                self._wake()

    def _drain(self) -> None:
        """Discard all datagrams that have arrived."""
        try:
            while True:
                self._receiver.recv(1)
        except BlockingIOError:
            pass


class Poller:
    """A thread that calls `wake` ten times a second: others cannot notify a process that cannot write its port."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdlog-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            self._wake()
