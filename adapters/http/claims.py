"""Read-only view of claims: the board, and one resource. Claims are acquired over MCP and the library."""

from typing import Annotated, Final

from pydantic import TypeAdapter
from starlette.responses import Response

from holdlog.adapters.api.claims.requests import BOARD_PAGE
from holdlog.adapters.api.claims.responses import Available, Board, Held
from holdlog.adapters.api.past.responses import PastAvailable, PastClaims, PastHeld
from holdlog.adapters.api.validation import NAMED, STORED_AGENT
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import AFTER, AT, CALLER, LIMIT, VERSION, Answer, ApiRoute, HttpOperation, Parameter
from holdlog.domain.claims.resource import Resource
from holdlog.domain.refusals import InvalidError


async def _board(request: HttpRequest) -> Response:
    given, calls, moment = request.query, request.context.requests, request.moment
    agent, limit, after = given.get("agent"), given.get("limit", BOARD_PAGE), given.get("after")
    if moment is not None:
        return answer(await request.context.engine.read_async(calls.past.board(moment, agent, limit, after)))
    return answer(await request.context.engine.read_async(calls.claims.board(agent, limit, after)))


async def _status(request: HttpRequest) -> Response:
    (resource,), calls, moment = request.names, request.context.requests, request.moment
    version = request.query.get("version")
    if moment is None:
        return answer(await request.context.engine.read_async(calls.claims.status(resource, version)))
    if version is not None:
        raise InvalidError("version: only works for the present; leave it out, or leave out at")
    return answer(await request.context.engine.read_async(calls.past.status(resource, moment)))


RESOURCE: Final = Parameter(
    "resource",
    "A path in the repository, or `custom:%2F%2Fname`; slashes may be encoded",
    TypeAdapter(Annotated[Resource, NAMED]),
)

routes: Final = [
    ApiRoute(
        "/claims",
        GET=HttpOperation(
            _board,
            "Claims and queues",
            {200: Answer("A page of the board.", Board | PastClaims)},
            "One snapshot of a page, ordered by resource. With `at`, each claim has how it ended since.",
            (Parameter("agent", "Only of this agent and its sub-agents", STORED_AGENT), AT, AFTER, LIMIT),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/claims/{resource:path}",
        (RESOURCE,),
        GET=HttpOperation(
            _status,
            "Who holds a resource",
            {200: Answer("Available, or held.", Available | Held | PastAvailable | PastHeld)},
            "",
            (Parameter("version", "Version of a grant; the response has `current`", VERSION), AT),
            (CALLER,),
        ),
    ),
]
