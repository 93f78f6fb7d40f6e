"""A store with the simulated agent and with others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from fastmcp import Client

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.operating_system.workspaces import find_workspaces
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.sqlite.memory import MemoryDatabase
from holdlog.adapters.stores.sqlite.rows import SqliteTransaction
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.refusals import HoldlogError
from tests.support.agent import ALL, engine
from tests.support.call_arguments import Arguments
from tests.support.clock import Clock
from tests.support.simulated_agent import SimulatedAgent

ME: Final = "claude-1a2b"
LARGEST: Final = 1000
"""Bytes of a value."""


class Failing(SqliteStore):
    """Raises this refusal for so many writes. `done`: after it made them."""

    refusal: HoldlogError | None = None
    times = 0
    done = False

    @contextmanager
    def transaction(self, deadline: float, ahead: Any = None) -> Iterator[SqliteTransaction]:
        fails = self.refusal is not None and self.times > 0
        self.times -= fails
        if fails and not self.done:
            raise self.refusal  # type: ignore[misc]
        with super().transaction(deadline, ahead) as transaction:
            yield transaction
        if fails:
            raise self.refusal  # type: ignore[misc]


class World:
    """A store with the agent and with others. `expected`: values that the store has at the end. `then`: what others do
    after the first response to the agent."""

    def __init__(
        self, client: "Client[Any]", engine: Engine, store: Failing, clock: Clock, kind: type[SimulatedAgent]
    ) -> None:
        self.engine = engine
        self.store = store
        self.clock = clock
        self.agent = kind(client, ME, self.clock.pass_by, self._others)
        self.then: Callable[[], Awaitable[Any]] | None = None
        self.expected: dict[str, Any] = {}
        self._client = client
        self._tasks: list[asyncio.Task[Any]] = []

    async def other(self, tool: str, session: str | None = "other", /, **arguments: Any) -> Arguments:
        """A call of another agent. `session`: its own; None: that of the agent."""
        meta = {"holdlog/session": session} if session else None
        result = await self._client.call_tool_mcp(f"holdlog_{tool}", arguments, meta=meta)
        assert not result.is_error, result
        assert result.structured_content is not None
        return dict(result.structured_content)

    def meanwhile(self, acts: Coroutine[Any, Any, Any]) -> None:
        self._tasks.append(asyncio.ensure_future(acts))

    async def until_queued(self) -> None:
        while not (await self.other("status"))["queues"]:
            pass

    async def release_for_waiters(self, resource: str, agent: str = "ben", session: str = "other") -> None:
        await self.until_queued()
        assert (await self.other("release", session, resource=resource, agent=agent))["status"] == "released"

    async def end_session(self, session: str) -> None:
        ended = self.engine.identity.session("meta", f"holdlog/session {session}")
        await self.engine.end_session(self.engine.caller.model_copy(update={"session": ended}))

    def take_by_force(self, resource: str) -> None:
        by_person = self.engine.requests.claims.release(resource, "boss", note="it hangs", forced=True)
        self.engine.write(by_person, self.engine.caller)

    async def claim_as(self, resource: str, agent: str, **caller: Any) -> None:
        """A claim of a caller with this principal or without a session."""
        request = self.engine.requests.claims.claim(resource, agent)
        await self.engine.claim_async(request, self.engine.caller.model_copy(update=caller))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _others(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            await then()


@asynccontextmanager
async def world(
    folder: Path, kind: type[SimulatedAgent] = SimulatedAgent, groups: tuple[str, ...] = ALL, **settings: Any
) -> AsyncIterator[World]:
    clock = Clock()
    store = Failing(MemoryDatabase(), clock, clock.steady)
    chosen = Settings(workspaces=find_workspaces({}, folder), max_value_bytes=LARGEST, **settings)
    with engine(chosen, clock, store) as holdlog:
        async with Client(build_server(holdlog, groups)) as client:
            here = World(client, holdlog, store, clock, kind)
            yield here
            await here.close()
