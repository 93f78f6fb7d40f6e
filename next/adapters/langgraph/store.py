"""LangGraph's `BaseStore` over the values of a store."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    InvalidNamespaceError,
    NotProvided,
    Op,
    PutOp,
    Result,
    TTLConfig,
)
from pydantic import Field

from holdlog.adapters.langgraph.search import Labels, VersionedItem, join_labels, prepare_read
from holdlog.adapters.operations.base import Agent, Command
from holdlog.adapters.operations.steps import Run, Steps, take_steps
from holdlog.adapters.operations.values import DiscardStep, SetStep
from holdlog.adapters.python.base import AsyncSteps, Handle
from holdlog.adapters.python.store import StateStore
from holdlog.domain import records
from holdlog.domain.refusals import InvalidError
from holdlog.domain.results import TransactionResult

MINUTE: Final = 60.0
Index = Literal[False] | list[str] | None


class VersionedPut(PutOp):
    """A PutOp that is refused unless the item has this version; 0: must not exist, None: any."""

    expected_version: int | None

    def __new__(
        cls,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any] | None,
        index: Index = None,
        ttl: float | None = None,
        *,
        expected_version: int | None = None,
    ) -> Self:
        put = super().__new__(cls, namespace, key, cast("dict[str, Any] | None", value), index, ttl)
        put.expected_version = expected_version
        return put


class WriteItems(Command):
    """The puts and deletions of a batch, in one transaction."""

    results = (TransactionResult,)
    reads, decide = records.declare_steps, records.transact
    guard: ClassVar[None] = None
    reason: ClassVar[None] = None
    operations: list[Annotated[SetStep | DiscardStep, Field(discriminator="op")]] = Field(max_length=1000)
    updated_by: Agent


class HoldlogStore(AsyncSteps, BaseStore):
    """A store that all processes of a graph share: `graph.compile(store=HoldlogStore("state.db"))`.

    Items are `VersionedItem`s. `put` and `delete` take the version that they are based on as `expected_version`, and
    raise ConflictError if it is another. The reads of a batch come first and see one state; its writes, at most 1,000,
    are one transaction, and the last one of a key counts. A time to live counts from the write: reads do not renew it.
    There is no index: `query`, `index` and `refresh_ttl` are ignored. Thread-safe; coroutines use the methods that
    begin with `a`. Each method raises InvalidError, or LangGraph's InvalidNamespaceError, for an invalid argument, and
    UnavailableError and StoreError as StateStore.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Handle | str | os.PathLike[str],
        *,
        updated_by: str = "langgraph",
        ttl: TTLConfig | None = None,
    ) -> None:
        """`store`: an open StateStore or AsyncStateStore, which `close` leaves open, or what StateStore opens.
        `updated_by`: the author. `ttl`: only `default_ttl`, in minutes, is used."""
        if ttl is not None and ttl.get("refresh_on_read"):
            raise InvalidError("ttl: refresh_on_read is not possible, as reads write nothing; put the item again")
        self.ttl_config = cast("TTLConfig", {**(ttl or {}), "refresh_on_read": False})
        self._updated_by = WriteItems.parse({"operations": [], "updated_by": updated_by}).updated_by
        self._own = None if isinstance(store, Handle) else StateStore(store)
        handle = store if isinstance(store, Handle) else self._own
        assert handle is not None
        self._engine, self._caller = handle._engine, handle._caller

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return cast("list[Result]", take_steps(self._carry_out([*ops]), self._engine))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return cast("list[Result]", await self._make(self._carry_out([*ops])))

    def get(self, namespace: Labels, key: str, *, refresh_ttl: bool | None = None) -> VersionedItem | None:
        return cast("VersionedItem | None", super().get(namespace, key))

    async def aget(self, namespace: Labels, key: str, *, refresh_ttl: bool | None = None) -> VersionedItem | None:
        return cast("VersionedItem | None", await super().aget(namespace, key))

    def put(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Index = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected_version: int | None = None,
    ) -> None:
        """Write an item. `ttl`: minutes. Raises ConflictError."""
        self.batch([self._make_put(namespace, key, value, ttl, expected_version)])

    async def aput(
        self,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any],
        index: Index = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected_version: int | None = None,
    ) -> None:
        await self.abatch([self._make_put(namespace, key, value, ttl, expected_version)])

    def delete(self, namespace: Labels, key: str, *, expected_version: int | None = None) -> None:
        """Delete an item, if there is one. Raises ConflictError if it has not the expected version."""
        self.batch([VersionedPut(namespace, str(key), None, expected_version=expected_version)])

    async def adelete(self, namespace: Labels, key: str, *, expected_version: int | None = None) -> None:
        await self.abatch([VersionedPut(namespace, str(key), None, expected_version=expected_version)])

    def close(self) -> None:
        """Close the store, if this opened it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _carry_out(self, operations: Sequence[Op]) -> Steps:
        """Reads, then writes. Nothing is done if an argument is invalid."""
        puts = {(put.namespace, put.key): put for put in operations if isinstance(put, PutOp)}
        reads = {at: prepare_read(op) for at, op in enumerate(operations) if not isinstance(op, PutOp)}
        steps = [_describe_put(put) for put in puts.values()]
        write = WriteItems.parse({"operations": steps, "updated_by": self._updated_by})
        self._engine.require_open()
        results: list[Result] = [None] * len(operations)

        def read_all() -> None:
            with self._engine.store.snapshot() as view:
                for at, read in reads.items():
                    results[at] = read(view)

        if reads:
            yield read_all
        if steps:
            yield Run(write, self._caller)
        return results

    def _make_put(
        self, namespace: Labels, key: str, value: Any, ttl: float | NotProvided | None, expected_version: int | None
    ) -> VersionedPut:
        if namespace[:1] == ("langgraph",):
            raise InvalidNamespaceError("the first label of a namespace must not be langgraph")
        if value is None:
            raise InvalidError("value: must be an object")
        config = self.ttl_config or {}
        minutes = config.get("default_ttl") if isinstance(ttl, NotProvided) else ttl
        return VersionedPut(namespace, str(key), value, None, minutes, expected_version=expected_version)


def _describe_put(put: PutOp) -> dict[str, Any]:
    if not put.namespace:
        raise InvalidNamespaceError("a namespace must have a label")
    about: dict[str, Any] = {"namespace": join_labels(put.namespace), "key": put.key}
    about |= {"expected_version": getattr(put, "expected_version", None)}
    if put.value is None:
        return about | {"op": "discard"}
    if not isinstance(put.value, Mapping):
        raise InvalidError("value: must be an object")
    if not isinstance(put.ttl, (int, float)) and put.ttl is not None:
        raise InvalidError("ttl: must be a number of minutes")
    seconds = None if put.ttl is None else put.ttl * MINUTE
    return about | {"op": "set", "value": dict(put.value), "ttl_seconds": seconds}
