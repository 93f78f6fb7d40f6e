"""Converts between LangGraph's namespaces (tuples of labels) and those of records (labels joined by slashes)."""

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote

from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition

from holdlog.adapters.api.pagination import chunks
from holdlog.domain.names import name
from holdlog.domain.ports import Reader

Labels = tuple[str, ...]

_ANY: Final = "*"


def text_of(labels: Labels) -> str:
    """Return the namespace of some labels: `("users", "ann")` becomes `users/ann`. In a label, `%` and `/` are
    percent-encoded (RFC 3986). If the label would still not be a valid name, so are all its characters except letters,
    digits, `-`, `_` and `~`.

    Raises InvalidNamespaceError for labels that LangGraph does not allow.
    """
    return "/".join(_encoded(label) for label in labels)


def labels_of(text: str) -> Labels | None:
    """The labels of a namespace; None if no labels have this namespace, so that LangGraph cannot address it."""
    try:
        labels = tuple(unquote(part, errors="strict") for part in text.split("/"))
        return labels if text_of(labels) == text else None
    except ValueError:
        return None


def below(reader: Reader, prefix: Labels) -> Iterator[tuple[str, Labels]]:
    """The namespaces that contain values and begin with these labels, each as text and as labels."""
    start = text_of(prefix)
    if prefix and reader.records(start, "", None, 1, False):
        yield start, prefix
    beginning = f"{start}/" if prefix else ""
    for text, _ in chunks(reader.namespaces, beginning or None, lambda it: it[0]):
        if not text.startswith(beginning):
            return
        if (labels := labels_of(text)) is not None:
            yield text, labels


def listed(reader: Reader, operation: ListNamespacesOp) -> list[Labels]:
    """The matching namespaces, cut to `max_depth` labels, sorted, and without duplicates."""
    conditions = operation.match_conditions or ()
    found = {
        labels[: operation.max_depth]
        for _, labels in below(reader, _common_prefix(conditions))
        if all(_matches(condition, labels) for condition in conditions)
    }
    return sorted(found)[operation.offset : operation.offset + operation.limit]


def _encoded(label: object) -> str:
    if not isinstance(label, str) or not label or "." in label or "\0" in label:
        raise InvalidNamespaceError("a label of a namespace must be a non-empty string without periods or NUL")
    plain = label.replace("%", "%25").replace("/", "%2F")
    try:
        if name(plain) == plain:
            return plain
    except ValueError:
        pass
    try:
        return quote(label, safe="")
    except UnicodeEncodeError:
        raise InvalidNamespaceError("a label of a namespace must not contain a lone surrogate") from None


def _common_prefix(conditions: Iterable[MatchCondition]) -> Labels:
    """Labels that every match begins with: those of the first prefix condition, up to its first wildcard."""
    for condition in conditions:
        if condition.match_type == "prefix":
            path = condition.path
            return path[: path.index(_ANY)] if _ANY in path else path
    return ()


def _matches(condition: MatchCondition, labels: Labels) -> bool:
    path = condition.path
    if len(labels) < len(path):
        return False
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[len(labels) - len(path) :]
    return all(wanted in (_ANY, label) for wanted, label in zip(path, part, strict=True))
