"""What a call costs in statements, Python calls, files, modules and messages (the gates of the design)."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdlog
from tests.support.library import in_thread
from tests.support.proxy import Proxy
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
SLOW = {
    *("pydantic", "pydantic_core", "dataclasses", "inspect", "asyncio", "eventsourcing"),
    *("holdlog.domain.query_results", "holdlog.domain.claims.status"),
}
"""Modules that take longer to import than a hook may."""
CALLS: dict[str, Callable[[holdlog.StateStore], Any]] = {
    "set": lambda store: store.set("n", "k", {"a": [1, 2]}, updated_by="ann"),
    "get": lambda store: store.get("n", "k"),
    "history": lambda store: store.history("n", "k", 10),
    "claim and release": lambda store: claim_and_release(store),
}


def claim_and_release(store: holdlog.StateStore) -> None:
    store.claim("src/a.py", agent="ann")
    store.release("src/a.py", agent="ann")


def warm_up(store: holdlog.StateStore) -> None:
    """Open connections, and fill caches of names. An agent that holds nothing pays nothing for claims."""
    for name in ("set", "get", "history") * 2:
        CALLS[name](store)


def test_writes_of_a_holder_cost_one_statement_more(statements: list[str], store: holdlog.StateStore) -> None:
    store.claim("src/a.py", agent="ann")
    statements.clear()
    CALLS["set"](store)
    assert len(statements) == 6, statements


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SQL texts that SQLite runs, on any connection opened from now on."""
    texts: list[str] = []
    connect = sqlite3.connect

    def connect_traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(texts.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    return texts


@pytest.fixture
def store(db: Any) -> Iterator[holdlog.StateStore]:
    with holdlog.StateStore(db) as opened:
        warm_up(opened)
        yield opened


@pytest.fixture
def db(tmp_path: Any) -> Any:
    return tmp_path / "state.db"


@pytest.mark.parametrize(("name", "gate"), [("set", 5), ("get", 1), ("history", 1), ("claim and release", 15)])
def test_call_runs_few_sql_statements(name: str, gate: int, statements: list[str], store: holdlog.StateStore) -> None:
    def run() -> list[str]:
        statements.clear()
        CALLS[name](store)
        return [*statements]

    texts = repeat(run)
    assert 0 < len(texts) <= gate, texts


def test_waiter_of_a_file_reads_again_only_after_events_that_cover_it(
    statements: list[str], store: holdlog.StateStore
) -> None:
    store.claim("held/a.py", agent="ann")
    waiting = in_thread(store.wait, "held/a.py", 50)
    until(lambda: statements.count("BEGIN") >= 2)  # before it subscribed, and after
    for number in range(50):
        store.claim(f"held/{number}.py", agent="bob")
    store.release("held/a.py", agent="ann")
    assert waiting.result()
    assert statements.count("BEGIN") <= 4  # the process's first look at the file wakes all


@pytest.mark.parametrize(("name", "gate"), [("set", 40), ("get", 15), ("claim and release", 110)])
def test_call_makes_few_python_calls(name: str, gate: int, store: holdlog.StateStore) -> None:
    functions = repeat(lambda: [place for place, _ in trace(CALLS[name], store)])
    assert 0 < len(functions) <= gate, functions


def test_set_and_claim_enter_few_files_of_ours(db: Any) -> None:
    def list_files(call: Callable[[holdlog.StateStore], Any]) -> set[str]:
        return {file for _, file in trace(call, store) if f"{os.sep}holdlog{os.sep}" in file}

    with holdlog.StateStore(db) as store:
        CALLS["set"](store)
        assert 0 < len(list_files(CALLS["set"])) <= 12
        warm_up(store)
        claim_and_release(store)
        assert 0 < len(list_files(lambda store: store.claim("src/a.py", agent="ann"))) <= 16


def repeat(count: Callable[[], list[str]]) -> list[str]:
    """The shortest of five: a write looks at its files, too, if the one before was 0.1 s ago."""
    return min((count() for _ in range(5)), key=len)


def trace(call: Callable[[holdlog.StateStore], Any], store: holdlog.StateStore) -> list[tuple[str, str]]:
    """Name and file of each Python function that a call enters."""
    entered: list[tuple[str, str]] = []

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.append((frame.f_code.co_name, frame.f_code.co_filename))

    sys.setprofile(record)
    try:
        call(store)
    finally:
        sys.setprofile(None)
    return entered[1:]


def test_path_of_a_hook_loads_no_slow_module(db: Any) -> None:
    write = "write('value', sys.argv[1]); write('claim', sys.argv[1])"
    program = f"import sys; from bench.hook_write import write; {write}; print(*sys.modules)"
    command = [sys.executable, "-c", program, db]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded >= {"holdlog.domain.records", "holdlog.domain.claims.acquire"}
    assert not loaded & SLOW


@pytest.mark.xdist_group("postgres")
def test_set_sends_two_messages_from_lock_to_commit(postgres: str) -> None:
    with closing(Proxy(postgres)) as proxy, holdlog.StateStore(proxy.url) as store:
        warm_up(store)
        proxy.messages.clear()
        CALLS["set"](store)
        assert proxy.count_locked() == 2, proxy.messages
