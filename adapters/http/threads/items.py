"""`/threads`, and the messages and results of one thread."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.threads.conversation import AgentResult, AnyMessage
from holdlog.adapters.api.threads.requests import READ_PAGE
from holdlog.adapters.api.threads.responses import (
    Appended,
    Resumed,
    Started,
    ThreadFacts,
    ThreadItems,
    ThreadList,
    ThreadMessages,
    ThreadNotFound,
)
from holdlog.adapters.api.validation import NAME
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.disconnects import long_poll
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import (
    AFTER,
    CALLER,
    JSON,
    LIMIT,
    SECONDS,
    VERSION,
    WRITE_REFUSALS,
    WRITER,
    Answer,
    ApiRoute,
    HttpOperation,
    Parameter,
)
from holdlog.domain.names import Name


class StartBody(BaseModel):
    """The body that starts a thread."""

    model_config = ConfigDict(extra="forbid")

    thread_id: Name | None = None
    data: dict[Name, Any] | None = None
    parent: Name | None = None
    parent_version: Annotated[int, Field(ge=1)] | None = None


class AppendBody(BaseModel):
    """The body that appends to a thread: 1 to 500 entries in all."""

    model_config = ConfigDict(extra="forbid")

    messages: list[AnyMessage] | None = None
    results: list[AgentResult] | None = None


async def _list(request: HttpRequest) -> Response:
    call = request.context.requests.threads.listed(request.query.get("limit", MAX_PAGE), request.query.get("after"))
    return answer(await request.context.engine.read_async(call))


async def _start(request: HttpRequest) -> Response:
    body = await request.json_object(StartBody.model_fields)
    at = body.get("parent_version")
    if isinstance(at, float) and at.is_integer():
        body["parent_version"] = int(at)  # 3.0 is an integer in JSON Schema
    write = request.context.requests.threads.start(request.by, **body)
    result = await request.context.engine.write_async(write, request.context.caller)
    return answer(result, 201 if result.created else 200)


async def _facts(request: HttpRequest) -> Response:
    return answer(await request.context.engine.read_async(request.context.requests.threads.facts(*request.names)))


async def _append(request: HttpRequest) -> Response:
    body = await request.json_object(AppendBody.model_fields)
    (name,) = request.names
    write = request.context.requests.threads.append(name, request.by, **body)
    return answer(await request.context.engine.write_async(write, request.context.caller))


async def _read(request: HttpRequest) -> Response:
    given, context, (name,) = request.query, request.context, request.names
    after, before, seconds = given.get("after"), given.get("before"), given.get("wait")
    limit, form = given.get("limit", READ_PAGE), given.get("format", "items")
    if not seconds:
        return answer(await context.engine.read_async(context.requests.threads.page(name, limit, after, before, form)))
    wait = context.requests.threads.next_page(name, after, limit, form, seconds, before)
    return await long_poll(request.receive, context, wait)


THREAD: Final = Parameter("thread_id", "The thread; percent-encode all but letters, digits and -._~", NAME)
NO_THREAD: Final = Answer("Nobody started the thread.", ThreadNotFound)

routes: Final = [
    ApiRoute(
        "/threads",
        GET=HttpOperation(
            _list,
            "Threads, sorted by name",
            {200: Answer("A page of the threads that the caller may read.", ThreadList)},
            query=(AFTER, LIMIT),
            headers=(CALLER,),
        ),
        POST=HttpOperation(
            _start,
            "Start a thread, resume one, or fork one",
            {
                200: Answer("The thread existed and is unchanged.", Resumed),
                201: Answer("Started.", Started),
                404: NO_THREAD,
            },
            "Without `thread_id`, a new thread gets an id. `data`: the initial data of a new thread. "
            "`parent`: start with the contents of this thread, now or at `parent_version`.",
            headers=WRITER,
            body={JSON: StartBody},
            refusals=WRITE_REFUSALS,
        ),
    ),
    ApiRoute(
        "/threads/{thread_id}",
        (THREAD,),
        GET=HttpOperation(
            _facts,
            "Facts about a thread",
            {200: Answer("Its versions and counts.", ThreadFacts), 404: NO_THREAD},
            headers=(CALLER,),
        ),
    ),
    ApiRoute(
        "/threads/{thread_id}/items",
        (THREAD,),
        GET=HttpOperation(
            _read,
            "Messages and results, in order",
            {200: Answer("A page.", ThreadItems | ThreadMessages), 404: NO_THREAD},
            "The newest, or the first above `after`. Each page is complete up to its `version`; results up to "
            "`cleared` no longer count.",
            (
                Parameter("after", "Only above this version, oldest first", VERSION),
                Parameter("before", "Only below this version", VERSION),
                Parameter(
                    "format", "model: only messages, as models accept them", TypeAdapter(Literal["items", "model"])
                ),
                Parameter("wait", "Seconds to wait for items above `after`", SECONDS),
                LIMIT,
            ),
            (CALLER,),
        ),
        POST=HttpOperation(
            _append,
            "Append messages, then results: all or none",
            {200: Answer("Appended.", Appended), 404: NO_THREAD},
            "An existing result is skipped, so one with `created_at` can be sent again. Without it, a result gets the "
            "current time; Idempotency-Key makes a repeat safe then, as it does for messages. AgentKit's camelCase "
            "names are accepted, too.",
            headers=WRITER,
            body={JSON: AppendBody},
            refusals=WRITE_REFUSALS,
        ),
    ),
]
