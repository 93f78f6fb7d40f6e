"""Requests about threads: check the arguments, then define what to run and how to respond."""

from itertools import islice
from typing import Any, Final
from uuid import uuid4

from holdlog.adapters.api.pagination import MAX_PAGE, chunks, page
from holdlog.adapters.api.request import BlockingQuery, CommandRequest, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.threads import presenter, responses
from holdlog.adapters.api.threads.data_requests import members_of, readable_thread, started
from holdlog.adapters.api.threads.payloads import digest_of, parse_items
from holdlog.adapters.api.threads.reading import ThreadSlice, read_page
from holdlog.adapters.api.validation import (
    AGENT,
    NAME,
    after_argument,
    checked,
    number_of_seconds,
    page_size,
    text,
    whole,
)
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.domain.commands import Outcome
from holdlog.domain.names import thread_stream
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.commands import Append, ForkThread, StartThread
from holdlog.domain.threads.thread import Thread

READ_PAGE: Final = 50
FORMATS: Final = ("items", "model")

Pages = responses.ThreadItems | responses.ThreadMessages


class ThreadRequests:
    """Builds requests about threads. Reading a thread requires `read-threads` on its name; starting or changing it
    requires `write-threads`."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def start(
        self,
        agent: str,
        thread_id: str | None = None,
        data: Any = None,
        parent: str | None = None,
        parent_version: int | None = None,
    ) -> CommandRequest[responses.Started | responses.Resumed]:
        """Without `thread_id`, one is generated. `data`: of a new thread; `parent`: fork it, at a version or as it
        is."""
        by, name = text(agent, "agent", AGENT), text(uuid4().hex if thread_id is None else thread_id, "thread_id", NAME)
        members = members_of(self._rules, {} if data is None else data)
        at = None if parent_version is None else whole(parent_version, "parent_version")
        command: StartThread | ForkThread
        if parent is None:
            if at is not None:
                raise InvalidError("parent_version: requires parent")
            digest = digest_of("start", by, data) if thread_id is None else None
            command = checked(lambda: StartThread(thread=name, data=members, by=by, request_digest=digest))
        else:
            if data is not None:
                raise InvalidError("data: cannot be combined with parent; a fork starts with the parent's data")
            forked = text(parent, "parent", NAME)
            digest = digest_of("fork", by, forked, at) if thread_id is None else None
            command = checked(
                lambda: ForkThread(thread=name, parent=forked, parent_version=at, by=by, request_digest=digest)
            )
            self._rules.require("read-threads", forked)
        self._rules.require("write-threads", "*" if thread_id is None else name)  # no grant can name a generated id

        def answer(outcome: Outcome) -> responses.Started | responses.Resumed:
            made = presenter.started(outcome)
            return made if self._sees_parent(made.parent) else made.model_copy(update=_NO_PARENT)

        return CommandRequest(command, answer)

    def append(
        self, thread_id: str, agent: str, messages: Any = None, results: Any = None
    ) -> CommandRequest[responses.Appended]:
        """Messages, then results, as JSON objects; a result without a time gets that of the store's clock."""
        name, by = text(thread_id, "thread_id", NAME), text(agent, "agent", AGENT)
        found = parse_items(messages, results, self._rules.clock(), self._rules.settings.max_value_bytes)
        digest = digest_of("append", name, by, messages, results) if found.made_up else None
        command = checked(lambda: Append(thread=name, items=found.items, by=by, request_digest=digest))
        self._rules.require("write-threads", name)
        return CommandRequest(command, presenter.appended)

    def page(
        self,
        thread_id: str,
        limit: int = READ_PAGE,
        after_version: int | None = None,
        before_version: int | None = None,
        form: str = "items",
    ) -> Query[Pages]:
        """A page as it is now: the first above `after_version`, or the newest without it, in order of versions."""
        after = None if after_version is None else whole(after_version, "after_version")
        before = None if before_version is None else whole(before_version, "before_version")
        size, form = page_size(limit), _form(form)
        name = readable_thread(self._rules, thread_id)
        return Query(lambda reader: _page(read_page(reader, name, after, before, size), form), large=True)

    def next_page(
        self,
        thread_id: str,
        after_version: int | None,
        limit: int = READ_PAGE,
        form: str = "items",
        wait_seconds: float = 0,
        before_version: int | None = None,
    ) -> BlockingQuery[Pages]:
        """The next page above a version that has items or reports that results were cleared; an empty one on a
        timeout."""
        if after_version is None:
            raise InvalidError("wait_seconds: requires after_version; pass the version that you know")
        if before_version is not None:
            raise InvalidError("wait_seconds: cannot be combined with before_version")
        after, size, form = whole(after_version, "after_version"), page_size(limit), _form(form)
        seconds, _ = self._rules.capped(number_of_seconds(wait_seconds, "wait_seconds"))
        name = readable_thread(self._rules, thread_id)

        def read(reader: Reader, elapsed: float) -> Pages | None:
            found = read_page(reader, name, after, None, size)
            return _page(found, form) if found.events or found.thread.cleared > after else None

        def timed_out(reader: Reader, elapsed: float) -> Pages:
            return _page(read_page(reader, name, after, None, size), form)

        return BlockingQuery(read, timed_out, seconds, (thread_stream(name),), large=True)

    def facts(self, thread_id: str) -> Query[responses.ThreadFacts]:
        """The query raises NotFoundError."""
        name = readable_thread(self._rules, thread_id)
        return Query(lambda reader: responses.ThreadFacts(**self._facts(started(reader, name))))

    def listed(self, limit: int = MAX_PAGE, after: str | None = None) -> Query[responses.ThreadList]:
        size, after = page_size(limit), after_argument(after, "after")

        def answer(reader: Reader) -> responses.ThreadList:
            seen = (it for it in chunks(reader.threads, after, lambda it: it.thread) if self._reads(it.thread))
            found, more = page(islice(seen, size + 1), size)
            return responses.ThreadList(
                count=len(found),
                threads=[responses.ListedThread(**self._facts(thread)) for thread in found],
                position=reader.position(),
                next_after=found[-1].thread if more else None,
            )

        return Query(answer, large=True)

    def _reads(self, thread: str) -> bool:
        return self._rules.grants is EVERYTHING or self._rules.grants.allows("read-threads", thread)

    def _sees_parent(self, parent: str | None) -> bool:
        return parent is None or self._reads(parent)

    def _facts(self, thread: Thread) -> dict[str, Any]:
        return presenter.facts(thread) | ({} if self._sees_parent(thread.parent) else _NO_PARENT)


_NO_PARENT: Final = {"parent": None, "parent_version": None}


def _form(given: str) -> str:
    if given not in FORMATS:
        raise InvalidError(f"format: must be {' or '.join(FORMATS)}")
    return given


def _page(found: ThreadSlice, form: str) -> Pages:
    facts: dict[str, Any] = {
        "thread_id": found.thread.thread,
        "version": found.version,
        "cleared": found.thread.cleared,
        "next_after": found.next_after,
        "next_before": found.next_before,
    }
    if form == "model":
        return responses.ThreadMessages(**facts, messages=presenter.for_model(found.events))
    return responses.ThreadItems(**facts, items=[presenter.item(it) for it in found.events])
