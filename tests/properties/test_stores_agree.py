"""The same random calls in memory, in a file and in PostgreSQL: the same answers, whatever is asked for."""

import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from holdlog import HoldlogError, StateStore
from holdlog.adapters.api.values.responses import Result
from tests.support.commands import require_chained, require_views_equal_the_log, rows
from tests.support.postgres import empty

# --- what may be said

ODD_NAMES = [
    "a.b", "a b", "*", ">", "%", "_", "a%", "a_", "\\", "'", '"', "a/b", "n:k", "%2E", "é", "e\u0301", "🦊",
    "\U0010ffff", "\ue000", "x" * 512, "🦊" * 512, "Ä", "ä", "a", "A", "Z", "ß", "ss", "$1", "%s", "%(a)s", "{}",
    "NULL", "0", "-",
]  # fmt: skip
NO_NAMES = [
    "",
    " ",
    " a",
    "a ",
    "a\0b",
    "\0",
    "\x01",
    "a\nb",
    "\ud800",
    "\udfff",
    "\u202e",
    "\u200b",
    "x" * 513,
    None,
    1,
    b"a",
]
names = st.one_of(
    st.sampled_from(["a", "b"]), st.sampled_from(ODD_NAMES), st.text(max_size=6), st.sampled_from(NO_NAMES)
)
namespaces = st.one_of(st.just("n"), st.just("n"), names)
keys = st.one_of(st.just("k"), st.just("k"), names)
beginnings = st.one_of(
    st.just(""),
    st.text(max_size=2),
    st.sampled_from(["a", "\0", "a\0", "\ud800", "\U0010ffff", "%", "_", "\U0010ffff\U0010ffff"]),
)
agents = st.one_of(st.sampled_from(["ann", "ben", "ann/sub"]), st.sampled_from([*NO_NAMES, "é🦊", "a//b", "x" * 128]))
resources = st.one_of(
    st.sampled_from(["src/a.md", "src/", "src/b/", "custom://x"]),
    st.sampled_from(
        [*NO_NAMES, *ODD_NAMES, "../a", "/etc/passwd", "custom://a b*>", "src/\0", "./src//a.md", "src\\a.md"]
    ),
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from([
        10**30, -(10**400), 10**4299, 2**63, 1e308, 5e-324, -0.0, 1e400, math.nan, "\0", "a\0b", "\ud800",
        "\udfff", "\\u0000", "'; DROP TABLE current; --", "%s", object(), b"x", {1: 2}, "\U0010ffff", "\x7f\x80\u2028",
    ]),
)  # fmt: skip
values = st.recursive(
    leaves, lambda it: st.lists(it, max_size=3) | st.dictionaries(st.text(max_size=3), it, max_size=3)
)
versions = st.one_of(
    st.none(), st.integers(0, 4), st.integers(0, 4), st.integers(),
    st.sampled_from([2**63 - 1, 2**63, 10**30, -1, True, 1.5, "1", math.nan]),
)  # fmt: skip
limits = st.one_of(st.integers(1, 3), st.sampled_from([0, -1, 1000, 1001, 10**30, True, 1.5, None]))
ttls = st.sampled_from([None, None, None, 3600, 86_400, 0, -1, 0.0000001, 1e12, math.nan, math.inf, 10**400, True, "1"])
request_ids = st.sampled_from(
    [None, None, None, None, "r1", "r2", "r 3", "", "a\0b", "\ud800", "x" * 128, "x" * 129, "🦊"]
)
reasons = st.sampled_from([None, None, "why", "", "\0", "\ud800", "x" * 500, "x" * 501, "é🦊"])
guards = st.one_of(
    st.just([]), st.just([]),
    st.lists(st.fixed_dictionaries({"resource": resources, "version": versions}), min_size=1, max_size=2),
)  # fmt: skip
modes = st.sampled_from(["exclusive", "exclusive", "shared", "", "\0", None])


class Said(NamedTuple):
    """A call: its name and its arguments."""

    call: str
    arguments: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.call}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def said(call: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Said]:
    return st.builds(Said, st.just(call), st.fixed_dictionaries(arguments))


AT = {"namespace": namespaces, "key": keys}
CALLS = st.one_of(
    said("set", **AT, value=values, updated_by=agents, expected_version=versions, ttl_seconds=ttls, guard=guards,
         reason=reasons, request_id=request_ids),
    said("set", **AT, value=values, updated_by=st.just("ann")),
    said("set", namespace=st.just("n"), key=st.sampled_from(ODD_NAMES), value=st.integers(), updated_by=st.just("ann")),
    said("get", **AT),
    said("delete", **AT, deleted_by=agents, expected_version=versions, guard=guards, reason=reasons,
         request_id=request_ids),
    said("clear_namespace", namespace=namespaces, deleted_by=agents, request_id=request_ids),
    said("list_records", namespace=namespaces, prefix=beginnings, limit=limits, after_key=st.none() | beginnings | keys,
         deleted=st.booleans()),
    said("list_keys", namespace=namespaces),
    said("list_namespaces"),
    said("history", **AT, limit=limits, before_version=versions),
    said("export_namespace", namespace=namespaces, include_deleted=st.booleans()),
    said("watch", **AT, since_version=versions, timeout_seconds=st.just(0)),
    said("claim", resource=resources, agent=agents, also=st.lists(resources, max_size=2), mode=modes,
         alternatives=st.lists(resources, max_size=1), note=reasons, request_id=request_ids,
         lease_seconds=st.sampled_from([None, 60, 0, 10**30, math.nan, True])),
    said("claim", resource=st.sampled_from(["src/a.md", "src/", "src/b/"]),
         agent=st.sampled_from(["ann", "ben", "ann/sub"]), mode=modes),
    said("release", resource=st.none() | resources, agent=agents, also=st.lists(resources, max_size=1), note=reasons,
         outcome=st.sampled_from([None, "modified", "moved", "", "\0"]), moved_to=st.none() | resources),
    said("status", resource=resources, version=versions),
    said("wait", resource=resources, timeout_seconds=st.just(0)),
    said("board", agent=st.none() | agents, limit=st.sampled_from([1, 2, 100, 101, 0]),
         after=st.none() | beginnings | resources),
    said("register", agent=agents, name=reasons, model=reasons, purpose=reasons),
)  # fmt: skip

# --- what is answered

OWN = re.compile(rb'\d{16}|"session":"[^"]*"')
"""What each store has of its own."""
OF_TIME = re.compile(r"(_at|_seconds|^held_for|^since|^exported_at|^at)$")


def told(answer: Any) -> Any:
    """An answer without its times."""
    match answer:
        case Result():
            return told(answer.body())
        case dict():
            return {name: told(value) for name, value in answer.items() if name == "value" or not OF_TIME.search(name)}
        case list():
            return [told(it) for it in answer]
        case float() if math.isnan(answer):
            return "nan"
        case _:
            return answer


def answered(store: StateStore, it: Said) -> Any:
    try:
        return told(getattr(store, it.call)(**it.arguments))
    except HoldlogError as refusal:
        return type(refusal).__name__, str(refusal), told(getattr(getattr(refusal, "detail", None), "__dict__", {}))


@contextmanager
def three(url: str) -> Iterator[list[StateStore]]:
    """Of each kind one, all empty."""
    empty(url)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        places = [":memory:", Path(folder) / "state.db", url]
        yield [stack.enter_context(StateStore(place)) for place in places]


def agree(url: str, calls: list[Said]) -> None:
    with three(url) as stores:
        for it in calls:
            memory, file, database = (answered(store, it) for store in stores)
            assert memory == file, it
            assert memory == database, it
        logs = []
        for store in stores:
            require_chained(store._engine.store)
            require_views_equal_the_log(store._engine.store)
            logs.append([(*row[:4], OWN.sub(b"", row[4]), *row[8:11]) for row in rows(store._engine.store)])
        assert logs[0] == logs[1] == logs[2]


often = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
histories = st.lists(CALLS, min_size=10, max_size=30)


@pytest.mark.check
@settings(often, max_examples=40)
@example([Said("list_records", {"namespace": "n", "prefix": "\0"})])
@given(histories)
def test_all_stores_agree_on_random_calls(shared_postgres: str, calls: list[Said]) -> None:
    agree(shared_postgres, calls)


@pytest.mark.slow
@settings(often, max_examples=2_000)
@given(histories)
def test_all_stores_agree_on_thousands_of_random_calls(shared_postgres: str, calls: list[Said]) -> None:
    agree(shared_postgres, calls)
