"""The stdin/stdout transport of a FastMCP server: no worker threads, a response to every request, a clean, prompt end.

Replaces the SDK's `stdio_server`, which drops what its parser refuses and dies of SIGTERM without cleaning up.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import anyio
from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport

from holdlog.adapters.mcp.salvage import MAX_LINE
from holdlog.adapters.mcp.server import quiet_framework
from holdlog.adapters.mcp.stdio.pipes import Input, Output, private_descriptors
from holdlog.adapters.mcp.stdio.traffic import Answers, IncomingRequests, Traffic

GRACE_STEPS, GRACE_STEP = 20, 0.01
"""Quiet steps (seconds) after the end of input: calls in flight continue while responses are sent, and this much
longer."""
CLOSE_WITHIN = 0.3
"""Seconds for cancelled calls to end."""
WATCH_EVERY = 2.0
"""Seconds between checks whether the parent died or stdout was closed."""
INSIST_AFTER = 1.0
"""Seconds after a first signal; from then on a second one ends the process immediately."""

_log = logging.getLogger(__name__)


async def serve_stdio(
    server: FastMCP[Any],
    on_end: Callable[[], Awaitable[None]] | None = None,
    *,
    threads: bool = sys.platform == "win32",
    max_line: int = MAX_LINE,
) -> None:
    """Serve one client over this process's stdin and stdout; return when it is gone or on shutdown.

    Ends on end of input, SIGTERM, SIGINT, SIGHUP, death of the parent process, and a closed stdout. Calls in flight
    then go on as long as responses come and 0.2 s longer; the remaining waits are cancelled, and get an error response
    unless the client closed its end; `on_end` is awaited, the server's lifespan left. A call stuck in a thread is
    abandoned after 1 s. While serving, fd 0 is the null device and fd 1 is stderr, for stray reads and prints; the
    signal handlers are replaced. A line of more than `max_line` bytes is skipped and gets an error response.
    """
    token = set_transport("stdio")
    try:
        with private_descriptors() as (stdin, stdout):
            source, output, traffic = Input(stdin, threads, max_line), Output(stdout, threads), Traffic()
            requests = IncomingRequests(source, output, traffic)
            try:
                with _watched(source, output):
                    async with server._lifespan_manager():
                        low = server._mcp_server
                        serving = asyncio.create_task(
                            low.run(requests, Answers(output, traffic, requests), low.create_initialization_options())
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
    serving: "asyncio.Task[None]", source: Input, output: Output, requests: IncomingRequests, traffic: Traffic
) -> None:
    ended = asyncio.create_task(source.ended.wait())
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    # Steps, not seconds: a step during which the event loop was blocked (a first import) is still one step.
    quiet = 0
    while quiet < GRACE_STEPS and not (serving.done() or requests.idle() or output.broken.is_set()):
        quiet = 0 if await traffic.moves(GRACE_STEP) else quiet + 1
    requests.close()
    await asyncio.wait({serving}, timeout=CLOSE_WITHIN)
    if not serving.done():
        serving.cancel()
        await asyncio.wait({serving}, timeout=CLOSE_WITHIN)
    if not serving.done():
        _log.warning("a call did not end in time; it was abandoned")
    elif not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


def run_stdio(
    server: FastMCP[Any], on_end: Callable[[], Awaitable[None]] | None = None, max_line: int = MAX_LINE
) -> NoReturn:
    """Serve like `serve_stdio`, then end the process: with exit code 0, even after SIGINT; with 1 and a traceback after
    a bug.

    Ends by `os._exit`, after the lifespan was left: a call stuck in a thread cannot keep the process alive.
    """

    async def serve() -> None:
        code = 0
        try:
            await serve_stdio(server, on_end, max_line=max_line)
        except Exception:
            _log.exception("the server failed")
            code = 1
        logging.shutdown()
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)

    quiet_framework()
    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
    os._exit(0)


@contextmanager
def _watched(source: Input, output: Output) -> Iterator[None]:
    """End the input on a shutdown signal, when the parent is gone and when stdout is closed."""
    loop = asyncio.get_running_loop()
    parent = os.getppid()
    first: float | None = None

    def interrupted(number: int) -> None:
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
            loop.add_signal_handler(number, interrupted, number)
            taken.append(number)
    try:
        yield
    finally:
        watching.cancel()
        for number in taken:
            loop.remove_signal_handler(number)
