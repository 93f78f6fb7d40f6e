"""Threads: append to them, and read them."""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import Agent, BlockingQuery, Command, Limit, Name, Seconds, Version
from holdlog.adapters.operations.conversation import NewMessage, NewResult
from holdlog.adapters.operations.rows import NO_LIMIT, cut_page, scan
from holdlog.adapters.operations.values import DiscardStep, SetStep
from holdlog.adapters.stores import sql
from holdlog.domain import threads
from holdlog.domain.names import MAX_NAME, THREAD_DATA
from holdlog.domain.refusals import InvalidError
from holdlog.domain.results import utc
from holdlog.domain.threads import Appended, ThreadWritten, thread_stream
from holdlog.projections.results import NoThread, ThreadItem, ThreadPage

ThreadId = Annotated[Name, Field(max_length=MAX_NAME - len(THREAD_DATA))]
MAX_APPENDED: Final = 1000
_KINDS: Final[dict[str, Literal["message", "result", "cleared"]]] = {
    "MessageAppended": "message",
    "ResultAppended": "result",
    "ResultsCleared": "cleared",
}


class _Items(Command):
    thread_id: ThreadId
    agent: Agent
    messages: list[NewMessage] | None = Field(
        default=None, max_length=MAX_APPENDED, description="{type: text, role, content}; or tool_call, tool_result"
    )
    new_results: list[NewResult] | None = Field(
        default=None,
        alias="results",
        max_length=MAX_APPENDED,
        description="{agent_name, output: messages, tool_calls?: tool_results, created_at?}",
    )


class ThreadAppend(_Items, name="thread_append", group="threads", route="POST /threads/{thread_id}"):
    """Append messages, then results of agents, to a thread, all or none; the first append starts it. A result that the
    thread has already (same agent, output, tool_calls and created_at) is not appended again."""

    results = (Appended,)
    reads, decide = threads.declare_append, threads.append

    @model_validator(mode="after")
    def _require_items(self) -> "ThreadAppend":
        if not self.messages and not self.new_results:
            raise ValueError("messages, results: give at least one")
        return self


class SetData(SetStep):
    namespace: Name


class DiscardData(DiscardStep):
    namespace: Name


class WriteThread(_Items):
    """What `State` writes in one transaction: data of the thread, and items. No surface has it."""

    results = (ThreadWritten,)
    reads, decide = threads.declare_write, threads.write
    guard: ClassVar[None] = None
    reason: ClassVar[None] = None
    operations: list[Annotated[SetData | DiscardData, Field(discriminator="op")]] = Field(max_length=1000)
    clears_results: bool = False

    @property
    def updated_by(self) -> str:
        return self.agent


class ThreadRead(BlockingQuery, name="thread_read", group="threads", route="GET /threads/{thread_id}"):
    """Read messages and results of a thread, in order: the newest, or those after a version. To follow it, pass the
    version of the page as after_version, and wait_seconds."""

    results = (ThreadPage, NoThread)
    thread_id: ThreadId
    after_version: Version | None = Field(default=None, description="Only later ones, the oldest of them first")
    before_version: Version | None = Field(default=None, description="The next_before of the page before")
    limit: Limit = 50
    wait_seconds: Seconds = Field(default=0, description="How long to wait for items after after_version")

    @model_validator(mode="after")
    def _require_one_end(self) -> "ThreadRead":
        if self.before_version is not None and self.after_version is not None:
            raise ValueError("before_version: cannot be combined with after_version")
        if self.wait_seconds and self.after_version is None:
            raise ValueError("wait_seconds: needs after_version")
        return self

    def list_topics(self) -> tuple[str, ...]:
        return (thread_stream(self.thread_id),)

    def read(self, reader: Reader) -> ThreadPage | NoThread | Wait:
        page = self.give_up(reader, 0)
        is_empty = isinstance(page, NoThread) or not page.items
        return Wait() if self.wait_seconds and is_empty else page

    def give_up(self, reader: Reader, elapsed: float) -> ThreadPage | NoThread:
        end = self.before_version if self.before_version is not None else NO_LIMIT
        return read_thread(reader, self.thread_id, self.after_version, end, self.limit)


def read_thread(reader: Reader, thread_id: str, after: int | None, end: int, limit: int) -> ThreadPage | NoThread:
    """A page of the items before version `end`: the newest, or the first above `after`. Several reads show one state,
    as they end at the version that the first one reads. Raises InvalidError for a version that does not exist yet."""
    parameters: dict[str, Any] = {"stream": thread_stream(thread_id), "before": end}
    if after is None:
        page, more = cut_page(scan(reader, sql.HISTORY, parameters, limit + 1, "before"), limit)
        if not page and not reader.read(sql.VERSIONS, parameters | {"before": NO_LIMIT, "limit": 1}):
            return NoThread(thread_id)
        items = [_show_item(row) for row in reversed(page)]
        last = items[-1].version if items else 0
        return ThreadPage(thread_id, last, items, next_before=items[0].version if more else None)
    rows = reader.read(sql.VERSIONS, parameters | {"limit": 1})
    if not rows:
        return NoThread(thread_id)
    last = rows[0][0]
    if after > last:
        raise InvalidError(f"after_version: the thread ends at version {last}")
    parameters |= {"before": last + 1, "after": after}
    page, more = cut_page(scan(reader, sql.HISTORY_AFTER, parameters, limit + 1), limit)
    items = [_show_item(row) for row in page]
    end = items[-1].version if more else last
    return ThreadPage(thread_id, end, items, next_after=end if more else None)


def _show_item(row: Any) -> ThreadItem:
    version, topic, at, meta, payload, _ = row
    get = from_json(meta).get
    content = from_json(payload) if payload is not None else {}
    kind = _KINDS[topic]
    facts = (content.get("message"), content.get("result"), get("principal"), True if payload is None else None)
    return ThreadItem(version, utc(at), kind, get("by"), *facts)
