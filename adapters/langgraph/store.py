"""LangGraph's `BaseStore` over a store of holdlog."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    InvalidNamespaceError,
    NotProvided,
    Op,
    Result,
    TTLConfig,
)

from holdlog.adapters.api.validation import AGENT, text
from holdlog.adapters.langgraph.items import VersionedItem, VersionedSearchItem
from holdlog.adapters.langgraph.namespaces import Labels
from holdlog.adapters.langgraph.operations import Batch, VersionedPut
from holdlog.adapters.python.async_store import AsyncStateStore
from holdlog.adapters.python.store import StateStore
from holdlog.domain.refusals import InvalidError, NotFoundError

DELETE_ATTEMPTS: Final = 100
"""Attempts of a batch; one fails if an item that it deletes was deleted meanwhile."""


class HoldlogStore(BaseStore):
    """A store that all processes of a graph share: `graph.compile(store=HoldlogStore("state.db"))`.

    Items have a `version`; `put` and `delete` take the one they were based on as `expected_version`, and raise
    ConflictError when it is another: nothing happened. The puts of a batch are one transaction. A time to live counts
    from the write: reads do not renew it. There is no index: `search` filters, and ignores `query`, as LangGraph's own
    stores without an index do. Thread-safe; coroutines use the methods that begin with `a`.
    """

    supports_ttl = True

    def __init__(
        self,
        store: StateStore | AsyncStateStore | str | Path,
        *,
        updated_by: str = "langgraph",
        ttl: TTLConfig | None = None,
    ) -> None:
        """Open a store, or use an open one. `store`: an open one, which `close` leaves open, or an argument of
        StateStore. `updated_by`: the writer.

        `ttl`: only its `default_ttl` is used, in minutes; values expire without a sweep. Raises InvalidError if it asks
        that reads renew it.
        """
        self._updated_by = text(updated_by, "updated_by", AGENT)
        if ttl is not None and ttl.get("refresh_on_read"):
            raise InvalidError("ttl: refresh_on_read is not supported, because reads write nothing; put the item again")
        self.ttl_config = cast("TTLConfig", {**(ttl or {}), "refresh_on_read": False})
        self._own = None if isinstance(store, StateStore | AsyncStateStore) else StateStore(store)
        self._engine = (self._own or cast("StateStore", store))._engine

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        batch = Batch(self._engine.requests, self._updated_by, ops)
        for attempt in range(1, DELETE_ATTEMPTS + 1):
            if (read := batch.read) is not None:
                self._engine.read(read)
            try:
                if (write := batch.write) is not None:
                    self._engine.write(write, self._engine.caller)
                break
            except NotFoundError as refusal:
                if attempt == DELETE_ATTEMPTS or not batch.met_a_deletion(refusal):
                    raise
        return batch.results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        batch = Batch(self._engine.requests, self._updated_by, ops)
        for attempt in range(1, DELETE_ATTEMPTS + 1):
            if (read := batch.read) is not None:
                await self._engine.read_async(read)
            try:
                if (write := batch.write) is not None:
                    await self._engine.write_async(write, self._engine.caller)
                break
            except NotFoundError as refusal:
                if attempt == DELETE_ATTEMPTS or not batch.met_a_deletion(refusal):
                    raise
        return batch.results

    def get(self, namespace: Labels, key: str, *, refresh_ttl: bool | None = None) -> VersionedItem | None:
        """The item; `refresh_ttl` is ignored. Raises InvalidError for a value that is not an object."""
        return cast("VersionedItem | None", super().get(namespace, key))

    async def aget(self, namespace: Labels, key: str, *, refresh_ttl: bool | None = None) -> VersionedItem | None:
        return cast("VersionedItem | None", await super().aget(namespace, key))

    def search(  # type: ignore[override] # a list of a subclass: LangGraph never puts into it
        self,
        namespace_prefix: Labels,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[VersionedSearchItem]:
        """The matching items, most recently written first. Reads all items below the prefix; ignores `query` and
        `refresh_ttl`. Numbers compare with numbers, texts with texts; other pairs do not match."""
        found = super().search(namespace_prefix, filter=filter, limit=limit, offset=offset)
        return cast("list[VersionedSearchItem]", found)

    async def asearch(  # type: ignore[override]
        self,
        namespace_prefix: Labels,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[VersionedSearchItem]:
        found = await super().asearch(namespace_prefix, filter=filter, limit=limit, offset=offset)
        return cast("list[VersionedSearchItem]", found)

    def put(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected_version: int | None = None,
    ) -> None:
        """Write an item. `expected_version`: N: exactly N, 0: must not exist now, None: any. `ttl`: minutes; without it
        the item does not expire, unless the store has a default. `index` is ignored. Raises ConflictError."""
        self.batch([self._put(namespace, key, value, index, ttl, expected_version)])

    async def aput(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected_version: int | None = None,
    ) -> None:
        await self.abatch([self._put(namespace, key, value, index, ttl, expected_version)])

    def delete(self, namespace: Labels, key: str, *, expected_version: int | None = None) -> None:
        """Delete an item. Without `expected_version`, a missing item is not an error; with it raises NotFoundError or
        ConflictError."""
        self.batch([VersionedPut(namespace, str(key), None, expected_version=expected_version)])

    async def adelete(self, namespace: Labels, key: str, *, expected_version: int | None = None) -> None:
        await self.abatch([VersionedPut(namespace, str(key), None, expected_version=expected_version)])

    def close(self) -> None:
        """Close the store, if this opened it."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None,
        ttl: float | NotProvided | None,
        expected_version: int | None,
    ) -> VersionedPut:
        if namespace[:1] == ("langgraph",):
            raise InvalidNamespaceError("the first label of a namespace cannot be langgraph")
        minutes = (self.ttl_config or {}).get("default_ttl") if isinstance(ttl, NotProvided) else ttl
        return VersionedPut(namespace, str(key), value, index, minutes, expected_version=expected_version)
