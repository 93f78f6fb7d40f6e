"""Verifies tokens: those of the store, one static token, JWTs of an identity provider."""

import hmac
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from holdlog.adapters.api.request import Query
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.adapters.auth.options import JwtOptions
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.auth.static import static_token
from holdlog.adapters.auth.tokens import bearer, hash_of, name_in
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.token import Token

if TYPE_CHECKING:
    from holdlog.adapters.auth.jwt import JwtBearers

REMEMBERED_SECONDS: Final = 1.0
"""Seconds that a stored token is cached; a revocation by another process takes effect here after this time at most."""
JWT_SECONDS: Final = 30.0
MOST_REMEMBERED: Final = 1_024

STATIC: Final = Principal("static", EVERYTHING)


class Verifier:
    """Safe for coroutines of one loop. `engine`: the main store, which has the tokens of all spaces."""

    def __init__(self, engine: Engine, static: str | None = None, jwt: "JwtBearers | None" = None) -> None:
        self._engine = engine
        self._static = None if static is None else hash_of(static)
        self._jwt = jwt
        self._remembered: dict[str, _Found] = {}

    async def verify(self, text: str) -> Principal | None:
        """The principal that a token identifies; None if it is invalid, expired or revoked. Raises UnavailableError.
        Changes that this process made to a token apply immediately, those of other processes within a second.
        """
        hashed = hash_of(text)
        if self._static is not None and hmac.compare_digest(hashed, self._static):
            return STATIC
        changes = self._engine.token_changes
        found = self._remembered.get(hashed)
        if found is not None and found.counts(time.monotonic(), changes, self._engine.requests.rules.clock()):
            return found.principal
        began = time.monotonic()
        if (name := name_in(text)) is not None:
            principal, seconds = await self._stored(name, hashed), REMEMBERED_SECONDS
        elif self._jwt is not None and text.count(".") == 2:
            principal, seconds = await self._jwt.bearer(text), JWT_SECONDS
        else:
            return None
        if principal is not None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[hashed] = _Found(principal, began + seconds, changes)
        return principal

    def offers_any(self) -> bool:
        """Whether any token can be valid: a static token, JWT, or a token of the store that was not revoked."""
        return self._static is not None or self._jwt is not None or any(it.is_known for it in self._tokens(-1))

    def is_requested(self) -> bool:
        """Whether callers must present a token: one exists or existed. Revoking the last token does not open the store
        to everybody."""
        return self._static is not None or self._jwt is not None or bool(self._tokens(1))

    def _tokens(self, limit: int) -> list[Token]:
        with self._engine.store.reader() as reader:
            return reader.tokens(None, limit)

    async def _stored(self, name: str, hashed: str) -> Principal | None:
        return await self._engine.read_async(Query(lambda reader: bearer(hashed, reader.token(name), reader.at)))


class _Found(NamedTuple):
    """A cached token. `until`: on the monotonic clock. `changes`: the number of token changes by this process at the
    time of the read."""

    principal: Principal
    until: float
    changes: int

    def counts(self, now: float, changes: int, at: int) -> bool:
        end = self.principal.expires_at
        return now < self.until and changes == self.changes and (end is None or at < end)


def build_verifier(
    engine: Engine,
    environ: Mapping[str, str],
    auth_token_file: str | None,
    jwt: JwtOptions | None,
    report: Callable[[str], None],
) -> Verifier:
    """Build a verifier from the configuration. `report` receives warnings. Raises InvalidError: then do not start."""
    static = static_token(environ, auth_token_file, report)
    bearers = None
    if jwt is not None:
        from holdlog.adapters.auth.jwt import JwtBearers

        bearers = JwtBearers(jwt)
    return Verifier(engine, static, bearers)
