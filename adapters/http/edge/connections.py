"""One connection: sets the limits that uvicorn's protocol lacks, without a timer per request."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdlog.adapters.http.answers import failed, raw

HEADERS_SECONDS: Final = 10.0
"""Seconds from the first byte of a request, or from the start of the connection, to the end of its headers."""
BODY_SECONDS: Final = 30.0
"""Seconds from the end of the headers to the end of the body."""
SEND_SECONDS: Final = 60.0
"""Seconds after which a client that reads nothing of a response is disconnected."""
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are read and dropped after an early response, such as 413: closing a connection immediately resets it, and
the client may never see the response."""
MAX_HEADER_BYTES: Final = 32 * 1024
"""Bytes of the request line and all headers."""
MAX_HEADERS: Final = 100

_TOO_LARGE: Final = f"the request line and headers may have at most {MAX_HEADER_BYTES} bytes and {MAX_HEADERS} headers"


class Connection(HttpToolsProtocol):
    """A client connection with time limits. `due`: when the client must have completed its next step, by the loop's
    clock; `end_if_due` enforces it."""

    most_connections: ClassVar[int] = 4096

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        full = len(self.connections) >= self.most_connections
        self.due = self.loop.time() + HEADERS_SECONDS
        self._phase: Literal["idle", "headers", "body", "lingering"] = "idle"
        self._stuck_at = math.inf
        self._received = 0
        self._left_to_drop = LINGER_BYTES
        self._running: RequestResponseCycle | None = None
        self.parser = _Parser(self)
        super().connection_made(_Patient(transport, self._closes_later, self.loop))  # type: ignore[arg-type]
        if full:
            self.connections.discard(self)
            transport.write(raw("the server has no free connection; try again", 503, {"retry-after": "1"}))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn notifies only the newest request, but more requests may have arrived behind the running one."""
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._phase == "lingering":
            self._drop(data)
            return
        if self.due == math.inf and not self._in_flight:
            self.due = self.loop.time() + HEADERS_SECONDS
        self._received += len(data)
        super().data_received(data)
        if self._phase == "headers" and self._received > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(_TOO_LARGE, 431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = "headers"
        self._left_to_drop = LINGER_BYTES
        self.due = self.loop.time() + HEADERS_SECONDS

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == "headers":  # else an unexpected trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise httptools.HttpParserError("CONNECT is not supported")
            return  # it is read again
        self._phase = "body"
        self.due = self.loop.time() + BODY_SECONDS
        if self._received > MAX_HEADER_BYTES or len(self.headers) > MAX_HEADERS:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > MAX_HEADER_BYTES or len(self.headers) > MAX_HEADERS:
                self.app = failed(_TOO_LARGE, 431, {"connection": "close"})
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._drop(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._phase = "idle"
        self._received = 0
        self.due = math.inf
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._stuck_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_at = math.inf
        super().resume_writing()

    def end_if_due(self, now: float) -> None:
        """Close the connection if its deadline has passed. Called every second."""
        if now > self._stuck_at + SEND_SECONDS or (self._phase == "lingering" and now > self.due):
            self.transport.abort()
        elif now > self.due:
            if self.pipeline or (self._phase != "body" and self._in_flight):
                self.due = now + HEADERS_SECONDS  # waiting for the previous request, not for the client
            else:
                self._refuse("the request did not arrive in time; send it again", 408)

    def shutdown(self) -> None:
        """Close the connection. Requests that have not fully arrived have not run; the client can send them to another
        server."""
        super().shutdown()
        if self._phase == "body" and self._in_flight:
            self._refuse("this server is shutting down; try again", 503)
        elif self._phase == "lingering":
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        self._refuse("not a valid HTTP request", 400)

    @property
    def _in_flight(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _refuse(self, message: str, status: int) -> None:
        """Respond to input that never became a request for the application, unless the client could take this for the
        response to another request."""
        if self._in_flight and (self._phase != "body" or self.cycle.response_started or self.pipeline):
            self.transport.abort()
            return
        self.transport.write(raw(message, status))
        self.transport.close()

    def _drop(self, data: bytes) -> None:
        self._left_to_drop -= len(data)
        if self._left_to_drop < 0:
            self.transport.abort()

    def _closes_later(self) -> bool:
        """Whether the client may still be sending bytes that are not read: then the connection closes a little
        later."""
        if self._phase not in ("headers", "body") or self._in_flight or self.transport.is_closing():
            return False
        self._phase = "lingering"
        self.due = self.loop.time() + LINGER_SECONDS
        self.flow.resume_reading()
        self.transport.write_eof()
        return True


class _Parser(httptools.HttpRequestParser):
    """Ignores requested upgrades, since none is offered (RFC 9110 section 7.8). httptools treats all bytes behind such
    a head as another protocol: another parser reads the head again without the upgrade."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._connection = connection
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # same as uvicorn's

    def feed_data(self, data: Any) -> None:
        parser, left = self, memoryview(data)
        while left:
            try:
                super(_Parser, parser).feed_data(left)
                return
            except httptools.HttpParserUpgrade as upgrade:
                left = left[upgrade.args[0] :]
            head = b"%s %s HTTP/%s\r\n" % (
                parser.get_method(),
                self._connection.url,
                parser.get_http_version().encode(),
            )
            fields = b"".join(b"%s: %s\r\n" % field for field in self._connection.headers if field[0] != b"upgrade")
            parser = self._connection.parser = _Parser(self._connection)
            super(_Parser, parser).feed_data(head + fields + b"\r\n")


_HEAD: Final = b"HTTP/1.1 "


class _Patient:
    """A transport that sends the head of a response together with the data that follows, and closes when its connection
    has nothing more to receive."""

    def __init__(
        self, transport: asyncio.Transport, later: Callable[[], bool], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport = transport
        self._later = later
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        if not self._later():
            self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
