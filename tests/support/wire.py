"""HTTP as bytes, for what client libraries smooth over: odd paths and headers, streams, clients that vanish."""

import json
import re
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests

from tests.support.waiting import PATIENCE


def waiters(url: str) -> float:
    """Calls that wait in a server now, as its metrics show."""
    text = requests.get(url + "/metrics", timeout=PATIENCE).text
    (number,) = re.findall(r"^holdlog_waiters (\S+)$", text, re.MULTILINE)
    return float(number)


class Connection:
    """A connection to a server. `url`: of the server."""

    def __init__(self, url: str) -> None:
        self.host = urlsplit(url).netloc
        name, _, port = self.host.partition(":")
        self.socket = socket.create_connection((name, int(port)), PATIENCE)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> "Connection":
        """A request; a header is an argument with `_` for `-`. A body that is announced longer may follow."""
        lines = {"host": self.host, "content-length": str(len(body))}
        lines |= {name.replace("_", "-"): text for name, text in headers.items()}
        head = "".join(f"{name}: {text}\r\n" for name, text in lines.items() if text)
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return self

    def status(self) -> int:
        """Of the next response; its body is left unread."""
        line = self.socket.makefile("rb").readline()
        return int(line.split()[1])

    def rest(self) -> bytes:
        """What comes until the server closes the connection."""
        return b"".join(iter(lambda: self.socket.recv(65536), b""))

    def reset(self) -> None:
        """Vanish, as a process that is killed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


class Sent(NamedTuple):
    id: str
    kind: str
    data: dict[str, Any]


class EventStream:
    """Server-sent events as they come. `last`: what a client passes as Last-Event-ID when it reconnects."""

    def __init__(self, response: requests.Response) -> None:
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        self.response = response
        self.last = ""
        self._lines = response.iter_lines(chunk_size=1, decode_unicode=True)

    def __iter__(self) -> Iterator[Sent]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line and not line.startswith(":"):
                name, _, text = line.partition(": ")
                fields[name] = text
            elif not line and "data" in fields:
                self.last = fields.get("id", self.last)
                yield Sent(self.last, fields.get("event", ""), json.loads(fields["data"]))
                fields = {}

    def events(self, count: int) -> list[dict[str, Any]]:
        """The next events of the log, bookmarks apart."""
        found = list[dict[str, Any]]()
        for sent in self:
            found += [sent.data] if "kind" in sent.data else []
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self.response.close()
