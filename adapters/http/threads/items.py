"""`/threads`, and the messages and results of one thread."""

from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.threads.requests import READ_PAGE
from holdlog.adapters.http.disconnects import long_poll
from holdlog.adapters.http.threads.routing import SAFE, RawRoute, answer, object_of
from holdlog.adapters.http.url_parameters import arguments, number, seconds_of
from holdlog.adapters.http.values.key_value_request import KeyValueRequest


async def _list(request: KeyValueRequest) -> Response:
    given = arguments(request.scope, "after", "limit")
    call = request.context.requests.threads.listed(number(given, "limit", MAX_PAGE), given.get("after"))
    return answer(await request.context.engine.read_async(call))


async def _start(request: KeyValueRequest) -> Response:
    arguments(request.scope)
    body = await object_of(request, "thread_id", "data", "parent", "parent_version")
    at = body.get("parent_version")
    if isinstance(at, float) and at.is_integer():
        body["parent_version"] = int(at)  # 3.0 is an integer in JSON Schema
    write = request.context.requests.threads.start(request.by, **body)
    result = await request.context.engine.write_async(write, request.context.caller)
    return answer(result, 201 if result.created else 200)


async def _facts(request: KeyValueRequest) -> Response:
    arguments(request.scope)
    return answer(await request.context.engine.read_async(request.context.requests.threads.facts(*request.names)))


async def _append(request: KeyValueRequest) -> Response:
    arguments(request.scope)
    body = await object_of(request, "messages", "results")
    (name,) = request.names
    write = request.context.requests.threads.append(name, request.by, **body)
    return answer(await request.context.engine.write_async(write, request.context.caller))


async def _read(request: KeyValueRequest) -> Response:
    given = arguments(request.scope, "after", "before", "limit", "format", "wait")
    (name,), context = request.names, request.context
    after = number(given, "after", 0) if "after" in given else None
    before = number(given, "before", 0) if "before" in given else None
    limit, form = number(given, "limit", READ_PAGE), given.get("format", "items")
    seconds = seconds_of(given.get("wait", "0"), "wait")
    if not seconds:
        return answer(await context.engine.read_async(context.requests.threads.page(name, limit, after, before, form)))
    wait = context.requests.threads.next_page(name, after, limit, form, seconds, before)
    response = await long_poll(request.receive, context, wait)
    response.headers.update(SAFE)
    return response


routes: Final[list[Route]] = [
    RawRoute("/threads", GET=_list, POST=_start),
    RawRoute("/threads/{thread_id}", GET=_facts),
    RawRoute("/threads/{thread_id}/items", GET=_read, POST=_append),
]
