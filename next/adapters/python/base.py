"""What the generated classes of the library share (see tools/write_library.py)."""

import asyncio
import os
import secrets
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import BlockingQuery, Command, Query
from holdlog.adapters.python.calls import (
    Call,
    Calls,
    compute,
    drop_missing,
    read_pages,
    require_function_alone,
    require_label,
)
from holdlog.domain.refusals import HoldlogError, InvalidError, StoreError, ValueRefusal
from holdlog.domain.results import StateRecord
from holdlog.domain.state import Caller

_POOL_THREADS: Final = 4


class Handle:
    """An open store. Processes that pass the same `session` are one holder of claims; `correlation_id` is recorded
    with every event that this object causes."""

    def __init__(
        self, path: str | os.PathLike[str], *, session: str | None = None, correlation_id: str | None = None
    ) -> None:
        """Open or create the store: a path, `:memory:` or a PostgreSQL URL. Raises InvalidError, StoreError,
        UnavailableError."""
        session = secrets.token_hex(8) if session is None else require_label("session", session)
        if correlation_id is not None:
            correlation_id = require_label("correlation_id", correlation_id)
        self._caller = Caller(session, correlation_id=correlation_id)
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):  # type: ignore[redundant-expr]
            raise InvalidError("path: must be a path, `:memory:` or a URL")
        self._engine = open_engine(path)
        self._finalizer = weakref.finalize(self, Engine.close, self._engine)

    def _call_as(self, request_id: Any) -> Caller:
        return self._caller._replace(request_id=require_label("request_id", request_id))


class BlockingHandle(Handle):
    """For threads."""

    def close(self) -> None:
        """End all calls that wait, and release the store."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list_keys(self, namespace: str) -> list[StateRecord]:
        """All values of a namespace, in order of their keys."""
        return [record for page in self._make(read_pages(namespace or "")) for record in page.records]

    def list_namespaces(self) -> list[str]:
        """The namespaces that have values."""
        return [row.namespace for page in self._make(read_pages(None)) for row in page.namespaces]

    def _run(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        """`arguments` are the local names of a method, among them `self` and `request_id`."""
        arguments.pop("self", None)
        request_id = arguments.pop("request_id", None)
        caller = self._caller if request_id is None else self._call_as(request_id)
        return self._engine.run(kind.parse(arguments), caller)

    def _ask(self, kind: type[Query], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        return self._engine.ask(kind.parse(arguments))

    def _update(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        if (function := arguments.pop("function")) is None:
            return self._run(kind, drop_missing(arguments))
        return self._make(compute(function, require_function_alone(arguments)))

    def _wait(self, kind: type[BlockingQuery], arguments: dict[str, Any]) -> Any:
        del arguments["self"]
        query = kind.parse(arguments)
        if not isinstance(result := self._engine.ask(query), Wait):
            return result
        if not (seconds := query.seconds()):
            return query.give_up(self._engine.store, 0.0)
        event = threading.Event()
        began = time.monotonic()
        with self._engine.waiters.subscribe(query.topic(), event.set):
            while isinstance(result := self._engine.ask(query), Wait):
                elapsed = time.monotonic() - began
                if elapsed >= seconds:
                    return query.give_up(self._engine.store, elapsed)
                event.wait(self._engine.seconds_until(result, seconds - elapsed))
                event.clear()
        return result

    def _make(self, calls: Calls) -> Any:
        """Make the calls, and return what their generator returns."""
        try:
            call = next(calls)
            while True:
                try:
                    result = self._make_one(call)
                except HoldlogError as error:
                    call = calls.throw(error)
                else:
                    call = calls.send(result)
        except StopIteration as end:
            return end.value

    def _make_one(self, call: Call | float) -> Any:
        if isinstance(call, float):
            return time.sleep(call)
        kind, arguments = call
        return self._run(kind, arguments) if issubclass(kind, Command) else self._ask(kind, arguments)  # type: ignore[arg-type]


class AwaitableHandle(Handle):
    """For coroutines. Commands run in the writer thread; reads of one row on the loop, others in a few threads."""

    _pool: ThreadPoolExecutor | None = None

    async def close(self) -> None:
        """End all calls that wait, and release the store."""
        await asyncio.get_running_loop().run_in_executor(None, self._engine.close)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def list_keys(self, namespace: str) -> list[StateRecord]:
        """All values of a namespace, in order of their keys."""
        return [record for page in await self._make(read_pages(namespace or "")) for record in page.records]

    async def list_namespaces(self) -> list[str]:
        """The namespaces that have values."""
        return [row.namespace for page in await self._make(read_pages(None)) for row in page.namespaces]

    async def _run(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        request_id = arguments.pop("request_id", None)
        caller = self._caller if request_id is None else self._call_as(request_id)
        command = kind.parse(arguments)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        job = self._engine.submit(command, caller, loop, future)
        try:
            return await future
        except asyncio.CancelledError:
            if not self._engine.withdraw(job) and not job.done:  # it runs, so it may still change the store
                job.future = loop.create_future()
                await asyncio.wait([job.future])
                job.future.exception()
            raise
        except ValueRefusal as refusal:
            with suppress(StoreError):  # it stays a refusal, if the store is closed meanwhile
                await self._in_pool(self._engine.explain, refusal)
            raise

    async def _ask(self, kind: type[Query], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        return await self._read(kind.parse(arguments))

    async def _read(self, query: Query) -> Any:
        if query.is_quick and self._engine.store.is_local:
            return self._engine.ask(query)
        return await self._in_pool(self._engine.ask, query)

    async def _update(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        if (function := arguments.pop("function")) is None:
            return await self._run(kind, drop_missing(arguments))
        return await self._make(compute(function, require_function_alone(arguments)))

    async def _wait(self, kind: type[BlockingQuery], arguments: dict[str, Any]) -> Any:
        del arguments["self"]
        query = kind.parse(arguments)
        if not isinstance(result := await self._read(query), Wait):
            return result
        if not (seconds := query.seconds()):
            return await self._in_pool(query.give_up, self._engine.store, 0.0)
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(event.set)

        began = loop.time()
        async with self._subscribe(query.topic(), wake):
            while isinstance(result := await self._read(query), Wait):
                elapsed = loop.time() - began
                if elapsed >= seconds:
                    return await self._in_pool(query.give_up, self._engine.store, elapsed)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._engine.seconds_until(result, seconds - elapsed)):
                        await event.wait()
                event.clear()
        return result

    @asynccontextmanager
    async def _subscribe(self, topic: str, wake: Callable[[], None]) -> AsyncIterator[None]:
        """Subscribe in the pool, as the first subscription of a process connects to the database."""
        subscription = self._engine.waiters.subscribe(topic, wake)

        def leave(entering: asyncio.Future[None]) -> None:
            if not entering.cancelled() and entering.exception() is None:
                subscription.__exit__(None, None, None)

        entering = asyncio.ensure_future(self._in_pool(subscription.__enter__))
        try:
            await asyncio.shield(entering)
            yield
        finally:
            if entering.done():
                leave(entering)
            else:  # the caller was cancelled
                entering.add_done_callback(leave)

    async def _make(self, calls: Calls) -> Any:
        """Make the calls, and return what their generator returns."""
        try:
            call = next(calls)
            while True:
                try:
                    result = await self._make_one(call)
                except HoldlogError as error:
                    call = calls.throw(error)
                else:
                    call = calls.send(result)
        except StopIteration as end:
            return end.value

    async def _make_one(self, call: Call | float) -> Any:
        if isinstance(call, float):
            return await asyncio.sleep(call)
        kind, arguments = call
        return await (self._run(kind, arguments) if issubclass(kind, Command) else self._ask(kind, arguments))  # type: ignore[arg-type]

    async def _in_pool(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._engine.require_open()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_POOL_THREADS, thread_name_prefix="holdlog-read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
