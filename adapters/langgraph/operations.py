"""A batch of LangGraph's operations: its reads, at one position of the log, and its writes, in one transaction."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, Op, PutOp, Result, SearchOp

from holdlog.adapters.api.pagination import chunks
from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.validation import checked, whole
from holdlog.adapters.api.values.requests import time_to_live
from holdlog.adapters.langgraph.filters import matches, require_known
from holdlog.adapters.langgraph.items import VersionedSearchItem, found_item, is_item, item, value_of
from holdlog.adapters.langgraph.namespaces import Labels, below, listed, text_of
from holdlog.domain.ports import Reader
from holdlog.domain.record import AnyOperation, Delete, Record, Transact, seen
from holdlog.domain.refusals import InvalidError, NotFoundError

StoreRead = Callable[[Reader], Result]
ItemAddress = tuple[str, str]

_MINUTE: Final = 60.0


class VersionedPut(PutOp):
    """A PutOp that is refused unless this is the item's version; 0: must not exist, None: any version."""

    expected_version: int | None

    def __new__(
        cls,
        namespace: Labels,
        key: str,
        value: Mapping[str, Any] | None,
        index: Literal[False] | list[str] | None = None,
        ttl: float | None = None,
        *,
        expected_version: int | None = None,
    ) -> "VersionedPut":
        put = super().__new__(cls, namespace, key, value, index, ttl)
        put.expected_version = expected_version
        return put


class Batch:
    """Reads come first, whatever their place in the batch, as in LangGraph's own stores; writes in their order, all or
    none.

    Raises InvalidError, InvalidNamespaceError: then nothing is done. `results`: of each operation, in their order.
    """

    def __init__(self, calls: Requests, by: str, operations: Iterable[Op]) -> None:
        all_operations = list(operations)
        self.results: list[Result] = [None] * len(all_operations)
        self._by = by
        self._reads = {
            index: _read_of(calls, it) for index, it in enumerate(all_operations) if not isinstance(it, PutOp)
        }
        self._writes = [_written(calls, by, it) for it in all_operations if isinstance(it, PutOp)]
        self._optional = [it for it in self._writes if isinstance(it, Delete) and it.expected_version is None]
        self._existing: set[ItemAddress] = set()
        self._large = any(isinstance(it, SearchOp | ListNamespacesOp) for it in all_operations)

    @property
    def read(self) -> Query[None] | None:
        """The query that fills the results, and finds which deletions apply; None if nothing has to be read."""
        return Query(self._read, self._large) if self._reads or self._optional else None

    @property
    def write(self) -> CommandRequest[None] | None:
        """The command after the read; None if there is nothing to write."""
        operations = tuple(self._needed())
        if not operations:
            return None
        return CommandRequest(checked(lambda: Transact(operations=operations, by=self._by)), lambda outcome: None)

    def met_a_deletion(self, refusal: NotFoundError) -> bool:
        """Whether the refusal means that an item to be deleted was deleted meanwhile. That is not a failure: the caller
        reads and writes again."""
        gone = (refusal.facts.get("namespace"), refusal.facts.get("key"))
        return any(gone == _address(it) for it in self._optional)

    def _read(self, reader: Reader) -> None:
        for index, read in self._reads.items():
            self.results[index] = read(reader)
        found = {_address(it): reader.record(it.namespace, it.key) for it in self._optional}
        self._existing = {address for address, record in found.items() if seen(record, reader.at).live}

    def _needed(self) -> Iterator[AnyOperation]:
        """All writes except deletions of missing items, which LangGraph ignores."""
        existing = set(self._existing)
        for operation in self._writes:
            address = _address(operation)
            if not isinstance(operation, Delete):
                existing.add(address)
            elif operation.expected_version is None and address not in existing:
                continue
            else:
                existing.discard(address)
            yield operation


def _read_of(calls: Requests, operation: Op) -> StoreRead:
    match operation:
        case GetOp(namespace=labels, key=key):
            record = calls.values.record(text_of(labels), key).answer
            return lambda reader: item(reader, record(reader), labels)
        case SearchOp() as search:
            _require_page(search)
            require_known(search.filter or {})
            text_of(search.namespace_prefix)
            return lambda reader: cast("Result", _found(reader, search))
        case ListNamespacesOp() as listing:
            _require_page(listing)
            return lambda reader: cast("Result", listed(reader, listing))
        case _:
            raise InvalidError("operations: must be GetOp, PutOp, SearchOp or ListNamespacesOp")


def _written(calls: Requests, by: str, put: PutOp) -> AnyOperation:
    if not put.namespace:
        raise InvalidNamespaceError("a namespace must have at least one label")
    namespace, expected = text_of(put.namespace), getattr(put, "expected_version", None)
    if put.value is None:
        command = calls.values.delete(namespace, put.key, by, expected).command
    else:
        command = calls.values.set(
            namespace, put.key, _object(put.value), by, expected, ttl_seconds=_seconds(put.ttl)
        ).command
    assert isinstance(command, Transact)
    return command.operations[0]


def _object(value: object) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidError("value: must be an object")
    return dict(value)


def _found(reader: Reader, search: SearchOp) -> list[VersionedSearchItem]:
    """Newest first; at the same time by namespace and key."""
    fitting = (
        (-record.updated_at, text, record.key, labels, record)
        for text, labels in below(reader, tuple(search.namespace_prefix))
        for record in _records(reader, text)
        if is_item(record) and (not search.filter or matches(value_of(record), search.filter))
    )
    newest = heapq.nsmallest(search.offset + search.limit, fitting)[search.offset :]
    return [found_item(reader, record, labels) for *_, labels, record in newest]


def _records(reader: Reader, namespace: str) -> Iterator[Record]:
    return chunks(lambda key, size: reader.records(namespace, "", key, size, False), None, lambda it: it.key)


def _require_page(operation: SearchOp | ListNamespacesOp) -> None:
    whole(operation.limit, "limit")
    whole(operation.offset, "offset")


def _seconds(minutes: float | None) -> float | None:
    try:
        return None if minutes is None else time_to_live(minutes * _MINUTE)
    except (InvalidError, TypeError):
        raise InvalidError("ttl: must be a number of minutes above 0, at most ten years") from None


def _address(operation: AnyOperation) -> ItemAddress:
    return operation.namespace, operation.key
