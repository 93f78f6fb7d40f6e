"""LangGraph's BaseStore on holdlog: what LangGraph's own stores promise, and versions."""

import importlib
from datetime import timedelta

import pytest

import holdlog
from tests.support.programs import python
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("langgraph")  # importing it takes seconds: one worker pays
MEMORIES = ("users", "ann", "memories")


@pytest.fixture(scope="module")
def base():
    return importlib.import_module("langgraph.store.base")


@pytest.fixture
def make():
    return importlib.import_module("holdlog.langgraph").HoldlogStore


@pytest.fixture(params=["memory", "postgres"])
def store(make, request):
    place = ":memory:" if request.param == "memory" else request.getfixturevalue("postgres")
    with make(place) as store:
        yield store


@pytest.fixture
def memory(make):
    with make(":memory:") as store:
        yield store


@pytest.fixture
def theirs():
    """LangGraph's own store, to compare with."""
    return importlib.import_module("langgraph.store.memory").InMemoryStore()


def keys(found):
    return [it.key for it in found]


def test_item_is_put_read_put_again_and_deleted(store, base):
    assert store.get(MEMORIES, "food") is None
    store.put(MEMORIES, "food", {"likes": "pizza"})
    first = store.get(MEMORIES, "food")
    assert isinstance(first, base.Item)
    assert (first.namespace, first.key, first.value, first.version) == (MEMORIES, "food", {"likes": "pizza"}, 1)
    store.put(MEMORIES, "food", {"likes": "rice"})
    second = store.get(MEMORIES, "food")
    assert (second.value, second.version, second.updated_by) == ({"likes": "rice"}, 2, "langgraph")
    assert first.created_at == second.created_at < second.updated_at
    store.delete(MEMORIES, "food")
    store.delete(MEMORIES, "food")
    assert store.get(MEMORIES, "food") is None


def test_conflicting_put_is_refused_and_changes_nothing(store):
    store.put(MEMORIES, "food", {"likes": "pizza"}, expected_version=0)
    store.put(MEMORIES, "food", {"likes": "rice"}, expected_version=1)
    for expected in (0, 1, 3):
        with pytest.raises(holdlog.ConflictError) as refused:
            store.put(MEMORIES, "food", {"likes": "soup"}, expected_version=expected)
        assert refused.value.detail.actual_version == 2
    with pytest.raises(holdlog.ConflictError):
        store.delete(MEMORIES, "food", expected_version=1)
    assert store.get(MEMORIES, "food").value == {"likes": "rice"}


def test_batch_reads_first_and_writes_all_or_nothing(store, base):
    store.put(("a",), "old", {"n": 1})
    results = store.batch(
        [
            base.PutOp(("a",), "new", {"n": 2}),
            base.GetOp(("a",), "old"),
            base.GetOp(("a",), "new"),
            base.PutOp(("a",), "old", None),
            base.SearchOp(("a",)),
            base.ListNamespacesOp(),
            base.PutOp(("b",), "never", None),
        ]
    )
    assert (results[1].value, results[2], keys(results[4]), results[5]) == ({"n": 1}, None, ["old"], [("a",)])
    assert keys(store.search(())) == ["new"]
    outdated = importlib.import_module("holdlog.langgraph").VersionedPut(("a",), "new", {"n": 4}, expected_version=7)
    with pytest.raises(holdlog.ConflictError):
        store.batch([base.PutOp(("a",), "more", {"n": 3}), outdated])
    assert keys(store.search(())) == ["new"]


def test_last_of_several_puts_of_one_key_wins(memory, base):
    puts = [base.PutOp(("a",), "k", value) for value in ({"n": 1}, None, None, {"n": 2})]
    memory.batch(puts)
    assert memory.get(("a",), "k").value == {"n": 2}
    memory.batch(puts[:2])
    assert memory.get(("a",), "k") is None


def test_search_returns_items_below_a_label_prefix_newest_first(store):
    for namespace in (("docs",), ("docs", "a"), ("docs", "a", "b"), ("docs2",), ("docs-b",)):
        store.put(namespace, "k", {"in": "/".join(namespace)})
    assert [it.namespace for it in store.search(("docs",))] == [("docs", "a", "b"), ("docs", "a"), ("docs",)]
    assert len(store.search(())) == 5
    assert store.search(("doc",)) == []


def test_search_comes_in_pages(store, base):
    store.batch([base.PutOp(("n", f"{number % 3}"), f"k{number:02}", {"n": number}) for number in range(25)])
    assert len(store.search(("n",))) == 10
    pages = [keys(store.search(("n",), limit=7, offset=offset)) for offset in (0, 7, 14, 21, 28)]
    assert [len(page) for page in pages] == [7, 7, 7, 4, 0]
    assert len({key for page in pages for key in page}) == 25


FILTERS = [
    {},
    {"color": "red"},
    {"color": {"$eq": "blue"}},
    {"color": {"$ne": "red"}},
    {"score": {"$gt": 4.5}},
    {"score": {"$gte": 4.5}},
    {"score": {"$lt": 5}},
    {"score": {"$lte": 5}},
    {"score": {"$gte": 4, "$lt": 5}, "color": "blue"},
    {"meta": {"tags": ["x", "y"]}},
    {"meta": {"tags": ["x"]}},
]


def test_search_filters_match_as_in_langgraphs_own_store(memory, theirs):
    values = {
        "red": {"color": "red", "score": 5, "meta": {"tags": ["x", "y"]}},
        "blue": {"color": "blue", "score": 4.5, "meta": {"tags": []}},
    }
    for key, value in values.items():
        memory.put(("c",), key, value)
        theirs.put(("c",), key, value)
    for wanted in FILTERS:
        assert {*keys(memory.search(("c",), filter=wanted))} == {*keys(theirs.search(("c",), filter=wanted))}
    with pytest.raises(holdlog.InvalidError, match=r"\$eq"):
        memory.search((), filter={"a": {"$regex": "x"}})


def test_namespaces_are_listed_as_by_langgraphs_own_store(store, theirs, base):
    places = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "c", "f"), ("z",), ("u", "x", "v1"), ("u", "y", "v1")]
    for each in (store, theirs):
        each.batch([base.PutOp(place, "k", {}) for place in places])
    for wanted in (
        {},
        {"prefix": ("a", "b")},
        {"prefix": ("a", "b"), "max_depth": 3},
        {"suffix": ("f",)},
        {"prefix": ("u", "*", "v1")},
        {"suffix": ("*", "v1"), "max_depth": 1},
        {"limit": 2, "offset": 1},
        {"prefix": ("nothing",)},
    ):
        assert store.list_namespaces(**wanted) == theirs.list_namespaces(**wanted), wanted


def test_time_to_live_is_in_minutes(memory, make):
    with holdlog.StateStore(":memory:") as state:
        store = make(state, ttl={"default_ttl": 1})
        store.put(("a",), "half", {}, ttl=0.5)
        store.put(("a",), "default", {})
        store.put(("a",), "ever", {}, ttl=None)
        records = {it.key: it for it in state.list_keys("a")}
    assert records["half"].expires_at == records["half"].updated_at + timedelta(seconds=30)
    assert records["default"].expires_at == records["default"].updated_at + timedelta(seconds=60)
    assert records["ever"].expires_at is None
    memory.put(("a",), "soon", {}, ttl=0.000_001)
    until(lambda: memory.get(("a",), "soon") is None)
    assert memory.list_namespaces() == []


def test_items_are_values_of_every_other_surface(make):
    with holdlog.StateStore(":memory:") as state:
        store = make(state, updated_by="planner")
        store.put(("team", "a/b"), "plan", {"steps": 2})
        record = state.get("team/a%2Fb", "plan")
        assert (record.value, record.version, record.updated_by) == ({"steps": 2}, 1, "planner")
        state.set("team/notes", "n1", {"by": "hand"}, updated_by="ann")
        assert store.get(("team", "notes"), "n1").value == {"by": "hand"}
        state.set("team", "n", 1, updated_by="ann")
        with pytest.raises(holdlog.InvalidError, match="object"):
            store.get(("team",), "n")
        assert keys(store.search(("team",))) == ["n1", "plan"]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put((), "k", {}),
        lambda store: store.put(("langgraph", "x"), "k", {}),
        lambda store: store.put(("a.b",), "k", {}),
        lambda store: store.put(("a",), "", {}),
        lambda store: store.put(("a",), "k", {"secret": float("nan")}),
        lambda store: store.put(("a",), "k", ["secret"]),
        lambda store: store.put(("a" * 600,), "k", {}),
        lambda store: store.put(("a",), "k", {}, ttl=0),
        lambda store: store.put(("a",), "k", {}, expected_version=-1),
        lambda store: store.search((), limit=-1),
    ],
)
def test_bad_arguments_are_refused_in_one_line_without_values(memory, call):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        call(memory)
    assert "secret" not in str(refused.value)
    assert memory.search(()) == []


async def test_coroutines_use_an_open_store_and_leave_it_open(make):
    async with holdlog.AsyncStateStore(":memory:") as state:
        with make(state) as store:
            await store.aput(("a",), "k", {"n": 1})
            assert (await store.aget(("a",), "k")).value == {"n": 1}
            assert keys(await store.asearch(("a",))) == ["k"]
        assert (await state.get("a", "k")).value == {"n": 1}


GRAPH = """
import sys
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from holdlog import ConflictError
from holdlog.langgraph import HoldlogStore

class Said(TypedDict):
    rounds: int

def remember(state: Said, *, store: BaseStore) -> dict:
    while True:
        found = store.get(("users", "ann"), "visits")
        try:
            value = {"count": (found.value["count"] if found else 0) + 1}
            store.put(("users", "ann"), "visits", value, expected_version=found.version if found else 0)
            return {"rounds": state["rounds"] - 1}
        except ConflictError:
            pass

steps = StateGraph(Said)
steps.add_node(remember)
steps.add_edge(START, "remember")
steps.add_conditional_edges("remember", lambda state: "remember" if state["rounds"] else END)
with HoldlogStore(sys.argv[1], updated_by="graph") as store:
    steps.compile(store=store).invoke({"rounds": 10}, {"recursion_limit": 100})
    print(store.get(("users", "ann"), "visits").version)
"""


@pytest.mark.rest
def test_count_of_a_graph_persists_between_processes(db):
    assert [python(GRAPH, db)[-1] for _ in range(2)] == ["10", "20"]
    with holdlog.StateStore(db) as state:
        assert [it.value["count"] for it in state.history("users/ann", "visits")] == list(range(20, 0, -1))
