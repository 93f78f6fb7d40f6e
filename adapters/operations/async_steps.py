"""Takes the steps of operations on an event loop, for servers and for the library's coroutines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.base import Query
from holdlog.adapters.operations.steps import Run, Step, Steps, Subscribe
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import StoreError, ValueRefusal

_POOL_THREADS: Final = 4


class AsyncSteps:
    """Takes the steps of operations on an event loop: commands run in the writer thread; reads of one row on the loop,
    others in a few threads."""

    _engine: Engine
    _pool: ThreadPoolExecutor | None = None

    async def _make(self, steps: Steps) -> Any:
        """Take the steps, and return what their generator returns."""
        async with AsyncExitStack() as subscriptions:
            event = asyncio.Event()
            result: Any = None
            error: BaseException | None = None
            while True:
                try:
                    step = steps.send(result) if error is None else steps.throw(error)
                    error = None
                    result = await self._take(step, event, subscriptions)
                except StopIteration as end:
                    return end.value
                except BaseException as problem:
                    if problem is error:
                        raise
                    error = problem

    async def _make_until(self, ending: asyncio.Event, steps: Steps) -> Any:
        """As `_make`; None if `ending` is set before there is a result. In a separate task, so that a call that is
        cancelled can still leave the queue."""
        making, ended = asyncio.ensure_future(self._make(steps)), asyncio.ensure_future(ending.wait())
        try:
            await asyncio.wait((making, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            making.cancel()
            ended.cancel()
        with suppress(asyncio.CancelledError):
            return await making
        return None

    async def _take(self, step: Step, event: asyncio.Event, subscriptions: AsyncExitStack) -> Any:
        if isinstance(step, float):
            with suppress(TimeoutError):
                async with asyncio.timeout(step):
                    await event.wait()
            return event.clear()
        if isinstance(step, Run):
            return await self._submit(*step)
        if isinstance(step, Subscribe):
            wake = partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)
            return await subscriptions.enter_async_context(self._subscribe(step.topics, wake))
        return await (self._read(step) if isinstance(step, Query) else self._in_pool(step))

    @asynccontextmanager
    async def _subscribe(self, topics: tuple[str, ...], wake: Callable[[], object]) -> AsyncIterator[None]:
        """Subscribe in the pool, as the first subscription of a process connects to the database."""
        subscription = self._engine.waiters.subscribe(topics, wake)

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

    async def _in_pool(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that blocks."""
        self._engine.require_open()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_POOL_THREADS, thread_name_prefix="holdlog-read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def _submit(self, command: Any, caller: Caller) -> Any:
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

    async def _read(self, query: Query) -> Any:
        if query.is_quick and self._engine.store.is_local:
            return self._engine.query(query)
        return await self._in_pool(self._engine.query, query)
