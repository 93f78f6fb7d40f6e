"""Who calls: a token by header becomes a principal, and the call gets the store of its space."""

import logging
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdlog.adapters.access.grants import EVERYTHING
from holdlog.adapters.access.principal import Principal
from holdlog.adapters.arguments import caller
from holdlog.adapters.http.answers import failed
from holdlog.adapters.served import Served
from holdlog.adapters.spaces import Spaces
from holdlog.domain.refusals import InvalidError, UnavailableError

OPEN: Final = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})
"""Paths that tell nothing of what is stored, so that anybody may ask for them."""

_log = logging.getLogger("holdlog")


class Verifier(Protocol):
    async def verify(self, text: str) -> Principal | None:
        """Who a token stands for; None: for nobody (any more). Raises UnavailableError."""


class Authentication:
    """ASGI middleware. `verifier`: None when everybody is the local user."""

    def __init__(self, app: ASGIApp, spaces: Spaces, verifier: Verifier | None) -> None:
        self._app = app
        self._spaces = spaces
        self._verifier = verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or (scope["path"], scope["method"]) == ("/token", "POST"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        principal: Principal | None = None
        if self._verifier is not None:
            text = token_of(headers)
            try:
                principal = await self._verifier.verify(text) if text else None
            except UnavailableError as error:
                await failed(str(error), 503, {"retry-after": "1"})(scope, receive, send)
                return
            if principal is None:
                why = ', error="invalid_token"' if text else ""
                message = "the token is not valid (any more)" if text else "a token is required: Authorization: Bearer"
                challenge = {"www-authenticate": f'Bearer realm="holdlog"{why}'}
                await failed(message, 401, challenge)(scope, receive, send)
                return
        try:
            who = caller(
                principal=principal and principal.name,
                session=headers.get("holdlog-session"),
                request_id=headers.get("idempotency-key"),
            )
        except InvalidError as error:
            await failed(str(error), 400)(scope, receive, send)
            return
        async with self._spaces.enter(principal and principal.space) as opened:
            grants = principal.grants if principal is not None else EVERYTHING
            scope.setdefault("state", {})["served"] = Served(opened, who, grants)
            await self._app(scope, receive, send)


def token_of(headers: Headers) -> str | None:
    kind, _, text = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and text.strip():
        return text.strip()
    return headers.get("x-token") or None


def served_of(request: HTTPConnection) -> Served:
    """The call that a request makes."""
    served: Served = request.scope["state"]["served"]
    return served
