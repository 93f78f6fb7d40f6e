"""Values: read, write, update, watch."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import (
    Agent,
    BlockingQuery,
    Command,
    Duration,
    Guard,
    JsonNumber,
    JsonValue,
    Limit,
    Name,
    Note,
    Prefix,
    Query,
    Seconds,
    Version,
    Writable,
)
from holdlog.adapters.operations.rows import (
    NO_LIMIT,
    describe_deletion,
    is_live,
    read_history,
    read_page,
    read_position,
    show_any,
    show_record,
)
from holdlog.adapters.stores import sql
from holdlog.domain import records
from holdlog.domain.names import end_of_range, namespace_prefix, split_stream, value_stream
from holdlog.domain.refusals import NotFoundError
from holdlog.domain.results import (
    ClearResult,
    Conflict,
    DeleteResult,
    Fenced,
    NotFound,
    SetResult,
    TransactionResult,
    UpdateResult,
    utc,
)
from holdlog.projections.results import (
    DeletedRecord,
    Export,
    ExportedRecord,
    History,
    NamespaceCount,
    NamespacePage,
    RecordPage,
    StateRecord,
    WatchTimeout,
)


class Get(Query, name="get", group="state", route="GET /values/{namespace}/{key}", has_spaces=True):
    """Read a value and its version, which set() takes as expected_version."""

    is_quick = True
    results = (StateRecord, NotFound)
    namespace: Name = Field(description="Group of keys, e.g. order-1234")
    key: Name

    def read(self, reader: Reader) -> StateRecord:
        rows = reader.read(sql.RECORD, {"stream": value_stream(self.namespace, self.key)})
        if not rows:
            raise NotFoundError(NotFound(self.namespace, self.key))
        row, now = rows[0], reader.now()
        if not is_live(row, now):
            raise NotFoundError(describe_deletion(self.namespace, self.key, row))
        return show_record(row, now)


class SetValue(
    Command,
    name="set",
    group="state",
    route="PUT /values/{namespace}/{key}",
    positional="namespace key value",
    overwrites=True,
    has_spaces=True,
):
    """Write a value if its version is still the one you read with get(): expected_version, 0 if it must not exist. In
    a program, a write without it is unconditional."""

    op: ClassVar[str] = "set"
    results = (SetResult, Conflict, Fenced)
    reads, decide = records.declare_key, records.write
    namespace: Writable = Field(description="Group of keys, e.g. order-1234")
    key: Name
    value: JsonValue
    updated_by: Agent
    expected_version: Version | None = Field(default=None, description="The version you read; 0: must not exist")
    ttl_seconds: Duration | None = Field(default=None, description="The value expires after this many seconds")
    guard: Guard | None = Field(default=None, description="Claims you hold, with the versions of your grants")
    reason: Note | None = None


class Replace(SetValue):
    """What update() writes after a function: the value keeps its time to live."""

    op: ClassVar[str] = "replace"


class Delete(
    Command, name="delete", group="state", route="DELETE /values/{namespace}/{key}", overwrites=True, has_spaces=True
):
    """Delete a value. Its history stays, and its versions continue."""

    op: ClassVar[str] = "delete"
    results = (DeleteResult, NotFound, Conflict, Fenced)
    reads, decide = records.declare_key, records.delete
    namespace: Writable
    key: Name
    deleted_by: Agent
    expected_version: Version | None = None
    guard: Guard | None = None
    reason: Note | None = None


class ClearNamespace(
    Command, name="clear_namespace", group="state", route="DELETE /values/{namespace}", has_spaces=True
):
    """Delete all values of a namespace in one transaction, whatever their versions."""

    results = (ClearResult,)
    reads, decide = records.declare_namespace, records.clear
    namespace: Writable
    deleted_by: Agent
    reason: Note | None = None


class Update(
    Command, name="update", group="power", route="PATCH /values/{namespace}/{key}", computes=True, has_spaces=True
):
    """Let the store compute the new value, so that no change of others is lost: merge (RFC 7396), increment or
    append."""

    results = (UpdateResult, Conflict, Fenced)
    reads, decide = records.declare_value, records.update
    namespace: Writable
    key: Name
    updated_by: Agent
    expected_version: Version | None = None
    merge: JsonValue = Field(
        default=None, description="Object to merge; null removes a member", json_schema_extra={"type": "object"}
    )
    increment: JsonNumber = Field(default=None, description="Number to add")
    append: JsonValue = Field(default=None, description="Item to add to a list")
    unique: bool = Field(default=False, description="Append only what the list does not contain")
    guard: Guard | None = None
    reason: Note | None = None

    @model_validator(mode="after")
    def _require_one(self) -> "Update":
        if len(self.model_fields_set & records.COMPUTED) != 1:
            raise ValueError("give exactly one of merge, increment and append")
        if self.unique and self.op != "append":
            raise ValueError("unique needs append")
        return self

    @property
    def op(self) -> str:
        return next(iter(self.model_fields_set & records.COMPUTED))

    @property
    def value(self) -> Any:
        return getattr(self, self.op)


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)
    namespace: Writable
    key: Name


class _Conditional(_Step):
    expected_version: Version | None = None


class SetStep(_Conditional):
    op: Literal["set"]
    value: JsonValue
    ttl_seconds: Duration | None = None


class DeleteStep(_Conditional):
    op: Literal["delete"]


class DiscardStep(_Conditional):
    """Deletes a value, if there is one. For programs."""

    op: Literal["discard"]


class CheckStep(_Step):
    op: Literal["check"]
    expected_version: Version


class MergeStep(_Conditional):
    op: Literal["merge"]
    value: JsonValue


class IncrementStep(_Conditional):
    op: Literal["increment"]
    by: JsonNumber

    @property
    def value(self) -> Any:
        return self.by


class AppendStep(_Conditional):
    op: Literal["append"]
    value: JsonValue
    unique: bool = False


Step = Annotated[SetStep | DeleteStep | CheckStep | MergeStep | IncrementStep | AppendStep, Field(discriminator="op")]


class Transact(
    Command, name="transact", group="power", route="POST /transactions", positional="operations", has_spaces=True
):
    """Run several operations on values in one transaction: all of them or none."""

    results = (TransactionResult, Conflict, Fenced, NotFound)
    reads, decide = records.declare_steps, records.transact
    operations: list[Step] = Field(min_length=1, max_length=1000)
    updated_by: Agent
    guard: Guard | None = None
    reason: Note | None = None


class List(Query, name="list", group="state", route="GET /values/{namespace}", has_spaces=True):
    """List values of a namespace in order of their keys, in pages; without a namespace, the namespaces."""

    results = (RecordPage, NamespacePage)
    namespace: Name | None = None
    prefix: Prefix = ""
    limit: Limit = 1000
    after_key: Prefix | None = Field(default=None, description="The next_after of the page before")
    deleted: bool = Field(default=False, description="List deleted keys instead")

    @model_validator(mode="after")
    def _require_namespace(self) -> "List":
        if self.deleted and self.namespace is None:
            raise ValueError("deleted: only the keys of a namespace are listed; name it")
        return self

    def read(self, reader: Reader) -> RecordPage | NamespacePage:
        with reader.snapshot() as snapshot:
            position = read_position(snapshot)
            if self.namespace is None:
                return self._read_namespaces(snapshot, position)
            first = namespace_prefix(self.namespace)
            query = sql.DELETED_RECORDS if self.deleted else sql.RECORDS
            rows, more = read_page(snapshot, query, first + self.prefix, first + (self.after_key or ""), self.limit)
        page = [show_any(row, snapshot.now()) for row in rows]
        return RecordPage(self.namespace, len(page), page, position, page[-1].key if more else None)

    def _read_namespaces(self, snapshot: Reader, position: int) -> NamespacePage:
        parameters = {"first": "record:", "end": end_of_range("record:"), "now": snapshot.now()}
        counts = dict[str, int]()
        for (stream,) in snapshot.read(sql.LIVE_STREAMS, parameters):
            namespace = split_stream(stream)[0]
            counts[namespace] = counts.get(namespace, 0) + 1
        after = self.after_key or ""
        names = sorted(name for name in counts if name > after and name.startswith(self.prefix))
        page = [NamespaceCount(name, counts[name]) for name in names[: self.limit]]
        return NamespacePage(page, position, page[-1].namespace if len(names) > self.limit else None)


class ReadHistory(
    Query,
    name="history",
    group="state",
    route="GET /history/{namespace}/{key}",
    positional="namespace key limit",
    returns="history",
    has_spaces=True,
):
    """List the versions of a key, the newest first."""

    results = (History,)
    namespace: Name
    key: Name
    limit: Limit = 100
    before_version: Version | None = Field(default=None, description="The next_before of the page before")

    def read(self, reader: Reader) -> History:
        before = self.before_version if self.before_version is not None else NO_LIMIT
        stream = value_stream(self.namespace, self.key)
        entries, more = read_history(reader, stream, before, self.limit)
        return History(self.namespace, self.key, entries, entries[-1].version if more else None)


class ExportNamespace(
    Query, name="export_namespace", group="state", route="GET /exports/{namespace}", tool="export", has_spaces=True
):
    """Export the values of a namespace with their histories, in pages."""

    results = (Export,)
    namespace: Name
    include_deleted: bool = False
    after_key: Prefix | None = Field(default=None, description="The next_after of the page before")

    def read(self, reader: Reader) -> Export:
        with reader.snapshot() as snapshot:
            first = namespace_prefix(self.namespace)
            query = sql.ALL_RECORDS if self.include_deleted else sql.RECORDS
            rows, more = read_page(snapshot, query, first, first + (self.after_key or ""), 1000)
            page = [self._export(snapshot, row) for row in rows]
            position, count = read_position(snapshot), sum(len(record.history) for record in page)
        next_after = page[-1].key if more else None
        return Export(self.namespace, utc(snapshot.now()), len(page), count, page, position, next_after)

    def _export(self, snapshot: Reader, row: Any) -> ExportedRecord:
        record = show_any(row, snapshot.now())
        history, _ = read_history(snapshot, row[0], NO_LIMIT, NO_LIMIT)
        return ExportedRecord(record.key, record.value, record.version, record.updated_by, record.updated_at, history)


class Watch(
    BlockingQuery,
    name="watch",
    group="state",
    route="GET /watches/{namespace}/{key}",
    positional="namespace key since_version",
    has_spaces=True,
):
    """Wait until a value changes from since_version, and return it."""

    results = (StateRecord, DeletedRecord, WatchTimeout)
    namespace: Name
    key: Name
    since_version: Version
    timeout_seconds: Seconds = 10

    def list_topics(self) -> tuple[str, ...]:
        return (value_stream(self.namespace, self.key),)

    def read(self, reader: Reader) -> StateRecord | DeletedRecord | Wait:
        rows = reader.read(sql.RECORD, {"stream": value_stream(self.namespace, self.key)})
        if not rows:
            return Wait()
        row, now = rows[0], reader.now()
        has_value = is_live(row, now)
        version = row[1] + bool(row[6] and not has_value)
        if version <= self.since_version or (not has_value and self.since_version == 0):
            return Wait(row[5] if has_value else None)
        if has_value:
            return show_record(row, now)
        deletion = describe_deletion(self.namespace, self.key, row)
        return DeletedRecord(
            self.namespace, self.key, version, deletion.deleted_by or "", deletion.deleted_at or utc(now)
        )

    def give_up(self, reader: Reader, elapsed: float) -> WatchTimeout:
        return WatchTimeout(self.namespace, self.key, self.since_version, elapsed)
