"""A proxy in front of a PostgreSQL server: cuts connections at the commit of a write, delays and keeps messages."""

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Literal
from urllib.parse import urlsplit

_BLOCK = 1 << 16
_WRITES = re.compile(rb"(?i)notify")
"""In what a client sends with the commit of a write, or right before it, and at no other time."""
_COMMITTED = b"COMMIT\0"
"""In the server's response to it."""


class Proxy:
    """`next_cut`: when to cut the next commit of a write, or the next message with the text `cut_in`: before the server
    gets it, or after it has responded, so that only the response is lost. `when_committed`: called then, before the
    client notices. `is_last`: from then on every connection is refused. `cuts`: their number. `delay`: seconds that a
    message travels, in each direction. `messages`: what clients sent. `when_sent`: called with each, before the server
    gets it."""

    def __init__(self, url: str, delay: float = 0.0) -> None:
        server = urlsplit(url)
        self.next_cut: Literal["before", "after"] | None = None
        self.cut_in: bytes | None = None
        self.when_committed: Callable[[], object] = lambda: None
        self.is_last = False
        self.cuts = 0
        self.messages: list[bytes] = []
        self.when_sent: Callable[[bytes], object] = lambda message: None
        self._response = _COMMITTED
        self._delay = delay
        self._address = server.hostname or "", server.port or 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        port = self._listening.getsockname()[1]
        self.url = server._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        threading.Thread(target=self._accept, daemon=True).start()

    def count_locked(self) -> int:
        """Messages of writes, from the one that takes the write lock to the one with COMMIT."""
        count, is_locked = 0, False
        for message in self.messages:
            is_locked = is_locked or b"LOCK TABLE" in message
            count += is_locked
            is_locked = is_locked and b"COMMIT" not in message
        return count

    def close(self) -> None:
        for each in (self._listening, *self._open):
            _close(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket()
                self._open += [client, server]
                try:
                    server.connect(self._address)
                except OSError:  # the server is down
                    _close(client)
                    continue
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                lost = threading.Event()
                for pump in (self._send, self._receive):
                    threading.Thread(target=pump, args=(client, server, lost), daemon=True).start()

    def _send(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        send = _delay(server.sendall, self._delay)
        with suppress(OSError):
            while block := client.recv(_BLOCK):
                is_cut = self.cut_in in block if self.cut_in is not None else _WRITES.search(block)
                if self.next_cut is not None and is_cut:
                    cut, self.next_cut = self.next_cut, None
                    self._response = _COMMITTED if self.cut_in is None or b"COMMIT" in block else b""
                    self.cuts += 1
                    if self.is_last:
                        _close(self._listening)
                    if cut == "before":
                        break
                    lost.set()
                self.messages.append(block)
                self.when_sent(block)
                send(block)
            else:
                server.shutdown(socket.SHUT_WR)
                return
        _close(client)
        _close(server)

    def _receive(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        send = _delay(client.sendall, self._delay)
        with suppress(OSError):
            while block := server.recv(_BLOCK):
                if not lost.is_set():
                    send(block)
                elif self._response in block:
                    self.when_committed()
                    break
        _close(client)
        _close(server)


def _delay(send: Callable[[bytes], None], seconds: float) -> Callable[[bytes], None]:
    """A function that sends each block so many seconds later, in order."""
    if not seconds:
        return send
    blocks: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def run() -> None:
        with suppress(OSError):
            while True:
                due, block = blocks.get()
                time.sleep(max(0.0, due - time.monotonic()))
                send(block)

    threading.Thread(target=run, daemon=True).start()
    return lambda block: blocks.put((time.monotonic() + seconds, block))


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
