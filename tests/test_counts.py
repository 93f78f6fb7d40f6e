"""What a call costs in statements, Python calls, files, modules and messages (the gates of the design)."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdlog
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.postgres.connection import connect, parse_url
from holdlog.adapters.stores.postgres.schema import PREPARE
from tests.support.hosts import held, repository
from tests.support.library import in_thread
from tests.support.proxy import Proxy
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
SLOW = {
    *("pydantic", "pydantic_core", "dataclasses", "inspect", "asyncio", "eventsourcing"),
    *("holdlog.projections.results", "holdlog.projections.board"),
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


def test_claim_reads_nothing_of_queues_elsewhere(statements: list[str], store: holdlog.StateStore, db: Any) -> None:
    with holdlog.StateStore(db) as other:
        other.claim("lib/b.py", agent="bob")
        assert other.claim("lib/b.py", agent="cleo", wait_seconds=0.01).status == "busy"
        CALLS["claim and release"](store)
        statements.clear()
        CALLS["claim and release"](store)
        alone = [text for text in statements if "FROM claims" in text]
        statements.clear()
        assert store.claim("lib/", agent="dora").queue_length == 1
        assert len([text for text in statements if "FROM claims" in text]) > len(alone) / 2, statements


def test_writes_of_a_holder_cost_one_statement_more(statements: list[str], store: holdlog.StateStore) -> None:
    store.claim("src/a.py", agent="ann")

    def run() -> list[str]:
        statements.clear()
        CALLS["set"](store)
        return [*statements]

    assert len(texts := repeat(run)) == 6, texts


def test_refusal_writes_nothing_and_the_next_write_records_it(statements: list[str], store: holdlog.StateStore) -> None:
    statements.clear()
    for _ in range(2):
        with pytest.raises(holdlog.NotFoundError):
            store.delete("n", "missing", deleted_by="ann")
    assert {text.split()[0] for text in statements} - {"PRAGMA"} == {"BEGIN", "SELECT", "COMMIT"}  # of new connections
    CALLS["set"](store)
    assert [text.split()[2] for text in statements if "INSERT" in text].count("refusals") == 2


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


def test_set_and_claim_enter_few_files_of_ours_which_contributing_lists_in_order(db: Any) -> None:
    def list_files(call: Callable[[holdlog.StateStore], Any]) -> list[str]:
        files = [file.partition(f"{os.sep}build/dev/holdlog{os.sep}")[2] for _, file in trace(call, store)]
        return list(dict.fromkeys(file for file in files if file))

    paths = (ROOT / "CONTRIBUTING.md").read_text().split("### The path of one `")[1:]
    listed = {path.partition("`")[0]: re.findall(r"^\d+\. `(\S+)`", path, re.MULTILINE) for path in paths}
    with holdlog.StateStore(db) as store:

        def claim() -> list[str]:
            files = list_files(lambda store: store.claim("src/a.py", agent="ann"))
            store.release("src/a.py", agent="ann")
            return files

        warm_up(store)
        for name, gate, call in (("set", 12, lambda: list_files(CALLS["set"])), ("claim", 16, claim)):
            entered = repeat(call)
            assert entered == listed[name]
            assert len(entered) <= gate


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


def test_hook_that_claims_loads_no_slow_module(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    call = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Edit", "cwd": str(root)}
    program = "import sys; from holdlog.adapters.hooks.entry import run; run([]); print(*sys.modules)"
    text = json.dumps({**call, "tool_input": {"file_path": str(root / "src/a.py")}})
    done = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded >= {"holdlog.domain.claims.acquire"}
    assert held(root)
    assert not loaded & SLOW


@pytest.mark.xdist_group("postgres")
def test_writes_send_two_messages_from_lock_to_commit_and_three_at_what_others_wait_for(postgres: str) -> None:
    """Whatever else is held, also by sub-agents, whose claims nobody names."""
    with ExitStack() as stack:
        proxy = stack.enter_context(closing(Proxy(postgres)))
        store, other, waiter = (stack.enter_context(holdlog.StateStore(url)) for url in (proxy.url, postgres, postgres))
        other.claim("a/held.py", agent="bob", also=["queued"])
        counts: dict[str, int] = {}

        def count(name: str, status: str, call: Callable[[], Any]) -> Any:
            proxy.messages.clear()
            result = call()
            assert result.status == status
            counts[name] = proxy.count_locked()
            return result

        def count_all() -> set[int]:
            count("set", "ok", lambda: CALLS["set"](store))
            version = count("claim", "claimed", lambda: store.claim("src/", agent="ann")).version
            count("claim of a sub-agent", "claimed", lambda: store.claim("src/a.py", agent="ann/tests"))
            count("claim again", "already_claimed", lambda: store.claim("src/", agent="ann"))
            count("busy", "busy", lambda: store.claim("a/", agent="ann"))
            guard = [{"resource": "src/", "version": version}]
            count("guarded set", "ok", lambda: store.set("n", "k", 1, updated_by="ann", guard=guard))
            count("set of a holder", "ok", lambda: CALLS["set"](store))
            count("release", "released", lambda: store.release("src/", agent="ann"))
            store.release("src/a.py", agent="ann/tests")
            return set(counts.values())

        assert count_all() == {2}, counts
        waiting = in_thread(waiter.claim, "queued", agent="cleo", also=["a/held.py"], wait_seconds=50)
        until(lambda: other.status("queued").queue_length == 1)
        assert count_all() == {2, 3}, counts
        assert [name for name, messages in counts.items() if messages == 3] == ["busy"]
        other.release(agent="bob")
        assert waiting.result().status == "claimed"


@pytest.mark.xdist_group("postgres")
def test_batch_of_claims_reads_the_board_with_one_query(postgres: str) -> None:
    with closing(Proxy(postgres, delay=0.005)) as proxy, holdlog.StateStore(proxy.url) as store:
        for claiming in [in_thread(store.claim, f"{number}.py", agent=f"a{number}") for number in range(16)]:
            assert claiming.result().status == "claimed"
        batches = [message for message in proxy.messages if b"LOCK TABLE" in message]
        assert len(batches) < 16
        assert {message.count(b"EXECUTE claims") for message in batches} == {1}


@pytest.mark.xdist_group("postgres")
def test_commands_of_a_holder_scan_neither_claims_nor_holders(db: Any) -> None:
    holdlog.StateStore(db).close()
    with closing(sqlite3.connect(db)) as connection:
        for query in (sql.SESSION, sql.CLAIMS, sql.SUBTREES):
            steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", defaultdict(str))]
            assert [
                step for step in steps if step[:6] in ("SCAN c", "SCAN h", "SCAN o") and "tickets" not in step
            ] == [], steps


def test_queries_of_the_board_read_few_pages_of_a_long_log(postgres: str) -> None:
    """Also by plans that were made while the tables were empty."""
    claims, now = 200, "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    gates = {
        f"""claims('s', '', {now}, '["a/7","a/","new"]', 'ann', 'host')""": 60,
        f"session('s', '', {now})": 60,
        "subtrees('[\"a/\"]')": 20 * claims,
        """streams('["claim:a/7","claim:a/","claim:new"]')""": 60,
        f"beats('s', '', {now})": 100,
        "board": 20 * claims,
    }
    with holdlog.StateStore(postgres), connect(parse_url(postgres), PREPARE) as connection:
        for query in gates:
            connection.execute(f"EXECUTE {query}", prepare=False)
        connection.execute(
            f"INSERT INTO holders SELECT n, '', 'ann', {now} + 60000000, {now}, 1, 1, NULL, '', 0, NULL, NULL"
            f" FROM generate_series(1, 20) AS n; INSERT INTO claims SELECT 'a/' || n, n, 0, 'exclusive', 'ann',"
            f" n % 20 + 1, '', n, n, n, NULL, NULL, 0, 0, NULL FROM generate_series(1, {claims}) AS n;"
            " INSERT INTO events SELECT n, 'claim:a/' || n % 300, n, 'ClaimReleased', n, '{}', '{}', NULL, NULL, ''"
            " FROM generate_series(1, 30000) AS n"
        )
        pages = {}
        for query in gates:
            ((plans,),) = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {query}", prepare=False)
            pages[query] = sum(plans[0]["Plan"][f"Shared {kind} Blocks"] for kind in ("Hit", "Read"))
        assert all(0 < pages[query] < gate for query, gate in gates.items()), pages
