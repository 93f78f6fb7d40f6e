"""The server of one agent's host, over its standard input and output."""

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from fastmcp.server.context import reset_transport, set_transport

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import (
    PROCESS_SESSION,
    Adopt,
    Conversation,
    enter_server,
    leave_server,
    list_candidates,
    name_call,
    require_session,
)
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.mcp.lines import ESCAPED, MAX_LINE
from holdlog.adapters.mcp.streams import Wire, take_descriptors
from holdlog.adapters.mcp.tools import ToolServer, choose_groups, read_labels, read_meta
from holdlog.adapters.operating_system.location import prepare_folder
from holdlog.adapters.operating_system.processes import identify_host, name_handle
from holdlog.adapters.operations.async_steps import AsyncSteps
from holdlog.adapters.operations.base import Operation, Query
from holdlog.adapters.operations.json import BUG, Object, refusal_to_object
from holdlog.adapters.operations.surface import Surface, find_wait
from holdlog.adapters.policy.names import CurrentNames
from holdlog.domain.claims.holder import RECEIPT
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.names import AUTHORS
from holdlog.domain.refusals import HoldlogError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.cli.settings import Settings

WATCH_EVERY: Final = 2.0
"""Seconds after which the server looks whether its host lives."""
_log = logging.getLogger("holdlog")


class Calls(AsyncSteps):
    """Carries out the calls of tools. `caller`: who makes those that name no session. `ending` is set when no call may
    wait any more."""

    ending: asyncio.Event

    def __init__(self, engine: Engine, surface: Surface, caller: Caller) -> None:
        self._engine = engine
        self._surface = surface
        self._caller = caller
        self._unbound: set[str] = set()
        """Names of agents that called before a conversation was known, without sub-agents."""

    async def respond(self, kind: type[Operation], arguments: Any) -> Object:
        try:
            operation = self._surface.parse(kind, arguments)
            caller = await self._find_caller(operation)
            waits = find_wait(operation)
            if waits is not None and not self.ending.is_set():
                waited: Object | None = await self._make_until(self.ending, self._surface.respond(operation, caller))
                if waited is None:  # the client is gone, so it must not be granted anything
                    raise UnavailableError("this server ends; make the same call again")
                return waited
            if waits is not None:
                operation = operation.model_copy(update={waits: 0})
            response: Object = await self._make(self._surface.respond(operation, caller))
            return response
        except HoldlogError as refusal:
            return self._surface.name(refusal_to_object(refusal))
        except Exception:
            _log.exception("a call failed")
            return BUG

    async def _find_caller(self, operation: Operation) -> Caller:
        """Who calls: without a session in settings and metadata, an agent of the conversation that its host's hooks
        announced. If it may be one of several, a caller without a session."""
        caller = name_caller(self._caller, read_meta())
        agent = next((getattr(operation, name) for name in AUTHORS if hasattr(operation, name)), None)
        if caller.is_shared or isinstance(operation, Query) or caller.host is None or agent is None:
            return caller
        family = agent.partition("/")[0]
        candidates = await self._list_candidates(name_call(agent), caller)
        if not candidates:
            self._unbound.add(family)
            return caller
        if len(candidates) > 1:
            return caller._replace(session=RECEIPT + secrets.token_hex(8), is_anonymous=True)
        own, caller = caller.session, caller._replace(session=candidates[0].session, is_shared=True)
        if self._unbound and len(await self._list_candidates("", caller)) > 1:
            self._unbound.clear()  # it is not known whose calls those were
        if family in self._unbound:
            self._unbound.discard(family)
            await self._submit(Adopt(own, agent), caller._replace(request_id=None))
        return caller

    async def _list_candidates(self, call: str, caller: Caller) -> list[Conversation]:
        find = partial(list_candidates, self._engine.store, caller.host, call)
        return find() if self._engine.store.is_local else await self._in_pool(find)

    def announce(self, change: Callable[[Engine, Caller], None]) -> None:
        """Let the hooks of this server's host know of it, or of its end."""
        if self._caller.session.startswith(PROCESS_SESSION):
            with suppress(HoldlogError):  # a store that cannot be written can be read
                change(self._engine, self._caller)


def name_caller(caller: Caller, meta: Mapping[str, Any]) -> Caller:
    """Who makes a call with this metadata. Raises InvalidError."""
    session, request_id, task = read_labels(meta)
    caller = caller._replace(request_id=request_id, correlation_id=task)
    if caller.is_shared:  # the user named the session when starting this process
        return caller
    return caller if session is None else caller._replace(session=require_session(session), is_shared=True)


def serve(settings: "Settings") -> NoReturn:
    """Serve until the client or its host is gone, or a signal comes: then calls that wait are answered, and the store
    is closed and the process ends. Standard output belongs to the protocol."""
    prefix = settings.tool_prefix
    groups = choose_groups(settings.tools, prefix)
    names = CurrentNames(os.environ, os.getcwd(), settings.db, settings.workspace)
    prepare_folder(settings.db, os.environ)
    with closing(open_engine(settings.db, settings.max_value_bytes)) as engine:
        surface = Surface(engine, names, settings.max_wait, lambda name: prefix + name)
        calls = Calls(engine, surface, make_caller(settings))
        server = ToolServer(groups, prefix, calls.respond)
        if settings.nats is not None:
            import_module("holdlog.adapters.nats.relay").start(engine, settings.nats)
        asyncio.run(_serve(server, calls, max(MAX_LINE, ESCAPED * settings.max_value_bytes)))
    sys.stderr.flush()
    os._exit(0)  # a call that is stuck in a thread would keep the process


def make_caller(settings: "Settings") -> Caller:
    """Who makes the calls that name no session: this process, until hooks say in which conversation it acts."""
    session = PROCESS_SESSION + secrets.token_hex(8) if settings.session is None else require_session(settings.session)
    lease, limit = round(settings.lease_seconds * SECOND), round(settings.idle_limit * SECOND)
    caller = Caller(session, host=identify_host(), handle=name_handle(), lease=lease, idle_limit=limit)
    return caller._replace(is_shared=settings.session is not None)


async def _serve(server: ToolServer, calls: Calls, limit: int) -> None:
    wire = Wire(*take_descriptors(), limit)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, wire.end)
    calls.ending = wire.ending
    watching = asyncio.ensure_future(_watch_host(wire))
    entering = loop.run_in_executor(None, calls.announce, enter_server)
    token = set_transport("stdio")
    try:
        await wire.connect()
        low = server._mcp_server
        async with server._lifespan_manager():
            await low.run(wire, wire, low.create_initialization_options())
        await wire.close()
    finally:
        reset_transport(token)
        watching.cancel()
        await entering
        calls.announce(leave_server)


async def _watch_host(wire: Wire) -> None:
    host = os.getppid()
    while os.getppid() == host and not wire.ending.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(wire.ending.wait(), WATCH_EVERY)
    wire.end()
