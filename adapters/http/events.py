"""`GET /v1/events`: pages of the log, or a stream of server-sent events, which a client can resume."""

from collections.abc import AsyncIterator
from typing import Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.auth.access import Access
from holdlog.adapters.http.calls import Calls, render
from holdlog.adapters.http.routes import VERSION, name_caller, read_query, respond_unless_gone
from holdlog.adapters.operations.json import Object, refusal_to_object, to_text
from holdlog.adapters.operations.log import Events
from holdlog.adapters.operations.rows import read_position
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import HoldlogError

WAIT: Final = 30.0
"""Seconds after which a stream asks again whether its token is valid, also if nothing happens."""
PING: Final = 15
"""Seconds between two comments, so that proxies keep the connection."""


def list_event_routes(calls: Calls) -> list[Route]:
    async def respond(request: Request) -> Response:
        try:
            arguments = read_query(request, Events)
            caller = name_caller(calls, request)
            if "text/event-stream" in request.headers.get("accept", ""):
                return await _open(calls, request, arguments, caller)
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal))
        return await respond_unless_gone(calls, request, Events, arguments, caller)

    return [Route(f"{VERSION}/events", respond)]


async def _open(calls: Calls, request: Request, arguments: Object, caller: Caller) -> Response:
    """Without a place the stream begins now. Raises HoldlogError."""
    arguments = {name: value for name, value in arguments.items() if name != "wait_seconds"}
    if last := request.headers.get("last-event-id"):
        arguments["after"] = last
    elif "after" not in arguments:
        arguments["after"] = await calls.in_pool(read_position, calls.engine.store)
    access: Access = request.scope["access"]
    page = await calls.carry_out(calls.surface.parse(Events, arguments), caller, access, calls.surface)
    return EventSourceResponse(_follow(calls, request, page, arguments, caller), ping=PING, sep="\n")


async def _follow(
    calls: Calls, request: Request, page: Object, arguments: Object, caller: Caller
) -> AsyncIterator[ServerSentEvent]:
    """The id of the last event of a page is its bookmark, so that a client cannot resume in another history."""
    position = None
    while True:
        for event in page["events"]:
            is_last = event is page["events"][-1]
            place = page["bookmark"] if is_last else str(event["position"])
            yield ServerSentEvent(to_text(event), id=place, event=event["kind"])
        if not page["events"] and page["next_position"] != position:
            yield ServerSentEvent(to_text({"bookmark": page["bookmark"]}), id=page["bookmark"], event="bookmark")
        position = page["next_position"]
        if calls.ending.is_set():
            return
        operation = calls.surface.parse(Events, arguments | {"after": page["bookmark"], "wait_seconds": WAIT})
        try:
            access = await calls.authenticator.find_access(request.headers)
            if access is None:
                return
            page = await calls.carry_out(operation, caller, access, calls.surface)
            if await calls.authenticator.find_access(request.headers) is None:  # revoked meanwhile
                return
        except HoldlogError:  # the client connects again
            return
