"""The stream of a session, by GET: what happens to what its client has subscribed to."""

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
    """Until the client is gone, takes nothing for STALLED seconds, may not hear more (`still`), or the session ends; a
    newer stream of the session takes over, since this one may be dead without anybody noticing."""
    mine = session.reader = object()
    session.came.set()
    gone = asyncio.ensure_future(disconnected(receive))
    gone.add_done_callback(lambda _: session.came.set())
    try:
        await start_stream(send, headers)
        while await still() and not gone.done() and session.reader is mine:
            told = b"".join(map(event, session.take())) or PING
            async with asyncio.timeout(STALLED):
                await send({"type": "http.response.body", "body": told, "more_body": not session.ended})
            if session.ended:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY):
                    await session.came.wait()
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        return  # a last word would wait for ever, too: the server closes the connection
    finally:
        gone.cancel()
