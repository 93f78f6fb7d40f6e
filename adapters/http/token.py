"""`POST /token`: issue a token for a new space to any caller, if the server allows it. `GET /token`: describe the
token."""

import secrets
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.http.answers import failed, json_response
from holdlog.adapters.http.authentication import context_of
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.http.url_parameters import arguments
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import InvalidError
from holdlog.domain.times import utc
from holdlog.domain.token import IssueToken

NEW_TOKEN: Final = b"token=new"
"""The body that echoValue's documents send."""
ALLOW: Final = ("read:*", "write:*", "claim:*")
LIFETIME: Final = 2 * 365 * 24 * 60 * 60
"""Seconds."""
ISSUER: Final = "http"


async def issue(request: Request) -> Response:
    """Issue a token. limits.py bounds how many tokens an address may get. The first use of the token creates the
    space."""
    spaces: Tenants = request.app.state.spaces
    request.scope.setdefault("state", {})["served"] = RequestContext(spaces.main, NOBODY, Grants(()))  # for refusals
    if not request.app.state.options.open_tokens:
        return failed(
            "this server issues no tokens; ask its operator for one (holdlog token create), or for --open-tokens", 403
        )
    arguments(request.scope)
    if (await request.body()).strip() != NEW_TOKEN:
        raise InvalidError("body: must be token=new")
    name = f"open-{secrets.token_hex(8)}"
    token = fresh(name)
    command = IssueToken(name=name, hash=token.hash, allow=ALLOW, lifetime_seconds=LIFETIME, space=name, by=ISSUER)
    await spaces.main.change_token_async(command, NOBODY)
    return Response(token.text, headers={"cache-control": "no-store"}, media_type="text/plain")


async def whoami(request: Request) -> Response:
    """The principal of the token, what it allows, where and until when; never the token itself."""
    arguments(request.scope)
    principal: Principal | None = request.scope["state"]["principal"]
    body: dict[str, Any] = {"status": "ok"}
    if principal is not None:
        body["principal"] = principal.name
    body["allow"] = [str(grant) for grant in context_of(request).grants.grants]
    if principal is not None and principal.space is not None:
        body["space"] = principal.space
    if principal is not None and principal.expires_at is not None:
        body["expires_at"] = utc(principal.expires_at).isoformat(timespec="microseconds")
    return json_response(body)


routes: Final[list[Route]] = [
    Route("/token", whoami, methods=["GET"]),
    Route("/token", issue, methods=["POST"]),
]
