"""What is asked of a thread costs what it answers, however long the thread is: by an index, though nobody ever ran
ANALYZE, and by plans that were made when the store was empty."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.transaction import PostgresReader
from holdlog.adapters.stores.sql.text import for_postgres
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.domain.names import thread_stream
from holdlog.domain.ports import Reader, Store
from holdlog.domain.threads.thread import (
    KINDS,
    MessageAppended,
    ResultAppended,
    ThreadDataChanged,
    ThreadEvent,
    ThreadStarted,
)
from holdlog.domain.value import NULL
from tests.support.commands import PATIENCE, append
from tests.support.threads import checksum

SHORT, LONG = 200, 4_000
"""Events of the threads."""
Question = Callable[[Reader, str], Any]
QUESTIONS: list[Question] = [
    lambda reader, thread: reader.thread(thread),
    lambda reader, thread: reader.thread_events(thread, ("result",), 0, None, 10, newest=True),
    lambda reader, thread: reader.thread_events(thread, ("message", "result"), 0, None, 10, newest=True),
    lambda reader, thread: reader.thread_events(thread, ("message", "result"), 100, None, 10, newest=False),
    lambda reader, thread: reader.thread_events(thread, KINDS, 100, 150, 10, newest=True),
    lambda reader, thread: reader.thread_events(thread, ("data",), 0, None, 5, newest=True),
    lambda reader, thread: reader.thread_events(thread, ("data",), 0, None, 1, newest=True, key="k1"),
    lambda reader, thread: reader.checksums(thread, 0, [checksum(f"{number}") for number in (15, 25, 95, 7)]),
    lambda reader, thread: reader.checksums(thread, reader.thread(thread).version - 50, None),
    lambda reader, thread: reader.thread_data(thread, ["k1", "k2"]),
    lambda reader, thread: reader.thread_data(thread, None),
]


def event(number: int) -> ThreadEvent:
    """A tenth of them results, another tenth changes of data."""
    match number % 10:
        case _ if number == 0:
            return ThreadStarted(by="ann")
        case 5:
            return ResultAppended(value=NULL, agent="a", checksum=checksum(f"{number}"), by="ann")
        case 0:
            key = f"k{number // 10 % 7}"
            return ThreadDataChanged(value=NULL, written=(key, "always"), by="ann")
        case _:
            return MessageAppended(value=NULL, by="ann")


def fill(store: Store, long: int = LONG) -> None:
    for thread, events in (("short", SHORT), ("long", long)):
        with store.transaction(time.monotonic() + PATIENCE) as transaction:
            before = transaction.thread(thread)
            if events > before.version:
                append(transaction, before, *(event(number) for number in range(before.version, events)))


@contextmanager
def counted_steps(reader: SqliteReader) -> Iterator[list[int]]:
    """How many instructions SQLite's machine takes, in tens."""
    steps = [0]

    def step() -> int:
        steps[0] += 10
        return 0

    reader.connection.set_progress_handler(step, 10)
    try:
        yield steps
    finally:
        reader.connection.set_progress_handler(None, 0)


def test_sqlite_takes_as_many_steps_for_a_long_thread_as_for_a_short_one(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "state.db")) as store:
        fill(store)
        with store.reader() as reader:
            for question in QUESTIONS:
                cost = {}
                for thread in ("short", "long"):
                    with counted_steps(reader) as steps:
                        question(reader, thread)
                    cost[thread] = steps[0]
                assert 0 < cost["long"] <= 1.2 * cost["short"] + 20, question
            for position in (1, SHORT + LONG // 2):
                with counted_steps(reader) as steps:
                    reader.version_at(thread_stream("long"), position, None)
                assert 0 < steps[0] < LONG


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def plans(reader: PostgresReader, question: Question, thread: str, analyze: bool) -> list[dict[str, Any]]:
    """Of all that is asked, every node."""
    found: list[dict[str, Any]] = []
    ask = reader.rows

    def explained(statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        options = "ANALYZE, TIMING OFF, FORMAT JSON" if analyze else "FORMAT JSON"
        explain = f"EXPLAIN ({options}) {for_postgres(statement)}"
        row = reader.connection.execute(explain, parameters, prepare=True).fetchone()
        assert row is not None
        found.extend(nodes(row[0][0]["Plan"]))
        return ask(statement, parameters)

    reader.rows = explained  # type: ignore[method-assign]
    question(reader, thread)
    del reader.rows
    return found


def touched(found: list[dict[str, Any]]) -> int:
    """Rows that were looked at."""
    return sum(
        round(it["Actual Loops"] * (it["Actual Rows"] + it.get("Rows Removed by Filter", 0))) + it["Actual Loops"]
        for it in found
    )


@pytest.mark.check
def test_postgres_reads_as_many_rows_of_a_long_thread_as_of_a_short_one(postgres: str) -> None:
    with closing(open_postgres(postgres)) as store:
        fill(store, long=SHORT)
        with store.reader() as reader:
            at_first = [shape(plans(reader, question, "long", analyze=False)) for question in QUESTIONS]
        fill(store)
        for statement in ("SELECT 1", "ANALYZE"):
            with store.reader() as reader:
                reader.connection.execute(statement)  # type: ignore[call-overload]
                for question, first in zip(QUESTIONS, at_first, strict=True):
                    short, long = (plans(reader, question, thread, analyze=True) for thread in ("short", "long"))
                    assert shape(long) == first, question
                    assert 0 < touched(long) <= 1.2 * touched(short) + 5, question
        with store.reader() as reader:
            at = plans(reader, lambda it, thread: it.version_at(thread, LONG // 2, None), "thread:long", analyze=True)
            assert touched(at) < LONG // 10


def shape(found: list[dict[str, Any]]) -> list[str]:
    """Which indexes are used."""
    assert not any(it["Node Type"] in ("Seq Scan", "Bitmap Heap Scan") for it in found)
    return [it["Index Name"] for it in found if "Index Name" in it]
