"""A write repeated with its request id is done once, by every method of the library, in another process and after a
restart."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest

from holdlog import AgentResult, InvalidError, State, StateStore, TextMessage, create_state
from holdlog.adapters.http.routing import WRITER, ApiRoute
from holdlog.adapters.http.threads.data import routes as data_routes
from holdlog.adapters.http.threads.items import routes as item_routes
from holdlog.adapters.http.values.kv import routes as value_routes
from tests.support.commands import whole_log

SESSION = "conversation-7"
Write = Callable[[StateStore, str], Any]


def thread(store: StateStore) -> State[Any]:
    return create_state(thread_id="t", store=store)


def message(store: StateStore, request_id: str) -> Any:
    thread(store).append_message(TextMessage(role="user", content="hello"), request_id=request_id)


def result(store: StateStore, request_id: str) -> Any:
    """Its time is that of the call."""
    output = [TextMessage(role="assistant", content="done")]
    return thread(store).append_result(AgentResult(agent_name="finder", output=output), request_id=request_id)


def results(store: StateStore, request_id: str) -> Any:
    made = AgentResult(agent_name="finder", output=[], created_at=datetime(2026, 11, 23, tzinfo=UTC))
    return thread(store).set_results([made], request_id=request_id)


WRITES: dict[str, Write] = {
    "set": lambda store, it: store.set("n", "new", {"a": 1}, updated_by="ann", request_id=it),
    "delete": lambda store, it: store.delete("n", "k", deleted_by="ann", request_id=it),
    "clear": lambda store, it: store.clear_namespace("n", deleted_by="ann", request_id=it),
    "update": lambda store, it: store.update("n", "k", increment=1, updated_by="ann", request_id=it),
    "function": lambda store, it: store.update("n", "k", lambda was: was + 1, updated_by="ann", request_id=it),
    "transact": lambda store, it: store.transact(
        [{"op": "increment", "namespace": "n", "key": "k", "by": 2}], updated_by="ann", request_id=it
    ),
    "claim": lambda store, it: store.claim("src/a.py", agent="ann", request_id=it).status,
    "release": lambda store, it: store.release("held.py", agent="ann", outcome="modified", request_id=it),
    "register": lambda store, it: store.register("ann", name="Ann", request_id=it),
    "message": message,
    "result": result,
    "results": results,
    "fork": lambda store, it: thread(store).fork(request_id=it).thread_id,
}


@pytest.fixture
def store(place: str) -> Iterator[StateStore]:
    with StateStore(place, session=SESSION) as opened:
        prepare(opened)
        yield opened


def prepare(store: StateStore) -> None:
    store.set("n", "k", 1, updated_by="ann")
    store.claim("held.py", agent="ann")
    thread(store)


def length(store: StateStore) -> int:
    return len(whole_log(store._engine.store))


@pytest.mark.parametrize("write", WRITES)
def test_repeated_write_returns_the_first_response_and_changes_nothing(store: StateStore, write: str) -> None:
    first = WRITES[write](store, "r-1")
    written = length(store)
    assert written > 3
    assert WRITES[write](store, "r-1") == first
    assert length(store) == written


@pytest.mark.check
@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("write", WRITES)
def test_write_repeated_after_a_restart_is_done_once(place: str, write: str) -> None:
    with StateStore(place, session=SESSION) as before:
        prepare(before)
        first = WRITES[write](before, "r-1")
        written = length(before)
    with StateStore(place, session=SESSION) as after:
        assert WRITES[write](after, "r-1") == first
        assert length(after) == written


def test_function_repeated_after_others_wrote_returns_its_first_value(store: StateStore) -> None:
    first = store.update("n", "k", lambda was: was + 1, updated_by="ann", request_id="r-1")
    store.set("n", "k", 50, updated_by="bob")
    assert store.update("n", "k", lambda was: was + 1, updated_by="ann", request_id="r-1") == first
    assert (first.value, store.get("n", "k").value) == (2, 50)


def test_request_id_of_one_update_is_refused_for_another_key(store: StateStore) -> None:
    store.update("n", "k", lambda was: 1, updated_by="ann", request_id="r-1")
    with pytest.raises(InvalidError, match="request_id: was already used"):
        store.update("n", "other", lambda was: 1, updated_by="ann", request_id="r-1")


def test_repeats_of_many_threads_are_done_once(store: StateStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(
            pool.map(lambda _: store.update("n", "k", increment=1, updated_by="ann", request_id="r-1"), range(40))
        )
    assert {it.version for it in done} == {2}
    assert store.get("n", "k").value == 2


COMMANDS = {
    "set": ["set", "n", "new", "1", "--version", "0", "--request-id", "r-1"],
    "delete": ["delete", "n", "k", "--version", "1", "--request-id", "r-1"],
    "claim": ["claim", "src/a.py", "--agent", "ann", "--session", "s", "--request-id", "r-1"],
    "release": ["release", "mine.py", "--agent", "ann", "--session", "s", "--request-id", "r-1"],
}


@pytest.mark.check
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_command_repeated_by_another_process_is_done_once(place: str, command: str) -> None:
    def run(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "holdlog", *words, "--json", "--db", place],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    run("set", "n", "k", "1", "--version", "0")
    run("claim", "mine.py", "--agent", "ann", "--session", "s")
    first = run(*COMMANDS[command])
    again = run(*COMMANDS[command])
    ends = {"expires_in_seconds", "expires_at"}  # of the lease that is left
    assert {name: it for name, it in again.items() if name not in ends} == {
        name: it for name, it in first.items() if name not in ends
    }
    with StateStore(place) as store:
        assert length(store) == 3


def test_every_route_of_http_that_writes_takes_an_idempotency_key() -> None:
    routes: chain[ApiRoute] = chain(value_routes, data_routes, item_routes)
    writing = [
        operation
        for route in routes
        for method, operation in route.operations.items()
        if method in ("PUT", "POST", "PATCH", "DELETE")
    ]
    assert len(writing) > 8
    assert [it.summary for it in writing if WRITER[1] not in it.headers] == []
