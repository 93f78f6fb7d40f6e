"""Questions about what happened: `/history`, `/file-changes`, `/timeline`, `/conflicts` and `/activity`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import TypeAdapter
from starlette.responses import Response

from holdlog.adapters.api.claims.files import FileBlame
from holdlog.adapters.api.claims.responses import NeverClaimed
from holdlog.adapters.api.questions.reports import CONFLICTS_PAGE, ModelReport
from holdlog.adapters.api.questions.requests import HISTORY_PAGE
from holdlog.adapters.api.questions.responses import Activity, Conflicts, ResourceHistory, TimelineResult
from holdlog.adapters.api.questions.timelines import TIMELINE_PAGE, TimelineRequests, Timespan
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.validation import STORED_AGENT
from holdlog.adapters.api.values.responses import NotFound, Result
from holdlog.adapters.eventsourcing.read_models import run_report
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.claims import RESOURCE
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import AT, CALLER, GROUP, KEY, LIMIT, Answer, ApiRoute, HttpOperation, Parameter


async def _history(request: HttpRequest) -> Response:
    (resource,), limit = request.names, request.query.get("limit", HISTORY_PAGE)
    calls = request.context.requests.questions
    call = calls.history(resource, request.point("since"), request.point("until"), limit)
    return answer(await request.context.engine.read_async(call))


async def _file_changes(request: HttpRequest) -> Response:
    (resource,), limit = request.names, request.query.get("limit", HISTORY_PAGE)
    call = request.context.requests.questions.file_changes(resource, limit)
    found = await request.context.engine.read_async(call)
    return answer(found, 404 if found.status == "not_found" else 200)


def _timeline(timeline_of: Callable[..., Query[TimelineResult]]) -> Callable[[HttpRequest], Awaitable[Response]]:
    """The handler of a timeline. `timeline_of`: the method of `TimelineRequests` that gets the names in the path."""

    async def handle(request: HttpRequest) -> Response:
        limit = request.query.get("limit", TIMELINE_PAGE)
        span = Timespan(request.point("since"), request.point("until"), limit)
        call = timeline_of(request.context.requests.timelines, *request.names, span)
        return answer(await request.context.engine.read_async(call))

    return handle


async def _activity(request: HttpRequest) -> Response:
    calls, since, until = request.context.requests.reports, request.point("since"), request.point("until")
    return await _report(request, calls.activity(request.query.get("agent"), since, until))


async def _conflicts(request: HttpRequest) -> Response:
    given, calls = request.query, request.context.requests.reports
    since, until, limit = request.point("since"), request.point("until"), given.get("limit", CONFLICTS_PAGE)
    call = calls.conflicts(given.get("resource"), given.get("agent"), since, until, limit=limit)
    return await _report(request, call)


async def _report(request: HttpRequest, call: ModelReport[Result]) -> Response:
    """Answer from read models, which one request at a time brings up to the end of the log: the first one after a while
    may take long, and occupies one thread."""
    async with request.app.state.reports:
        return answer(await asyncio.to_thread(run_report, request.context.engine, call))


_WINDOW: Final = (
    Parameter("since", "Only what had not ended then: a position of the log, or a time (RFC 3339)", AT.rule),
    Parameter("until", "Only what had begun until then: a position of the log, or a time", AT.rule),
    LIMIT,
)
_PERIOD: Final = (
    Parameter("since", "From this position of the log, or time (RFC 3339); the last 24 hours if omitted", AT.rule),
    Parameter("until", "Up to this position of the log, or time; now if omitted", AT.rule),
    Parameter("agent", "Only of this agent and its sub-agents", STORED_AGENT),
)
_ALL: Final = "Needs the grant read on all names. The first call on a large log takes a while."
_NEVER_CLAIMED: Final = {404: Answer("Nothing that overlaps it was ever claimed.", NeverClaimed)}

routes: Final = [
    ApiRoute(
        "/history/{resource:path}",
        (RESOURCE,),
        GET=HttpOperation(
            _history,
            "Who held a resource, and who waited for it",
            {200: Answer("Holds and waits, newest first.", ResourceHistory)} | _NEVER_CLAIMED,
            "Also of what overlaps it. `limit` applies to holds and to waits.",
            _WINDOW,
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/file-changes/{resource:path}",
        (RESOURCE,),
        GET=HttpOperation(
            _file_changes,
            "Who changed a file",
            {
                200: Answer("Changes that hooks recorded, newest first.", FileBlame),
                404: Answer("Hooks recorded no change of it.", FileBlame),
            },
            "",
            (LIMIT,),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/timeline/claims/{resource:path}",
        (RESOURCE,),
        GET=HttpOperation(
            _timeline(TimelineRequests.of_resource),
            "Who held a resource and waited for it, by agent",
            {200: Answer("A lane for each agent.", TimelineResult)} | _NEVER_CLAIMED,
            "",
            _WINDOW,
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/timeline/kv/{group}/{key}",
        (GROUP, KEY),
        GET=HttpOperation(
            _timeline(TimelineRequests.of_value),
            "Who changed a value, by agent",
            {
                200: Answer("A lane for each agent.", TimelineResult),
                404: Answer("The key was never written.", NotFound),
            },
            "",
            _WINDOW,
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/timeline/agents/{agent:path}",
        (Parameter("agent", "The agent; its sub-agents are included", STORED_AGENT),),
        GET=HttpOperation(
            _timeline(TimelineRequests.of_agent),
            "What an agent held, waited for and changed",
            {200: Answer("A lane for each resource and value.", TimelineResult)},
            "Covers at most 100,000 events of the log: without `since`, the last ones.",
            _WINDOW,
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/conflicts",
        GET=HttpOperation(
            _conflicts,
            "Who collided with whom, and who was refused",
            {200: Answer("Collisions and refusals.", Conflicts)},
            f"With `resource`, without refusals. {_ALL}",
            (*_PERIOD, Parameter("resource", "Only queues at what overlaps this", TypeAdapter(str)), LIMIT),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/activity",
        GET=HttpOperation(
            _activity,
            "Events per agent and hour",
            {200: Answer("Newest hour first.", Activity)},
            _ALL,
            _PERIOD,
            (CALLER,),
        ),
    ),
]
