"""A proxy in front of a PostgreSQL server that cuts connections at the commit of a write."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

BLOCK = 1 << 16
_WRITES = b"NOTIFY"
"""In the message that commits a write, and in no other."""
_COMMITTED = b"COMMIT\0"
"""In the server's response to it."""

Cut = Literal["before", "after"]


class CuttingProxy:
    """`next_cut`: when to cut the next commit of a write, once: before the server gets it, or after the server has
    responded, so that only the response is lost. `is_last`: from then on, every connection is refused. `cuts`: how many
    connections ended."""

    def __init__(self, url: str) -> None:
        self.next_cut: Cut | None = None
        self.is_last = False
        self.cuts = 0
        self._server = str(Path(parse_qs(urlsplit(url).query)["host"][0], ".s.PGSQL.5432"))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        port = self._listening.getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"

    def stop(self) -> None:
        """Accept no more connections."""
        _close(self._listening)

    def close(self) -> None:
        self.stop()
        for each in self._open:
            _close(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += [client, server]
                try:
                    server.connect(self._server)
                except OSError:  # the server is down
                    _close(client)
                    continue
                connection = _Connection(self, client, server)
                threading.Thread(target=connection.send, daemon=True).start()
                threading.Thread(target=connection.receive, daemon=True).start()


class _Connection:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._drops_response = False

    def send(self) -> None:
        """From the client to the server."""
        with suppress(OSError):
            while block := self._client.recv(BLOCK):
                if _WRITES in block and self._proxy.next_cut is not None:
                    cut, self._proxy.next_cut = self._proxy.next_cut, None
                    if cut == "before":
                        break
                    self._drops_response = True
                    if self._proxy.is_last:
                        self._proxy.stop()
                self._server.sendall(block)
            else:
                self._server.shutdown(socket.SHUT_WR)
                return
        self._end()

    def receive(self) -> None:
        """From the server to the client."""
        with suppress(OSError):
            while block := self._server.recv(BLOCK):
                if not self._drops_response:
                    self._client.sendall(block)
                elif _COMMITTED in block:
                    break
        self._end()

    def _end(self) -> None:
        self._proxy.cuts += 1
        _close(self._client)
        _close(self._server)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextmanager
def cutting_proxy(url: str) -> Iterator[CuttingProxy]:
    """A proxy in front of a server that listens on a Unix socket, as its URL says."""
    proxy = CuttingProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
