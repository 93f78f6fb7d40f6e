"""LangGraph's `BaseStore`, the real one, over every store: what LangGraph's own stores promise, and versions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from holdlog import StateStore
from holdlog.adapters.langgraph.namespaces import labels_of, text_of
from holdlog.adapters.python.async_store import AsyncStateStore
from holdlog.domain.names import MAX_NAME, name
from holdlog.domain.refusals import ConflictError, HoldlogError, InvalidError, NotFoundError
from holdlog.langgraph import HoldlogStore, VersionedItem, VersionedPut, VersionedSearchItem
from tests.support.commands import redact
from tests.support.slow import slow

MEMORIES = ("users", "ann", "memories")


class Awaited:
    """A HoldlogStore that is called like one for threads: `get` is `aget`, on a loop of its own."""

    def __init__(self, store: HoldlogStore) -> None:
        self._store = store
        self._runner = asyncio.Runner()

    def __getattr__(self, called: str) -> Callable[..., Any]:
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._store, f"a{called}")
        return lambda *arguments, **named: self._runner.run(call(*arguments, **named))

    def close(self) -> None:
        self._runner.close()
        self._store.close()


Store = Any
"""HoldlogStore, or one behind `Awaited`: what is said of one here is said of both."""


@pytest.fixture(params=["threads", "coroutines"])
def store(request: pytest.FixtureRequest, place: str) -> Iterator[Store]:
    made = HoldlogStore(place)
    store = made if request.param == "threads" else Awaited(made)
    yield store
    store.close()


EVERYWHERE = pytest.mark.parametrize(
    ("place", "store"),
    [
        ("memory", "threads"),
        ("sqlite", "coroutines"),
        ("postgres", "threads"),
        *slow(("memory", "coroutines"), ("sqlite", "threads"), ("postgres", "coroutines")),
    ],
    indirect=True,
)
IN_MEMORY = pytest.mark.parametrize(("place", "store"), [("memory", "threads")], indirect=True)
"""Where what is tested is above the store."""


def keys(found: list[SearchItem]) -> list[str]:
    return [it.key for it in found]


# --- items


@EVERYWHERE
def test_an_item_is_put_read_put_again_and_deleted(store: Store) -> None:
    assert store.get(MEMORIES, "food") is None
    store.put(MEMORIES, "food", {"likes": "pizza"})
    first = store.get(MEMORIES, "food")
    assert isinstance(first, VersionedItem)
    assert (first.namespace, first.key, first.value, first.version) == (MEMORIES, "food", {"likes": "pizza"}, 1)
    assert first.created_at == first.updated_at

    store.put(MEMORIES, "food", {"likes": "rice"})
    second = store.get(MEMORIES, "food")
    assert (second.value, second.version, second.updated_by) == ({"likes": "rice"}, 2, "langgraph")
    assert second.created_at == first.created_at < second.updated_at

    store.delete(MEMORIES, "food")
    assert store.get(MEMORIES, "food") is None
    store.delete(MEMORIES, "food")


@EVERYWHERE
def test_conflicting_put_is_refused_and_changes_nothing(store: Store) -> None:
    store.put(MEMORIES, "food", {"likes": "pizza"}, expected_version=0)
    store.put(MEMORIES, "food", {"likes": "rice"}, expected_version=1)
    for expected in (0, 1, 3):
        with pytest.raises(ConflictError) as refused:
            store.put(MEMORIES, "food", {"likes": "soup"}, expected_version=expected)
        assert refused.value.detail.actual_version == 2
    with pytest.raises(ConflictError):
        store.delete(MEMORIES, "food", expected_version=1)
    assert store.get(MEMORIES, "food").value == {"likes": "rice"}

    store.delete(MEMORIES, "food", expected_version=2)
    with pytest.raises(NotFoundError):
        store.delete(MEMORIES, "food", expected_version=2)
    store.put(MEMORIES, "food", {"likes": "soup"}, expected_version=0)
    assert store.get(MEMORIES, "food").version == 4


@EVERYWHERE
def test_a_batch_reads_first_and_writes_all_or_nothing(store: Store) -> None:
    store.put(("a",), "old", {"n": 1})
    results = store.batch(
        [
            PutOp(("a",), "new", {"n": 2}),
            GetOp(("a",), "old"),
            GetOp(("a",), "new"),
            PutOp(("a",), "old", None),
            SearchOp(("a",)),
            ListNamespacesOp(),
            PutOp(("b",), "never", None),
        ]
    )
    assert [type(it) for it in results] == [type(None), VersionedItem, type(None), type(None), list, list, type(None)]
    assert (keys(results[4]), results[5]) == (["old"], [("a",)])
    assert keys(store.search(())) == ["new"]

    with pytest.raises(ConflictError):
        store.batch([PutOp(("a",), "more", {"n": 3}), VersionedPut(("a",), "new", {"n": 4}, expected_version=7)])
    assert keys(store.search(())) == ["new"]
    assert store.get(("a",), "new").value == {"n": 2}


@IN_MEMORY
def test_last_of_several_puts_of_one_key_wins(store: Store) -> None:
    place = (("a",), "k")
    store.batch([PutOp(*place, {"n": 1}), PutOp(*place, None), PutOp(*place, None), PutOp(*place, {"n": 2})])
    assert store.get(*place).value == {"n": 2}
    store.batch([PutOp(*place, None), PutOp(*place, {"n": 3}), PutOp(*place, None)])
    assert store.get(*place) is None


@IN_MEMORY
def test_deleting_an_item_that_disappeared_meanwhile_is_not_an_error(store: HoldlogStore) -> None:
    """The other deletes between the look and the write of the first."""
    store.put(("a",), "k", {"n": 1})
    engine = store._engine
    read = engine.read

    def read_and_lose(call: Any) -> Any:
        found = read(call)
        engine.read = read  # type: ignore[method-assign]
        store.delete(("a",), "k")
        return found

    engine.read = read_and_lose  # type: ignore[method-assign]
    store.batch([PutOp(("a",), "k", None), PutOp(("a",), "other", {"n": 2})])
    assert keys(store.search(("a",))) == ["other"]


# --- search


@EVERYWHERE
def test_search_returns_items_below_a_label_prefix_newest_first(store: Store) -> None:
    for namespace in (("docs",), ("docs", "a"), ("docs", "a", "b"), ("docs2",), ("docs-b",)):
        store.put(namespace, "k", {"in": "/".join(namespace)})
    found = store.search(("docs",))
    assert [it.namespace for it in found] == [("docs", "a", "b"), ("docs", "a"), ("docs",)]
    assert all(isinstance(it, VersionedSearchItem) and it.score is None and it.version == 1 for it in found)
    assert [it.namespace for it in store.search(("docs", "a"))] == [("docs", "a", "b"), ("docs", "a")]
    assert len(store.search(())) == 5
    assert store.search(("doc",)) == []


@EVERYWHERE
def test_search_returns_pages(store: Store) -> None:
    store.batch([PutOp(("n", f"{number % 3}"), f"k{number:02}", {"n": number}) for number in range(25)])
    assert len(store.search(("n",))) == 10
    pages = [keys(store.search(("n",), limit=7, offset=offset)) for offset in (0, 7, 14, 21, 28)]
    assert [len(page) for page in pages] == [7, 7, 7, 4, 0]
    assert len({key for page in pages for key in page}) == 25


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"red", "blue", "plain"}),
    ({"color": "red"}, {"red"}),
    ({"color": {"$eq": "blue"}}, {"blue"}),
    ({"color": {"$ne": "red"}}, {"blue", "plain"}),
    ({"score": {"$gt": 4.5}}, {"red"}),
    ({"score": {"$gte": 4.5}}, {"red", "blue"}),
    ({"score": {"$lt": 5}}, {"blue"}),
    ({"score": {"$lte": 5}}, {"red", "blue"}),
    ({"score": {"$gte": 4, "$lt": 5}, "color": "blue"}, {"blue"}),
    ({"day": {"$gte": "2026-02-01"}}, {"blue"}),
    ({"meta": {"tags": ["x", "y"]}}, {"red"}),
    ({"meta": {"depth": {"$gt": 1}}}, {"blue"}),
    ({"meta": {"tags": ["x"]}}, set()),
    ({"nothing": None}, {"red", "blue", "plain"}),
]


@IN_MEMORY
@pytest.mark.parametrize(("wanted", "found"), FILTERS)
def test_search_filters_match_like_langgraphs_own_store(store: Store, wanted: dict[str, Any], found: set[str]) -> None:
    own = InMemoryStore()
    values: dict[str, dict[str, Any]] = {
        "red": {"color": "red", "score": 5, "day": "2026-01-31", "meta": {"tags": ["x", "y"]}},
        "blue": {"color": "blue", "score": 4.5, "day": "2026-02-01", "meta": {"depth": 2}},
        "plain": {},
    }
    for key, value in values.items():
        store.put(("c",), key, value)
        own.put(("c",), key, value)
    assert {*keys(store.search(("c",), filter=wanted))} == found
    try:
        theirs = own.search(("c",), filter=wanted)
    except (TypeError, ValueError):
        return  # InMemoryStore cannot compare what is no number; here that does not fit
    assert {*keys(theirs)} == found


@IN_MEMORY
def test_unknown_filter_operator_is_refused(store: Store) -> None:
    for wanted in ({"a": {"$regex": "x"}}, {"a": {"b": {"$gt": 1, "$in": []}}}):
        with pytest.raises(InvalidError, match=r"filter: must use only the operators \$eq"):
            store.search((), filter=wanted)


@IN_MEMORY
def test_query_without_an_index_is_ignored_as_in_langgraphs_own_stores(store: Store) -> None:
    own = InMemoryStore()
    for each in (store, own):
        each.put(("a",), "k", {"text": "likes pizza"}, index=["text"])
        found = each.search(("a",), query="something else")
        assert [(it.key, it.score) for it in found] == [("k", None)]


# --- namespaces


@EVERYWHERE
def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(store: Store) -> None:
    own = InMemoryStore()
    places = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("z",)]
    ops = [PutOp(place, "k", {}) for place in [*places, ("u", "x", "v1"), ("u", "y", "v1"), ("u", "y", "v2")]]
    store.batch(ops)
    own.batch(ops)
    for asked in (
        {},
        {"prefix": ("a", "b")},
        {"prefix": ("a", "b"), "max_depth": 3},
        {"suffix": ("f",)},
        {"prefix": ("u", "*", "v1")},
        {"prefix": ("*", "b"), "suffix": ("f",)},
        {"suffix": ("*", "v1"), "max_depth": 1},
        {"limit": 2, "offset": 1},
        {"prefix": ("a", "b", "c", "d", "e")},
        {"prefix": ("nothing",)},
    ):
        assert store.list_namespaces(**asked) == own.list_namespaces(**asked), asked
    both = (MatchCondition("suffix", ("v1",)), MatchCondition("prefix", ("u", "y")))
    assert store.batch([ListNamespacesOp(match_conditions=both)]) == [[("u", "y", "v1")]]
    store.delete(("z",), "k")
    assert ("z",) not in store.list_namespaces()


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (("users", "ann"), "users/ann"),
        (("Straße 1", "日本"), "Straße 1/日本"),
        (("a/b", "100%"), "a%2Fb/100%25"),
        ((" a", "b"), "%20a/b"),
        (("e\u0301",), "e%CC%81"),
        (("/\u0307",), "%2F%CC%87"),
        (("a\nb",), "a%0Ab"),
        (("..a",), None),
        (("a", ""), None),
        (("a\0",), None),
        (("\ud800",), None),
    ],
)
def test_a_namespace_reads_as_its_labels(labels: tuple[str, ...], text: str | None) -> None:
    if text is None:
        with pytest.raises(InvalidNamespaceError):
            text_of(labels)
    else:
        assert text_of(labels) == text
        assert labels_of(text) == labels


LABELS = st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters=".\0"), min_size=1), min_size=1)


@given(LABELS)
def test_every_namespace_of_langgraph_has_one_name_that_reads_back(labels: list[str]) -> None:
    text = text_of(tuple(labels))
    assert labels_of(text) == tuple(labels)
    if len(text) <= MAX_NAME:
        assert name(text) == text


@pytest.mark.check
@given(st.text())
def test_namespace_of_another_program_is_listed_by_its_labels_or_omitted(text: str) -> None:
    labels = labels_of(text)
    assert labels is None or text_of(labels) == text


@IN_MEMORY
def test_langgraph_store_refuses_bad_arguments_in_one_line_without_values(store: Store) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put((), "k", {}),
        lambda: store.put(("langgraph", "x"), "k", {}),
        lambda: store.put(("a.b",), "k", {}),
        lambda: store.put(("a",), "", {}),
        lambda: store.put(("a",), "k", {"secret": float("nan")}),
        lambda: store.put(("a",), "k", {"secret": object()}),
        lambda: store.put(("a",), "k", {"secret": "x" * 300_000}),
        lambda: store.put(("a",), "k", ["secret"]),
        lambda: store.put(("a" * 600,), "k", {}),
        lambda: store.put(("a",), "k", {}, expected_version=-1),
        lambda: store.put(("a",), "k", {}, ttl=0),
        lambda: store.put(("a",), "k", {}, ttl="secret"),
        lambda: store.search((), limit=-1),
        lambda: store.search((), offset=-1),
        lambda: store.search(("a.b",)),
        lambda: store.batch([PutOp(("a", ""), "k", {})]),
        lambda: store.batch([GetOp(("a.b",), "k")]),
        lambda: store.batch([PutOp(("a",), "k", {}), "secret"]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
            call()
        assert isinstance(refused.value, HoldlogError | InvalidNamespaceError)
        assert "secret" not in str(refused.value)
    assert store.search(()) == []


# --- time to live


@EVERYWHERE
def test_a_time_to_live_is_in_minutes_and_counts_from_the_write(store: Store, place: str) -> None:
    store.put(MEMORIES, "food", {}, ttl=0.5)
    written = store.get(MEMORIES, "food")
    if place != ":memory:":  # where another can look
        with StateStore(place) as other:
            record = other.get("users/ann/memories", "food")
            assert record.expires_at == written.updated_at + timedelta(seconds=30)
    assert store.get(MEMORIES, "food", refresh_ttl=True).version == store.search(MEMORIES)[0].version == 1

    store.put(MEMORIES, "food", {}, ttl=0.000_001)
    while store.get(MEMORIES, "food") is not None:
        pass
    assert store.search(()) == []
    assert store.list_namespaces() == []


def test_default_time_to_live_applies_to_puts_without_one() -> None:
    with StateStore(":memory:") as state:
        store = HoldlogStore(state, ttl={"default_ttl": 1, "omit_expired": True})
        store.put(("a",), "default", {})
        store.put(("a",), "ever", {}, ttl=None)
        ends = {it.key: it.expires_at for it in state.list_keys("a")}
    assert ends["default"] is not None
    assert ends["ever"] is None


def test_refresh_on_read_is_refused_instead_of_ignored() -> None:
    with pytest.raises(InvalidError, match="refresh_on_read is not supported"):
        HoldlogStore(":memory:", ttl={"refresh_on_read": True})


# --- one truth with every other surface


def test_items_are_records_and_records_are_items() -> None:
    with StateStore(":memory:") as state:
        store = HoldlogStore(state, updated_by="planner")
        store.put(("team", "a/b"), "plan", {"steps": 2})
        record = state.get("team/a%2Fb", "plan")
        assert (record.value, record.version, record.updated_by) == ({"steps": 2}, 1, "planner")

        state.set("team/notes", "n1", {"by": "hand"}, updated_by="ann")
        item = store.get(("team", "notes"), "n1")
        assert item is not None
        assert (item.value, item.updated_by) == ({"by": "hand"}, "ann")
        assert item.dict() == {
            "namespace": ["team", "notes"],
            "key": "n1",
            "value": {"by": "hand"},
            "created_at": item.created_at.isoformat(),
            "updated_at": item.updated_at.isoformat(),
            "version": 1,
            "updated_by": "ann",
        }
        assert store.search(("team", "notes"))[0].dict() == item.dict() | {"score": None}


def test_value_that_is_not_an_item_fails_get_and_is_skipped_by_search() -> None:
    with StateStore(":memory:") as state:
        state.set("team", "n", 1, updated_by="ann")
        state.set("v1.2", "k", {}, updated_by="ann")  # LangGraph has no labels with periods
        state.set("a//b", "k", {}, updated_by="ann")
        store = HoldlogStore(state)
        with pytest.raises(InvalidError, match="team/n: has a value that is not an object"):
            store.get(("team",), "n")
        assert store.search(()) == []
        assert store.list_namespaces() == [("team",)]


async def test_langgraph_store_accepts_an_open_store_of_either_kind_and_leaves_it_open() -> None:
    async with AsyncStateStore(":memory:") as state:
        with HoldlogStore(state) as store:
            await store.aput(("a",), "k", {"n": 1})
            assert store.get(("a",), "k") == await store.aget(("a",), "k")
        assert (await state.get("a", "k")).value == {"n": 1}


def test_items_are_instances_of_langgraphs_item_class() -> None:
    with HoldlogStore(":memory:") as store:
        store.put(("a",), "k", {"n": 1})
        item = store.get(("a",), "k")
        assert item is not None
        plain = Item(
            value=item.value, key="k", namespace=("a",), created_at=item.created_at, updated_at=item.updated_at
        )
        assert item == plain
        assert hash(item) == hash(plain)


@EVERYWHERE
def test_redacted_item_is_marked_and_can_be_put_again(store: Store) -> None:
    store.put(MEMORIES, "a", {"token": "sk-1234567890"})
    store.put(MEMORIES, "b", {"b": 1})
    made = store._store if isinstance(store, Awaited) else store
    redact(made._engine.store, 1)
    item = store.get(MEMORIES, "a")
    assert (item.value, item.redacted, item.version) == ({}, True, 1)
    assert item.dict()["redacted"] is True
    assert {it.key: it.redacted for it in store.search(MEMORIES)} == {"a": True, "b": False}
    assert [it.key for it in store.search(MEMORIES, filter={"b": 1})] == ["b"]
    store.put(MEMORIES, "a", {"a": 2})
    assert (store.get(MEMORIES, "a").redacted, "redacted" in store.get(MEMORIES, "a").dict()) == (False, False)
