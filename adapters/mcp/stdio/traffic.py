"""Messages between the pipes and the SDK: counts requests, and responds to what the SDK cannot read."""

import asyncio
import logging
from typing import Self

import anyio
import anyio.lowlevel
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
)

from holdlog.adapters.mcp.reading import Unreadable, read_message
from holdlog.adapters.mcp.salvage import Fault, Salvaged, TooLong, answer, salvage
from holdlog.adapters.mcp.stdio.pipes import Input, Output

IN_FLIGHT = 256
"""Requests in flight at which the next one is held back until one completes, or none did for STALL seconds."""
IN_FLIGHT_MOST = 4096
"""Requests in flight at which further ones are refused."""
STALL = 0.05

_CROWDED = Fault(INTERNAL_ERROR, f"more than {IN_FLIGHT_MOST} requests in flight; wait for responses, then try again")
_log = logging.getLogger(__name__)


class _Stream:
    """The SDK's stream interface beyond `receive` and `send`: the owner of the descriptors closes them."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Traffic:
    """Requests in flight, counted so that shutdown can wait for them."""

    def __init__(self) -> None:
        self.open = 0
        self.moved = asyncio.Event()
        self._limit = IN_FLIGHT

    def enter(self) -> None:
        self.open += 1
        self.moved.set()

    async def drain(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self.open -= 1
        self._limit = max(IN_FLIGHT, min(self._limit, self.open + IN_FLIGHT))
        self.moved.set()

    async def drained(self) -> None:
        """Hold back a burst of quick calls, but admit more while the calls in flight are long waits."""
        while self.open >= self._limit:
            if not await self.moves(STALL):
                self._limit = self.open + IN_FLIGHT

    async def moves(self, within: float) -> bool:
        """Whether a request arrives or completes within this many seconds."""
        self.moved.clear()
        with anyio.move_on_after(within) as scope:
            await self.moved.wait()
        return not scope.cancelled_caught


class IncomingRequests(_Stream):
    """The SDK's read stream: messages it can read; the others are responded to here."""

    def __init__(self, source: Input, output: Output, traffic: Traffic) -> None:
        self._input, self._output, self._traffic = source, output, traffic
        self.closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage:
        while True:
            await self._output.drained()
            while not self._input.lines and not self.closed:
                self._input.came.clear()
                await self._input.came.wait()
            if self.closed:
                raise anyio.EndOfStream
            line = self._input.take()
            message = self._read(line)
            if not isinstance(message, JSONRPCRequest):
                if message is not None:
                    return SessionMessage(message)
                await anyio.lowlevel.checkpoint()
                continue
            await self._traffic.drained()
            if self._traffic.open < IN_FLIGHT_MOST:
                self._traffic.enter()
                return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self._traffic.drain))
            assert isinstance(line, bytes)
            self._refuse(salvage(line), _CROWDED)

    def close(self) -> None:
        """End the stream and discard what is unread."""
        self.closed = True
        self._input.came.set()
        self._output.release()

    def is_abandoned(self) -> bool:
        """Whether the client disconnected, and the calls in flight were cancelled because of that."""
        return self.closed and self._input.closed

    def idle(self) -> bool:
        """Whether all requests were responded to."""
        return not self._input.lines and not self._traffic.open

    def _read(self, line: bytes | TooLong) -> JSONRPCMessage | None:
        if isinstance(line, TooLong):
            self._refuse(line.salvaged(), line.fault)
            return None
        message = read_message(line)
        if isinstance(message, Unreadable):
            self._refuse(*message)
            return None
        return message

    def _refuse(self, found: Salvaged, fault: Fault) -> None:
        if found.wants_answer:
            self._output.write(answer(found, fault))


class Answers(_Stream):
    """The SDK's write stream."""

    def __init__(self, output: Output, traffic: Traffic, requests: IncomingRequests) -> None:
        self._output, self._traffic, self._requests = output, traffic, requests

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        if self._requests.is_abandoned() and not isinstance(message, JSONRPCResponse):
            # Clients of mcp 1.x still read after they have closed their session, and fail on messages that arrive then.
            if isinstance(message, JSONRPCError):
                self._traffic.abandon()
            return
        try:
            text = message.model_dump_json(by_alias=True, exclude_unset=True)
        except Exception as error:
            _log.warning("a message could not be written as JSON: %s", type(error).__name__)
            if not isinstance(message, JSONRPCResponse | JSONRPCError):
                return
            refusal = ErrorData(code=INTERNAL_ERROR, message="the response cannot be written as JSON")
            text = JSONRPCError(jsonrpc="2.0", id=message.id, error=refusal).model_dump_json()
        self._output.write(text.encode() + b"\n")
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._traffic.abandon()
        else:
            await self._output.drained()
