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


async def _list(asked: KeyValueRequest) -> Response:
    given = arguments(asked.scope, "after", "limit")
    call = asked.context.requests.threads(number(given, "limit", MAX_PAGE), given.get("after"))
    return answer(await asked.context.engine.read_async(call))


async def _start(asked: KeyValueRequest) -> Response:
    arguments(asked.scope)
    body = await object_of(asked, "thread_id", "data", "parent", "parent_version")
    at = body.get("parent_version")
    if isinstance(at, float) and at.is_integer():
        body["parent_version"] = int(at)  # 3.0 is an integer in JSON Schema
    write = asked.context.requests.thread_start(asked.by, **body)
    result = await asked.context.engine.write_async(write, asked.context.caller)
    return answer(result, 201 if result.created else 200)


async def _facts(asked: KeyValueRequest) -> Response:
    arguments(asked.scope)
    return answer(await asked.context.engine.read_async(asked.context.requests.thread(*asked.names)))


async def _append(asked: KeyValueRequest) -> Response:
    arguments(asked.scope)
    body = await object_of(asked, "messages", "results")
    (name,) = asked.names
    write = asked.context.requests.thread_append(name, asked.by, **body)
    return answer(await asked.context.engine.write_async(write, asked.context.caller))


async def _read(asked: KeyValueRequest) -> Response:
    given = arguments(asked.scope, "after", "before", "limit", "format", "wait")
    (name,), context = asked.names, asked.context
    after = number(given, "after", 0) if "after" in given else None
    before = number(given, "before", 0) if "before" in given else None
    limit, form = number(given, "limit", READ_PAGE), given.get("format", "items")
    seconds = seconds_of(given.get("wait", "0"), "wait")
    if not seconds:
        return answer(await context.engine.read_async(context.requests.thread_read(name, limit, after, before, form)))
    wait = context.requests.thread_coming(name, after, limit, form, seconds, before)
    response = await long_poll(asked.receive, context, wait)
    response.headers.update(SAFE)
    return response


routes: Final[list[Route]] = [
    RawRoute("/threads", GET=_list, POST=_start),
    RawRoute("/threads/{thread_id}", GET=_facts),
    RawRoute("/threads/{thread_id}/items", GET=_read, POST=_append),
]
