"""Every insert and every read of the log goes through the recorder's public methods."""

import asyncio
import re
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from holdlog import AsyncStateStore, ConflictError, StateStore, copy, create_state
from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from tests.support.commands import until
from tests.support.projections import MemoryCounts, runner

DATA = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE)\s+\"?{EVENTS_TABLE}\b", re.IGNORECASE)
"""A statement about rows of the log, and not about its table or triggers."""
OUTSIDE = "outside"


class Traced(NamedTuple):
    """Statements about rows of the log: by the public method of the recorder that ran them, and the others."""

    inserts: Counter[str]
    reads: Counter[str]
    others: list[str]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    """Traces each connection of this process to a SQLite database."""
    traced = Traced(Counter(), Counter(), [])
    connect = sqlite3.connect

    def note(statement: str) -> None:
        if not DATA.search(statement) or statement.lstrip().startswith("--"):  # SQLite's own, of a trigger
            return
        method = public_method(sys._getframe(1))
        if method == OUTSIDE:
            traced.others.append(" ".join(statement.split())[:120])
        kind = traced.inserts if re.match(r"\s*INSERT", statement, re.IGNORECASE) else traced.reads
        kind[method] += 1

    def connecting(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.set_trace_callback(note)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connecting)
    yield traced
    monkeypatch.undo()


def public_method(frame: FrameType | None) -> str:
    """The name of the outermost public method of a recorder in which the frame runs."""
    found = OUTSIDE
    while frame is not None:
        name = frame.f_code.co_name
        if isinstance(frame.f_locals.get("self"), LogRecorder) and not name.startswith("_"):
            found = name
        frame = frame.f_back
    return found


async def of_coroutines(place: Path) -> None:
    async with AsyncStateStore(place) as store:
        await store.set("n", "later", 1, updated_by="ann")
        waiting = asyncio.create_task(store.watch("n", "later", since_version=1, timeout_seconds=30))
        await store.set("n", "later", 2, updated_by="bob")
        await waiting


def scenario(place: Path) -> None:
    """Calls of every kind."""
    with StateStore(place, session="one") as one, StateStore(place, session="two") as two:
        for version in range(3):
            one.set("n", "k", version, updated_by="ann", expected_version=version, request_id=f"r{version}")
        with pytest.raises(ConflictError):
            one.set("n", "k", 9, updated_by="ann", expected_version=1)
        one.delete("n", "k", deleted_by="ann")
        one.set("n", "short", 1, updated_by="ann", ttl_seconds=0.000_001)
        one.history("n", "k")
        one.claim("src/", agent="ann")
        waiting = threading.Thread(target=lambda: two.claim("src/a.py", agent="bob", wait_seconds=30))
        waiting.start()
        until(lambda: one.board().queues)
        one.events(0, kinds=["claim"], limit=3)
        one.events(2, namespace="n")
        one.release("src/", agent="ann")
        waiting.join()
        state = create_state({"plan": 1}, thread_id="run", store=one, agent="ann")
        state.append_message({"type": "text", "role": "user", "content": "begin"})
        state.data["plan"] = 2
        state.history("plan")
        state.at(version=2)
        state.fork()
    asyncio.run(of_coroutines(place))
    for words in (["log"], ["rebuild"], ["doctor"], ["activity"], ["collisions"], ["history", "n", "k"]):
        assert main([words[0], "--db", str(place), *words[1:]]) == 0
    with runner(place, MemoryCounts, {}) as projecting:
        projecting.wait(3, timeout=30)


def test_every_insert_and_read_of_the_log_is_the_recorders(tmp_path: Path, traced: Traced) -> None:
    place = tmp_path / "state.db"
    scenario(place)
    engine = open_holdlog(place)
    with engine.store.reader() as reader:
        events = reader.position()
    engine.close()
    assert traced.others == []
    assert traced.inserts == {"insert_events": events}
    assert events > 15
    assert {"select_events", "select_notifications", "max_notification_id"} <= traced.reads.keys()
    assert traced.reads.keys() <= set(vars(LogRecorder))


def test_copy_reads_and_writes_the_log_through_the_recorder(tmp_path: Path, traced: Traced) -> None:
    with StateStore(tmp_path / "state.db") as store:
        for number in range(5):
            store.set("n", "k", number, updated_by="ann")
    traced.inserts.clear()
    copy(tmp_path / "state.db", tmp_path / "copy.db", seal=True)
    assert traced.others == []
    assert traced.inserts == {"restore": 5}
    assert traced.reads["all_by_position"] == 1


def test_trace_reports_a_read_of_the_log_outside_the_recorder(tmp_path: Path, traced: Traced) -> None:
    StateStore(tmp_path / "state.db").close()
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute(f"SELECT COUNT(*) FROM {EVENTS_TABLE}").fetchall()
    connection.close()
    assert traced.others == [f"SELECT COUNT(*) FROM {EVENTS_TABLE}"]
