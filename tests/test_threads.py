"""Threads in the library: appends and results, pages, waits, and their data."""

import asyncio
import json

import psycopg
import pytest

import holdlog
from tests.conftest import both_stores
from tests.doors.test_threads import result, text
from tests.support.library import in_thread


def contents(page):
    return [it.message["content"] if it.message else it.result["output"][0]["content"] for it in page.items]


def test_library_appends_messages_and_results_once_in_order(store):
    done = store.thread_append("t", agent="ann", messages=[text("m-0"), text("m-1")], results=[result("r-0")])
    assert (done.status, done.version, done.appended, done.already, done.position) == ("ok", 3, 3, 0, 3)
    again = store.thread_append("t", agent="ann", results=[result("r-0"), result("r-1"), result("r-1")])
    assert (again.version, again.appended, again.already) == (4, 1, 2)
    other = store.thread_append("other", agent="ann", results=[result("r-0")])
    assert (other.version, other.appended) == (1, 1)
    store.thread_append("t", agent="bob", messages=[text("m-1")])
    page = store.thread_read("t")
    assert contents(page) == ["m-0", "m-1", "r-0", "r-1", "m-1"]
    assert [(it.version, it.kind, it.by) for it in page.items[1:3]] == [(2, "message", "ann"), (3, "result", "ann")]
    assert (page.version, page.items[-1].by) == (5, "bob")
    assert [(it.kind, it.thread) for it in store.events(5).events] == [("MessageAppended", "t")]
    assert store.list().namespaces == []


def test_result_without_a_time_may_come_again_and_the_spelling_of_agentkit_is_the_same(store):
    untimed = {"agent_name": "writer", "output": [text("r", "assistant")]}
    assert store.thread_append("t", agent="ann", results=[untimed, untimed]).appended == 2
    spelled = {"agentName": "writer", "output": [text("r", "assistant")], "createdAt": "2026-11-21T13:00:00+01:00"}
    assert store.thread_append("t", agent="ann", results=[result("r"), spelled]).already == 1
    assert store.thread_read("t").items[0].result == untimed | {"tool_calls": []}


def test_library_reads_pages_from_both_ends(store):
    for number in range(5):
        store.thread_append("t", agent="ann", messages=[text(f"m-{number}")])
    last = store.thread_read("t", limit=2)
    assert (contents(last), last.version) == (["m-3", "m-4"], 5)
    middle = store.thread_read("t", limit=2, before_version=last.next_before)
    assert contents(middle) == ["m-1", "m-2"]
    first = store.thread_read("t", limit=2, before_version=middle.next_before)
    assert (contents(first), first.next_before) == (["m-0"], None)
    found, after = [], 0
    while after is not None:
        page = store.thread_read("t", after_version=after, limit=2)
        found, after = found + contents(page), page.next_after
    assert (found, page.version) == ([f"m-{number}" for number in range(5)], 5)
    assert store.thread_read("t", after_version=5).items == store.thread_read("t", before_version=1).items == []


def test_page_ends_early_where_its_items_are_long(store):
    for number in range(3):
        store.thread_append("t", agent="ann", messages=[text(f"{number}" * 200_000)])
    assert [it.version for it in store.thread_read("t").items] == [2, 3]
    page = store.thread_read("t", after_version=0)
    assert ([it.version for it in page.items], page.version, page.next_after) == ([1, 2], 2, 2)


@both_stores
def test_library_reader_waits_for_the_start_and_the_next_item_of_a_thread(open_store):
    writer, reader = open_store(), open_store()
    assert reader.thread_read("t", after_version=0, wait_seconds=0.01).status == "not_found"
    for number in range(3):
        waiting = in_thread(reader.thread_read, "t", after_version=number, wait_seconds=50)
        writer.thread_append("other", agent="ann", messages=[text("x")])
        writer.thread_append("t", agent="ann", messages=[text(f"m-{number}")])
        assert contents(waiting.result()) == [f"m-{number}"]
    assert reader.thread_read("t", after_version=3, wait_seconds=0.01).items == []


@both_stores
def test_result_that_many_append_at_once_is_there_once(open_store):
    handles = [open_store() for _ in range(2)]
    calls = [in_thread(it.thread_append, "t", agent="ann", results=[result("r")]) for it in handles * 8]
    done = [it.result() for it in calls]
    assert (sum(it.appended for it in done), sum(it.already for it in done)) == (1, 15)
    assert len(handles[0].thread_read("t").items) == 1


def test_result_of_several_appends_in_one_transaction_is_there_once():
    async def append():
        async with holdlog.AsyncStateStore(":memory:") as store:
            calls = [store.thread_append("t", agent="ann", results=[result("r")]) for _ in range(50)]
            done = await asyncio.gather(*calls)
            return sum(it.appended for it in done), len((await store.thread_read("t")).items)

    assert asyncio.run(append()) == (1, 1)


def test_repeated_append_with_a_request_id_appends_nothing(store):
    first = store.thread_append("t", agent="ann", messages=[text("m")], request_id="r")
    assert store.thread_append("t", agent="ann", messages=[text("m")], request_id="r") == first
    assert len(store.thread_read("t").items) == 1


def test_library_refuses_bad_items_and_appends_none_of_them(store):
    assert not store.thread_read("t")
    for fields in (
        {}, {"messages": []}, {"messages": "x"}, {"messages": [7]}, {"messages": [{"type": "text"}]},
        {"messages": [{"type": "secret", "content": "x"}]}, {"messages": [text("secret", role="secret")]},
        {"messages": [text("x" * 300_000)]}, {"results": [result("x", at="secret")]}, {"results": [{"output": []}]},
        {"results": [result("x", at="0001-01-01T00:00:00+10:00")]}, {"results": [result("x") | {"secret": 1}]},
    ):  # fmt: skip
        good = {
            name: [text("good") if name == "messages" else result("good"), *it] for name, it in fields.items() if it
        }
        with pytest.raises(holdlog.InvalidError) as refused:
            store.thread_append("t", agent="ann", **good if isinstance(fields.get("messages", []), list) else fields)
        assert "secret" not in str(refused.value).replace(".secret: unknown", "")
    with pytest.raises(holdlog.InvalidError):
        store.thread_read("t", wait_seconds=1)
    assert store.thread_read("t").status == "not_found"
    store.thread_append("t", agent="ann", messages=[text("m")])
    with pytest.raises(holdlog.InvalidError):
        store.thread_read("t", after_version=2)


def test_data_of_threads_are_written_by_no_operation_on_values(store):
    step = {"op": "set", "namespace": "threads/t", "key": "k", "value": 1}
    for write in (
        lambda: store.set("threads/t", "k", 1, updated_by="ann"),
        lambda: store.update("threads/t", "k", lambda _: 1, updated_by="ann"),
        lambda: store.update("threads/t", "k", updated_by="ann", increment=1),
        lambda: store.transact([step], updated_by="ann"),
        lambda: store.delete("threads/t", "k", deleted_by="ann"),
        lambda: store.clear_namespace("threads/t", deleted_by="ann"),
    ):
        with pytest.raises(holdlog.InvalidError, match="threads/"):
            write()
    assert store.set("threads", "k", 1, updated_by="ann").version == 1


def test_thread_of_an_earlier_moment_has_what_it_had_then(store):
    first = store.thread_append("t", agent="ann", messages=[text("m-0")]).position
    store.thread_append("t", agent="ann", messages=[text("m-1"), text("m-2")])
    assert contents(store.at(first, thread_id="t")) == ["m-0"]
    page = store.at("now", thread_id="t", limit=2)
    assert (contents(page), page.as_of.position, page.next_before) == (["m-1", "m-2"], 3, 2)
    assert store.at(first, thread_id="other").status == "not_found"


def test_redacted_result_is_shown_as_such_and_may_be_appended_again(store):
    store.thread_append("t", agent="ann", messages=[text("m")], results=[result("secret")])
    store.token_create("ci", ["read:*"], created_by="ann")
    assert store.redact("thread:t@2", redacted_by="ann", reason="why").redacted == 1
    message, redacted = store.thread_read("t").items
    assert (message.redacted, redacted.kind, redacted.result, redacted.redacted) == (None, "result", None, True)
    assert store.thread_append("t", agent="ann", results=[result("secret")]).appended == 1
    assert (store.verify().status, store.rebuild().changed) == ("ok", 0)


@both_stores
def test_text_with_nul_is_appended_once_and_shown_by_the_view(store):
    nul = result("a\0b ~1 ~ \\u0000 \n~0 \0\0")
    assert [store.thread_append("t", agent="ann", results=[nul]).already for _ in range(2)] == [0, 1]
    assert store.thread_read("t").items[0].result["output"] == nul["output"]
    store.set("n", "k", nul, updated_by="ann", reason="why")
    ((value,),) = store._engine.store.read("SELECT value FROM current_values", {})
    assert (json.loads(value) if isinstance(value, str) else value) == nul


def test_write_that_the_database_does_not_accept_fails_alone(postgres):
    async def write_many():
        async with holdlog.AsyncStateStore(postgres) as store:
            await store.set("n", "k", 0, updated_by="ann")
            url, _, schema = postgres.partition("?schema=")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"ALTER TABLE {schema}.events ADD CHECK (length(payload) < 1000)")
            values = [*range(20), "x" * 2000, *range(20)]
            writes = [store.set("n", f"k{place}", value, updated_by="ann") for place, value in enumerate(values)]
            return await asyncio.gather(*writes, return_exceptions=True)

    done = asyncio.run(write_many())
    refused = done.pop(20)
    assert (type(refused), [type(it).__name__ for it in done]) == (holdlog.StoreError, ["SetResult"] * 40)
