"""Find out who calls, by the token in a header: one of the store, or a JWT of an identity provider."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from holdlog.adapters.auth.access import Access
from holdlog.adapters.auth.jwt import JwtVerifier
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Operation, Query
from holdlog.adapters.operations.rows import is_live
from holdlog.adapters.operations.tokens import FindToken
from holdlog.adapters.stores import sql
from holdlog.domain.refusals import InvalidError
from holdlog.domain.tokens import token_stream

_AUTHORS: Final = ("agent", "updated_by", "deleted_by", "reverted_by")
"""Arguments that name who calls."""
_PRINCIPALS: Final = ("token:", "jwt:")


class Authenticator:
    """`ask` answers queries, and `in_pool` calls functions that block; `jwt` is None if no provider is trusted. If
    `is_open`, the server needs no tokens."""

    def __init__(
        self,
        ask: Callable[[Query], Awaitable[Any]],
        in_pool: Callable[..., Awaitable[Any]],
        jwt: JwtVerifier | None,
        is_open: bool,
    ) -> None:
        self._ask = ask
        self._in_pool = in_pool
        self._jwt = jwt
        self.is_open = is_open

    async def find_access(self, headers: Mapping[str, str]) -> Access | None:
        """What the caller may do; None without a valid token. Raises InvalidError for two tokens, UnavailableError."""
        if self.is_open:
            return Access()
        text = _read_token(headers)
        if text is None:
            return None
        token = await self._ask(FindToken.model_construct(text=text))
        if token is not None:
            return Access(f"token:{token.name}", token.allow, token.space, token.expires_at)
        if self._jwt is None or text.count(".") != 2:
            return None
        access: Access | None = await self._in_pool(self._jwt.verify, text)
        return access

    async def check_author(self, operation: Operation, access: Access) -> None:
        """Raises InvalidError if an operation is to be recorded under the name of another principal."""
        if self.is_open or isinstance(operation, Query):
            return
        for argument in _AUTHORS:
            author = getattr(operation, argument, None)
            if author is None or author == access.principal:
                continue
            root = author.partition("/")[0].casefold()
            is_named = root.startswith(_PRINCIPALS)
            if is_named or (
                f"token:{root}" != access.principal and await self._ask(_HasToken.model_construct(token=root))
            ):
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
