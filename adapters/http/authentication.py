"""Authentication: maps the token in the header to a principal, and the request to the store of its space."""

import logging
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import lru_cache, partial
from typing import Final, Protocol

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdlog.adapters.api.request import always_valid
from holdlog.adapters.api.validation import SESSION, caller, text
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.http.answers import failed
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.calling import OPEN_REQUEST
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.refusals import HoldlogError, InvalidError

OPEN: Final = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})
"""Public paths: they reveal nothing of what is stored."""

TERMINALS: Final = b"terminals"
"""The query with which the page `/` asks where agents work, which is not public."""

NOTHING: Final = Grants(())

_log = logging.getLogger("holdlog")


class TokenVerifier(Protocol):
    async def verify(self, text: str) -> Principal | None:
        """The principal of a token; None if it is invalid or no longer valid. Raises UnavailableError."""


class Authentication:
    """ASGI middleware. `verifier`: None when every caller is the local user. Responds itself with 401 and 503."""

    def __init__(self, app: ASGIApp, spaces: Tenants, verifier: TokenVerifier | None) -> None:
        self._app = app
        self._spaces = spaces
        self._verifier = verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_open = scope["path"] in OPEN and scope["query_string"] != TERMINALS
        if is_open or (scope["path"], scope["method"]) == ("/token", "POST"):
            scope.setdefault("state", {})["served"] = RequestContext(self._spaces.main, NOBODY, NOTHING)
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._verifier is not None and _names_two_tokens(headers):
            await failed("Authorization and x-token contain different tokens; send only one", 400)(scope, receive, send)
            return
        entered: AbstractAsyncContextManager[Engine] | None = None
        try:
            principal = await self._principal(headers)
            if isinstance(principal, Response):
                await principal(scope, receive, send)
                return
            if principal is None or principal.space is None:
                engine = self._spaces.main
            else:
                entered = self._spaces.enter(principal.space)
                engine = await entered.__aenter__()
            who = _caller(
                engine.identity,
                principal and principal.name,
                headers.get(b"holdlog-session"),
                headers.get(b"idempotency-key"),
                headers.get(b"holdlog-correlation"),
            )
        except InvalidError as error:
            await failed(_by_header(str(error)), 400)(scope, receive, send)
            return
        except HoldlogError as error:
            _log.warning("cannot open the store or the keys of a token: %s", error)
            await failed("cannot open this token's store right now; try again", 503, _SOON)(scope, receive, send)
            return
        grants = principal.grants if principal is not None else EVERYTHING
        still = always_valid if self._verifier is None else partial(self._still, headers)
        context = RequestContext(engine, who, grants, still)
        try:
            with ExitStack() as during:
                if who.session is not None:
                    during.enter_context(engine.lease_maintenance.request_of(who.principal, who.session))
                scope.setdefault("state", {}).update({"served": context, "principal": principal, OPEN_REQUEST: during})
                await self._app(scope, receive, send)
        finally:
            if entered is not None:
                await entered.__aexit__(None, None, None)

    async def _still(self, headers: dict[bytes, bytes]) -> bool:
        """Whether an accepted token is still valid; so is one that cannot be checked now."""
        try:
            return self._verifier is None or await self._verifier.verify(token_of(headers) or "") is not None
        except HoldlogError:
            return True

    async def _principal(self, headers: dict[bytes, bytes]) -> Principal | Response | None:
        """The principal; None: the local user. Raises UnavailableError."""
        if self._verifier is None:
            return None
        text = token_of(headers)
        if text is None:
            return failed("a token is required; send it in Authorization: Bearer or x-token", 401, _CHALLENGE)
        return await self._verifier.verify(text) or not_valid()


_HEADERS: Final = {
    "request_id": "Idempotency-Key",
    "correlation_id": "Holdlog-Correlation",
    "session": "Holdlog-Session",
}
_SOON: Final = {"retry-after": "1"}
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="holdlog"'}
_CHALLENGE_INVALID: Final = {"www-authenticate": 'Bearer realm="holdlog", error="invalid_token"'}


def token_of(headers: dict[bytes, bytes]) -> str | None:
    return _bearer_token(headers) or _x_token(headers)


def _bearer_token(headers: dict[bytes, bytes]) -> str | None:
    kind, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return text.strip() or None if kind.lower() == "bearer" else None


def _x_token(headers: dict[bytes, bytes]) -> str | None:
    return headers.get(b"x-token", b"").decode("latin-1") or None


def _names_two_tokens(headers: dict[bytes, bytes]) -> bool:
    return len({_bearer_token(headers), _x_token(headers)} - {None}) > 1


def _caller(
    identity: Identity,
    principal: str | None,
    session: bytes | None,
    request_id: bytes | None,
    correlation_id: bytes | None,
) -> Caller:
    """The caller. Raises InvalidError."""
    known = _known_caller(identity, principal, session)
    if request_id is None and correlation_id is None:
        return known
    facts = _text(request_id, "request_id"), _text(correlation_id, "correlation_id")
    return caller(known, request_id=facts[0], correlation_id=facts[1])


@lru_cache(1024)
def _known_caller(identity: Identity, principal: str | None, session: bytes | None) -> Caller:
    given = _text(session, "session")
    named = None if given is None else identity.session("header", text(given, "session", SESSION))
    return caller(principal=principal, session=named)


def _by_header(message: str) -> str:
    argument, colon, rest = message.partition(":")
    return _HEADERS.get(argument, argument) + colon + rest


def _text(header: bytes | None, argument: str) -> str | None:
    try:
        return None if header is None else header.decode()
    except UnicodeDecodeError:
        raise InvalidError(f"{argument}: must be UTF-8") from None  # two such agents would be taken for the same


def not_valid() -> Response:
    return failed("the token is not valid or no longer valid; ask the operator for a new one", 401, _CHALLENGE_INVALID)


def context_of(request: HTTPConnection) -> RequestContext:
    """The context of a request."""
    context: RequestContext = request.scope["state"]["served"]
    return context
