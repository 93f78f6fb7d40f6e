"""The descriptors of the process's stdin and stdout: read and written by readiness, or by threads if necessary."""

import asyncio
import os
import queue
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from holdlog.adapters.mcp.salvage import MAX_LINE, Lines, TooLong

READ_SIZE = 256 * 1024
"""Bytes read from stdin at once."""
BUFFERED_BYTES = 1024 * 1024
"""Bytes of unhandled lines at which reading pauses."""
WRITE_BEHIND = 1024 * 1024
"""Bytes of unread responses at which reading pauses: a client that does not read is not served."""
WRITE_SIZE = getattr(select, "PIPE_BUF", 4096)
"""Bytes written at once: a pipe that polls as writable accepts these without blocking."""
DRAIN_WITHIN = 0.3
"""Seconds for the client to keep reading its last responses."""


class Input:
    """Lines from a descriptor: by readiness, without O_NONBLOCK (others may share the description), or by a thread."""

    def __init__(self, fd: int, threads: bool, max_line: int = MAX_LINE) -> None:
        self.ended = asyncio.Event()
        self.closed = False
        """Whether the client closed its end; after other ends, such as a signal, the client still reads."""
        self.came = asyncio.Event()
        self.lines: deque[bytes | TooLong] = deque()
        self._fd = fd
        self._cut = Lines(max_line)
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
        """The next line; reading resumes if it paused for lack of room."""
        line = self.lines.popleft()
        self._size -= _size(line)
        if self._paused and self._size < BUFFERED_BYTES:
            self._pause(False)
        return line

    def end(self) -> None:
        """End the input and discard what is still unread."""
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
            self.closed = True
            self.end()
            return
        self.came.set()
        if self._size >= BUFFERED_BYTES:
            self._pause(True)
        elif self._threaded:
            self._go.set()


def _size(line: bytes | TooLong) -> int:
    return len(line) if isinstance(line, bytes) else 0


class Output:
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
        """Accept all of `data` and buffer what the client does not read yet. Does nothing when the client is gone."""
        if self.broken.is_set():
            return
        self._rest += data
        if self._queue is not None:
            self._queue.put(data)
        elif not self._waiting:
            self._flush()

    async def drained(self) -> None:
        """Return when few bytes are unread, when the client cannot read them any longer, or when `release` was
        called."""
        while len(self._rest) > WRITE_BEHIND and not self.broken.is_set() and not self._released:
            self._moved.clear()
            await self._moved.wait()

    def release(self) -> None:
        """Make all waiting in `drained` return, because the output is ending."""
        self._released = True
        self._moved.set()

    async def drain(self) -> None:
        """Return when all is read, or nothing was for DRAIN_WITHIN seconds."""
        stalled = False
        while self._rest and not self.broken.is_set() and not stalled:
            self._moved.clear()
            with anyio.move_on_after(DRAIN_WITHIN) as scope:
                await self._moved.wait()
            stalled = scope.cancelled_caught

    def hung_up(self) -> bool:
        """Whether the client has closed its end; False if only a write can tell."""
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


@contextmanager
def private_descriptors() -> Iterator[tuple[int, int]]:
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
