"""Standard input and output as the stream of the SDK's session. The event loop reads and writes them, so that signals
are heard; every line is answered; calls are finished before the session ends."""

import asyncio
import os
import stat
import threading
from collections import deque
from contextlib import suppress
from typing import Final, Self

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from holdlog.adapters.mcp.lines import Lines, Refused, read_message

READ_SIZE: Final = 256 * 1024
MANY: Final = 256
"""Requests without a response, at which the next ones are read more slowly."""
PAUSE: Final = 0.001
LAST_CALLS: Final = 6.0
"""Seconds for calls to finish after the end: the longest commit."""
LAST_READS: Final = 0.5
"""Seconds for the client to read its last responses."""


class Wire:
    """What the client sends, as far as the SDK can read it, and what it is sent. `ending`: the client closed a pipe, or
    the process is to end, so that no call may wait any more."""

    def __init__(self, stdin: int, stdout: int, limit: int) -> None:
        self.ending = asyncio.Event()
        self._stdin, self._stdout = stdin, stdout
        self._reader = asyncio.StreamReader(READ_SIZE)
        self._writer: asyncio.StreamWriter | None = None
        self._split = Lines(limit)
        self._lines = deque[bytes]()
        self._is_over = False
        self._open = 0
        self._settled = asyncio.Event()

    async def connect(self) -> None:
        loop, reader = asyncio.get_running_loop(), self._reader
        if _is_pipe(self._stdin):
            source = os.fdopen(self._stdin, "rb", 0, closefd=False)
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        else:
            threading.Thread(target=self._read_file, args=(loop,), daemon=True).start()
        if _is_pipe(self._stdout):
            hangup = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(hangup)
            target = os.fdopen(self._stdout, "wb", 0, closefd=False)
            transport, _ = await loop.connect_write_pipe(lambda: protocol, target)
            self._writer = asyncio.StreamWriter(transport, protocol, hangup, loop)
            self._hangup = asyncio.ensure_future(hangup.read())
            self._hangup.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        """Read nothing more."""
        self.ending.set()
        self._reader.feed_eof()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while self._lines:
                message = read_message(self._lines.popleft(), self._split.limit)
                if isinstance(message, Refused):
                    await self._write(message.response or b"")
                    continue
                if not isinstance(message, JSONRPCRequest):
                    return SessionMessage(message)
                self._open += 1
                return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self._settle))
            if self._is_over:
                self.ending.set()
                with anyio.move_on_after(LAST_CALLS):
                    while self._open:
                        self._settled.clear()
                        await self._settled.wait()
                raise StopAsyncIteration
            if self._open >= MANY:
                await asyncio.sleep(PAUSE)
            data = await self._reader.read(READ_SIZE)
            self._is_over = not data
            self._lines.extend(self._split.feed(data))

    async def receive(self) -> SessionMessage:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def send(self, item: SessionMessage) -> None:
        await self._write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            await self._settle()

    async def aclose(self) -> None:
        """The SDK closes one of two streams: see `close`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with anyio.move_on_after(LAST_READS):
                await self._hangup

    async def _settle(self) -> None:
        self._open -= 1
        self._settled.set()

    async def _write(self, data: bytes) -> None:
        if self._writer is None:
            os.write(self._stdout, data)
        elif not self._writer.is_closing():
            self._writer.write(data)
            with suppress(ConnectionError):
                await self._writer.drain()

    def _read_file(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(OSError, RuntimeError):
            while data := os.read(self._stdin, READ_SIZE):
                loop.call_soon_threadsafe(self._reader.feed_data, data)
            loop.call_soon_threadsafe(self._reader.feed_eof)


def take_descriptors() -> tuple[int, int]:
    """Standard input and output for the protocol alone: what else reads them finds nothing, and what else writes there
    goes to standard error."""
    stdin, stdout = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        try:
            os.dup2(2, 1)
        except OSError:  # it is closed
            os.dup2(nothing.fileno(), 1)
    return stdin, stdout


def _is_pipe(descriptor: int) -> bool:
    """Whether the event loop can watch it: not files, nor /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
