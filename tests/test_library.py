"""The library's calls beyond its doors, and that its classes are those that `make generate` writes."""

import ast
import asyncio
import importlib
import pickle
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import holdlog
from tests.support.library import Blocking, in_thread
from tests.support.proxy import Proxy

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=["threads", "coroutines"])
def store(request, tmp_path):
    """Each half of the library."""
    opened = (Blocking if request.param == "coroutines" else holdlog.StateStore)(tmp_path / "state.db")
    yield opened
    (opened.stop if request.param == "coroutines" else opened.close)()


def test_library_is_what_the_operations_say(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    for path, text in importlib.import_module("write_library").write_files().items():
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(path.read_text())), f"run make generate: {path.name}"


def test_reference_is_what_the_operations_say(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    text = importlib.import_module("write_reference").write_reference()
    assert text == (ROOT / "docs" / "reference.md").read_text(), "run make reference"


def put(store, value=1, **options):
    return store.set("n", "k", value, updated_by="bob", **options)


def update(store, **change):
    return store.update("n", "k", updated_by="ann", **change)


# --- values


def test_write_over_a_deleted_value_is_not_forced(store):
    put(store, 1)
    store.delete("n", "k", deleted_by="bob")
    put(store, 2)
    assert store.history("n", "k")[0].forced is None
    assert "forced" not in store.events().events[2].fields


def test_update_by_a_function_keeps_the_time_to_live(store):
    put(store, 1, ttl_seconds=3600)
    ends = store.get("n", "k").expires_at
    assert update(store, function=lambda value: value + 1).version == 2
    assert store.get("n", "k").expires_at == ends


def test_update_by_a_function_takes_no_request_id(store):
    with pytest.raises(holdlog.InvalidError, match="request_id"):
        update(store, function=str, request_id="r")
    assert store.events().events == []


def test_list_of_deleted_keys_needs_a_namespace(store):
    with pytest.raises(holdlog.InvalidError, match="deleted"):
        store.list(deleted=True)


def test_list_keys_needs_a_namespace(store):
    for bad in (None, ""):
        with pytest.raises(holdlog.InvalidError, match="namespace"):
            store.list_keys(bad)


# --- events


def commit(store, size, namespace="n"):
    """One transaction of so many events."""
    operations = [{"op": "set", "namespace": namespace, "key": f"{it}", "value": size} for it in range(size)]
    return store.transact(operations, updated_by="ann").position


def test_page_of_events_ends_with_a_whole_transaction(store):
    ends = [commit(store, size) for size in (600, 600, 1000)]
    ends.append(store.clear_namespace("n", deleted_by="bob").position)
    ends.append(commit(store, 1))
    seen = after = 0
    while after < ends[-1]:
        page = store.events(after, limit=1000)
        seen, after = seen + len(page.events), page.next_position
        assert after in ends
    assert seen == ends[-1]


def test_transaction_of_more_events_than_a_page_comes_whole(store):
    for number in range(3):
        store.transact(
            [{"op": "set", "namespace": "n", "key": f"{number}/{it}", "value": 1} for it in range(500)],
            updated_by="ann",
        )
    store.clear_namespace("n", deleted_by="bob")
    assert len(store.events(1500, limit=10).events) == 1500


def test_long_poll_finds_an_event_behind_many_of_other_namespaces(store):
    for _ in range(3):
        commit(store, 600, "other")
    put(store, 1)
    page, after = None, 0
    while page is None or not page.events:
        page = in_thread(store.events, after, namespace="n", wait_seconds=1000).result()
        after = page.next_position
    assert [(it.position, it.key) for it in page.events] == [(1801, "k")]


# --- arguments, waiting, closing


@pytest.mark.parametrize("name", ["session", "correlation_id"])
@pytest.mark.parametrize("library", ["StateStore", "AsyncStateStore"])
def test_bad_label_of_a_handle_is_refused_and_opens_nothing(library, name, tmp_path):
    for bad in ["", " a", "a\n", "\ud800", "x" * 129, 5, ["x"], b"a"]:
        with pytest.raises(holdlog.InvalidError, match=name):
            getattr(holdlog, library)(tmp_path / "state.db", **{name: bad})
    assert not list(tmp_path.iterdir())


def test_closed_store_refuses_reads_and_writes_of_every_kind(store):
    put(store)
    calls = (
        *(store.list_namespaces, store.events, lambda: store.list("n"), lambda: store.history("n", "k")),
        *(lambda: store.get("n", "k"), lambda: store.watch("n", "k", 1), lambda: store.export_namespace("n")),
        *(lambda: put(store, 2), lambda: store.update("n", "k", increment=1, updated_by="ann")),
    )
    for call in calls[:4]:
        call()
    store.close()
    for call in calls:
        with pytest.raises(holdlog.HoldlogError, match="closed"):
            call()


def test_call_that_does_not_wait_starts_no_listener(store):
    def kinds():
        return {thread.name.partition("_")[0] for thread in threading.enumerate()}

    put(store)
    store.list()  # coroutines read in threads
    before = kinds()
    assert store.watch("n", "k", 1, timeout_seconds=0).status == "timeout"
    assert store.events(1).events == []
    assert kinds() == before


@pytest.mark.xdist_group("postgres")
async def test_loop_runs_while_a_coroutine_begins_and_ends_its_wait(postgres):
    """Each message takes 0.1 s, and a wait opens connections."""
    longest = 0.0
    with closing(Proxy(postgres, delay=0.1)) as proxy:
        async with holdlog.AsyncStateStore(proxy.url) as store:
            waiting = asyncio.create_task(store.events(wait_seconds=0.5))
            while not waiting.done():
                began = time.monotonic()
                await asyncio.sleep(0.001)
                longest = max(longest, time.monotonic() - began)
            assert waiting.result().events == []
    assert longest < 0.2


def test_refusals_come_through_a_process_pool_with_their_facts():
    with holdlog.StateStore(":memory:") as store:
        store.set("n", "k", {"a": 1}, updated_by="ann")
        with pytest.raises(holdlog.ConflictError) as conflict:
            store.set("n", "k", 2, updated_by="bob", expected_version=7)
        with pytest.raises(holdlog.NotFoundError) as missing:
            store.get("n", "none")
        with pytest.raises(holdlog.FencedError) as fenced:
            store.set("n", "k", 2, updated_by="bob", guard=[{"resource": "a", "version": 1}])
    for error in (conflict.value, missing.value, fenced.value):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.detail) == (type(error), str(error), error.detail)


def test_expired_key_is_listed_as_deleted_without_its_value():
    with holdlog.StateStore(":memory:") as store:
        store.set("n", "k", "secret", updated_by="ann", ttl_seconds=0.000_001)
        (record,) = store.list("n", deleted=True).records
        assert (record.value, record.version) == (None, 2)
        assert [it.value for it in store.export_namespace("n", include_deleted=True).records] == [None]


def test_store_whose_file_is_gone_but_not_its_log_is_refused_and_nothing_is_created(tmp_path):
    (tmp_path / "state.db-wal").write_bytes(b"x")
    with pytest.raises(holdlog.StoreError, match="-wal is left"):
        holdlog.StateStore(tmp_path / "state.db")
    assert not (tmp_path / "state.db").exists()


def test_names_of_results_and_refusals_are_importable():
    assert issubclass(holdlog.InapplicableError, holdlog.HoldlogError)
    assert holdlog.StateRecord.__name__ == "StateRecord"
    with pytest.raises(AttributeError):
        _ = holdlog.nothing
