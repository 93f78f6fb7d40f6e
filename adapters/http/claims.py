"""Read-only view of claims: the board, and one resource. Claims are acquired over MCP and the library."""

from typing import Annotated, Final

from pydantic import TypeAdapter
from starlette.responses import Response

from holdlog.adapters.api.claims.requests import BOARD_PAGE
from holdlog.adapters.api.claims.responses import Available, Board, Held
from holdlog.adapters.api.validation import NAMED, STORED_AGENT
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import AFTER, CALLER, LIMIT, VERSION, Answer, ApiRoute, HttpOperation, Parameter
from holdlog.domain.claims.resource import Resource


async def _board(request: HttpRequest) -> Response:
    given = request.query
    board = request.context.requests.claims.board(
        given.get("agent"), given.get("limit", BOARD_PAGE), given.get("after")
    )
    return answer(await request.context.engine.read_async(board))


async def _status(request: HttpRequest) -> Response:
    call = request.context.requests.claims.status(request.names[0], request.query.get("version"))
    return answer(await request.context.engine.read_async(call))


routes: Final = [
    ApiRoute(
        "/claims",
        GET=HttpOperation(
            _board,
            "Claims and queues",
            {200: Answer("A page of the board.", Board)},
            "One snapshot of a page, ordered by resource.",
            (Parameter("agent", "Only of this agent and its sub-agents", STORED_AGENT), AFTER, LIMIT),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/claims/{resource:path}",
        (
            Parameter(
                "resource",
                "A path in the repository, or `custom:%2F%2Fname`; slashes may be encoded",
                TypeAdapter(Annotated[Resource, NAMED]),
            ),
        ),
        GET=HttpOperation(
            _status,
            "Who holds a resource",
            {200: Answer("Available, or held.", Available | Held)},
            "",
            (Parameter("version", "Version of a grant; the response has `current`", VERSION),),
            (CALLER,),
        ),
    ),
]
