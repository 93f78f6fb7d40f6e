"""Limits for callers that create their own tokens: the number of such tokens, and the bytes of each one's space."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from holdlog.adapters.auth.access import Access
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Command, Operation, Query
from holdlog.adapters.operations.tokens import TokenCreate
from holdlog.adapters.stores import sql
from holdlog.domain.moment import Caller
from holdlog.domain.names import end_of_range, namespace_prefix
from holdlog.domain.refusals import InvalidError
from holdlog.domain.tokens import NewToken, token_stream

PREFIX: Final = "open-"
"""Prefix of the names of such tokens. A token's space has the same name."""
_VALUES: Final = ("value", "merge", "append")
"""Arguments whose values a space stores."""


class Quota:
    """Checks the limits. Writes to such spaces run one after the other, so that concurrent ones cannot exceed a limit
    together."""

    def __init__(
        self,
        max_tokens: int,
        max_bytes: int,
        query: Callable[[Query], Awaitable[Any]],
        submit: Callable[[Any, Caller], Awaitable[Any]],
    ) -> None:
        self._max_tokens, self._max_bytes = max_tokens, max_bytes
        self._query, self._submit = query, submit
        self._lock = asyncio.Lock()

    async def create(self, command: TokenCreate, caller: Caller) -> NewToken | None:
        """Create a token. Returns None if there are already as many as allowed."""
        async with self._lock:
            if await self._query(_CountTokens()) >= self._max_tokens:
                return None
            token: NewToken = await self._submit(command, caller)
            return token

    @asynccontextmanager
    async def check(self, operation: Operation, access: Access) -> AsyncIterator[None]:
        """Run an operation in this block. Raises InvalidError if it would make its space too large."""
        size = measure(operation)
        space = access.space or ""
        if not size or not space.startswith(PREFIX) or access.principal != f"token:{space}":
            yield
            return
        async with self._lock:
            if await self._query(_MeasureSpace.model_construct(space=space)) + size > self._max_bytes:
                raise InvalidError(f"value: a space has at most {self._max_bytes} bytes; delete what is not needed")
            yield


def measure(operation: Any) -> int:
    """Bytes of the values that an operation writes."""
    if not isinstance(operation, Command):
        return 0
    steps = (operation, *getattr(operation, "operations", ()))
    values = (getattr(step, name, None) for step in steps for name in _VALUES)
    return sum(len(value.encode()) for value in values if isinstance(value, str))


class _CountTokens(Query):
    """The number of valid tokens that callers have created."""

    def read(self, reader: Reader) -> int:
        first = token_stream(PREFIX)
        parameters = {"first": first, "end": end_of_range(first), "now": reader.now()}
        return len(reader.read(sql.LIVE_STREAMS, parameters))


class _MeasureSpace(Query):
    """Bytes of the current values of a space."""

    space: str

    def read(self, reader: Reader) -> int:
        first = namespace_prefix(f"{self.space}/").removesuffix("/")
        rows = reader.read(sql.SIZE, {"first": first, "end": end_of_range(first), "now": reader.now()})
        return int(rows[0][0])
