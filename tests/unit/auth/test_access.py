"""Who gets in, and what they may do: grants, calls within grants, tokens of the store, the static token."""

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdlog.adapters.api.changes.moments import NamedMoment
from holdlog.adapters.api.events.ranges import LogRange
from holdlog.adapters.api.past.requests import point_in_time
from holdlog.adapters.api.redaction.requests import FoundTexts
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.validation import checked
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.auth.static import static_token
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.verifier import Verifier
from holdlog.domain import token
from holdlog.domain.message import NOBODY
from holdlog.domain.redaction import RedactionTarget
from holdlog.domain.refusals import DeniedError, InvalidError
from holdlog.domain.token import IssueToken, RevokeToken, RotateToken
from tests.support.commands import until

# --- grants


def allowing(*texts: str) -> Grants:
    return Grants.parse(texts)


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("build", ["build"], ["build-1", "rebuild", "BUILD", ""]),
        ("build-*", ["build-", "build-1", "build-a/b"], ["build", "xbuild-1"]),
        ("*.py", [".py", "src/a.py"], ["a.pyc", "src/"]),
        ("a*b*c", ["abc", "a-b-c", "abbcc", "abcbc"], ["ab", "acb", "ac"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba", "ab"]),
        ("*", ["anything", "src/", "custom://x"], []),
        ("a.c", ["a.c"], ["abc"]),
        ("[ab]?", ["[ab]?"], ["a1"]),
    ],
)
def test_star_is_the_only_wildcard_of_a_pattern(pattern: str, fits: list[str], does_not: list[str]) -> None:
    grants = allowing(f"read:{pattern}")
    assert all(grants.allows("read", name) for name in fits)
    assert not any(grants.allows("read", name) for name in does_not)


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=10))
@example("a**b", "ab")
@example("*a*", "a")
def test_grant_patterns_match_names(pattern: str, name: str) -> None:
    def matches(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
        return name[:1] == pattern[0] and matches(pattern[1:], name[1:])

    assert allowing(f"read:{pattern}").allows("read", name) is matches(pattern, name)


def test_pattern_of_many_stars_matches_in_linear_time() -> None:
    grants = allowing("read:" + "a*" * 250 + "b")
    began = time.perf_counter()
    assert not grants.allows("read", "a" * 512)
    assert time.perf_counter() - began < 1.0


def test_write_includes_read_and_admin_includes_everything() -> None:
    told = {scope: {it for it in token.SCOPES if allowing(f"{scope}:*").allows(it, "*")} for scope in token.SCOPES}
    reads, writes = {"read-values", "read-claims", "read-threads"}, {"write-values", "write-threads"}
    assert told == {
        "read": {"read"} | reads,
        "write": {"read", "write"} | reads | writes,
        "claim": {"claim"},
        "admin": set(token.SCOPES),
        "read-values": {"read-values"},
        "read-claims": {"read-claims"},
        "read-threads": {"read-threads"},
        "write-values": {"write-values", "read-values"},
        "write-threads": {"write-threads", "read-threads"},
        "metrics": {"metrics"},
    }


def test_refusal_names_the_missing_grant() -> None:
    with pytest.raises(DeniedError, match="write:build-1") as denied:
        allowing("read:*").require("write", "build-1")
    assert (denied.value.needed, denied.value.code) == ("write:build-1", "denied")


def test_events_are_visible_by_grants_on_their_stream() -> None:
    streams = (
        "record:a%20b/k",
        "record:c/k",
        "claim:src/x.py",
        "claim:doc",
        "agent:ann",
        "token:ci",
        "store:log",
        "other:x",
    )

    def seen(*texts: str) -> list[str]:
        return [stream for stream in streams if allowing(*texts).sees(stream)]

    assert seen("read:a b") == ["record:a%20b/k", "agent:ann"]
    assert seen("claim:src/*") == ["claim:src/x.py", "agent:ann"]
    assert seen("read:src/*", "write:c") == ["record:c/k", "claim:src/x.py", "agent:ann"]
    assert seen("admin:ci") == ["agent:ann", "token:ci"]
    assert seen("admin:log") == ["agent:ann"]
    assert seen("read:*") == list(streams[:5])
    assert [stream for stream in streams if EVERYTHING.sees(stream)] == list(streams[:7])


def test_events_of_values_claims_and_threads_need_grants_of_their_kind() -> None:
    streams = ("record:docs-a/k", "claim:docs-a", "thread:docs-a", "agent:ann")

    def seen(text: str) -> list[str]:
        return [stream.partition(":")[0] for stream in streams if allowing(text).sees(stream)]

    assert seen("read-values:docs-*") == seen("write-values:docs-*") == ["record", "agent"]
    assert seen("read-claims:docs-*") == seen("claim:docs-*") == ["claim", "agent"]
    assert seen("read-threads:docs-*") == seen("write-threads:docs-*") == ["thread", "agent"]
    assert seen("read:docs-*") == seen("write:docs-*") == ["record", "claim", "thread", "agent"]
    assert seen("metrics:*") == []


def test_old_grants_for_names_that_begin_like_a_kind_keep_their_meaning() -> None:
    grants = allowing("read:values:docs-*", "write:threads:x")
    assert grants.allows("read-values", "values:docs-a")
    assert grants.allows("read-claims", "values:docs-a")
    assert grants.allows("write-values", "threads:x")
    assert not grants.allows("read-values", "docs-a")
    assert not grants.allows("write-threads", "x")


def test_old_grants_with_a_comma_before_a_new_scope_are_still_read() -> None:
    assert allowing("read:a,metrics:b").allows("read-values", "a,metrics:b")
    with pytest.raises(InvalidError, match="must be one grant"):
        checked(lambda: IssueToken(name="ci", hash="0" * 64, allow=("read:a,metrics:b",), by="ann"))


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["read"],
        ["see:*"],
        ["read-all:*"],
        ["metrics:build-*"],
        ["write-claims:*"],
        ["read:*,write:x"],
        ["read:"],
        ["read:*"] * 65 + [f"read:{n}" for n in range(65)],
    ],
)
def test_invalid_grant_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidError, match=r"^allow: "):
        Grants.parse(texts)


# --- calls within grants


@pytest.fixture
def engine() -> Iterator[Engine]:
    holdlog = open_holdlog(MEMORY)
    yield holdlog
    holdlog.close()


def within(engine: Engine, *texts: str) -> Requests:
    return engine.requests.within(allowing(*texts))


SAID = {"type": "text", "role": "user", "content": "hello"}
SET = {"op": "set", "namespace": "n", "key": "k", "value": 1}
CHECK = {"op": "check", "namespace": "n", "key": "k", "expected_version": 1}
POINT = NamedMoment("start", point=point_in_time(1, None))
GUARD = [{"resource": "src/a.py", "version": 1}]
FOUND = FoundTexts((RedactionTarget(stream="record:n/k", version=1),), (), ())
NEEDS: list[tuple[str, Callable[[Requests], Any], list[str]]] = [
    ("values.get", lambda it: it.values.get("n", "k"), ["read-values:n"]),
    ("values.set", lambda it: it.values.set("n", "k", 1, "ann", None), ["write-values:n"]),
    (
        "values.set",
        lambda it: it.values.set("n", "k", 1, "ann", None, guard=GUARD),
        ["write-values:n", "claim:src/a.py"],
    ),
    ("values.record", lambda it: it.values.record("n", "k"), ["read-values:n"]),
    ("values.merge", lambda it: it.values.merge("n", "k", {}, "ann", None), ["write-values:n"]),
    (
        "values.merge",
        lambda it: it.values.merge("n", "k", {}, "ann", None, guard=GUARD),
        ["write-values:n", "claim:src/a.py"],
    ),
    ("values.delete", lambda it: it.values.delete("n", "k", "ann", None), ["write-values:n"]),
    (
        "values.delete",
        lambda it: it.values.delete("n", "k", "ann", None, guard=GUARD),
        ["write-values:n", "claim:src/a.py"],
    ),
    ("transactions.update", lambda it: it.transactions.update("n", "k", "ann", increment=1), ["write-values:n"]),
    (
        "transactions.update",
        lambda it: it.transactions.update("n", "k", "ann", None, GUARD, append=1),
        ["write-values:n", "claim:src/a.py"],
    ),
    (
        "transactions.transact",
        lambda it: it.transactions.transact(
            [
                {"op": "increment", "namespace": "n", "key": "k", "by": 1},
                {"op": "delete", "namespace": "o", "key": "k"},
                {"op": "check", "namespace": "p", "key": "k", "expected_version": 0},
            ],
            "ann",
            GUARD,
        ),
        ["write-values:n", "write-values:o", "read-values:p", "claim:src/a.py"],
    ),
    ("values.clear", lambda it: it.values.clear("n", "ann"), ["admin:n"]),
    ("values.records", lambda it: it.values.records("n"), ["read-values:n"]),
    ("values.all_records", lambda it: it.values.all_records("n"), ["read-values:n"]),
    ("values.history", lambda it: it.values.history("n", "k"), ["read-values:n"]),
    ("values.all_history", lambda it: it.values.all_history("n", "k"), ["read-values:n"]),
    ("values.export", lambda it: it.values.export("n"), ["read-values:n"]),
    ("values.exported_text", lambda it: it.values.exported_text("n"), ["read-values:n"]),
    ("values.all_exported", lambda it: it.values.all_exported("n"), ["read-values:n"]),
    ("values.watch", lambda it: it.values.watch("n", "k", 0), ["read-values:n"]),
    ("transactions.transact", lambda it: it.transactions.transact([SET], "ann"), ["write-values:n"]),
    ("transactions.transact", lambda it: it.transactions.transact([CHECK], "ann"), ["read-values:n"]),
    (
        "transactions.update",
        lambda it: it.transactions.update("n", "k", "ann", increment=1),
        ["write-values:n"],
    ),
    (
        "transactions.update",
        lambda it: it.transactions.update("n", "k", "ann", guard=GUARD, increment=1),
        ["write-values:n", "claim:src/a.py"],
    ),
    ("past.status", lambda it: it.past.status("a", point_in_time(1, None)), ["read-claims:a"]),
    ("past.status", lambda it: it.past.status("./a", point_in_time(1, None)), ["claim:a"]),
    ("changes.diff", lambda it: it.changes.diff("n", "k", POINT), ["read-values:n"]),
    ("changes.blame", lambda it: it.changes.blame("n", "k", POINT), ["read-values:n"]),
    ("reverts.find", lambda it: it.reverts.find(session="s", namespace="n"), ["admin:n"]),
    ("reverts.find", lambda it: it.reverts.find(correlation_id="c"), ["admin:*"]),
    ("redactions.of_values", lambda it: it.redactions.of_values("n", ["k@1"]), ["admin:*"]),
    ("redactions.of_events", lambda it: it.redactions.of_events([1]), ["admin:*"]),
    ("redactions.redact", lambda it: it.redactions.redact(FOUND, "ann"), ["admin:*"]),
    ("redactions.copies", lambda it: it.redactions.copies(FOUND), ["admin:*"]),
    ("retention.change", lambda it: it.retention.change("n", 60, "ann"), ["admin:n"]),
    ("retention.apply", lambda it: it.retention.apply(), ["admin:*"]),
    ("claims.claim", lambda it: it.claims.claim("src/a.py", "ann"), ["claim:src/a.py"]),
    ("claims.claim", lambda it: it.claims.claim("a", "ann", also=["b"]), ["claim:a", "claim:b"]),
    ("claims.claim", lambda it: it.claims.claim("a", "ann", (), ["b", "src/"]), ["claim:a", "claim:b", "claim:src/"]),
    ("claims.release", lambda it: it.claims.release("a", "ann", also=["b"]), ["claim:a", "claim:b"]),
    ("claims.release", lambda it: it.claims.release("a", "ann", note="why", forced=True), ["admin:a"]),
    ("claims.status", lambda it: it.claims.status("a"), ["read-claims:a"]),
    ("claims.status", lambda it: it.claims.status("./a"), ["claim:a"]),
    ("claims.wait", lambda it: it.claims.wait("a"), ["read-claims:a"]),
    ("claims.wait", lambda it: it.claims.wait("a"), ["claim:a"]),
    ("events.page", lambda it: it.events.page(it.events.choice(namespace="n")), ["read-values:n"]),
    ("events.page", lambda it: it.events.page(it.events.choice(resource="a")), ["claim:a"]),
    ("events.next_page", lambda it: it.events.next_page(it.events.choice(namespace="n")), ["read-values:n"]),
    ("events.choice", lambda it: it.events.choice(resource="./a"), ["read-claims:a"]),
    (
        "events.part",
        lambda it: it.events.part(it.events.choice(namespace="n"), LogRange(0, 0), str),
        ["read-values:n"],
    ),
    ("questions.history", lambda it: it.questions.history("./a"), ["read-claims:a"]),
    ("questions.history", lambda it: it.questions.history("a"), ["claim:a"]),
    ("questions.file_changes", lambda it: it.questions.file_changes("./a"), ["read-claims:a"]),
    ("questions.file_changes", lambda it: it.questions.file_changes("a"), ["claim:a"]),
    ("reports.activity", lambda it: it.reports.activity(), ["read:*"]),
    ("reports.conflicts", lambda it: it.reports.conflicts(), ["read:*"]),
    ("timelines.of_resource", lambda it: it.timelines.of_resource("./a"), ["read-claims:a"]),
    ("timelines.of_value", lambda it: it.timelines.of_value("n", "k"), ["read-values:n"]),
    ("claims.register", lambda it: it.claims.register("ann", name="Ann"), ["claim:whatever"]),
    ("claims.register", lambda it: it.claims.register("ann", name="Ann"), ["write-values:whatever"]),
    ("threads.start", lambda it: it.threads.start("ann", "t", {"k": 1}), ["write-threads:t"]),
    ("threads.start", lambda it: it.threads.start("ann", "t", parent="p"), ["write-threads:t", "read-threads:p"]),
    ("threads.append", lambda it: it.threads.append("t", "ann", [SAID]), ["write-threads:t"]),
    ("thread_data.set", lambda it: it.thread_data.set("t", "k", 1, "ann", None), ["write-threads:t"]),
    ("thread_data.delete", lambda it: it.thread_data.delete("t", "k", "ann", None), ["write-threads:t"]),
    ("thread_data.change", lambda it: it.thread_data.change("t", {"k": 1}, ["l"], "ann", None), ["write-threads:t"]),
    ("threads.facts", lambda it: it.threads.facts("t"), ["read-threads:t"]),
    ("threads.page", lambda it: it.threads.page("t"), ["read-threads:t"]),
    ("threads.next_page", lambda it: it.threads.next_page("t", 0), ["read-threads:t"]),
    ("thread_data.get", lambda it: it.thread_data.get("t", "k"), ["read-threads:t"]),
    ("thread_data.datum", lambda it: it.thread_data.datum("t", "k"), ["read-threads:t"]),
    ("thread_data.has", lambda it: it.thread_data.has("t", "k"), ["read-threads:t"]),
    ("thread_data.page", lambda it: it.thread_data.page("t"), ["read-threads:t"]),
]
"""Calls, and the grants that each needs: all of them, and no others."""

FREE = {
    "values.namespaces": "shows what may be read",
    "values.all_namespaces": "shows what may be read",
    "threads.listed": "shows what may be read",
    "claims.board": "shows what may be seen",
    "claims.agents": "shows what may be seen",
    "claims.lost": "of the caller's own claims",
    "claims.spellings": "checks arguments",
    "events.range": "positions of the log",
    "events.start": "a position of the log",
    "timelines.of_agent": "shows what may be seen",
    "past.resolved": "a position of the log",
    "past.of": "of a query that was authorised",
    "past.all_of": "of a query that was authorised",
    "past.plain": "of a query that was authorised",
    "past.board": "shows what may be seen",
    "past.agents": "shows what may be seen",
    "past.tokens": "shows what may be administered",
    "retention.listed": "shows what may be administered",
    "reverts.preview": "of what reverts.find found",
    "reverts.revert": "of what reverts.find found",
}
"""What anybody may call, and why."""


@pytest.mark.parametrize(("name", "call", "needed"), NEEDS, ids=lambda it: it if isinstance(it, str) else "")
def test_each_call_needs_its_grants_and_no_others(
    engine: Engine, name: str, call: Callable[[Requests], Any], needed: list[str]
) -> None:
    call(engine.requests)
    call(within(engine, *needed))
    for missing in needed:
        rest = [it for it in needed if it != missing]
        with pytest.raises(DeniedError):
            call(
                within(
                    engine, *rest, "read:x", *(["write:x", "claim:x", "admin:x"] if name != "claims.register" else [])
                )
            )


@pytest.mark.parametrize(("name", "call", "needed"), NEEDS, ids=lambda it: it if isinstance(it, str) else "")
def test_each_call_is_open_to_wide_grants_and_closed_to_grants_of_other_kinds(
    engine: Engine, name: str, call: Callable[[Requests], Any], needed: list[str]
) -> None:
    wide = [re.sub(r"^(read|write)-[a-z]+:", r"\1:", it) for it in needed]
    call(within(engine, *wide))
    kinds = {it.partition(":")[0] for it in needed}
    names = {it.partition(":")[2] for it in needed}
    if "admin" in kinds or name == "claims.register":
        return
    others = set(token.SCOPES) - {"read", "write", "admin", "metrics"}
    others -= {it for it in others if any(allowing(f"{it}:n").allows(kind, "n") for kind in kinds)}  # type: ignore[arg-type]
    reads_of_claims = (
        *("claims.status", "claims.wait", "events.page", "events.choice", "past.status"),
        *("questions.history", "questions.file_changes", "timelines.of_resource"),
    )
    if kinds & {"read-claims", "claim"} and name in reads_of_claims:
        others -= {"claim", "read-claims"}
    with pytest.raises(DeniedError):
        call(within(engine, *(f"{scope}:{it}" for scope in others for it in names)))


def test_denied_operation_of_a_transaction_is_named(engine: Engine) -> None:
    operations = [
        {"op": "check", "namespace": "n", "key": "k", "expected_version": 0},
        {"op": "set", "namespace": "n", "key": "k", "value": 1},
    ]
    with pytest.raises(DeniedError, match=r"operations\[1\]: .* grant of write-values:n") as denied:
        within(engine, "read:n").transactions.transact(operations, "ann")
    assert denied.value.operation == 1


@pytest.mark.parametrize(
    "op", [{"op": "increment", "by": 0}, {"op": "merge", "value": {}}, {"op": "patch", "patch": []}]
)
def test_update_shows_its_value_only_to_callers_who_may_read_it(engine: Engine, op: dict[str, Any]) -> None:
    """No scope lets a caller write what it may not read; if one ever does, updates need both."""
    engine.write(engine.requests.values.set("n", "k", 7, "bob", None), NOBODY)
    for scope in sorted(set(token.SCOPES) - {"metrics"}):
        calls = within(engine, f"{scope}:n")
        if calls.rules.grants.allows("write-values", "n") and calls.rules.grants.allows("read-values", "n"):
            continue
        with pytest.raises(DeniedError):
            calls.transactions.transact([{"namespace": "n", "key": "k"} | op], "ann")


def test_target_of_a_moved_resource_is_shown_to_callers_who_may_see_it(engine: Engine) -> None:
    engine.claim(engine.requests.claims.claim("src/a.py", "ann"), engine.caller)
    engine.write(
        engine.requests.claims.release("src/a.py", "ann", outcome="moved", moved_to="hidden/a.py"), engine.caller
    )
    some, all_ = within(engine, "claim:src/*"), within(engine, "claim:src/*", "read:hidden/*")
    for told in (
        engine.read(some.claims.status("src/a.py")),
        engine.claim(some.claims.claim("src/a.py", "ben"), engine.caller),
    ):
        assert (told.body()["previous_outcome"], told.body().get("moved_to")) == ("moved", None)
    engine.write(
        engine.requests.claims.release("src/a.py", "ben", outcome="moved", moved_to="hidden/b.py"), engine.caller
    )
    assert engine.read(all_.claims.status("src/a.py")).body()["moved_to"] == "hidden/b.py"


def test_every_call_has_a_grants_test(engine: Engine) -> None:
    subjects = {name: part for name, part in vars(engine.requests).items() if name != "rules"}
    calls = {
        f"{subject}.{name}"
        for subject, part in subjects.items()
        for name, _ in inspect.getmembers(part, inspect.ismethod)
        if not name.startswith("_")
    }
    assert calls == {name for name, _, _ in NEEDS} | FREE.keys()


def test_bad_argument_is_reported_before_a_missing_grant(engine: Engine) -> None:
    calls = within(engine, "read:x")
    for call in (
        lambda: calls.values.set("n", "k", 1, "", None),
        lambda: calls.values.get("n", ""),
        lambda: calls.values.get(7, "k"),  # type: ignore[arg-type]
        lambda: calls.claims.claim("../x", "ann"),
        lambda: calls.values.watch("n", "k", -1),
        lambda: calls.claims.status("a", -1),
        lambda: calls.values.records("n", limit=0),
        lambda: calls.threads.start("", "t"),
        lambda: calls.threads.start("ann", "t", {"k": float("nan")}),
        lambda: calls.threads.append("t", "ann", [{}]),
        lambda: calls.threads.page("t", limit=0),
        lambda: calls.threads.page("t", form="xml"),
        lambda: calls.threads.next_page("t", None),
        lambda: calls.thread_data.set("t", "", 1, "ann", None),
    ):
        with pytest.raises(InvalidError):
            call()


def test_grant_is_checked_against_the_normalised_name(engine: Engine) -> None:
    calls = within(engine, "read:cafe*", "claim:src/*")
    calls.values.get("cafe", "k")
    with pytest.raises(DeniedError):
        calls.values.get("cafe\u0301", "k")  # stored as café
    calls.claims.claim("./src//a.py", "ann")
    for resource in ("src", "./other.py", "/src/a.py"):
        with pytest.raises(DeniedError):
            calls.claims.claim(resource, "ann")


def write_some(engine: Engine) -> None:
    for namespace in ("a-1", "a-2", "b", "c-1", "c-2"):
        engine.write(engine.requests.values.set(namespace, "k", 1, "ann", None), NOBODY)


def test_namespaces_that_may_not_be_read_are_not_listed(engine: Engine) -> None:
    write_some(engine)
    calls = within(engine, "read:a-*", "write:c-2", "claim:b")
    assert engine.read(calls.values.all_namespaces()) == ["a-1", "a-2", "c-2"]
    first = engine.read(calls.values.namespaces(limit=2))
    assert ([it.namespace for it in first.namespaces], first.next_after) == (["a-1", "a-2"], "a-2")
    rest = engine.read(calls.values.namespaces(limit=2, after=first.next_after))
    assert ([it.namespace for it in rest.namespaces], rest.next_after) == (["c-2"], None)


def test_unreadable_threads_are_neither_listed_nor_named_as_parents(engine: Engine) -> None:
    for number, name in enumerate(("a-1", "a-2", "b", "c-1", "c-2")):
        parent = "b" if number > 2 else None
        engine.write(engine.requests.threads.start("ann", name, parent=parent), NOBODY)
    calls, all_ = within(engine, "read:a-*", "write:c-2"), within(engine, "read:*")
    first = engine.read(calls.threads.listed(limit=2))
    assert ([it.thread_id for it in first.threads], first.next_after) == (["a-1", "a-2"], "a-2")
    (last,) = engine.read(calls.threads.listed(limit=2, after=first.next_after)).threads
    assert (last.thread_id, last.parent) == ("c-2", None)
    resumed = engine.write(calls.threads.start("ann", "c-2"), NOBODY)
    for told in (engine.read(calls.threads.facts("c-2")), resumed):
        assert {"parent", "parent_version"}.isdisjoint(told.body())
    assert engine.read(all_.threads.facts("c-2")).parent == "b"
    assert [it.parent for it in engine.read(all_.threads.listed()).threads] == [None, None, None, "b", "b"]


def test_invisible_claims_are_on_no_board(engine: Engine) -> None:
    for number in range(30):
        for name in ("src", "doc"):
            engine.claim(engine.requests.claims.claim(f"{name}/{number:02}", f"{name}-agent"), engine.caller)
    calls = within(engine, "claim:src/*", "read:other")
    first = engine.read(calls.claims.board(limit=20))
    rest = engine.read(calls.claims.board(limit=20, after=first.next_after))
    assert [it.resource for it in (*first.claims, *rest.claims)] == [f"src/{number:02}" for number in range(30)]
    assert rest.next_after is None
    assert [it.agent for it in first.agents] == ["src-agent"]


def test_other_workspaces_show_only_what_the_caller_may_see(tmp_path: Path) -> None:
    from holdlog.adapters.operating_system.workspaces import find_workspaces

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    given = [f"{name}={tmp_path / name}" for name in ("one", "two")]
    known = find_workspaces({}, tmp_path / "one", given, False)
    with closing(open_holdlog(MEMORY, Settings(workspaces=known))) as holdlog:
        holdlog.claim(holdlog.requests.claims.claim("file://two/a.py", "bob"), holdlog.caller)
        status = holdlog.read(holdlog.requests.claims.status("a.py"))
        assert [it.held_by for it in status.also_claimed_in or ()] == ["bob"]
        stored = holdlog.requests.rules.resource("a.py")
        assert holdlog.read(within(holdlog, f"read:{stored}").claims.status("a.py")).also_claimed_in is None


# --- tokens of the store


def issue(engine: Engine, name: str = "ci", *allow: str, **more: Any) -> str:
    made = fresh(name)
    engine.change_token(IssueToken(name=name, hash=made.hash, allow=allow or ("read:*",), by="ann", **more), NOBODY)
    return made.text


def verified(verifier: Verifier, text: str) -> str | None:
    principal = asyncio.run(verifier.verify(text))
    return principal and principal.name


def test_token_identifies_its_principal_with_its_grants(engine: Engine) -> None:
    text = issue(engine, "ci", "write:build-*", "read:*", space="team", lifetime_seconds=60)
    principal = asyncio.run(Verifier(engine).verify(text))
    assert principal is not None
    assert (principal.name, principal.space) == ("token:ci", "team")
    assert principal.grants == allowing("write:build-*", "read:*")
    assert principal.expires_at is not None
    assert 0 < principal.expires_at - engine.requests.rules.clock() <= 60_000_000


def test_token_text_contains_its_name_and_cannot_be_guessed() -> None:
    made = fresh("ci-1")
    assert made.text.startswith("holdlog_ci-1_")
    assert len(made.text.removeprefix("holdlog_ci-1_")) == 43
    assert fresh("ci-1").text != made.text
    assert made.text not in made.hash


def test_unknown_tokens_are_rejected(engine: Engine) -> None:
    text = issue(engine)
    verifier = Verifier(engine)
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    others = (
        wrong,
        fresh("ci").text,
        fresh("other").text,
        "",
        "holdlog_ci_",
        text + "x",
        " " + text,
        text.upper(),
        "x",
    )
    assert [verified(verifier, it) for it in (*others, "ä\x00\ud800", "a.b.c", "x" * 100_000)] == [None] * 12
    assert verified(verifier, text) == "token:ci"


def test_revoked_token_is_rejected_at_once(engine: Engine) -> None:
    text = issue(engine)
    verifier = Verifier(engine)
    assert verified(verifier, text) == "token:ci"
    engine.change_token(RevokeToken(name="ci", by="ann"), NOBODY)
    assert verified(verifier, text) is None
    again = issue(engine)
    assert (verified(verifier, text), verified(verifier, again)) == (None, "token:ci")


def test_token_revoked_by_another_process_is_rejected_within_about_a_second(tmp_path: Path) -> None:
    with closing(open_holdlog(tmp_path / "s.db")) as here, closing(open_holdlog(tmp_path / "s.db")) as there:
        text = issue(there)
        verifier = Verifier(here)
        assert verified(verifier, text) == "token:ci"
        began = time.monotonic()
        there.change_token(RevokeToken(name="ci", by="ann"), NOBODY)
        until(lambda: verified(verifier, text) is None)
        assert time.monotonic() - began < 5.0, "1.0 s, and what the machine is late"


def test_both_secrets_of_a_rotated_token_are_accepted_during_the_overlap(engine: Engine) -> None:
    old = issue(engine)
    verifier = Verifier(engine)
    assert verified(verifier, old) == "token:ci"
    new = fresh("ci")
    engine.change_token(RotateToken(name="ci", hash=new.hash, overlap_seconds=60, by="ann"), NOBODY)
    assert [verified(verifier, it) for it in (old, new.text)] == ["token:ci", "token:ci"]
    newest = fresh("ci")
    engine.change_token(RotateToken(name="ci", hash=newest.hash, by="ann"), NOBODY)
    assert [verified(verifier, it) for it in (old, new.text, newest.text)] == [None, None, "token:ci"]


def test_cached_token_expires_at_its_exact_time(engine: Engine) -> None:
    now = engine.requests.rules.clock
    short = issue(engine, "short", lifetime_seconds=0.4)
    old = issue(engine, "rotated")
    engine.change_token(RotateToken(name="rotated", hash=fresh("x").hash, overlap_seconds=0.4, by="ann"), NOBODY)
    verifier = Verifier(engine)
    ends: list[int] = []
    for text in (short, old):
        principal = asyncio.run(verifier.verify(text))
        assert principal is not None
        assert principal.expires_at is not None
        ends.append(principal.expires_at)
    until(lambda: now() > max(ends))
    assert [verified(verifier, it) for it in (short, old)] == [None, None]


def test_store_that_ever_had_a_token_requires_one(engine: Engine) -> None:
    verifier = Verifier(engine)
    assert (verifier.offers_any(), verifier.is_requested()) == (False, False)
    issue(engine)
    assert (verifier.offers_any(), verifier.is_requested()) == (True, True)
    engine.change_token(RevokeToken(name="ci", by="ann"), NOBODY)
    assert (verifier.offers_any(), verifier.is_requested()) == (False, True)
    assert Verifier(engine, static="s" * 20).offers_any()


def test_token_cache_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdlog.adapters.runtime.verifier.MOST_REMEMBERED", 3)
    texts = [issue(engine, f"t{number}") for number in range(8)]
    verifier = Verifier(engine)
    assert [verified(verifier, it) for it in texts] == [f"token:t{number}" for number in range(8)]
    assert len(verifier._remembered) <= 3
    assert not any(text in repr(verifier._remembered) for text in texts)


# --- the static token

GOOD = "0123456789abcdef0123456789-secret"


def told_of(environ: dict[str, str], file: Path | None = None) -> tuple[str | None, list[str]]:
    lines: list[str] = []
    return static_token(environ, None if file is None else str(file), lines.append), lines


def file_with(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_static_token_authenticates_its_bearer(engine: Engine) -> None:
    verifier = Verifier(engine, static=GOOD)
    principal = asyncio.run(verifier.verify(GOOD))
    assert principal is not None
    assert (principal.name, principal.grants) == ("static", EVERYTHING)
    assert verified(verifier, GOOD[:-1]) is None


def test_static_token_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    path = file_with(tmp_path, GOOD + "\n")
    assert told_of({}) == (None, [])
    assert told_of({"HOLDLOG_AUTH_TOKEN": GOOD}) == (GOOD, [])
    assert told_of({"HOLDLOG_AUTH_TOKEN_FILE": str(path)}) == (GOOD, [])
    assert told_of({}, path) == (GOOD, [])


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\n", "\u00a0"])
def test_empty_static_token_is_an_error_and_never_means_no_token(tmp_path: Path, text: str) -> None:
    path = file_with(tmp_path, text)
    for environ, file in (
        ({"HOLDLOG_AUTH_TOKEN": text}, None),
        ({"HOLDLOG_AUTH_TOKEN_FILE": str(path)}, None),
        ({"HOLDLOG_AUTH_TOKEN_FILE": text}, None),
        ({}, path),
    ):
        with pytest.raises(InvalidError) as refused:
            told_of(environ, file)
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", [f" {GOOD}", f"{GOOD} ", "two words " + GOOD, f"{GOOD}ä", f"{GOOD}\nmore", f"{GOOD}\t"]
)
def test_static_token_that_no_header_can_carry_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        told_of({}, file_with(tmp_path, text))
    assert GOOD not in str(refused.value)


def test_static_token_from_two_places_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path, GOOD)
    for environ, file in (
        ({"HOLDLOG_AUTH_TOKEN": GOOD}, path),
        ({"HOLDLOG_AUTH_TOKEN_FILE": str(path)}, path),
        ({"HOLDLOG_AUTH_TOKEN": GOOD, "HOLDLOG_AUTH_TOKEN_FILE": str(path)}, None),
    ):
        with pytest.raises(InvalidError, match="both set"):
            told_of(environ, file)


def test_missing_token_file_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"--auth-token-file: .* cannot be read"):
        told_of({}, tmp_path / "none")


def test_token_file_that_others_can_read_is_reported(tmp_path: Path) -> None:
    text, (line,) = told_of({}, file_with(tmp_path, GOOD, mode=0o644))
    assert text == GOOD
    assert "can be read by other users" in line
    assert GOOD not in line


def test_static_token_of_fewer_than_32_characters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="at least 32 characters") as refused:
        told_of({"HOLDLOG_AUTH_TOKEN": "k" * 31})
    assert "k" * 31 not in str(refused.value)
    assert told_of({}, file_with(tmp_path, "k" * 32)) == ("k" * 32, [])
