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
from holdlog.adapters.mcp.http.exchange import disconnected
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.refusals import TokenError

Done = TypeVar("Done")


async def long_poll(receive: Receive, context: RequestContext, wait: BlockingQuery[Any]) -> Response:
    """Run a wait, which ends when the token is revoked."""
    try:
        waiting = context.engine.wait_async(wait._replace(still=context.still))
        found: Result | None = await unless_gone(receive, waiting)
    except TokenError:
        return not_valid()
    return NoAnswer() if found is None else answer(found)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Done]) -> Done | None:
    """Run the work and return its result. If the client disconnects first, cancel the work and return None. Use it only
    after reading the body. Raises HTTPException (413) for one that is too large and not read."""
    working = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({working, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else disconnect.result()
    finally:
        for task in (working, disconnect):
            task.cancel()
        await asyncio.gather(working, disconnect, return_exceptions=True)


class NoAnswer(Response):
    """The response to a disconnected client: nothing is sent or counted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass
