"""What the generated classes of the library stand on (see tools/write_library.py)."""

import asyncio
import os
import random
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import BlockingQuery, Command, Query
from holdlog.adapters.operations.values import List
from holdlog.domain.names import check_label
from holdlog.domain.records import COMPUTED
from holdlog.domain.refusals import ConflictError, InvalidError, NotFoundError
from holdlog.domain.results import StateRecord, UpdateResult
from holdlog.domain.state import Caller

NOT_GIVEN: Final[Any] = object()
"""Default of arguments for which None is a value."""
ATTEMPTS: Final = 100
"""How often update() computes again because another wrote meanwhile."""
LONGEST_PAUSE: Final = 0.05
PAUSE: Final = 0.002
"""Seconds, times the number of the attempt, so that callers do not disturb each other for ever."""
_POOL_THREADS: Final = 4


class Handle:
    """An open store. `session`: processes that pass the same text are one holder of claims; `correlation_id` is
    recorded with every event that this object causes."""

    def __init__(
        self, path: str | os.PathLike[str], *, session: str | None = None, correlation_id: str | None = None
    ) -> None:
        """Open or create the store: a path, `:memory:` or a PostgreSQL URL. Raises StoreError, UnavailableError."""
        self._engine = open_engine(path)
        self._caller = Caller(session or secrets.token_hex(8), correlation_id=correlation_id)
        self._finalizer = weakref.finalize(self, Engine.close, self._engine)

    def _call_as(self, request_id: Any) -> Caller:
        try:
            return self._caller._replace(request_id=check_label(request_id))
        except (TypeError, ValueError) as error:
            raise InvalidError(f"request_id: {error}") from None


class BlockingHandle(Handle):
    """For threads."""

    def close(self) -> None:
        """End all calls that wait, and release the store."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        """`arguments`: the local names of a method, among them `self` and `request_id`."""
        del arguments["self"]
        request_id = arguments.pop("request_id")
        caller = self._caller if request_id is None else self._call_as(request_id)
        return self._engine.run(kind.parse(arguments), caller)

    def _ask(self, kind: type[Query], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        return self._engine.ask(kind.parse(arguments))

    def _wait(self, kind: type[BlockingQuery], arguments: dict[str, Any]) -> Any:
        del arguments["self"]
        query = kind.parse(arguments)
        if not isinstance(result := self._engine.ask(query), Wait):
            return result
        event = threading.Event()
        began = time.monotonic()
        with self._engine.waiters.subscribed(query.topic(), event.set):
            while isinstance(result := self._engine.ask(query), Wait):
                elapsed = time.monotonic() - began
                if elapsed >= query.seconds():
                    return query.give_up(self._engine.store, elapsed)
                event.wait(self._engine.seconds_until(result, query.seconds() - elapsed))
                event.clear()
        return result

    def _read_all(self, kind: type[Query], arguments: dict[str, Any]) -> list[Any]:
        """All pages."""
        pages = [self._ask(kind, arguments)]
        while (after := pages[-1].next_after) is not None:
            pages.append(self._ask(kind, arguments | {"after_key": after}))
        return pages

    def list_keys(self, namespace: str) -> list[StateRecord]:
        """All values of a namespace, in order of their keys."""
        return [it for page in self._read_all(List, {"namespace": namespace}) for it in page.records]

    def list_namespaces(self) -> list[str]:
        """The namespaces that have values."""
        return [it.namespace for page in self._read_all(List, {}) for it in page.namespaces]

    def _update(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        if (function := arguments.pop("function")) is None:
            return self._run(kind, drop_missing(arguments))
        return self._compute(function, require_function_alone(arguments))

    def _compute(self, function: Callable[[Any], Any], options: dict[str, Any]) -> Any:
        """Read, compute and write, again if another wrote meanwhile."""
        namespace, key = options["namespace"], options["key"]
        for attempt in range(ATTEMPTS):
            try:
                before = self.get(namespace, key)  # type: ignore[attr-defined]
                value, version = before.value, before.version
            except NotFoundError:
                value, version = None, 0
            new = function(value)
            try:
                done = self.set(value=new, expected_version=version, **options)  # type: ignore[attr-defined]
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0, min(PAUSE * attempt, LONGEST_PAUSE)))
            else:
                return UpdateResult(namespace, key, new, done.version, done.previous_version, done.position)
        raise AssertionError


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

    async def _run(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        del arguments["self"]
        request_id = arguments.pop("request_id")
        caller = self._caller if request_id is None else self._call_as(request_id)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        command = kind.parse(arguments)
        job = self._engine.submit(command, caller, loop, future)
        try:
            return await future
        except asyncio.CancelledError:
            if not self._engine.withdraw(job) and not job.done:  # it runs, so it may still change the store
                job.future = loop.create_future()
                await asyncio.wait([job.future])
                job.future.exception()
            raise
        except Exception as error:
            raise await self._in_pool(self._engine.explain, error) from None

    async def _ask(self, kind: type[Query], arguments: dict[str, Any]) -> Any:
        arguments.pop("self", None)
        return await self._read(kind.parse(arguments))

    async def _read(self, query: Query) -> Any:
        if query.is_quick and self._engine.store.is_local:
            return self._engine.ask(query)
        return await self._in_pool(self._engine.ask, query)

    async def _wait(self, kind: type[BlockingQuery], arguments: dict[str, Any]) -> Any:
        del arguments["self"]
        query = kind.parse(arguments)
        if not isinstance(result := await self._read(query), Wait):
            return result
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def notify() -> None:
            loop.call_soon_threadsafe(event.set)

        began = loop.time()
        with self._engine.waiters.subscribed(query.topic(), notify):
            while isinstance(result := await self._read(query), Wait):
                elapsed = loop.time() - began
                if elapsed >= query.seconds():
                    return query.give_up(self._engine.store, elapsed)
                try:
                    async with asyncio.timeout(self._engine.seconds_until(result, query.seconds() - elapsed)):
                        await event.wait()
                except TimeoutError:
                    continue
                event.clear()
        return result

    async def _in_pool(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_POOL_THREADS, thread_name_prefix="holdlog-read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def _read_all(self, kind: type[Query], arguments: dict[str, Any]) -> list[Any]:
        """All pages."""
        pages = [await self._ask(kind, arguments)]
        while (after := pages[-1].next_after) is not None:
            pages.append(await self._ask(kind, arguments | {"after_key": after}))
        return pages

    async def list_keys(self, namespace: str) -> list[StateRecord]:
        """All values of a namespace, in order of their keys."""
        return [it for page in await self._read_all(List, {"namespace": namespace}) for it in page.records]

    async def list_namespaces(self) -> list[str]:
        """The namespaces that have values."""
        return [it.namespace for page in await self._read_all(List, {}) for it in page.namespaces]

    async def _update(self, kind: type[Command], arguments: dict[str, Any]) -> Any:
        if (function := arguments.pop("function")) is None:
            return await self._run(kind, drop_missing(arguments))
        return await self._compute(function, require_function_alone(arguments))

    async def _compute(self, function: Callable[[Any], Any], options: dict[str, Any]) -> Any:
        """Read, compute and write, again if another wrote meanwhile."""
        namespace, key = options["namespace"], options["key"]
        for attempt in range(ATTEMPTS):
            try:
                before = await self.get(namespace, key)  # type: ignore[attr-defined]
                value, version = before.value, before.version
            except NotFoundError:
                value, version = None, 0
            new = function(value)
            try:
                done = await self.set(value=new, expected_version=version, **options)  # type: ignore[attr-defined]
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(random.uniform(0, min(PAUSE * attempt, LONGEST_PAUSE)))
            else:
                return UpdateResult(namespace, key, new, done.version, done.previous_version, done.position)
        raise AssertionError


def drop_missing(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not NOT_GIVEN}


def require_function_alone(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a write after a function takes. Raises InvalidError if there is another change."""
    given = drop_missing(arguments)
    del given["self"]
    if given.pop("unique") or given.pop("expected_version") is not None or given.keys() & COMPUTED:
        raise InvalidError("function: pass it without merge, increment, append, unique and expected_version")
    return given
