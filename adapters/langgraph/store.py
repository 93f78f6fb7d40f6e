"""LangGraph's `BaseStore` over the values of a store."""

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast
from urllib.parse import quote, unquote

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from pydantic import Field

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.async_steps import AsyncSteps
from holdlog.adapters.operations.base import Agent, Command
from holdlog.adapters.operations.rows import NO_LIMIT, scan, show_record
from holdlog.adapters.operations.steps import Run, Steps, take_steps
from holdlog.adapters.operations.values import DiscardStep, Get, SetStep
from holdlog.adapters.python.base import Handle
from holdlog.adapters.python.store import StateStore
from holdlog.adapters.stores import sql
from holdlog.domain import records
from holdlog.domain.names import end_of_range, is_name, namespace_prefix, split_stream, value_stream
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.results import TransactionResult, utc
from holdlog.projections.results import StateRecord

Labels = tuple[str, ...]
_ANY: Final = "*"
_ORDERS: Final = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_OPERATORS: Final = ("$eq", "$ne", *_ORDERS)


class VersionedItem(SearchItem):
    """An item with its `version`, which `put` takes as `expected_version`; `updated_by`, who wrote it, and `principal`,
    who that was authenticated as (None: the local user). `created_at` is when the key was first written, even if it was
    deleted since. There is no ranking: `score` is None."""

    __slots__ = ("principal", "updated_by", "version")

    def __init__(self, snapshot: Reader, record: StateRecord, labels: Labels) -> None:
        created_at = record.updated_at
        if record.version > 1:
            stream = value_stream(record.namespace, record.key)
            created_at = utc(snapshot.read(sql.TIME_OF_VERSION, {"stream": stream, "version": 1})[0][1])
        super().__init__(labels, record.key, record.value, created_at, record.updated_at)
        self.version = record.version
        self.updated_by = record.updated_by
        self.principal = record.principal

    def dict(self) -> Any:
        facts = {"version": self.version, "updated_by": self.updated_by, "principal": self.principal}
        return super().dict() | facts


def prepare_read(operation: Op) -> Callable[[Reader], Result]:
    """What carries out a read. Raises InvalidError, InvalidNamespaceError."""
    match operation:
        case GetOp(namespace=labels, key=key):
            query = Get.parse({"namespace": join_labels(labels), "key": key})
            return lambda snapshot: _get(snapshot, query, labels)
        case SearchOp():
            _require_page(operation)
            _require_operators(operation.filter)
            join_labels(operation.namespace_prefix)
            return lambda snapshot: _search(snapshot, operation)
        case ListNamespacesOp():
            _require_page(operation)
            return lambda snapshot: _list_namespaces(snapshot, operation)
        case _:
            raise InvalidError("ops: must be GetOp, PutOp, SearchOp or ListNamespacesOp")


def _get(snapshot: Reader, query: Get, labels: Labels) -> VersionedItem | None:
    """Raises InvalidError for a value that is not an object: another program wrote it, and it is not hidden."""
    try:
        record = query.read(snapshot)
    except NotFoundError:
        return None
    if not isinstance(record.value, dict):
        raise InvalidError(f"{record.namespace}/{record.key}: its value is not an object, as items are")
    return VersionedItem(snapshot, record, labels)


def _search(snapshot: Reader, search: SearchOp) -> Any:
    """Items below the labels that match, the newest first. Reads all of them."""
    fitting = (
        (-record.updated_at.timestamp(), record.namespace, record.key, labels, record)
        for labels, record in _scan_below(snapshot, search.namespace_prefix)
        if isinstance(record.value, dict) and _is_match(record.value, search.filter or {})
    )
    newest = nsmallest(search.offset + search.limit, fitting)[search.offset :]
    return [VersionedItem(snapshot, record, labels) for *_, labels, record in newest]


def _scan_below(snapshot: Reader, prefix: Labels) -> Iterator[tuple[Labels, StateRecord]]:
    text = join_labels(prefix)
    ranges = (namespace_prefix(text), namespace_prefix(f"{text}/")[:-1]) if prefix else ("record:",)
    for first in ranges:
        parameters = {"first": first, "end": end_of_range(first), "after": "", "now": snapshot.now()}
        for row in scan(snapshot, sql.RECORDS, parameters, NO_LIMIT):
            record = show_record(row, snapshot.now())
            if (labels := split_namespace(record.namespace)) is not None:
                yield labels, record


def _list_namespaces(snapshot: Reader, operation: ListNamespacesOp) -> Any:
    parameters = {"first": "record:", "end": end_of_range("record:"), "now": snapshot.now()}
    namespaces = {split_stream(stream)[0] for (stream,) in snapshot.read(sql.LIVE_STREAMS, parameters)}
    conditions = operation.match_conditions or ()
    selected = {
        labels[: operation.max_depth]
        for labels in map(split_namespace, namespaces)
        if labels is not None and all(_matches(condition, labels) for condition in conditions)
    }
    return sorted(selected)[operation.offset : operation.offset + operation.limit]


def _matches(condition: MatchCondition, labels: Labels) -> bool:
    path = tuple(condition.path)
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[-len(path) :]
    return len(part) == len(path) and all(expected in (_ANY, label) for expected, label in zip(path, part, strict=True))


# --- namespaces


def join_labels(labels: Labels) -> str:
    """The namespace of some labels: `("users", "ann")` is `users/ann`. In a label, `%` and `/` are percent-encoded, and
    so are all special characters of a label that is not a valid name. Raises InvalidNamespaceError."""
    return "/".join(map(_encode, labels))


def split_namespace(text: str) -> Labels | None:
    """The labels of a namespace; None for one that no labels have."""
    try:
        labels = tuple(unquote(part, errors="strict") for part in text.split("/"))
        return labels if join_labels(labels) == text else None
    except ValueError:
        return None


def _encode(label: Any) -> str:
    if not isinstance(label, str) or not label or "." in label or "\0" in label:
        raise InvalidNamespaceError("a label of a namespace must be a text without periods and NUL, and not empty")
    plain = label.replace("%", "%25").replace("/", "%2F")
    try:
        return plain if is_name(plain) else quote(label, safe="")
    except UnicodeEncodeError:
        raise InvalidNamespaceError("a label of a namespace must not contain a lone surrogate") from None


# --- filters


def _require_page(operation: SearchOp | ListNamespacesOp) -> None:
    for name in ("limit", "offset"):
        if not isinstance(number := getattr(operation, name), int) or number < 0:
            raise InvalidError(f"{name}: must be a whole number, at least 0")


def _require_operators(filters: Any) -> None:
    """Raises InvalidError for an unknown operator, however deep."""
    if isinstance(filters, Mapping):
        unknown = filters.keys() - set(_OPERATORS) if _has_operators(filters) else ()
        if unknown:
            raise InvalidError(f"filter: must use only the operators {', '.join(_OPERATORS)}")
        for part in filters.values():
            _require_operators(part)


def _has_operators(filters: Mapping[str, Any]) -> bool:
    return any(name.startswith("$") for name in filters)


def _is_match(value: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Whether each member matches; a missing one counts as null."""
    return all(_compare(value.get(name), expected) for name, expected in filters.items())


def _compare(value: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping):
        if _has_operators(expected):
            return all(_apply(name, value, other) for name, other in expected.items())
        return isinstance(value, Mapping) and _is_match(value, expected)
    if isinstance(expected, (list, tuple)):
        return isinstance(value, list) and len(value) == len(expected) and all(map(_compare, value, expected))
    return bool(value == expected)


def _apply(name: str, value: Any, other: Any) -> bool:
    """Numbers compare with numbers, and texts with texts; no others match."""
    if name in ("$eq", "$ne"):
        return bool(value == other) is (name == "$eq")
    kinds = {str if isinstance(it, str) else float if type(it) in (int, float) else None for it in (value, other)}
    return len(kinds) == 1 and None not in kinds and bool(_ORDERS[name](value, other))


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
        self, store: Handle | str | os.PathLike[str], *, updated_by: str = "langgraph", ttl: TTLConfig | None = None
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
            with self._engine.store.snapshot() as snapshot:
                for at, read in reads.items():
                    results[at] = read(snapshot)

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
    fields: dict[str, Any] = {"namespace": join_labels(put.namespace), "key": put.key}
    fields |= {"expected_version": getattr(put, "expected_version", None)}
    if put.value is None:
        return fields | {"op": "discard"}
    if not isinstance(put.value, Mapping):
        raise InvalidError("value: must be an object")
    if not isinstance(put.ttl, (int, float)) and put.ttl is not None:
        raise InvalidError("ttl: must be a number of minutes")
    seconds = None if put.ttl is None else put.ttl * MINUTE
    return fields | {"op": "set", "value": dict(put.value), "ttl_seconds": seconds}
