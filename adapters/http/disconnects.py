"""Clients that disconnect while their request runs."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdlog.adapters.api.request import BlockingQuery
from holdlog.adapters.api.values.responses import Result
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.authentication import not_valid
from holdlog.adapters.runtime.request_context import RequestContext

Done = TypeVar("Done")


async def long_poll(receive: Receive, context: RequestContext, wait: BlockingQuery[Any]) -> Response:
    """Run a wait; discard its result if the token was revoked meanwhile."""
    found: Result | None = await unless_gone(receive, context.engine.wait_async(wait))
    if found is None:
        return NoAnswer()
    return answer(found) if await context.still() else not_valid()


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Done]) -> Done | None:
    """Run the work and return its result. If the client disconnects first, cancel the work and return None. Use it only
    after reading the body."""
    working = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, disconnect):
            task.cancel()
        await asyncio.gather(working, disconnect, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class NoAnswer(Response):
    """The response to a disconnected client: nothing is sent or counted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass
