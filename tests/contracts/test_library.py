"""The library: the same calls and answers for threads and for coroutines, on every store."""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdlog
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.python.async_store import AsyncStateStore
from holdlog.adapters.python.store import StateStore
from holdlog.domain.refusals import (
    ConflictError,
    HoldlogError,
    InvalidError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from tests.contracts.conftest import IN_A_FILE_IN_TIME
from tests.support.commands import PATIENCE


class Awaited:
    """An AsyncStateStore that is called like a StateStore: each call runs on a loop of its own thread."""

    def __init__(self, place: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._store = AsyncStateStore(place, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._store, name)
        return lambda *arguments, **named: self._runner.run(call(*arguments, **named))

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


Library = Any
"""StateStore, or AsyncStateStore behind `Awaited`: what is said of one here is said of both."""


KINDS: list[Any] = [StateStore, Awaited]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[..., Library]:
    made: Callable[..., Library] = request.param
    return made


@pytest.fixture
def state(kind: Callable[..., Library], place: str) -> Iterator[Library]:
    store = kind(place)
    yield store
    store.close()


# --- values


def test_a_value_is_set_and_got(state: Library) -> None:
    done = state.set("n", "k", {"a": [1, None]}, updated_by="ann")
    assert (done.status, done.version, done.previous_version, done.position) == ("ok", 1, None, 1)
    found = state.get("n", "k")
    assert (found.status, found.value, found.version, found.updated_by) == ("ok", {"a": [1, None]}, 1, "ann")
    assert found.updated_at.tzinfo is not None


def test_a_value_may_have_a_time_to_live(state: Library) -> None:
    state.set("n", "k", 1, updated_by="ann", ttl_seconds=3600)
    found = state.get("n", "k")
    assert 3500 < found.expires_in_seconds <= 3600
    assert 3599 < (found.expires_at - found.updated_at).total_seconds() <= 3600
    state.set("n", "k", 2, updated_by="ann", expected_version=1)
    assert state.get("n", "k").expires_at is None
    state.set("n", "k", 3, updated_by="ann", ttl_seconds=0.000_001)
    with pytest.raises(NotFoundError) as ended:
        state.get("n", "k")
    assert ended.value.facts["version"] == 4
    with pytest.raises(InvalidError, match="ttl_seconds"):
        state.set("n", "k", 4, updated_by="ann", ttl_seconds=0)


def test_a_write_without_a_version_is_unconditional(state: Library) -> None:
    assert [state.set("n", "k", n, updated_by="ann").version for n in range(3)] == [1, 2, 3]
    assert state.set("n", "k", 9, updated_by="ann").previous_version == 3


def test_a_conflict_carries_its_detail(state: Library) -> None:
    state.set("n", "k", "theirs", updated_by="bob")
    with pytest.raises(ConflictError) as conflict:
        state.set("n", "k", "mine", updated_by="ann", expected_version=0)
    detail = conflict.value.detail
    assert (detail.expected_version, detail.actual_version, detail.actual_value) == (0, 1, "theirs")
    assert detail.actual_updated_by == "bob"
    assert state.set("n", "k", "mine", updated_by="ann", expected_version=detail.actual_version).version == 2


def test_missing_key_is_not_found(state: Library) -> None:
    with pytest.raises(NotFoundError):
        state.get("n", "k")
    with pytest.raises(NotFoundError):
        state.delete("n", "k", deleted_by="ann")


def test_deletion_returns_both_versions(state: Library) -> None:
    state.set("n", "k", 1, updated_by="ann")
    state.set("n", "k", 2, updated_by="ann")
    with pytest.raises(ConflictError):
        state.delete("n", "k", deleted_by="bob", expected_version=1)
    done = state.delete("n", "k", deleted_by="bob", expected_version=2)
    assert (done.deleted_by, done.deleted_version, done.version, done.position) == ("bob", 2, 3, 3)
    with pytest.raises(NotFoundError) as missing:
        state.get("n", "k")
    assert (missing.value.facts["version"], missing.value.facts["deleted_by"]) == (3, "bob")
    assert state.set("n", "k", 3, updated_by="ann", expected_version=0).version == 4


def test_keys_are_listed_in_order_and_in_pages(state: Library) -> None:
    for key in ("b", "a", "c", "ab"):
        state.set("n", key, key.upper(), updated_by="ann")
    state.set("m", "x", 1, updated_by="ann")
    state.delete("n", "c", deleted_by="ann")
    assert [(it.key, it.value, it.namespace) for it in state.list_keys("n")] == [
        ("a", "A", "n"),
        ("ab", "AB", "n"),
        ("b", "B", "n"),
    ]
    assert state.list_namespaces() == ["m", "n"]
    page = state.list_records("n", limit=2)
    assert ([it.key for it in page.records], page.count, page.next_after, page.position) == (["a", "ab"], 2, "ab", 6)
    rest = state.list_records("n", after_key=page.next_after)
    assert ([it.key for it in rest.records], rest.next_after) == (["b"], None)
    assert [it.key for it in state.list_records("n", prefix="a").records] == ["a", "ab"]
    assert [it.key for it in state.list_records("n", deleted=True).records] == ["c"]


def test_listing_by_prefix_normalises_its_spelling(state: Library) -> None:
    state.set("n", "caf\u00e9/1", 1, updated_by="ann")
    assert [it.key for it in state.list_records("n", prefix="cafe\u0301").records] == ["caf\u00e9/1"]


def test_history_is_newest_first_with_reasons(state: Library) -> None:
    state.set("n", "k", 1, updated_by="ann", reason="because")
    state.set("n", "k", None, updated_by="bob")
    state.delete("n", "k", deleted_by="cleo", reason="done")
    past = state.history("n", "k")
    assert [(it.version, it.event_type, it.value, it.updated_by, it.reason) for it in past] == [
        (3, "delete", None, "cleo", "done"),
        (2, "write", None, "bob", None),
        (1, "write", 1, "ann", "because"),
    ]
    assert [it.version for it in state.history("n", "k", limit=1, before_version=3)] == [2]
    assert state.history("n", "never") == []


def test_an_export_holds_all_with_its_history(state: Library) -> None:
    for key in ("a", "b", "gone"):
        state.set("n", key, 1, updated_by="ann")
        state.set("n", key, 2, updated_by="ann")
    state.delete("n", "gone", deleted_by="ann")
    export = state.export_namespace("n")
    assert (export.record_count, export.history_count, export.position) == (2, 4, 7)
    assert [(it.key, it.value, len(it.history)) for it in export.records] == [("a", 2, 2), ("b", 2, 2)]
    assert state.export_namespace("n", include_deleted=True).history_count == 7


def test_clearing_answers_with_the_keys_in_order(state: Library) -> None:
    for key in ("b", "a"):
        state.set("n", key, 1, updated_by="ann")
    done = state.clear_namespace("n", deleted_by="bob")
    assert (done.deleted_count, done.deleted_keys, done.deleted_by, done.position) == (2, ["a", "b"], "bob", 4)
    assert state.clear_namespace("n", deleted_by="bob").deleted_count == 0


def test_a_request_id_makes_a_write_repeatable(state: Library) -> None:
    first = state.set("n", "k", 1, updated_by="ann", request_id="r")
    assert state.set("n", "k", 1, updated_by="ann", request_id="r") == first
    with pytest.raises(InvalidError, match="request_id"):
        state.set("n", "k", 2, updated_by="ann", request_id="r")
    deleted = state.delete("n", "k", deleted_by="ann", request_id="d")
    assert state.delete("n", "k", deleted_by="ann", request_id="d") == deleted
    claimed, again = (state.claim("x", agent="ann", request_id="c").body() for _ in range(2))
    for name in ("expires_in_seconds", "expires_at"):  # counted by two clocks, which differ by a microsecond
        again.pop(name), claimed.pop(name)
    assert again == claimed
    assert len(state.history("n", "k")) == 2


# --- update


def one_more(value: int | None) -> int:
    return (value or 0) + 1


def test_update_passes_the_current_value_to_the_function(state: Library) -> None:
    given: list[Any] = []

    def count(value: Any) -> int:
        given.append(value)
        return (value or 0) + 1

    assert [state.update("n", "k", count, updated_by="ann").version for _ in range(3)] == [1, 2, 3]
    state.delete("n", "k", deleted_by="bob")
    assert state.update("n", "k", count, updated_by="ann").version == 5
    assert given == [None, 1, 2, None]


def test_update_retries_when_another_agent_wrote_in_between(state: Library, place: str) -> None:
    state.set("n", "k", 0, updated_by="ann")
    writer = state._store._engine if isinstance(state, Awaited) else state._engine
    others = iter([10, 20])

    def count(value: int) -> int:
        if (theirs := next(others, None)) is not None:
            writer.write(writer.requests.values.set("n", "k", theirs, "bob", None), writer.caller)
        return value + 1

    assert state.update("n", "k", count, updated_by="ann").version == 4
    assert state.get("n", "k").value == 21


@pytest.mark.check
@IN_A_FILE_IN_TIME
def test_update_gives_up_after_a_hundred_attempts(state: Library) -> None:
    writer = state._store._engine if isinstance(state, Awaited) else state._engine
    attempts = 0

    def disturbed(value: Any) -> int:
        nonlocal attempts
        attempts += 1
        writer.write(writer.requests.values.set("n", "k", attempts, "bob", None), writer.caller)
        return 0

    with pytest.raises(ConflictError):
        state.update("n", "k", disturbed, updated_by="ann")
    assert attempts == 100


def test_exception_of_an_update_function_propagates_and_nothing_is_written(state: Library) -> None:
    def fail(value: Any) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        state.update("n", "k", fail, updated_by="ann")
    assert state.history("n", "k") == []


def test_concurrent_updates_in_threads_all_succeed(place: str) -> None:
    with StateStore(place) as store, ThreadPoolExecutor(8) as pool:

        def count() -> None:
            for _ in range(50):
                store.update("n", "k", one_more, updated_by="ann")

        for done in [pool.submit(count) for _ in range(8)]:
            done.result(PATIENCE)
        assert store.get("n", "k").value == 8 * 50


@pytest.mark.check
@IN_A_FILE_IN_TIME
async def test_concurrent_updates_in_coroutines_all_succeed(place: str) -> None:
    async with AsyncStateStore(place) as store:

        async def count() -> None:
            for _ in range(25):
                await store.update("n", "k", one_more, updated_by="ann")

        await asyncio.gather(*(count() for _ in range(32)))
        assert (await store.get("n", "k")).value == 32 * 25


# --- claims


def test_library_claims_refuses_the_second_agent_and_releases(state: Library) -> None:
    claimed = state.claim("./src//a.py", agent="ann")
    assert (claimed.status, claimed.resource, claimed.version, claimed.position) == ("claimed", "src/a.py", 1, 1)
    busy = state.claim("src/a.py", agent="bob")
    assert (busy.status, busy.held_by, busy.version, busy.claimed_at) == ("busy", "ann", 1, claimed.claimed_at)
    again = state.claim("src\\a.py", agent="ann")
    assert (again.status, again.version, again.claimed_at) == ("already_claimed", 1, claimed.claimed_at)
    refused = state.release("src/a.py", agent="bob")
    assert (refused.status, refused.held_by) == ("not_holder", "ann")
    assert state.release("src/a.py", agent="ann").model_dump(exclude_none=True) == {
        "status": "released",
        "resource": "src/a.py",
        "version": 2,
    }
    assert state.release("src/a.py", agent="ann").status == "already_free"
    assert state.release("never", agent="ann").status == "not_found"


def test_status_names_holder_and_past(state: Library) -> None:
    assert state.status("r").model_dump(exclude_none=True) == {"status": "available", "resource": "r"}
    state.claim("r", agent="ann")
    held = state.status("r")
    assert (held.status, held.held_by, held.version, held.held_for_seconds >= 0) == ("claimed", "ann", 1, True)
    state.release("r", agent="ann")
    free = state.status("r")
    assert (free.status, free.previous_holder, free.previous_outcome) == ("available", "ann", "released")


def test_the_board_shows_what_is_held_in_pages(state: Library) -> None:
    for resource in ("c", "a", "b"):
        state.claim(resource, agent="ann")
    state.release("b", agent="ann")
    board = state.board(limit=1)
    assert ([it.resource for it in board.claims], board.next_after) == (["a"], "a")
    assert [it.resource for it in state.board(after="a").claims] == ["c"]


def test_library_wait_and_watch_return_what_they_should(state: Library) -> None:
    assert state.wait("r", timeout_seconds=0).status == "available"
    state.claim("r", agent="ann")
    assert state.wait("r", timeout_seconds=0).status == "timeout"
    assert state.watch("n", "k", 0, timeout_seconds=0).status == "timeout"
    state.set("n", "k", 1, updated_by="ann")
    assert state.watch("n", "k", 0, timeout_seconds=0).value == 1
    state.delete("n", "k", deleted_by="ann")
    assert state.watch("n", "k", 1, timeout_seconds=0).status == "deleted"


# --- bad arguments


BAD_NAMES = ["", " ", " a", "a ", "a\0", "a\nb", "\u202e", "\ud800", "x" * 513, None, 7, b"a"]


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_library_refuses_a_bad_name_by_argument_and_stores_nothing(state: Library, bad: Any) -> None:
    for call, argument in (
        (lambda: state.set(bad, "k", 1, updated_by="ann"), "namespace"),
        (lambda: state.set("n", bad, 1, updated_by="ann"), "key"),
        (lambda: state.set("n", "k", 1, updated_by=bad), "updated_by"),
        (lambda: state.get(bad, "k"), "namespace"),
        (lambda: state.get("n", bad), "key"),
        (lambda: state.history("n", bad), "key"),
        (lambda: state.list_keys(bad), "namespace"),
        (lambda: state.list_records(bad), "namespace"),
        (lambda: state.export_namespace(bad), "namespace"),
        (lambda: state.clear_namespace(bad, deleted_by="ann"), "namespace"),
        (lambda: state.claim(bad, agent="ann"), "resource"),
        (lambda: state.claim("r", agent=bad), "agent"),
        (lambda: state.release("r", agent=bad), "agent"),
        (lambda: state.release(bad or "", agent="ann"), "resource"),  # None would be: everything
        (lambda: state.status(bad), "resource"),
        (lambda: state.wait(bad), "resource"),
        (lambda: state.watch("n", bad, 0), "key"),
    ):
        with pytest.raises(InvalidError, match=rf"^{argument}: "):
            call()
    assert state.list_namespaces() == []
    assert state.board().claims == []


@pytest.mark.parametrize("bad", [-1, 1.0, "1", True, 2**63, 2**70])
def test_library_refuses_a_bad_version(state: Library, bad: Any) -> None:
    with pytest.raises(InvalidError, match="expected_version"):
        state.set("n", "k", 1, updated_by="ann", expected_version=bad)
    with pytest.raises(InvalidError, match="expected_version"):
        state.delete("n", "k", deleted_by="ann", expected_version=bad)
    with pytest.raises(InvalidError, match="before_version"):
        state.history("n", "k", before_version=bad)


@pytest.mark.parametrize("bad", [0, -1, 1001, 2**70, 1.0, "1", None, True])
def test_library_refuses_a_bad_limit(state: Library, bad: Any) -> None:
    for call in (state.list_records, lambda n, limit: state.history(n, "k", limit=limit)):
        with pytest.raises(InvalidError, match="limit"):
            call("n", limit=bad)
    with pytest.raises(InvalidError, match="limit"):
        state.board(limit=bad)


@pytest.mark.parametrize("bad", ["\ud800", "a\udfff", 7, b"a"])
def test_library_refuses_a_bad_page_cursor(state: Library, bad: Any) -> None:
    with pytest.raises(InvalidError, match="prefix"):
        state.list_records("n", prefix=bad)
    with pytest.raises(InvalidError, match="after_key"):
        state.list_records("n", after_key=bad)
    with pytest.raises(InvalidError, match="after"):
        state.board(after=bad)


@pytest.mark.parametrize("bad", [float("nan"), "\ud800", b"x", {1: 2}, object(), [[[float("inf")]]]])
def test_library_refuses_a_bad_value_and_stores_nothing(state: Library, bad: Any) -> None:
    with pytest.raises(InvalidError, match=r"^value: "):
        state.set("n", "k", bad, updated_by="ann")
    with pytest.raises(InvalidError, match=r"^value: "):
        state.update("n", "k", lambda _: bad, updated_by="ann")
    assert state.history("n", "k") == []


@pytest.mark.check
def test_value_is_limited_to_256_kilobytes_by_default(kind: Callable[..., Library], place: str) -> None:
    state = kind(place)
    state.set("n", "k", "é" * (128 * 1024 - 1), updated_by="ann")
    for value in ("é" * (128 * 1024), "x" * 50_000_000):
        with pytest.raises(InvalidError, match="262144 bytes"):
            state.set("n", "k", value, updated_by="ann")
    assert state.get("n", "k").version == 1
    state.close()
    small = kind(place, settings=Settings(max_value_bytes=4))
    small.set("n", "k2", "xx", updated_by="ann")
    with pytest.raises(InvalidError, match="4 bytes"):
        small.set("n", "k2", "xxx", updated_by="ann")
    small.close()


def test_refusal_of_an_argument_never_contains_the_value(state: Library) -> None:
    with pytest.raises(InvalidError) as refusal:
        state.set("n", "k", {"secret": b"secret"}, updated_by="ann")
    assert "secret" not in str(refusal.value)
    with pytest.raises(InvalidError) as refusal:
        state.get("n", "secret\n")
    assert "secret" not in str(refusal.value)


def test_every_refusal_is_a_holdlog_error() -> None:
    for refusal in (ConflictError, InvalidError, NotFoundError, StoreError, UnavailableError):
        assert issubclass(refusal, HoldlogError)
    assert issubclass(InvalidError, ValueError)


# --- opening, closing, threads, forks


def test_sync_and_async_stores_have_the_same_methods_and_arguments() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in vars(kind).items()
            if not name.startswith("_")
        }

    assert methods(StateStore) == methods(AsyncStateStore)
    awaited = {name for name in methods(AsyncStateStore) if name not in ("claimed", "at", "changes")}
    """The others are for `async with` and `async for`, or wait for nothing."""
    assert all(inspect.iscoroutinefunction(getattr(AsyncStateStore, name)) for name in awaited)


def test_package_exports_the_names_of_the_library() -> None:
    assert holdlog.StateStore is StateStore
    assert holdlog.AsyncStateStore is AsyncStateStore
    assert holdlog.ConflictError is ConflictError
    assert set(holdlog.__all__) <= set(dir(holdlog))
    with pytest.raises(AttributeError):
        holdlog.nothing  # noqa: B018


def test_closed_store_raises_store_closed(kind: Callable[..., Library], place: str) -> None:
    state = kind(place)
    engine = state._store._engine if isinstance(state, Awaited) else state._engine
    state.close()
    engine.close()
    for call in (
        lambda: engine.read(engine.requests.values.get("n", "k")),
        lambda: engine.read(engine.requests.values.records("n")),
        lambda: engine.write(engine.requests.values.set("n", "k", 1, "ann", None), engine.caller),
        lambda: engine.wait(engine.requests.claims.wait("r")),
        lambda: asyncio.run(engine.claim_async(engine.requests.claims.claim("r", "ann"), engine.caller)),
        lambda: asyncio.run(engine.wait_async(engine.requests.values.watch("n", "k", 0))),
    ):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_values_persist_when_the_file_is_reopened(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:
        store.set("n", "k", 1, updated_by="ann")
    with StateStore(str(tmp_path / "state.db")) as store:
        assert store.get("n", "k").value == 1
        assert store.set("n", "k", 2, updated_by="ann", expected_version=1).version == 2


def test_two_stores_in_memory_are_independent() -> None:
    with StateStore(":memory:") as one, StateStore(":memory:") as two:
        one.set("n", "k", 1, updated_by="ann")
        assert two.list_namespaces() == []


def test_store_can_be_used_from_all_threads(place: str) -> None:
    with StateStore(place) as store, ThreadPoolExecutor(8) as pool:
        for written in [pool.submit(store.set, "n", f"k{n}", n, updated_by="ann") for n in range(50)]:
            written.result(PATIENCE)
        for n, found in [(n, pool.submit(store.get, "n", f"k{n}")) for n in range(50)]:
            assert found.result(PATIENCE).value == n


def test_library_refuses_a_url_of_an_unknown_kind() -> None:
    with pytest.raises(StoreError, match=r"^redis:// is not a store"):
        StateStore("redis://user:secret@host/db")


FORK = """
import os, sys
from holdlog import HoldlogError, StateStore, StoreError
store = StateStore(sys.argv[1])
store.set("n", "k", 1, updated_by="parent")
child = os.fork()
if child == 0:
    calls = [
        lambda: store.get("n", "k"),
        lambda: store.list_keys("n"),
        lambda: store.set("n", "k", 2, updated_by="child"),
        lambda: store.claim("r", agent="child"),
        lambda: store.wait("r", timeout_seconds=5),
        lambda: store.watch("n", "k", 1, timeout_seconds=5),
    ]
    told = 0
    for call in calls:
        try:
            call()
        except HoldlogError as error:
            told += "opened before a fork" in str(error)
    store.close()
    if sys.argv[1] != ":memory:":
        try:
            StateStore(sys.argv[1])
        except StoreError as error:
            told += "was open when this process was forked" in str(error)
    os._exit(told)
told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
version = store.get("n", "k").version
store.set("n", "k", 3, updated_by="parent", expected_version=version)
print(told, version, store.claim("r", agent="parent").status)
store.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_store_in_a_forked_child_raises_and_the_parent_continues(place: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, place], capture_output=True, text=True, timeout=PATIENCE)
    told = 7 if "/" in place and "://" not in place else 6  # a database may be opened anew
    assert (done.stdout, done.stderr, done.returncode) == (f"{told} 1 claimed\n", "", 0)
