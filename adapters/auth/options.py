"""The options that decide who may call over HTTP."""

from dataclasses import MISSING, dataclass
from typing import Final

from holdlog.adapters.operating_system.options import SWITCH, option, text

STATIC_TOKEN: Final = "HOLDLOG_AUTH_TOKEN"
"""The variable that contains a token which allows everything."""


@dataclass(frozen=True)
class AuthOptions:
    """Whether tokens are required, and the static one."""

    insecure: bool = option(
        "require no token even on addresses that other machines can reach",
        SWITCH,
        unset="refuse to start",
        default=False,
    )
    auth: bool = option(
        "require tokens, and refuse to start if there is none",
        SWITCH,
        unset="require them if there is one",
        default=False,
    )
    auth_token_file: str | None = option(
        f"a file with one token that allows everything; or set {STATIC_TOKEN}",
        text("FILE"),
        variable=STATIC_TOKEN,
        is_secret=True,
    )


@dataclass(frozen=True)
class JwtOptions:
    """Options of the verification of JWTs; the first three are required. `jwks_url`: where the provider publishes its
    keys (RFC 7517)."""

    issuer: str = option(
        "accept JWTs of this issuer; needs --jwt-audience and --jwt-jwks-url",
        text("URL"),
        name="jwt_issuer",
        default=MISSING,
    )
    audience: str = option("the audience that JWTs must have", text("TEXT"), name="jwt_audience", default=MISSING)
    jwks_url: str = option("the public keys of the issuer", text("URL"), name="jwt_jwks_url", default=MISSING)
    algorithm: str = option("the signature algorithm of JWTs", text("NAME"), name="jwt_algorithm", default="RS256")
