"""LangGraph's reads: items, searches with filters, and namespaces, which are labels joined by slashes."""

import operator
from collections.abc import Callable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, Final
from urllib.parse import quote, unquote

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    Result,
    SearchItem,
    SearchOp,
)

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.rows import NO_LIMIT, scan, show_record
from holdlog.adapters.operations.values import Get
from holdlog.adapters.stores import sql
from holdlog.domain.names import check_name, end_of_range, namespace_prefix, split_stream, value_stream
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.results import utc
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

    def __init__(self, view: Reader, record: StateRecord, labels: Labels) -> None:
        created_at = record.updated_at
        if record.version > 1:
            stream = value_stream(record.namespace, record.key)
            created_at = utc(view.read(sql.TIME_OF_VERSION, {"stream": stream, "version": 1})[0][1])
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
            return lambda view: _get(view, query, labels)
        case SearchOp():
            _require_page(operation)
            _require_operators(operation.filter)
            join_labels(operation.namespace_prefix)
            return lambda view: _search(view, operation)
        case ListNamespacesOp():
            _require_page(operation)
            return lambda view: _list_namespaces(view, operation)
        case _:
            raise InvalidError("ops: must be GetOp, PutOp, SearchOp or ListNamespacesOp")


def _get(view: Reader, query: Get, labels: Labels) -> VersionedItem | None:
    """Raises InvalidError for a value that is not an object: another program wrote it, and it is not hidden."""
    try:
        record = query.read(view)
    except NotFoundError:
        return None
    if not isinstance(record.value, dict):
        raise InvalidError(f"{record.namespace}/{record.key}: its value is not an object, as items are")
    return VersionedItem(view, record, labels)


def _search(view: Reader, search: SearchOp) -> Any:
    """Items below the labels that match, the newest first. Reads all of them."""
    fitting = (
        (-record.updated_at.timestamp(), record.namespace, record.key, labels, record)
        for labels, record in _scan_below(view, search.namespace_prefix)
        if isinstance(record.value, dict) and _is_match(record.value, search.filter or {})
    )
    newest = nsmallest(search.offset + search.limit, fitting)[search.offset :]
    return [VersionedItem(view, record, labels) for *_, labels, record in newest]


def _scan_below(view: Reader, prefix: Labels) -> Iterator[tuple[Labels, StateRecord]]:
    text = join_labels(prefix)
    ranges = (namespace_prefix(text), namespace_prefix(f"{text}/")[:-1]) if prefix else ("record:",)
    for first in ranges:
        parameters = {"first": first, "end": end_of_range(first), "after": "", "now": view.now()}
        for row in scan(view, sql.RECORDS, parameters, NO_LIMIT):
            record = show_record(row, view.now())
            if (labels := split_namespace(record.namespace)) is not None:
                yield labels, record


def _list_namespaces(view: Reader, operation: ListNamespacesOp) -> Any:
    parameters = {"first": "record:", "end": end_of_range("record:"), "now": view.now()}
    namespaces = {split_stream(stream)[0] for (stream,) in view.read(sql.LIVE_STREAMS, parameters)}
    conditions = operation.match_conditions or ()
    found = {
        labels[: operation.max_depth]
        for labels in map(split_namespace, namespaces)
        if labels is not None and all(_meets(condition, labels) for condition in conditions)
    }
    return sorted(found)[operation.offset : operation.offset + operation.limit]


def _meets(condition: MatchCondition, labels: Labels) -> bool:
    path = tuple(condition.path)
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[-len(path) :]
    return len(part) == len(path) and all(wanted in (_ANY, label) for wanted, label in zip(path, part, strict=True))


# --- namespaces


def join_labels(labels: Labels) -> str:
    """The namespace of some labels: `("users", "ann")` is `users/ann`. In a label, `%` and `/` are percent-encoded, and
    so are all special characters of a label that is no name. Raises InvalidNamespaceError."""
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
        return plain if _is_name(plain) else quote(label, safe="")
    except UnicodeEncodeError:
        raise InvalidNamespaceError("a label of a namespace must not contain a lone surrogate") from None


def _is_name(text: str) -> bool:
    try:
        return check_name(text) == text
    except ValueError:
        return False


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
    return all(_compare(value.get(name), wanted) for name, wanted in filters.items())


def _compare(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_apply(name, value, other) for name, other in wanted.items())
        return isinstance(value, Mapping) and _is_match(value, wanted)
    if isinstance(wanted, (list, tuple)):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_compare, value, wanted))
    return bool(value == wanted)


def _apply(name: str, value: Any, other: Any) -> bool:
    """Numbers compare with numbers, and texts with texts; no others match."""
    if name in ("$eq", "$ne"):
        return bool(value == other) is (name == "$eq")
    kinds = {str if isinstance(it, str) else float if type(it) in (int, float) else None for it in (value, other)}
    return len(kinds) == 1 and None not in kinds and bool(_ORDERS[name](value, other))
