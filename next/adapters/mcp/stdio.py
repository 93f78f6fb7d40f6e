"""The server of one agent's host, over its standard input and output."""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from fastmcp.server.context import reset_transport, set_transport
from fastmcp.server.dependencies import get_context

from holdlog.adapters.engine.engine import MAX_VALUE_BYTES, Engine
from holdlog.adapters.mcp.lines import ESCAPED, MAX_LINE
from holdlog.adapters.mcp.streams import Requests, Responses, Wire, take_descriptors
from holdlog.adapters.mcp.tools import DEFAULT_PREFIX, ToolServer
from holdlog.adapters.operations.base import BlockingQuery, Operation
from holdlog.adapters.operations.json import Object, refusal_to_object
from holdlog.adapters.operations.steps import Steps
from holdlog.adapters.operations.surface import Names, Surface
from holdlog.adapters.python.base import AsyncSteps
from holdlog.domain.moment import Caller
from holdlog.domain.names import check_label
from holdlog.domain.refusals import HoldlogError, InvalidError, UnavailableError

PROGRESS_EVERY: Final = 5.0
WATCH_EVERY: Final = 2.0
"""Seconds after which the server looks whether its host lives."""
SESSIONS: Final = ("holdlog/session", "ai.opencode/sessionID", "threadId")
"""Names of the session in the metadata of a call, the first that is there."""
_BUG: Final = {"status": "error", "message": "internal error of holdlog; report it: stderr has the details"}
_log = logging.getLogger("holdlog")


class Options(NamedTuple):
    """Of the server: groups of tools, the prefix of their names, the seconds of the longest wait."""

    groups: tuple[str, ...] = ("claims",)
    prefix: str = DEFAULT_PREFIX
    max_wait: float = 50.0
    max_value_bytes: int = MAX_VALUE_BYTES


class Calls(AsyncSteps):
    """Carries out the calls of tools. `caller`: who makes those that name no session."""

    def __init__(self, engine: Engine, surface: Surface, caller: Caller) -> None:
        self._engine = engine
        self._surface = surface
        self._caller = caller
        self.ending: asyncio.Future[Any] | None = None
        """Done when no call may wait any more."""

    async def respond(self, kind: type[Operation], arguments: Any) -> Object:
        try:
            caller = identify(self._caller, _read_meta())
            operation = self._surface.parse(kind, arguments)
            steps = self._surface.respond(operation, caller)
            if isinstance(operation, BlockingQuery) or getattr(operation, "wait_seconds", 0):
                return await self._wait(steps)
            response: Object = await self._make(steps)
            return response
        except HoldlogError as refusal:
            return self._surface.name(refusal_to_object(refusal))
        except Exception:
            _log.exception("a call failed")
            return _BUG

    async def _wait(self, steps: Steps) -> Object:
        """In a task of its own, so that a call that is cancelled can still leave the queue."""
        waiting, seconds = asyncio.ensure_future(self._make(steps)), 0.0
        try:
            while not waiting.done() and (self.ending is None or not self.ending.done()):
                await asyncio.wait(
                    {waiting, self.ending or waiting}, timeout=PROGRESS_EVERY, return_when=asyncio.FIRST_COMPLETED
                )
                if not waiting.done():
                    seconds += PROGRESS_EVERY
                    await _report(seconds)
        finally:
            waiting.cancel()
        with suppress(asyncio.CancelledError):
            response: Object = await waiting
            return response
        raise UnavailableError("this server ends; make the same call again")


def identify(caller: Caller, meta: Mapping[str, Any]) -> Caller:
    """Who makes a call with this metadata. Raises InvalidError."""
    facts = {}
    for name in ("request_id", "correlation_id"):
        if (fact := meta.get(f"holdlog/{name}")) is not None:
            facts[name] = _check(f"holdlog/{name}", fact)
    session = next((name for name in SESSIONS if meta.get(name) is not None), None)
    if session is not None:
        facts["session"] = _check(session, str(meta[session]) if isinstance(meta[session], int) else meta[session])
    return caller._replace(**facts) if facts else caller


def _check(name: str, text: Any) -> str:
    try:
        if isinstance(text, str):
            return check_label(text)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None
    raise InvalidError(f"{name}: must be a text")


def _read_meta() -> Mapping[str, Any]:
    request = get_context().request_context
    return (request.meta if request is not None else None) or {}


async def _report(seconds: float) -> None:
    if "progress_token" in _read_meta():
        await get_context().report_progress(seconds, message="still waiting")


def serve(engine: Engine, caller: Caller, names: Names | None, options: Options) -> int:
    """Serve until the client or its host is gone, or a signal comes: then calls that wait are answered, and the store
    is closed. Standard output belongs to the protocol. Returns the exit code; a second signal is ignored."""
    logging.getLogger("fastmcp").setLevel(logging.ERROR)  # its debug log has what agents write
    surface = Surface(engine, names, options.max_wait, lambda name: options.prefix + name)
    calls = Calls(engine, surface, caller)
    server = ToolServer(options.groups, options.prefix, calls.respond)
    try:
        with take_descriptors() as (stdin, stdout):
            asyncio.run(_serve(server, calls, stdin, stdout, max(MAX_LINE, ESCAPED * options.max_value_bytes)))
    finally:
        engine.close()
    return 0


async def _serve(server: ToolServer, calls: Calls, stdin: int, stdout: int, limit: int) -> None:
    wire = Wire(stdin, stdout, limit)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, wire.end)
    calls.ending = asyncio.ensure_future(wire.ending.wait())
    watching = asyncio.ensure_future(_watch_host(wire))
    token = set_transport("stdio")
    try:
        await wire.connect()
        low = server._mcp_server
        async with server._lifespan_manager():
            await low.run(Requests(wire), Responses(wire), low.create_initialization_options())
        await wire.close()
    finally:
        reset_transport(token)
        watching.cancel()


async def _watch_host(wire: Wire) -> None:
    host = os.getppid()
    while os.getppid() == host:
        await asyncio.sleep(WATCH_EVERY)
    wire.end()
