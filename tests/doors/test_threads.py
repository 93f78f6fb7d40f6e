"""Threads: messages and results of agents in order, pages, waiting readers; their data are values."""

from uuid import uuid4

import pytest

import holdlog
from tests.support.programs import run


def text(content, role="user"):
    return {"type": "text", "role": role, "content": content}


def result(content, at="2026-11-21T12:00:00Z"):
    return {"agent_name": "writer", "output": [text(content, "assistant")], "created_at": at}


pytestmark = pytest.mark.xdist_group("stdio")


@pytest.fixture
def place(open_folder):
    """One store for all tests: each has a thread of its own."""
    return open_folder / "state.db"


@pytest.fixture
def agent(open_stdio):
    return open_stdio


@pytest.fixture
def thread():
    return f"t-{uuid4().hex[:8]}"


@pytest.fixture
def append(agent, thread):
    """Appends messages, then results, by their texts."""

    def call(*messages, results=(), by="ann"):
        fields = {"messages": [text(it) for it in messages], "results": [result(it) for it in results]}
        given = {name: value for name, value in fields.items() if value}
        return agent.call("thread_append", thread_id=thread, agent=by, **given)

    return call


@pytest.fixture
def read(agent, thread):
    """Reads a page: the texts, and the page."""

    def call(**bounds):
        page = agent.call("thread_read", thread_id=thread, **bounds)
        return [(it.get("message") or it["result"]["output"][0])["content"] for it in page["items"]], page

    return call


def test_messages_and_results_are_appended_once_in_order(agent, append, read, thread):
    done = append("m-0", "m-1", results=("r-0",))
    assert (done["status"], done["thread_id"], done["appended"]) == ("ok", thread, 3)
    again = append(results=("r-0",))
    assert (again["appended"], again["already"]) == (0, 1)
    append("m-1", by="bob")
    found, page = read()
    assert found == ["m-0", "m-1", "r-0", "m-1"]
    assert [it["kind"] for it in page["items"]] == ["message", "message", "result", "message"]
    assert [it["by"] for it in page["items"]] == ["ann", "ann", "ann", "bob"]
    versions = [it["version"] for it in page["items"]]
    assert versions == sorted(set(versions))
    assert page["version"] == versions[-1]
    events = agent.call("events", kinds=["thread"], agent="bob")["events"]
    assert [(it["by"], it["thread"]) for it in events] == [("bob", thread)]


def test_thread_is_read_in_pages_from_both_ends(append, read):
    for number in range(5):
        append(f"m-{number}")
    found, page = read(limit=2)
    assert found == ["m-3", "m-4"]
    assert read(limit=2, before_version=page["next_before"])[0] == ["m-1", "m-2"]
    forward, after = [], 0
    for _ in range(3):
        found, page = read(after_version=after, limit=2)
        forward, after = forward + found, page["version"]
    assert forward == [f"m-{number}" for number in range(5)]
    assert read(after_version=after)[0] == []


def test_waiting_reader_gets_the_next_message(agent, append, thread):
    version = append("m-0")["version"]
    waiting = agent.start("thread_read", thread_id=thread, after_version=version, wait_seconds=30)
    append("m-1")
    (item,) = agent.finish(waiting)["items"]
    assert item["message"]["content"] == "m-1"


def test_unknown_thread_and_bad_messages_are_refused(agent, append, read, thread):
    assert agent.call("thread_read", thread_id="never")["status"] == "not_found"
    version = append("m-0")["version"]
    for messages in ([{"type": "text"}], [{"type": "other", "content": "x"}], [text("x", role="boss")], "x"):
        assert agent.error("thread_append", thread_id=thread, agent="ann", messages=[text("good"), *messages])
    assert read()[1]["version"] == version


def test_thread_of_an_earlier_moment_is_read(append, thread, place):
    position = append("m-0")["position"]
    append("m-1")
    with holdlog.StateStore(place) as store:
        (item,) = store.at(position, thread_id=thread).items
    assert item.message["content"] == "m-0"


def test_thread_command_prints_the_conversation(append, thread, place):
    append("which file?", results=("src/a.py",))
    done = run("thread", "read", thread, "--db", place)
    assert (done.code, done.err) == (0, "")
    assert done.out.index("which file?") < done.out.index("src/a.py")


def test_first_append_starts_a_thread(agent):
    done = agent.call("thread_append", thread_id="t", agent="ann", messages=[text("m-0")])
    assert (done["status"], done["version"]) == ("ok", 1)


def test_data_of_a_thread_are_values_that_only_threads_write(db):
    with holdlog.StateStore(db) as store:
        state = holdlog.create_state({"plan": 1}, thread_id="t", store=store)
        state.kv.set("plan", 2)
        assert [it.value for it in store.history("threads/t", "plan")] == [2, 1]
        for write in (
            lambda: store.set("threads/t", "plan", 3, updated_by="ann"),
            lambda: store.delete("threads/t", "plan", deleted_by="ann"),
            lambda: store.clear_namespace("threads/t", deleted_by="ann"),
        ):
            with pytest.raises(holdlog.InvalidError):
                write()
        assert state.data["plan"] == store.get("threads/t", "plan").value == 2
