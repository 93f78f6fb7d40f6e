"""Read-only view of claims: the board, and one resource. Claims are acquired over MCP and the library."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.api.claims.requests import BOARD_PAGE
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.authentication import context_of
from holdlog.adapters.http.url_parameters import arguments, behind, below, decoded, number


async def claims(request: Request) -> Response:
    """`/claims`: the board. `/claims/src/a.py`: the claim of `src/a.py`; slashes may be encoded."""
    context = context_of(request)
    resource = behind(request.scope, "claims")
    if resource is not None:
        given = arguments(request.scope, "version")
        version = number(given, "version", 0) if "version" in given else None
        return answer(await context.engine.read_async(context.requests.claims.status(decoded(resource), version)))
    given = arguments(request.scope, "agent", "after", "limit")
    board = context.requests.claims.board(given.get("agent"), number(given, "limit", BOARD_PAGE), given.get("after"))
    return answer(await context.engine.read_async(board))


routes: Final[list[Route]] = below("/claims", claims, ["GET"])
