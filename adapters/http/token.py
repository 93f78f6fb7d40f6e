"""`POST /token`: issue a token for a new space to any caller, if the server allows it. `GET /token`: describe the
token."""

import secrets
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from holdlog.adapters.api.values.responses import Time
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.http.answers import SAFE, failed, json_response
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import TEXT, Answer, ApiRoute, HttpOperation
from holdlog.adapters.http.tenants import Tenants
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


class TokenForm(BaseModel):
    """The form that asks for a token."""

    model_config = ConfigDict(extra="forbid")

    token: Literal["new"]


class TokenFacts(BaseModel):
    """What a token is and allows. `principal`: absent if no token is required."""

    status: Literal["ok"] = "ok"
    principal: str | None = None
    allow: list[str]
    space: str | None = None
    expires_at: Time | None = None


async def _issue(request: HttpRequest) -> Response:
    """Issue a token. limits.py bounds how many tokens an address may get. The first use of the token creates the
    space."""
    spaces: Tenants = request.app.state.spaces
    if not request.app.state.options.open_tokens:
        return failed(
            "this server issues no tokens; ask its operator for one (holdlog token create), or for --open-tokens", 403
        )
    if (await request.body()).strip() != NEW_TOKEN:
        raise InvalidError("body: must be token=new")
    name = f"open-{secrets.token_hex(8)}"
    token = fresh(name)
    command = IssueToken(name=name, hash=token.hash, allow=ALLOW, lifetime_seconds=LIFETIME, space=name, by=ISSUER)
    await spaces.main.change_token_async(command, NOBODY)
    return Response(token.text, headers=SAFE, media_type=TEXT)


async def _whoami(request: HttpRequest) -> Response:
    """The principal of the token, what it allows, where and until when; never the token itself."""
    principal: Principal | None = request.scope["state"]["principal"]
    allow = [str(grant) for grant in request.context.grants.grants]
    if principal is None:
        facts = TokenFacts(allow=allow)
    else:
        until = None if principal.expires_at is None else utc(principal.expires_at)
        facts = TokenFacts(principal=principal.name, allow=allow, space=principal.space, expires_at=until)
    return json_response(facts.model_dump(mode="json", exclude_none=True))


routes: Final = [
    ApiRoute(
        "/token",
        GET=HttpOperation(
            _whoami,
            "The principal and grants of the token",
            {200: Answer("The token itself is not returned.", TokenFacts)},
        ),
        POST=HttpOperation(
            _issue,
            "A new token with its own space",
            {200: Answer("The token, shown once.", {TEXT: str})},
            "Only if the server was started with --open-tokens.",
            body={"application/x-www-form-urlencoded": TokenForm},
            public=True,
        ),
    )
]
