"""LangGraph's items with the version and the writer of their records."""

from datetime import datetime
from typing import Any, cast

from langgraph.store.base import Item, SearchItem

from holdlog.adapters.langgraph.namespaces import Labels
from holdlog.domain.ports import Reader
from holdlog.domain.record import Record
from holdlog.domain.refusals import InvalidError
from holdlog.domain.times import utc
from holdlog.domain.value import REDACTED

ItemFields = dict[str, Any]


class VersionedItem(Item):
    """An item with the version and writer of its record. `version`: the expected version of a `put` based on this item.
    `updated_by`: the writer, and `principal`: the authenticated principal of that write (None: the local user).
    `redacted`: the value was redacted, and reads as an empty object.

    `created_at`: when the key was first written, even if it was deleted since.
    """

    __slots__ = ("principal", "redacted", "updated_by", "version")

    def __init__(
        self,
        *,
        value: ItemFields,
        key: str,
        namespace: Labels,
        created_at: datetime,
        updated_at: datetime,
        version: int,
        updated_by: str,
        principal: str | None = None,
        redacted: bool = False,
    ) -> None:
        super().__init__(value=value, key=key, namespace=namespace, created_at=created_at, updated_at=updated_at)
        self.version = version
        self.updated_by = updated_by
        self.principal = principal
        self.redacted = redacted

    def dict(self) -> ItemFields:
        return super().dict() | _authored(self)


class VersionedSearchItem(SearchItem):
    """Like VersionedItem. `score` is None: there is no ranking."""

    __slots__ = ("principal", "redacted", "updated_by", "version")

    def __init__(
        self,
        namespace: Labels,
        key: str,
        value: ItemFields,
        created_at: datetime,
        updated_at: datetime,
        score: float | None = None,
        *,
        version: int,
        updated_by: str,
        principal: str | None = None,
        redacted: bool = False,
    ) -> None:
        super().__init__(namespace, key, value, created_at, updated_at, score)
        self.version = version
        self.updated_by = updated_by
        self.principal = principal
        self.redacted = redacted

    def dict(self) -> ItemFields:
        return super().dict() | _authored(self)


def is_item(record: Record) -> bool:
    """Whether the record has a value that is an object, or was redacted."""
    return record.live and (record.value is REDACTED or record.value.text.startswith("{"))


def value_of(record: Record) -> ItemFields:
    """The value of an item; empty if it was redacted."""
    return {} if record.value is REDACTED else cast("ItemFields", record.value.value)


def item(reader: Reader, record: Record, labels: Labels) -> VersionedItem | None:
    """The item of a record. Raises InvalidError for a value that is not an object: another program wrote it, and it is
    not hidden."""
    if not record.live:
        return None
    if not is_item(record):
        raise InvalidError(f"{record.namespace}/{record.key}: has a value that is not an object; items must be objects")
    return VersionedItem(**_fields(reader, record, labels))


def found_item(reader: Reader, record: Record, labels: Labels) -> VersionedSearchItem:
    return VersionedSearchItem(**_fields(reader, record, labels))


def _fields(reader: Reader, record: Record, labels: Labels) -> ItemFields:
    first = reader.history(record.stream, 2, 1) if record.version > 1 else []
    updated_at = utc(record.updated_at)
    return {
        "value": value_of(record),
        "key": record.key,
        "namespace": labels,
        "created_at": utc(first[0].envelope.at) if first else updated_at,
        "updated_at": updated_at,
        "version": record.version,
        "updated_by": record.updated_by,
        "principal": record.principal,
        "redacted": record.value is REDACTED,
    }


def _authored(item: VersionedItem | VersionedSearchItem) -> ItemFields:
    facts: ItemFields = {"version": item.version, "updated_by": item.updated_by}
    facts |= {"redacted": True} if item.redacted else {}
    return facts if item.principal is None else facts | {"principal": item.principal}
