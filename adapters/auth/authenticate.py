"""Find out who calls, by the token in a header: one of the store, or a JWT of an identity provider."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
from jwt.types import Options

from holdlog.adapters.auth.access import Access
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Operation, Query
from holdlog.adapters.operations.rows import is_live
from holdlog.adapters.operations.tokens import FindToken
from holdlog.adapters.stores import sql
from holdlog.domain.names import AUTHORS, check_label
from holdlog.domain.refusals import InvalidError, UnavailableError
from holdlog.domain.tokens import check_grant, check_space, token_stream

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With public keys: who knows the key that verifies must not be able to sign."""
_REQUIRED: Final[Options] = {"require": ["exp", "iss", "aud", "sub"]}
SCOPE: Final = "holdlog:"
"""Before a grant in the claim `scope`, as in `holdlog:write:build-*`."""
LEEWAY: Final = 10
"""Seconds by which the provider's clock may differ."""
FETCH_SECONDS: Final = 5
_PRINCIPALS: Final = ("token:", "jwt:")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class JwtVerifier:
    """Verifies tokens for an audience with the keys that the provider publishes (RFC 7517)."""

    def __init__(self, issuer: str, audience: str, url: str) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys = jwt.PyJWKClient(url, timeout=FETCH_SECONDS)

    def verify(self, text: str) -> Access | None:
        """What the token allows; None if it is not valid. May fetch keys. Raises UnavailableError."""
        try:
            key = self._keys.get_signing_key_from_jwt(text)
            claims = jwt.decode(
                text, key, ALGORITHMS, _REQUIRED, audience=self._audience, issuer=self._issuer, leeway=LEEWAY
            )
            return _read_claims(claims)
        except (jwt.PyJWKClientConnectionError, OSError):  # the second: it was connected, and broke off
            raise UnavailableError("the keys of the identity provider cannot be read now; try again") from None
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError):
            return None


def read_options(issuer: str | None, audience: str | None, url: str | None) -> JwtVerifier | None:
    """The verifier that the options describe. Raises InvalidError."""
    if issuer is None and audience is None and url is None:
        return None
    if not (issuer and audience and url):
        name = "issuer" if not issuer else "audience" if not audience else "jwks-url"
        raise InvalidError(f"--jwt-{name}: is missing; JWT need --jwt-issuer, --jwt-audience and --jwt-jwks-url")
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise InvalidError("--jwt-jwks-url: must start with https://, as anybody who changes the keys gets access")
    return JwtVerifier(issuer, audience, url)


def _read_claims(claims: Mapping[str, Any]) -> Access:
    """Raises AttributeError, TypeError and ValueError for claims of another form."""
    principal = f"jwt:{claims['sub']}"
    if check_label(principal) != principal:  # two subjects would be one principal
        raise ValueError
    allow = []
    for scope in claims.get("scope", "").split():
        with suppress(ValueError):  # it is for another program
            allow += [check_grant(scope.removeprefix(SCOPE))] if scope.startswith(SCOPE) else []
    space = check_space(claims["holdlog_space"]) if "holdlog_space" in claims else None
    return Access(principal, tuple(allow), space, int(claims["exp"]) * 1_000_000)


class Authenticator:
    """`ask` answers queries; `jwt` is None if no provider is trusted. If `is_open`, the server needs no tokens."""

    def __init__(self, query: Callable[[Query], Awaitable[Any]], jwt: JwtVerifier | None, is_open: bool) -> None:
        self._query = query
        self._jwt = jwt
        self.is_open = is_open

    async def find_access(self, headers: Mapping[str, str]) -> Access | None:
        """What the caller may do; None without a valid token. Raises InvalidError for two tokens, UnavailableError."""
        if self.is_open:
            return Access()
        text = _read_token(headers)
        if text is None:
            return None
        token = await self._query(FindToken.model_construct(text=text))
        if token is not None:
            return Access(f"token:{token.name}", token.allow, token.space, token.expires_at)
        if self._jwt is None or text.count(".") != 2:
            return None
        return await asyncio.to_thread(self._jwt.verify, text)  # not where stores are read: a provider may hang

    async def check_author(self, operation: Operation, access: Access) -> None:
        """Raises InvalidError if an operation is to be recorded under the name of another principal."""
        if self.is_open or isinstance(operation, Query):
            return
        argument = next((name for name in AUTHORS if hasattr(operation, name)), None)
        author = None if argument is None else getattr(operation, argument)
        if author is None or author == access.principal:
            return
        root = author.partition("/")[0].casefold()
        is_principal, is_own = root.startswith(_PRINCIPALS), f"token:{root}" == access.principal
        if is_principal or (not is_own and await self._query(_HasToken.model_construct(token=root))):
            raise InvalidError(f"{argument}: is the name of another token; choose a name of your own")


class _HasToken(Query):
    """Whether a valid token has this name."""

    is_quick = True
    token: str

    def read(self, reader: Reader) -> bool:
        rows = reader.read(sql.RECORD, {"stream": token_stream(self.token)})
        return bool(rows) and is_live(rows[0], reader.now())


def _read_token(headers: Mapping[str, str]) -> str | None:
    """Raises InvalidError."""
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    texts = {text.strip() for text in (headers.get("x-token", ""), bearer if kind.lower() == "bearer" else "") if text}
    if len(texts) > 1:
        raise InvalidError("x-token, authorization: send one token")
    return texts.pop() if texts else None
