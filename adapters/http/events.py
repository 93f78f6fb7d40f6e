"""`GET /events`: pages as JSON, or a stream of Server-Sent Events (docs/events.md).

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
import logging
import re
from contextlib import aclosing
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.events.requests import EVENTS_PAGE
from holdlog.adapters.api.validation import whole
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.authentication import context_of
from holdlog.adapters.http.disconnects import long_poll, unless_gone
from holdlog.adapters.http.url_parameters import seconds_of, unknown
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.following import follow
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.adapters.runtime.tail import RenderedEvent
from holdlog.domain.refusals import HoldlogError, InvalidError

HEARTBEAT: Final = 15.0
"""Seconds without an event after which a stream sends a sign of life."""
SEND_SECONDS: Final = 30.0
"""Seconds to send one piece; a client that reads nothing for that long is disconnected."""
RETRY: Final = 1000
"""Milliseconds after which a client reconnects."""

STREAM: Final = "text/event-stream"
_FILTERS: Final = ("namespace", "prefix", "resource", "thread", "agent")
_PAGE: Final = ("limit", "wait")
_WHOLE: Final = re.compile("[0-9]{1,19}")

_log = logging.getLogger("holdlog")


async def events(request: Request) -> Response:
    context, query = context_of(request), request.query_params
    streams = STREAM in request.headers.get("accept", "") and request.method == "GET"
    _require_known(query, () if streams else _PAGE)
    kinds = [kind for given in query.getlist("kinds") for kind in given.split(",")] or None
    choice = context.requests.events.choice(kinds=kinds, **{name: query[name] for name in _FILTERS if name in query})
    if streams:
        return await _stream(request, context, choice)
    after, limit = _number(query.get("after", "0"), "after"), _number(query.get("limit", str(EVENTS_PAGE)), "limit")
    seconds = seconds_of(query.get("wait", "0"), "wait")
    if not seconds:
        return answer(await context.engine.read_async(context.requests.events.page(choice, after, limit)))
    return await long_poll(request.receive, context, context.requests.events.next_page(choice, after, limit, seconds))


async def _stream(request: Request, context: RequestContext, choice: EventFilter) -> Response:
    """Stream events after a position; without one, new events only."""
    end = await context.engine.run_off_loop_async(lambda: _end(context.engine))
    given = request.headers.get("last-event-id") or request.query_params.get("after")
    after = end if given is None else _number(given, "Last-Event-ID or after")
    if after > end:
        raise InvalidError(f"after: is {after}, but the log ends at position {end}; pass that or less")
    return EventStream(context, choice, after)


class EventStream(Response):
    """Sends events until the client leaves, its token becomes invalid, or the server ends."""

    media_type = STREAM

    def __init__(self, context: RequestContext, choice: EventFilter, after: int) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._context = context
        self._choice = choice
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await _send(send, f"retry: {RETRY}\n\n")
            await self._send_events(send)
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            _log.info("closed a stream of events: its client stopped reading")

    async def _send_events(self, send: Send) -> None:
        """Send one piece. Raises TimeoutError when the client reads nothing."""
        position, marked = self._after, -1
        try:
            async with aclosing(follow(self._context.engine, self._choice, position, HEARTBEAT)) as coming:
                async for came in coming:
                    if not await self._context.still():
                        break
                    position = came.position
                    if came.events:
                        await _send(send, "".join(_event(event, self._choice) for event in came.events))
                    else:
                        await _send(send, _bookmark(position) if position > marked else ":\n\n")
                        marked = position
            await _send(send, _bookmark(position))
        except HoldlogError as error:
            await _send(
                send, f"event: end\ndata: {json.dumps({'message': self._context.requests.rules.describe(error)})}\n\n"
            )


async def _send(send: Send, text: str) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _event(event: RenderedEvent, choice: EventFilter) -> str:
    return f"id: {event.position}\nevent: {event.kind}\ndata: {event.text(choice.sees)}\n\n"


def _bookmark(position: int) -> str:
    return f'id: {position}\nevent: bookmark\ndata: {{"position":{position}}}\n\n'


def _end(engine: Engine) -> int:
    with engine.store.reader() as reader:
        return reader.position()


def _require_known(parameters: QueryParams, more: tuple[str, ...]) -> None:
    known = ("after", "kinds", *_FILTERS, *more)
    for name in parameters:
        if name not in known:
            if name in _PAGE:
                raise InvalidError(f"{name}: only works for pages; a stream takes {', '.join(known)}")
            raise InvalidError(unknown(name, known))
        if name != "kinds" and len(parameters.getlist(name)) > 1:
            raise InvalidError(f"{name}: must be given only once")


def _number(given: str, argument: str) -> int:
    if not _WHOLE.fullmatch(given):
        raise InvalidError(f"{argument}: must be a whole number")
    return whole(int(given), argument)


routes: Final = [Route("/events", events, methods=["GET"])]
