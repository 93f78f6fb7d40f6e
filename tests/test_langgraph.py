"""LangGraph's store: side by side with LangGraph's own, names of every kind, and many writers."""

import asyncio
import importlib
import random
from datetime import timedelta

import pytest

import holdlog
from tests.conftest import in_postgres
from tests.support.library import in_thread

pytestmark = pytest.mark.xdist_group("langgraph")
base = importlib.import_module("langgraph.store.base")
memory = importlib.import_module("langgraph.store.memory")
ours = importlib.import_module("holdlog.langgraph")
ODD = [
    "a",
    "a/b",
    "a%2Fb",
    "a%b",
    " a",
    "a ",
    "\u00e9",
    "e\u0301",
    "ü☃",
    "\u200b",
    "a\nb",
    "%",
    "/",
    "*",
    "~",
    "record:",
    "A",
]


@pytest.fixture(params=["memory", in_postgres])
def store(request):
    place = ":memory:" if request.param == "memory" else request.getfixturevalue("postgres")
    with ours.HoldlogStore(place) as store:
        yield store


def plain(result):
    """A result as far as the two stores must agree."""
    if isinstance(result, list):
        return sorted(map(plain, result), key=repr)
    return (result.namespace, result.key, result.value) if isinstance(result, base.Item) else result


def name(choose):
    return tuple(choose(["a", "b", "c"]) for _ in range(choose([1, 2, 3])))


def make_item_operation(choose):
    key, number = choose(["k", "l"]), choose([0, 1, 2.5])
    return choose(
        [
            base.PutOp(name(choose), key, {"n": number, "deep": {"m": [number, None]}}),
            base.PutOp(name(choose), key, {"n": number}),
            base.PutOp(name(choose), key, None),
            base.GetOp(name(choose), key),
            base.SearchOp(name(choose)[: choose([0, 1])], limit=100),
            base.SearchOp((), {"n": {choose(["$eq", "$ne", "$lt", "$gte"]): number}}, limit=100),
            base.SearchOp((), {"deep": {"m": [choose([0, 1]), None]}}, limit=100),
        ]
    )


def make_name_operation(choose):
    """Without deletions and reads: LangGraph's own store lists namespaces that have nothing, too."""
    condition = base.MatchCondition(choose(["prefix", "suffix"]), (*name(choose)[:1], choose(["*", "a"])))
    listing = base.ListNamespacesOp((condition,), choose([None, 1, 2]), 100)
    return choose([base.PutOp(name(choose), "k", {}), listing])


@pytest.mark.parametrize("make", [make_item_operation, make_name_operation])
@pytest.mark.parametrize("seed", range(3))
def test_batches_have_the_results_of_langgraphs_own_store(store, seed, make):
    choose, theirs = random.Random(seed).choice, memory.InMemoryStore()
    for _ in range(60):
        batch = [make(choose) for _ in range(choose([1, 2, 5]))]
        assert [plain(it) for it in store.batch(batch)] == [plain(it) for it in theirs.batch(batch)], batch


def test_each_label_has_a_namespace_of_its_own(store):
    for number, label in enumerate(ODD):
        store.put((label, "x"), "k", {"n": number})
    for number, label in enumerate(ODD):
        assert store.get((label, "x"), "k").value == {"n": number}
        assert [it.value["n"] for it in store.search((label,))] == [number]
    assert sorted(store.list_namespaces()) == sorted((label, "x") for label in ODD)
    for label in ("\ud800", "a.b", "", 7):
        with pytest.raises(base.InvalidNamespaceError):
            store.put((label,), "k", {})


def test_namespaces_that_no_labels_have_are_not_found(store):
    with holdlog.StateStore(":memory:") as state:
        store = ours.HoldlogStore(state)
        for namespace in ("a.b", "a//b", "/a", "a/", "%zz", "ok"):
            state.set(namespace, "k", {}, updated_by="ann")
        assert store.list_namespaces() == [("ok",)]
        assert [it.namespace for it in store.search(())] == [("ok",)]


def test_batch_of_writes_is_one_transaction_and_data_of_threads_stay(store):
    with holdlog.StateStore(":memory:") as state:
        store = ours.HoldlogStore(state, updated_by="planner")
        store.batch([base.PutOp(("a",), f"k{number}", {}) for number in range(3)])
        assert len({it.at for it in state.events().events}) == 1
        holdlog.create_state({"n": {}}, thread_id="t", store=state)
        assert [it.key for it in store.search(("threads",))] == ["n"]
        for value in ({"n": 1}, None):
            with pytest.raises(holdlog.InvalidError, match="threads/"):
                store.batch([base.PutOp(("threads", "t"), "n", value)])
        with pytest.raises(holdlog.InvalidError, match="updated_by"):
            ours.HoldlogStore(state, updated_by="")
        with pytest.raises(holdlog.InvalidError, match="refresh_on_read"):
            ours.HoldlogStore(state, ttl={"refresh_on_read": True})


def test_counters_of_many_threads_lose_nothing(store):
    def count():
        for _ in range(10):
            while True:
                item = store.get(("a",), "n")
                try:
                    number = item.value["n"] if item else 0
                    store.put(("a",), "n", {"n": number + 1}, expected_version=item.version if item else 0)
                    break
                except holdlog.ConflictError:
                    pass

    for worker in [in_thread(count) for _ in range(4)]:
        worker.result()
    assert (store.get(("a",), "n").value, store.get(("a",), "n").version) == ({"n": 40}, 40)


async def test_coroutines_have_every_method(store):
    await asyncio.gather(*(store.aput(("a", "b"), f"k{number}", {"n": number}) for number in range(50)))
    assert len(await store.asearch(("a",), limit=100)) == 50
    with pytest.raises(holdlog.ConflictError):
        await store.aput(("a", "b"), "k1", {}, expected_version=7)
    with pytest.raises(holdlog.ConflictError):
        await store.adelete(("a", "b"), "k1", expected_version=7)
    await store.adelete(("a", "b"), "k1", expected_version=1)
    await store.adelete(("a", "b"), "k1")
    assert await store.aget(("a", "b"), "k1") is None
    assert await store.alist_namespaces(prefix=("a",)) == [("a", "b")]
    store.put(("a", "b"), "k1", {})
    item = await store.aget(("a", "b"), "k1")
    assert (item.version, item.dict()["version"], item.score) == (3, 3, None)
    assert timedelta() < item.updated_at - item.created_at
