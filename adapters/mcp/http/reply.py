"""The response to one POST: one JSON text, or a stream of events once a notification precedes the response."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from starlette.types import Send

PING_EVERY: Final = 15.0
"""Seconds of silence after which a stream sends a sign of life; proxies close streams that are silent for a minute."""
STALLED: Final = 30.0
"""Seconds without reading a byte after which a client counts as gone."""
LAST: Final = 1.0
"""Seconds to end a stream; then its connection is cut."""

PING: Final = b": ping\n\n"

_STREAM: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


class Reply:
    """The response. `json`, `stream`: which forms the client accepts."""

    def __init__(self, send: Send, json: bool = True, stream: bool = False) -> None:
        self.json = json
        self.streams = stream
        self._send = send
        self._started = False
        self._write_lock = asyncio.Lock()

    async def event(self, message: bytes) -> None:
        """Send a notification before the response; nothing if the client does not accept a stream. Raises
        TimeoutError."""
        if self.streams:
            await self._write(event(message))

    async def ping(self) -> None:
        """Send a sign of life. Raises TimeoutError."""
        if self.streams:
            await self._write(PING)

    async def end(self, message: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send the response: on a stream, with status 200, if one has begun or the client accepts nothing else."""
        if self._started or (self.streams and not self.json and status == 200):
            async with self._write_lock:
                await self._start(headers)
                await self._send({"type": "http.response.body", "body": event(message)})
            return
        all_headers = {"content-type": "application/json", "content-length": str(len(message)), **(headers or {})}
        await start(self._send, status, all_headers)
        await self._send({"type": "http.response.body", "body": message})

    async def nothing(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Send a response without a body."""
        await start(self._send, status, {"content-length": "0", **(headers or {})})
        await self._send({"type": "http.response.body", "body": b""})

    async def over(self) -> None:
        """End a stream without a response, for a client that is still connected."""
        if self._started:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST), self._write_lock:
                    await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(STALLED), self._write_lock:
            await self._start()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(self, headers: Mapping[str, str] | None = None) -> None:
        if not self._started:
            self._started = True
            await start_stream(self._send, headers)


async def start_stream(send: Send, headers: Mapping[str, str] | None = None) -> None:
    await start(send, 200, _STREAM | dict(headers or {}))


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


def event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"
