"""What the generated classes of the library share (see tools/write_library.py)."""

import asyncio
import os
import secrets
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, cast

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import require_session, require_text
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operating_system.processes import identify_host, name_handle
from holdlog.adapters.operations.async_steps import AsyncSteps
from holdlog.adapters.operations.base import BlockingQuery, Command, Query, Task
from holdlog.adapters.operations.claims import Claim
from holdlog.adapters.operations.steps import Steps, claim, take_steps, wait
from holdlog.adapters.python.block import Block
from holdlog.adapters.python.calls import compute, drop_missing, read_list, require_function_alone
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import HoldlogError, InvalidError
from holdlog.projections.results import StateRecord

P = ParamSpec("P")
R = TypeVar("R")


def make_awaitable(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method of an AwaitableHandle that is called like one of a BlockingHandle: it makes the same call of `_run`,
    `_query` …, which are coroutines there."""

    @wraps(method)
    async def call(self: "AwaitableHandle", /, *arguments: P.args, **named: P.kwargs) -> Any:
        return await cast("Awaitable[R]", method(self, *arguments, **named))

    return call


class Handle:
    """An open store. Processes that pass the same `session` are one holder of claims; `correlation_id` is recorded
    with every event that this object causes."""

    _make: Callable[[Steps], Any]
    """Take the steps, and return what their generator returns."""
    _run: Callable[[type[Command], dict[str, Any]], Any]

    def __init__(
        self, path: str | os.PathLike[str], *, session: str | None = None, correlation_id: str | None = None
    ) -> None:
        """Open or create the store: a path, `:memory:` or a PostgreSQL URL. Raises InvalidError, StoreError,
        UnavailableError."""
        is_shared = session is not None
        session = secrets.token_hex(8) if session is None else require_session(session)
        if correlation_id is not None:
            correlation_id = require_text("correlation_id", correlation_id)
        self._caller = Caller(session, None, None, correlation_id, identify_host(), name_handle(), is_shared=is_shared)
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):  # type: ignore[redundant-expr]
            raise InvalidError("path: must be a path, `:memory:` or a URL")
        self._engine = open_engine(path)
        self._finalizer = weakref.finalize(self, Engine.close_unused, self._engine)

    def _take_caller(self, arguments: dict[str, Any]) -> Caller:
        """Remove `self` and `request_id` from the local names of a method. Returns who calls."""
        arguments.pop("self", None)
        if (request_id := arguments.pop("request_id", None)) is None:
            return self._caller
        return self._caller._replace(request_id=require_text("request_id", request_id))

    def _update(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        if (function := arguments.pop("function")) is None:
            return self._run(kind, drop_missing(arguments))
        return self._make(compute(function, require_function_alone(arguments), self._caller))

    def _wait(self, kind: type[BlockingQuery], arguments: dict[str, Any]) -> Any:
        del arguments["self"]
        return self._make(wait(kind.parse(arguments), self._engine))


def _unwrap(kind: type[Query], result: Any) -> Any:
    return getattr(result, kind.returns) if kind.returns else result


class BlockingHandle(Handle):
    """For threads."""

    def close(self) -> None:
        """End all calls that wait, and close the store. Claims stay until their leases end, or until a caller of the
        same agent below the same program takes them over: release what you do not need."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list_keys(self, namespace: str) -> list[StateRecord]:
        """All values of a namespace, in order of their keys."""
        records: list[StateRecord] = self._make(read_list(namespace or ""))
        return records

    def list_namespaces(self) -> list[str]:
        """The namespaces that have values."""
        names: list[str] = self._make(read_list(None))
        return names

    @contextmanager
    def claimed(
        self,
        resource: str,
        *,
        agent: str,
        receipt: str | None = None,
        also: Sequence[str] | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        mode: Literal["exclusive", "shared"] = "exclusive",
        note: str | None = None,
        outcome: str | None = None,
    ) -> Iterator[Block]:
        """Hold a claim while a block of code runs, and release it; its lease is prolonged as long as the block runs.
        Raises BusyError and DeadlockError if it is not granted, and FencedError at its end if it was lost. What was
        held before stays held."""
        arguments = {name: value for name, value in locals().items() if name != "self"}
        block = Block(arguments, self._caller, self._engine)
        try:
            self._make(block.enter())
            yield block
            self._make(block.leave(None))
        except BaseException as error:
            with suppress(HoldlogError):
                self._make(block.leave(error))  # once more, if this interrupts the first
            raise

    def _run(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        caller = self._take_caller(arguments)
        return self._engine.run(kind.parse(arguments), caller)

    def _do(self, kind: type[Task], arguments: dict[str, Any]) -> Any:
        caller = self._take_caller(arguments)
        return kind.parse(arguments).run(self._engine, caller)

    def _query(self, kind: type[Query], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        return _unwrap(kind, self._engine.query(kind.parse(arguments)))

    def _queue(self, kind: type[Claim], arguments: dict[str, Any]) -> Any:
        caller, command = self._take_caller(arguments), kind.parse(arguments)
        if command.wait_seconds:
            return self._make(claim(command, caller, self._engine))
        return self._engine.run(command, caller)

    def _make(self, steps: Steps) -> Any:
        """Take the steps, and return what their generator returns."""
        return take_steps(steps, self._engine)


class AwaitableHandle(Handle, AsyncSteps):
    """For coroutines."""

    async def close(self) -> None:
        """As StateStore.close."""
        await asyncio.get_running_loop().run_in_executor(None, self._engine.close)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    list_keys = make_awaitable(BlockingHandle.list_keys)
    list_namespaces = make_awaitable(BlockingHandle.list_namespaces)

    @asynccontextmanager
    async def claimed(
        self,
        resource: str,
        *,
        agent: str,
        receipt: str | None = None,
        also: Sequence[str] | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        mode: Literal["exclusive", "shared"] = "exclusive",
        note: str | None = None,
        outcome: str | None = None,
    ) -> AsyncIterator[Block]:
        """As StateStore.claimed. A cancelled block releases its claim, too."""
        arguments = {name: value for name, value in locals().items() if name != "self"}
        block = Block(arguments, self._caller, self._engine)
        try:
            await self._make(block.enter())
            yield block
            await self._make(block.leave(None))
        except BaseException as error:
            with suppress(HoldlogError):
                await self._make(block.leave(error))
            raise

    async def _run(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        caller = self._take_caller(arguments)
        return await self._submit(kind.parse(arguments), caller)

    async def _do(self, kind: type[Task], arguments: dict[str, Any]) -> Any:
        caller = self._take_caller(arguments)
        return await self._in_pool(kind.parse(arguments).run, self._engine, caller)

    async def _query(self, kind: type[Query], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        return _unwrap(kind, await self._read(kind.parse(arguments)))

    async def _queue(self, kind: type[Claim], arguments: dict[str, Any]) -> Any:
        caller = self._take_caller(arguments)
        return await self._make(claim(kind.parse(arguments), caller, self._engine))
