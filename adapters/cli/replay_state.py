"""The state at the end of a replay: what its filters select of values, claims, queues and threads."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.past.responses import PastClaims
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.threads.responses import ThreadList
from holdlog.adapters.api.values.responses import RecordList
from holdlog.adapters.cli import past_texts
from holdlog.adapters.cli.texts import printable, short_value, table
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.names import acts_for

_SELECTORS = ("namespace", "resource", "thread")


class ReplayedState:
    """The state at a moment, page by page; position 0 is before the first event. `options`: the filters; `kinds`
    restricts only events."""

    def __init__(self, engine: Engine, point: PointInTime, options: argparse.Namespace) -> None:
        self._engine, self._requests, self._options = engine, engine.requests, options
        self._selected = [it for it in _SELECTORS if getattr(options, it) is not None] or _SELECTORS
        self.as_of = point.as_of
        if point.as_of is None and point.position != 0:
            self.as_of = engine.read(self._requests.past.resolved(point))
        self._point = point._replace(as_of=self.as_of)

    def shows(self, selector: str) -> bool:
        """Whether the filters select anything that this one of `_SELECTORS` names."""
        return selector in self._selected

    def values(self) -> Iterator[RecordList]:
        namespace, prefix = self._options.namespace, self._options.prefix or ""
        names = [namespace]
        if namespace is None and self.as_of is not None:
            names, _ = self._engine.read(self._requests.past.plain(self._requests.values.all_namespaces(), self._point))
        for name in names:
            for page in self._pages(partial(self._requests.values.records, name, prefix, MAX_PAGE)):
                yield page.model_copy(update={"records": [it for it in page.records if self._is_by(it.updated_by)]})

    def board(self) -> Iterator[PastClaims]:
        past, agent, resource = self._requests.past, self._options.agent, self._options.resource
        return self._pages(lambda after: past.board(self._point, agent, after=after, resource=resource), is_past=True)

    def threads(self) -> Iterator[ThreadList]:
        thread, listed = self._options.thread, self._requests.threads.listed
        for page in self._pages(lambda after: listed(after=after)):
            found = [it for it in page.threads if thread in (None, it.thread_id) and self._is_by(it.updated_by)]
            yield page.model_copy(update={"threads": found})

    def _is_by(self, author: str) -> bool:
        return self._options.agent is None or acts_for(author, self._options.agent)

    def _pages(self, query: Callable[[str | None], Query[Any]], is_past: bool = False) -> Iterator[Any]:
        """None before the first event. `query`: from the end of the page before it; `is_past`: it has the point."""
        after: str | None = None
        while self.as_of is not None:
            each = query(after)
            page = self._engine.read(each if is_past else self._requests.past.of(each, self._point))
            yield page
            if (after := page.next_after) is None:
                return


def print_state(state: ReplayedState, as_json: bool) -> None:
    """Print the state: as one line of JSON, or as text. Values are read and printed page by page."""
    for part in _json_parts(state) if as_json else _text_parts(state):
        sys.stdout.write(part)
    sys.stdout.write("\n" if as_json else "")
    sys.stdout.flush()


def _json_parts(state: ReplayedState) -> Iterator[str]:
    as_of = {"position": 0} if state.as_of is None else state.as_of.model_dump(mode="json")
    yield f'{{"kind": "State", "as_of": {_json(as_of)}'
    if state.shows("namespace"):
        rows = (
            {"namespace": page.namespace, **it.model_dump(mode="json")}
            for page in state.values()
            for it in page.records
        )
        yield from _json_list("values", rows)
    if state.shows("resource"):
        pages = list(state.board())  # as many as claims are held: few
        for name in ("claims", "queues"):
            yield from _json_list(name, (it for page in pages for it in page.body()[name]))
    if state.shows("thread"):
        yield from _json_list("threads", (it for page in state.threads() for it in page.body()["threads"]))
    yield "}"


def _json_list(name: str, rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield f', "{name}": ['
    for number, row in enumerate(rows):
        yield (", " if number else "") + _json(row)
    yield "]"


def _json(row: dict[str, Any]) -> str:
    return printable(json.dumps(row, ensure_ascii=False), kept="")


def _text_parts(state: ReplayedState) -> Iterator[str]:
    moment = "before the first event" if state.as_of is None else past_texts.describe_moment(state.as_of)
    yield f"\nstate {moment}\n"
    if state.shows("namespace"):
        yield from _section("values", map(_value_table, state.values()))
    if state.shows("resource"):
        boards = (page for page in state.board() if page.claims or page.queues)
        yield from _section("claims and queues", (past_texts.describe_board(page) for page in boards))
    if state.shows("thread"):
        yield from _section("threads", (past_texts.describe(page, False) for page in state.threads() if page.threads))


def _section(title: str, pages: Iterator[str]) -> Iterator[str]:
    yield f"\n{title}:\n"
    is_empty = True
    for page in filter(None, pages):
        is_empty = False
        yield "".join(f"  {line}\n" for line in page.split("\n"))
    if is_empty:
        yield "  none\n"


def _value_table(page: RecordList) -> str:
    return table(
        [
            (f"{page.namespace}/{it.key}", f"v{it.version}", author(it.updated_by, it.principal), short_value(it))
            for it in page.records
        ]
    )
