"""JSON Web Tokens of an identity provider (RFC 7519)."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
from jwt.types import Options

from holdlog.adapters.auth.access import Access
from holdlog.domain.names import check_label
from holdlog.domain.refusals import InvalidError, UnavailableError
from holdlog.domain.tokens import check_grant, check_space

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With public keys: who knows the key that verifies must not be able to sign."""
_REQUIRED: Final[Options] = {"require": ["exp", "iss", "aud", "sub"]}
SCOPE: Final = "holdlog:"
"""Before a grant in the claim `scope`, as in `holdlog:write:build-*`."""
LEEWAY: Final = 10
"""Seconds by which the provider's clock may differ."""
FETCH_SECONDS: Final = 5
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
        except jwt.PyJWKClientConnectionError:
            raise UnavailableError("the keys of the identity provider cannot be read now; try again") from None
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError):
            return None


def read_options(issuer: str | None, audience: str | None, url: str | None) -> JwtVerifier | None:
    """The verifier that the options describe. Raises InvalidError."""
    if issuer is None and audience is None and url is None:
        return None
    for name, text in (("issuer", issuer), ("audience", audience), ("jwks-url", url)):
        if not text:
            raise InvalidError(f"--jwt-{name}: is missing; JWT need --jwt-issuer, --jwt-audience and --jwt-jwks-url")
    assert issuer is not None
    assert audience is not None
    assert url is not None
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
