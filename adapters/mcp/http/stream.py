"""The stream of a session, by GET: updates of the resources its client has subscribed to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from starlette.types import Receive, Send

from holdlog.adapters.mcp.http.exchange import disconnected
from holdlog.adapters.mcp.http.reply import PING, PING_EVERY, STALLED, event, start_stream
from holdlog.adapters.mcp.http.sessions import HttpSession


async def stream(
    session: HttpSession, headers: Mapping[str, str], receive: Receive, send: Send, still: Callable[[], Awaitable[bool]]
) -> None:
    """Stream until the client is gone, reads nothing for STALLED seconds, is no longer authorised (`still`), or the
    session ends. A newer stream of the session replaces this one, which may be dead without this server noticing."""
    mine = session.reader = object()
    session.came.set()
    gone = asyncio.ensure_future(disconnected(receive))
    gone.add_done_callback(lambda _: session.came.set())
    try:
        await start_stream(send, headers)
        while await still() and not gone.done() and session.reader is mine:
            chunk = b"".join(map(event, session.take())) or PING
            async with asyncio.timeout(STALLED):
                await send({"type": "http.response.body", "body": chunk, "more_body": not session.ended})
            if session.ended:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY):
                    await session.came.wait()
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        return  # a final write would block forever, too: the server closes the connection
    finally:
        gone.cancel()
