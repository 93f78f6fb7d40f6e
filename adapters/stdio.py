"""The stdin/stdout transport of a FastMCP server: no worker threads, an answer to every request, a clean, prompt end.

Replaces the SDK's `stdio_server`, which drops what its parser refuses and dies of SIGTERM without cleaning up.
"""

import asyncio
import logging
import os
import queue
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio
import anyio.lowlevel
from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from holdlog.adapters.salvage import ENVELOPE, Fault, Lines, Salvaged, TooLong, answer, fault_of, salvage

READ_SIZE = 256 * 1024
"""Bytes taken from stdin at once."""
READ_AHEAD = 1024 * 1024
"""Bytes of unhandled lines at which reading pauses."""
WRITE_BEHIND = 1024 * 1024
"""Bytes of unread answers at which reading pauses: a client that does not listen is not served."""
WRITE_SIZE = getattr(select, "PIPE_BUF", 4096)
"""Bytes written at once: a pipe that polls as writable takes these without blocking."""
IN_FLIGHT = 256
"""Requests in flight at which the next one is held back until one is answered, or none was for STALL seconds."""
IN_FLIGHT_MOST = 4096
"""Requests in flight at which further ones are refused."""
STALL = 0.05
GRACE_STEPS, GRACE_STEP = 20, 0.01
"""After the end of input: calls in flight go on while answers come, and this many quiet steps (seconds) longer."""
CLOSE_WITHIN = 0.3
"""Seconds for cancelled calls to end, and for the client to go on taking its last answers."""
WATCH_EVERY = 2.0
"""Seconds between looks whether the parent died or stdout was closed."""
INSIST_AFTER = 1.0
"""Seconds after a first signal from which a second one ends the process at once."""

_CROWDED = Fault(INTERNAL_ERROR, f"more than {IN_FLIGHT_MOST} requests in flight: try again when some are answered")
_log = logging.getLogger(__name__)


class _Input:
    """Lines from a descriptor: by readiness, without O_NONBLOCK (others may share the description), or by a thread."""

    def __init__(self, fd: int, threads: bool) -> None:
        self.ended = asyncio.Event()
        self.came = asyncio.Event()
        self.lines: deque[bytes | TooLong] = deque()
        self._fd = fd
        self._cut = Lines()
        self._size = 0
        self._loop = asyncio.get_running_loop()
        self._go = threading.Event()
        self._paused = True
        self._threaded = threads
        if not threads:
            try:
                self._loop.add_reader(fd, self._readable)
                self._paused = False
            except (OSError, NotImplementedError):  # a file, /dev/null; the event loop of Windows
                self._threaded = True
        if self._threaded:
            threading.Thread(target=self._read_all, name="stdin", daemon=True).start()
            self._pause(False)

    def take(self) -> bytes | TooLong:
        line = self.lines.popleft()
        self._size -= _size(line)
        if self._paused and self._size < READ_AHEAD:
            self._pause(False)
        return line

    def end(self) -> None:
        """No more input: nothing that is still unread will be."""
        if not self.ended.is_set():
            self._pause(True)
            self.ended.set()
            self.came.set()

    def _pause(self, paused: bool) -> None:
        if paused == self._paused or self.ended.is_set():
            return
        self._paused = paused
        if self._threaded:
            (self._go.clear if paused else self._go.set)()
        elif paused:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, self._readable)

    def _read_all(self) -> None:
        data = b"-"
        while data and self._go.wait():
            self._go.clear()  # one piece at a time: the loop asks for the next
            data = self._read()
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._feed, data)

    def _readable(self) -> None:
        with suppress(BlockingIOError):  # the parent may have set O_NONBLOCK
            self._feed(self._read())

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            raise
        except OSError:
            return b""

    def _feed(self, data: bytes) -> None:
        if self.ended.is_set():
            return
        lines = self._cut.feed(data)
        self.lines += lines
        self._size += sum(map(_size, lines))
        if not data:
            self.end()
            return
        self.came.set()
        if self._size >= READ_AHEAD:
            self._pause(True)
        elif self._threaded:
            self._go.set()


def _size(line: bytes | TooLong) -> int:
    return len(line) if isinstance(line, bytes) else 0


class _Output:
    """Bytes to a descriptor that may be slow: written when it polls as writable, never blocking the event loop."""

    def __init__(self, fd: int, threads: bool) -> None:
        self.broken = asyncio.Event()
        self._moved = asyncio.Event()
        self._fd = fd
        self._rest = bytearray()
        self._waiting = self._released = False
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes] | None = None
        if threads:
            self._queue = queue.SimpleQueue()
            threading.Thread(target=self._write_all, args=(self._queue,), name="stdout", daemon=True).start()
        else:
            self._poll = select.poll()
            self._poll.register(fd, select.POLLOUT)

    def write(self, data: bytes) -> None:
        if self.broken.is_set():
            return
        self._rest += data
        if self._queue is not None:
            self._queue.put(data)
        elif not self._waiting:
            self._flush()

    async def room(self) -> None:
        """Return when few bytes are unread, nobody will read them, or `release` was called."""
        while len(self._rest) > WRITE_BEHIND and not self.broken.is_set() and not self._released:
            self._moved.clear()
            await self._moved.wait()

    def release(self) -> None:
        self._released = True
        self._moved.set()

    async def drain(self) -> None:
        """Return when all is read, or nothing was for CLOSE_WITHIN seconds."""
        stalled = False
        while self._rest and not self.broken.is_set() and not stalled:
            self._moved.clear()
            with anyio.move_on_after(CLOSE_WITHIN) as scope:
                await self._moved.wait()
            stalled = scope.cancelled_caught

    def hung_up(self) -> bool:
        gone = select.POLLERR | select.POLLHUP | select.POLLNVAL if self._queue is None else 0
        return self._queue is None and any(event & gone for _, event in self._poll.poll(0))

    def close(self) -> None:
        self._wait(False)
        self.broken.set()

    def _flush(self) -> None:
        while self._rest and not self.broken.is_set():
            try:
                written = os.write(self._fd, self._rest[:WRITE_SIZE]) if self._poll.poll(0) else 0
            except BlockingIOError:
                written = 0
            except OSError:
                self._break()
                return
            if not written:
                break
            self._written(written)
        self._wait(bool(self._rest))

    def _wait(self, waiting: bool) -> None:
        if waiting != self._waiting:
            self._waiting = waiting
            if waiting:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)

    def _written(self, count: int) -> None:
        del self._rest[:count]
        self._moved.set()

    def _break(self) -> None:
        self._wait(False)
        self._rest.clear()
        self._moved.set()
        self.broken.set()

    def _write_all(self, pieces: "queue.SimpleQueue[bytes]") -> None:
        with suppress(RuntimeError):  # the loop is closed
            while True:
                piece = memoryview(pieces.get())
                try:
                    while piece:
                        written = os.write(self._fd, piece)
                        self._loop.call_soon_threadsafe(self._written, written)
                        piece = piece[written:]
                except OSError:
                    self._loop.call_soon_threadsafe(self._break)
                    return


class _Stream:
    """What the SDK wants of both its streams beyond `receive` and `send`: the descriptors are closed by their owner."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _Traffic:
    """Requests in flight, counted so that the end can wait for them."""

    def __init__(self) -> None:
        self.open = 0
        self.moved = asyncio.Event()
        self._limit = IN_FLIGHT

    def enter(self) -> None:
        self.open += 1
        self.moved.set()

    async def leave(self) -> None:
        self.left()

    def left(self) -> None:
        self.open -= 1
        self._limit = max(IN_FLIGHT, min(self._limit, self.open + IN_FLIGHT))
        self.moved.set()

    async def room(self) -> None:
        """Hold back a burst of quick calls, yet let more in where the calls in flight are long waits."""
        while self.open >= self._limit:
            if not await self.moves(STALL):
                self._limit = self.open + IN_FLIGHT

    async def moves(self, within: float) -> bool:
        self.moved.clear()
        with anyio.move_on_after(within) as scope:
            await self.moved.wait()
        return not scope.cancelled_caught


class _Requests(_Stream):
    """The SDK's read stream: messages it can read; the rest is answered here."""

    def __init__(self, source: _Input, output: _Output, traffic: _Traffic) -> None:
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
            await self._output.room()
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
            await self._traffic.room()
            if self._traffic.open < IN_FLIGHT_MOST:
                self._traffic.enter()
                return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self._traffic.leave))
            assert isinstance(line, bytes)
            self._refuse(salvage(line), _CROWDED)

    def close(self) -> None:
        self.closed = True
        self._input.came.set()
        self._output.release()

    def idle(self) -> bool:
        return not self._input.lines and not self._traffic.open

    def _read(self, line: bytes | TooLong) -> JSONRPCMessage | None:
        if isinstance(line, TooLong):
            self._refuse(line.salvaged(), line.fault)
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            self._refuse(salvage(line), fault_of(line, error))
            return None
        if not isinstance(message, JSONRPCRequest) and {"id", "method"} <= (found := salvage(line)).names:
            # An id that is no string or integer makes the SDK take a request for a notification.
            self._refuse(found, ENVELOPE)
            return None
        return message

    def _refuse(self, found: Salvaged, fault: Fault) -> None:
        if found.wants_answer:
            self._output.write(answer(found, fault))


class _Answers(_Stream):
    """The SDK's write stream."""

    def __init__(self, output: _Output, traffic: _Traffic) -> None:
        self._output, self._traffic = output, traffic

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        answers = isinstance(message, JSONRPCResponse | JSONRPCError)
        try:
            text = message.model_dump_json(by_alias=True, exclude_unset=True)
        except Exception as error:
            _log.warning("a message could not be written as JSON: %s", type(error).__name__)
            if not isinstance(message, JSONRPCResponse | JSONRPCError):
                return
            refusal = ErrorData(code=INTERNAL_ERROR, message="the answer cannot be written as JSON")
            text = JSONRPCError(jsonrpc="2.0", id=message.id, error=refusal).model_dump_json()
        self._output.write(text.encode() + b"\n")
        if answers:
            self._traffic.left()
        else:
            await self._output.room()


async def serve_stdio(
    server: FastMCP[Any],
    on_end: Callable[[], Awaitable[None]] | None = None,
    *,
    threads: bool = sys.platform == "win32",
) -> None:
    """Serve one client over this process's stdin and stdout; return when it is gone or the process is told to end.

    Ends on end of input, SIGTERM, SIGINT, SIGHUP, death of the parent process, and a closed stdout. Calls in flight
    then go on as long as answers come and 0.2 s longer; what still waits is cancelled and answered with an error,
    `on_end` is awaited, the server's lifespan left. A call stuck in a thread is abandoned after 1 s. While serving,
    fd 0 is the null device and fd 1 is stderr, for stray reads and prints; the handlers of the signals are taken.
    """
    token = set_transport("stdio")
    try:
        with _descriptors() as (stdin, stdout):
            source, output, traffic = _Input(stdin, threads), _Output(stdout, threads), _Traffic()
            requests = _Requests(source, output, traffic)
            try:
                with _watched(source, output):
                    async with server._lifespan_manager():
                        low = server._mcp_server
                        serving = asyncio.create_task(
                            low.run(requests, _Answers(output, traffic), low.create_initialization_options())
                        )
                        try:
                            await _until_end(serving, source, output, requests, traffic)
                        finally:
                            serving.cancel()
                        await output.drain()
                        if on_end is not None:
                            await on_end()
            finally:
                source.end()
                output.close()
    finally:
        reset_transport(token)


async def _until_end(
    serving: "asyncio.Task[None]", source: _Input, output: _Output, requests: _Requests, traffic: _Traffic
) -> None:
    ended = asyncio.create_task(source.ended.wait())
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    # Steps, not seconds: a step during which the event loop was blocked (a first import) is one step all the same.
    quiet = 0
    while quiet < GRACE_STEPS and not (serving.done() or requests.idle() or output.broken.is_set()):
        quiet = 0 if await traffic.moves(GRACE_STEP) else quiet + 1
    requests.close()
    await asyncio.wait({serving}, timeout=CLOSE_WITHIN)
    if not serving.done():
        serving.cancel()
        await asyncio.wait({serving}, timeout=CLOSE_WITHIN)
    if not serving.done():
        _log.warning("a call does not end; it is abandoned")
    elif not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


def run_stdio(server: FastMCP[Any], on_end: Callable[[], Awaitable[None]] | None = None) -> NoReturn:
    """Serve as `serve_stdio`, then end the process: exit code 0 for every end, SIGINT too; 1 and a traceback for a bug.

    Ends by `os._exit`, after the lifespan was left: a call stuck in a thread cannot keep the process alive.
    """

    async def serve() -> None:
        code = 0
        try:
            await serve_stdio(server, on_end)
        except Exception:
            _log.exception("the server failed")
            code = 1
        logging.shutdown()
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
    os._exit(0)


@contextmanager
def _descriptors() -> Iterator[tuple[int, int]]:
    """Private duplicates of fd 0 and 1, which meanwhile point elsewhere."""
    stdin, stdout = os.dup(0), os.dup(1)
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # no stderr
            os.dup2(nothing, 1)
        os.close(nothing)
        yield stdin, stdout
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        # The duplicates stay open: a reader thread may still block on one, and a reused number would be another file.


@contextmanager
def _watched(source: _Input, output: _Output) -> Iterator[None]:
    """End the input when the process is told to, when its parent is gone and when nobody reads its answers."""
    loop = asyncio.get_running_loop()
    parent = os.getppid()
    first: float | None = None

    def told(number: int) -> None:
        nonlocal first
        if first is None:
            first = loop.time()
        elif loop.time() - first > INSIST_AFTER:
            os._exit(128 + number)
        source.lines.clear()
        source.end()

    async def watch() -> None:
        while os.getppid() == parent and not output.hung_up() and not output.broken.is_set():
            with anyio.move_on_after(WATCH_EVERY):
                await output.broken.wait()
        source.end()

    watching = asyncio.create_task(watch())
    taken = []
    for number in (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGTERM)):
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
            loop.add_signal_handler(number, told, number)
            taken.append(number)
    try:
        yield
    finally:
        watching.cancel()
        for number in taken:
            loop.remove_signal_handler(number)
