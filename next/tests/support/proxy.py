"""A proxy in front of a PostgreSQL server that cuts connections, at the commit of a write when it is told to."""

import re
import socket
import threading
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

_BLOCK = 1 << 16
_WRITES = re.compile(rb"(?i)notify")
"""In what a client sends with the commit of a write, or right before it, and at no other time."""
_COMMITTED = b"COMMIT\0"
"""In the server's response to it."""


class Proxy:
    """`next_cut`: when to cut the next commit of a write: before the server gets it, or after it has responded, so that
    only the response is lost. `is_last`: from then on every connection is refused. `cuts`: their number."""

    def __init__(self, url: str) -> None:
        server = urlsplit(url)
        self.next_cut: Literal["before", "after"] | None = None
        self.is_last = False
        self.cuts = 0
        self._address = server.hostname or "", server.port or 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        port = self._listening.getsockname()[1]
        self.url = server._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        threading.Thread(target=self._accept, daemon=True).start()

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
                lost = threading.Event()
                for pump in (self._send, self._receive):
                    threading.Thread(target=pump, args=(client, server, lost), daemon=True).start()

    def _send(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while block := client.recv(_BLOCK):
                if self.next_cut is not None and _WRITES.search(block):
                    cut, self.next_cut = self.next_cut, None
                    self.cuts += 1
                    if self.is_last:
                        _close(self._listening)
                    if cut == "before":
                        break
                    lost.set()
                server.sendall(block)
            else:
                server.shutdown(socket.SHUT_WR)
                return
        _close(client)
        _close(server)

    def _receive(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while block := server.recv(_BLOCK):
                if not lost.is_set():
                    client.sendall(block)
                elif _COMMITTED in block:
                    break
        _close(client)
        _close(server)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
