"""A view of an earlier moment in the library, for threads and coroutines."""

from datetime import UTC, datetime

import pytest

from holdlog import AsyncStateStore, InvalidError, NotFoundError, StateStore, create_state


def test_view_reads_everything_as_it_was(tmp_path: object) -> None:
    with StateStore(":memory:") as store:
        store.set("n", "k", {"a": 1}, updated_by="ann")
        store.claim("custom://x", agent="ann")
        state = create_state({"plan": "p"}, thread_id="run", store=store, agent="ann")
        then = store.at(position=store.events().bookmark)
        store.set("n", "k", 2, updated_by="ben")
        store.set("n", "new", 3, updated_by="ben")
        store.release("custom://x", agent="ann")
        state.data["plan"] = "q"
        state.append_message({"type": "text", "role": "user", "content": "hi"})
        found = then.get("n", "k")
        assert (found.value, found.version, found.as_of) == ({"a": 1}, 1, then.as_of())
        assert [it.key for it in then.list_keys("n")] == ["k"]
        assert then.list_records("n").count == 1
        assert then.list_namespaces() == ["n"]
        assert [it.version for it in then.history("n", "k")] == [1]
        assert then.status("custom://x").status == "claimed"
        assert [it.held_by for it in then.board().claims] == ["ann"]
        assert [(it.agent, it.claims) for it in then.agents().agents] == [("ann", 1)]
        assert then.tokens().tokens == []
        assert then.thread_data("run").data == {"plan": "p"}
        assert then.thread("run").body()["items"] == []
        assert [it.thread_id for it in then.list_threads().threads] == ["run"]
        with pytest.raises(NotFoundError, match="n/new does not exist at position"):
            then.get("n", "new")


def test_view_of_a_time_stays_at_the_position_of_its_first_read() -> None:
    with StateStore(":memory:") as store:
        store.set("n", "k", 1, updated_by="ann")
        now = store.at(time=datetime.now(UTC))
        assert now.as_of().position == 1
        store.set("n", "k", 2, updated_by="ann")
        assert (now.get("n", "k").value, now.as_of().position) == (1, 1)
        written = store.get("n", "k").updated_at
        assert store.at(time=written.isoformat()).get("n", "k").value == 2


async def test_coroutines_read_the_same_view() -> None:
    async with AsyncStateStore(":memory:") as store:
        await store.set("n", "k", 1, updated_by="ann")
        await store.set("n", "k", 2, updated_by="ann")
        then = store.at(position=1)
        assert (await then.get("n", "k")).value == 1
        assert (await then.as_of()).position == 1
        assert (await then.board()).claims == []


def test_view_needs_exactly_one_moment() -> None:
    with StateStore(":memory:") as store:
        with pytest.raises(InvalidError, match="position: pass either position or time"):
            store.at()
        with pytest.raises(InvalidError, match="time: is before the first event of the log, which is empty"):
            store.at(time="2020-01-01T00:00:00Z").as_of()
        with pytest.raises(InvalidError, match="position: is 1, but the log ends at position 0"):
            store.at(position=1).get("n", "k")
