"""JSON Web Tokens of an identity provider: check issuer, audience and signature, and read grants from the claims."""

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeGuard, cast
from urllib.parse import urlsplit

import httpx2
from fastmcp.server.auth.providers.jwt import JWTVerifier

from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.options import JwtOptions
from holdlog.adapters.auth.principal import Principal
from holdlog.domain.names import label
from holdlog.domain.refusals import InvalidError, UnavailableError
from holdlog.domain.token import MAX_ALLOWED, space_name

GRANTS_CLAIM: Final = "holdlog"
SPACE_CLAIM: Final = "holdlog_space"
SCOPE_PREFIX: Final = "holdlog:"
REFRESH_SECONDS: Final = 10.0
"""Minimum time between two fetches of the keys, so that forged tokens cannot make us flood the provider."""
FETCH_SECONDS: Final = 10.0
LEEWAY_SECONDS: Final = 60.0
"""How far the provider's clock may be ahead of ours."""

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger("holdlog")


class JwtBearers:
    """Verifies JWTs. Raises InvalidError, with a one-line message, for options that cannot work."""

    def __init__(self, options: JwtOptions) -> None:
        _require_whole(options)
        self._verifier = _Keys(
            jwks_uri=options.jwks_url,
            issuer=options.issuer,
            audience=options.audience,
            algorithm=options.algorithm,
            jwks_refresh_interval=REFRESH_SECONDS,
        )

    async def bearer(self, text: str) -> Principal | None:
        """Verify a token and return its principal. Raises UnavailableError if the provider's keys cannot be fetched."""
        try:
            found = await self._verifier.load_access_token(text)
            return None if found is None else _principal(found.claims)
        except UnavailableError:
            raise
        except Exception as error:  # input from a stranger must never surface as our error
            _log.debug("a JWT was refused: %s", type(error).__name__)
            return None


def _require_whole(options: JwtOptions) -> None:
    required = {
        "--jwt-issuer": options.issuer,
        "--jwt-audience": options.audience,
        "--jwt-jwks-url": options.jwks_url,
    }
    for name, value in required.items():
        if not value or not value.strip():
            raise InvalidError(
                f"{name}: is required; JWTs need --jwt-issuer, --jwt-audience and --jwt-jwks-url together"
            )
    url = urlsplit(options.jwks_url)
    if not url.hostname or (url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK)):
        raise InvalidError(
            "--jwt-jwks-url: must be https://… (http:// only on this machine), because anyone who "
            "can change the keys gets access"
        )
    if options.algorithm not in _ALGORITHMS:
        raise InvalidError(f"--jwt-algorithm: must be one of {', '.join(_ALGORITHMS)}")


def _principal(claims: Mapping[str, Any]) -> Principal | None:
    """The principal of the claims; None for a token without a subject or expiry, or issued in the future."""
    subject, end, start = claims.get("sub"), claims.get("exp"), claims.get("nbf", 0)
    now = time.time()
    if not isinstance(subject, str) or not _is_time(end) or not _is_time(start):
        return None
    if end <= now or start > now + LEEWAY_SECONDS:
        return None
    try:
        if label(subject) != subject:
            return None  # distinct subjects must not map to one principal
        name = label(f"jwt:{subject}")
        space = space_name(claims[SPACE_CLAIM]) if SPACE_CLAIM in claims else None
    except (ValueError, TypeError):
        return None
    return Principal(name, Grants.of(_granted(claims)), space, int(end * 1_000_000))


def _granted(claims: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scopes with our prefix and the grants in our own claim. Invalid grants are ignored later and allow
    nothing."""
    scopes = claims.get("scope", claims.get("scp", ()))
    given = [it.removeprefix(SCOPE_PREFIX) for it in _listed(scopes) if it.startswith(SCOPE_PREFIX)]
    yield from (given + _listed(claims.get(GRANTS_CLAIM, ())))[:MAX_ALLOWED]


def _listed(claim: object) -> list[str]:
    found = claim.split() if isinstance(claim, str) else claim
    return [it for it in found if isinstance(it, str)] if isinstance(found, list) else []


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value < 1e12


class _Keys(JWTVerifier):
    """Distinguishes an invalid token from a provider that does not answer."""

    _unreachable = False

    async def _fetch_jwks(self) -> dict[str, Any]:
        self._unreachable = True
        with suppress(httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError, TimeoutError):
            async with asyncio.timeout(FETCH_SECONDS):  # all callers that need the keys wait for this fetch
                found: Any = await super()._fetch_jwks()
            if isinstance(found, dict) and isinstance(found.get("keys"), list):
                self._unreachable = False
                return cast(dict[str, Any], found)
        raise _unavailable()

    async def _get_jwks_key(self, kid: str | None) -> str:
        try:
            return await super()._get_jwks_key(kid)
        except ValueError:
            if self._unreachable:
                raise _unavailable() from None
            raise


def _unavailable() -> UnavailableError:
    return UnavailableError(
        "the identity provider's keys cannot be fetched now; try again", retry_after=REFRESH_SECONDS
    )
