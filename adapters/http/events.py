"""`GET /events`: pages as JSON, or a stream of Server-Sent Events (docs/events.md).

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
import logging
from contextlib import aclosing, suppress
from typing import Final

from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdlog.adapters.api.events.event_filter import KINDS, EventFilter
from holdlog.adapters.api.events.requests import EVENTS_PAGE
from holdlog.adapters.api.validation import BEGINNING, NAME, STORED_AGENT
from holdlog.adapters.api.values.responses import Events
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.disconnects import long_poll, unless_gone
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import (
    CALLER,
    JSON,
    LIMIT,
    SECONDS,
    VERSION,
    Answer,
    ApiRoute,
    HttpOperation,
    Parameter,
    checked_argument,
)
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

_log = logging.getLogger("holdlog")


async def _events(request: HttpRequest) -> Response:
    context, given = request.context, request.query
    streams = STREAM.encode() in request.fields.get(b"accept", b"") and request.scope["method"] == "GET"
    for name in ("limit", "wait") if streams else ():
        if name in given:
            raise InvalidError(f"{name}: only works for pages, not for a stream")
    filters = {it.name: given[it.name] for it in _FILTERS if it.name in given}
    choice = context.requests.events.choice(**filters)
    if streams:
        return await _stream(request, context, choice)
    after, limit, seconds = given.get("after", 0), given.get("limit", EVENTS_PAGE), given.get("wait")
    if not seconds:
        return answer(await context.engine.read_async(context.requests.events.page(choice, after, limit)))
    return await long_poll(request.receive, context, context.requests.events.next_page(choice, after, limit, seconds))


async def _stream(request: HttpRequest, context: RequestContext, choice: EventFilter) -> Response:
    """Stream events after a position; without one, new events only."""
    end = await context.engine.run_off_loop_async(lambda: _end(context.engine))
    last = request.fields.get(b"last-event-id")
    after = checked_argument(last.decode("latin-1"), _LAST) if last else request.query.get("after", end)
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
        with suppress(HTTPException):  # a body that is too large: the response has begun
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


_AFTER: Final = Parameter("after", "Only events above this position", VERSION)
_LAST: Final = Parameter("Last-Event-ID", "For a stream: the position to continue from, instead of `after`", VERSION)
_FILTERS: Final = (
    Parameter("namespace", "Only of values in this namespace", NAME),
    Parameter("prefix", "Only of keys that start with this; requires namespace", BEGINNING),
    Parameter("resource", "Only of claims that overlap this resource", TypeAdapter(str)),
    Parameter("thread", "Only of this thread", NAME),
    Parameter("agent", "Only what this agent or its sub-agents did", STORED_AGENT),
    Parameter("kinds", "Only of these kinds, such as ValueWritten or claim", KINDS, is_list=True),
)

routes: Final = [
    ApiRoute(
        "/events",
        GET=HttpOperation(
            _events,
            "Events, in pages or as a stream",
            {
                200: Answer(
                    "A page, or a stream of events and bookmarks with `id` = position.", {JSON: Events, STREAM: str}
                )
            },
            "With `Accept: text/event-stream`, a stream from `Last-Event-ID` or `after`; without these, from now on.",
            (
                _AFTER,
                *_FILTERS,
                Parameter("wait", "Seconds to wait for an event before an empty page is returned", SECONDS),
                LIMIT,
            ),
            (CALLER,),
        ),
    )
]
