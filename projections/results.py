"""What queries about values and the log return; see holdlog.domain.results."""

from datetime import datetime
from typing import Any, Literal, NamedTuple


class AsOf(NamedTuple):
    """The moment of a result about the past: after the event at `position`. `at`: its time, or the requested time."""

    position: int
    at: datetime


class StateRecord(NamedTuple):
    """A value. `redacted`: it was removed from the log."""

    namespace: str
    key: str
    value: Any
    version: int
    updated_by: str
    updated_at: datetime
    expires_at: datetime | None = None
    expires_in_seconds: float | None = None
    principal: str | None = None
    redacted: bool | None = None
    as_of: AsOf | None = None
    status: Literal["ok"] = "ok"


class RecordPage(NamedTuple):
    """Some values of a namespace, in order of their keys. Pass `next_after` as `after_key` to get the next."""

    namespace: str
    count: int  # type: ignore[assignment]  # tuple's method is of no use here
    records: list[StateRecord]
    position: int
    next_after: str | None = None
    as_of: AsOf | None = None
    status: Literal["ok"] = "ok"


class NamespaceCount(NamedTuple):
    namespace: str
    count: int  # type: ignore[assignment]  # tuple's method is of no use here


class NamespacePage(NamedTuple):
    namespaces: list[NamespaceCount]
    position: int
    next_after: str | None = None
    status: Literal["ok"] = "ok"


class HistoryEntry(NamedTuple):
    """One version of a key. `based_on` is the version that its writer had read. `forced` means that it replaced a value
    without having named a version."""

    version: int
    value: Any
    updated_by: str
    updated_at: datetime
    event_type: Literal["write", "delete", "expire", "redact"]
    position: int
    reason: str | None = None
    based_on: int | None = None
    forced: bool | None = None
    principal: str | None = None


class History(NamedTuple):
    """Versions of a key, the newest first."""

    namespace: str
    key: str
    history: list[HistoryEntry]
    next_before: int | None = None
    status: Literal["ok"] = "ok"


class ExportedRecord(NamedTuple):
    key: str
    value: Any
    version: int
    updated_by: str
    updated_at: datetime
    history: list[HistoryEntry]


class Export(NamedTuple):
    """Values of a namespace with their histories."""

    namespace: str
    exported_at: datetime
    record_count: int
    history_count: int
    records: list[ExportedRecord]
    position: int
    next_after: str | None = None
    status: Literal["ok"] = "ok"


class DeletedRecord(NamedTuple):
    """What `watch` returns if the value was deleted or expired."""

    namespace: str
    key: str
    version: int
    deleted_by: str
    deleted_at: datetime
    status: Literal["deleted"] = "deleted"


class WatchTimeout(NamedTuple):
    """The value did not change in time."""

    namespace: str
    key: str
    since_version: int
    elapsed_seconds: float
    status: Literal["timeout"] = "timeout"

    @property
    def hint(self) -> str:
        return f"Nothing changed yet. Call watch() again with since_version={self.since_version}."

    def __bool__(self) -> bool:
        return False


class HoldEntry(NamedTuple):
    """A hold of a resource, or of one that overlaps it. Without an `outcome` it has not ended; `replaced`: its holder
    claimed it again in another mode; `not_collected`: the waiter that it was granted to did not return."""

    resource: str
    held_by: str
    version: int
    mode: Literal["exclusive", "shared"]
    position: int
    claimed_at: datetime
    note: str | None = None
    outcome: str | None = None
    outcome_at: datetime | None = None
    outcome_note: str | None = None
    moved_to: str | None = None
    forced_by: str | None = None
    principal: str | None = None


class Holds(NamedTuple):
    """Holds of a resource, the newest first."""

    resource: str
    history: list[HoldEntry]
    next_before: int | None = None
    status: Literal["ok"] = "ok"


class Checkpoint(NamedTuple):
    """The end of the log. As a string, it is one line; `verify` with it finds every change of the events before it."""

    position: int
    digest: str
    at: datetime
    status: Literal["ok"] = "ok"

    def __str__(self) -> str:
        return f"{self.position} {self.digest} {self.at.isoformat(timespec='microseconds')}"


class Verified(NamedTuple):
    """The events up to `position` have the correct digests, and the views equal the log. `checkpoint`: the position of
    the given checkpoint, which the log contains."""

    position: int
    digest: str
    at: datetime
    checkpoint: int | None = None
    status: Literal["ok"] = "ok"


class Damaged(NamedTuple):
    """The first difference. `part`: `log` if an event was changed, added or removed; `checkpoint` if the log does not
    contain the checkpoint; `views` if they differ from the log, which rebuild repairs."""

    part: Literal["log", "checkpoint", "views"]
    problem: str
    position: int | None = None
    status: Literal["damaged"] = "damaged"

    def __bool__(self) -> bool:
        return False


class Redaction(NamedTuple):
    """`redacted`: how many texts this call removed. `position`: of the last event that records it, or the end of the
    log if there is none."""

    redacted: int
    position: int
    status: Literal["ok"] = "ok"


class Rebuilt(NamedTuple):
    """`changed`: how many rows of the views were put, replaced or removed."""

    changed: int
    position: int
    status: Literal["ok"] = "ok"


class Finding(NamedTuple):
    name: Literal["pages", "log", "views"]
    level: Literal["ok", "bad"]
    text: str


class Diagnosis(NamedTuple):
    sound: bool
    findings: list[Finding]
    status: Literal["ok"] = "ok"

    def __bool__(self) -> bool:
        return self.sound


class EventEntry(NamedTuple):
    """One event of the log. Its kind adds `fields`, such as key and value."""

    position: int
    id: str
    stream: str
    version: int
    kind: str
    at: datetime
    by: str | None
    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


class EventPage(NamedTuple):
    """A page does not split the events of a transaction, unless these are more than 100,000. Where the next page begins
    is a position, and `bookmark` with a part of the digest of the event there."""

    events: list[EventEntry]
    next_position: int
    bookmark: str
    status: Literal["ok"] = "ok"


class RefusalEntry(NamedTuple):
    """A refused command, after the event at a position: who wanted to change what, and why not. Never a value."""

    after: int
    code: str
    at: datetime
    by: str | None = None
    namespace: str | None = None
    key: str | None = None
    resource: str | None = None
    thread: str | None = None
    token: str | None = None
    message: str | None = None
    session: str | None = None
    principal: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None


class LogPage(NamedTuple):
    """Events of a range, and refusals among them. Pass `next_after` as `after` to get the next page, which may also
    follow a page without entries."""

    entries: list[EventEntry | RefusalEntry]
    next_after: int | str | None = None
    status: Literal["ok"] = "ok"


class ThreadItem(NamedTuple):
    """A message or a result, as it was stored; neither if it was `redacted`. `cleared`: the results before it were
    replaced."""

    version: int
    at: datetime
    kind: Literal["message", "result", "cleared"]
    by: str
    message: Any = None
    result: Any = None
    principal: str | None = None
    redacted: bool | None = None


class ThreadPage(NamedTuple):
    """Items in order. The page is complete up to `version`; pass `next_before` or `next_after` to get the next."""

    thread_id: str
    version: int
    items: list[ThreadItem]
    next_before: int | None = None
    next_after: int | None = None
    as_of: AsOf | None = None
    status: Literal["ok"] = "ok"


class NoThread(NamedTuple):
    """Nothing was ever appended to a thread with this name."""

    thread_id: str
    hint: str = "The first thread_append() starts a thread: check its thread_id."
    status: Literal["not_found"] = "not_found"

    def __bool__(self) -> bool:
        return False


class TokenEntry(NamedTuple):
    """A token, without its text. `by` and `at`: who created it and when, or who revoked it."""

    name: str
    state: Literal["active", "expired", "revoked"]
    by: str
    at: datetime
    allow: list[str] | None = None
    space: str | None = None
    expires_at: datetime | None = None
    expires_in_seconds: float | None = None


class TokenPage(NamedTuple):
    tokens: list[TokenEntry]
    next_after: str | None = None
    status: Literal["ok"] = "ok"


class Condition(NamedTuple):
    """A claim that a write relied on."""

    resource: str
    version: int


class Blame(NamedTuple):
    """Who wrote or deleted a value last, based on which version, guarded by which claims, and why."""

    namespace: str
    key: str
    version: int
    updated_by: str
    updated_at: datetime
    event_type: Literal["write", "delete", "expire", "redact"]
    position: int
    reason: str | None = None
    based_on: int | None = None
    forced: bool | None = None
    principal: str | None = None
    guard: list[Condition] | None = None
    session: str | None = None
    correlation_id: str | None = None
    as_of: AsOf | None = None
    status: Literal["ok"] = "ok"


class FileChange(NamedTuple):
    """A change of a file that a hook saw. `sha256`: of the new content; None: it was removed."""

    agent: str
    at: datetime
    position: int
    version: int
    sha256: str | None
    session: str | None = None
    principal: str | None = None


class FileBlame(NamedTuple):
    """Changes of a file, the newest first."""

    resource: str
    changes: list[FileChange]
    next_before: int | None = None
    status: Literal["ok"] = "ok"


class ExportedLog(NamedTuple):
    """The events from `first` to `last` were written; `digest` is that of the last one."""

    first: int
    last: int
    digest: str
    status: Literal["ok"] = "ok"


class ImportedLog(NamedTuple):
    """The log of the store with the id `store` was imported, whose last event is `last`. `position`: of the event that
    records this."""

    store: str
    last: int
    digest: str
    position: int
    status: Literal["ok"] = "ok"


class Backup(NamedTuple):
    """The file of a copy, whose log ends at `position`."""

    path: str
    position: int
    digest: str
    status: Literal["ok"] = "ok"
