"""Responses about threads: one model per status."""

from typing import Any, Literal

from pydantic import BaseModel

from holdlog.adapters.api.values.responses import Part, Result, Time


class ThreadStart(Result):
    """Fields of both responses to `thread_start`: the thread as it is now."""

    thread_id: str
    version: int
    data_version: int
    created: bool
    messages: int
    results: int
    position: int
    parent: str | None = None
    parent_version: int | None = None


class Started(ThreadStart):
    status: Literal["started"] = "started"


class Resumed(ThreadStart):
    status: Literal["resumed"] = "resumed"


class Appended(Result):
    """The response to an append. `already`: number of results that the thread had already. `checksums`: of the results,
    in their order."""

    status: Literal["ok"] = "ok"
    thread_id: str
    version: int
    appended: int
    already: int
    checksums: list[str]
    position: int


class Item(Part):
    """A message or a result, as it was stored; neither if it was `redacted`."""

    version: int
    at: Time
    kind: Literal["message", "result"]
    by: str
    principal: str | None = None
    message: Any = None
    result: Any = None
    redacted: Literal[True] | None = None


class ThreadPage(Result):
    """Fields of both forms of a page. `version`: the page is complete up to here."""

    thread_id: str
    version: int
    cleared: int
    next_after: int | None = None
    next_before: int | None = None


class ThreadItems(ThreadPage):
    status: Literal["ok"] = "ok"
    items: list[Item]


class ThreadMessages(ThreadPage):
    """A page formatted for a model."""

    status: Literal["ok"] = "ok"
    messages: list[Any]


class ThreadValue(Result):
    """`redacted`: the value was redacted, and reads as null."""

    status: Literal["ok"] = "ok"
    thread_id: str
    key: str
    value: Any
    redacted: Literal[True] | None = None
    data_version: int

    kept = frozenset({"value"})


class ThreadData(Result):
    """`redacted`: the keys whose values were redacted, and read as null."""

    status: Literal["ok"] = "ok"
    thread_id: str
    data: dict[str, Any]
    redacted: list[str] | None = None
    data_version: int
    next_after: str | None = None


class ThreadKey(Result):
    """Whether a key has a value."""

    status: Literal["ok"] = "ok"
    thread_id: str
    key: str
    has: bool
    data_version: int


class DataChanged(Result):
    """The keys that were written, and those whose values were deleted."""

    status: Literal["ok"] = "ok"
    thread_id: str
    data_version: int
    written: list[str]
    deleted: list[str]
    position: int


class DataConflict(Result):
    """The data changed after `expected_data_version`: these keys, 100 at most."""

    status: Literal["conflict"] = "conflict"
    thread_id: str
    expected_data_version: int
    actual_data_version: int
    changed_keys: list[str]
    hint: str


class ThreadNotFound(Result):
    """There is no such thread, or it has no such key now."""

    status: Literal["not_found"] = "not_found"
    thread_id: str
    key: str | None = None
    hint: str


class _ThreadFields(BaseModel):
    """Metadata of a thread (`domain.threads.thread.Thread`)."""

    thread_id: str
    version: int
    data_version: int
    cleared: int
    messages: int
    results: int
    started_by: str
    started_by_principal: str | None = None
    started_at: Time
    updated_by: str
    updated_by_principal: str | None = None
    updated_at: Time
    parent: str | None = None
    parent_version: int | None = None


class ListedThread(_ThreadFields, Part):
    pass


class ThreadFacts(_ThreadFields, Result):
    status: Literal["ok"] = "ok"


class ThreadList(Result):
    status: Literal["ok"] = "ok"
    count: int
    threads: list[ListedThread]
    position: int
    next_after: str | None = None
