"""The past by the log: `log` with refusals, `replay`, pages of the past, who held a resource."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest

import holdlog
from tests.support.waiting import until


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def open_store(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Callable[[], holdlog.StateStore]]:
    """Opens a handle of the test's store."""
    place = tmp_path / "state.db" if request.param == "file" else request.getfixturevalue("postgres")
    with ExitStack() as handles:
        yield lambda: handles.enter_context(holdlog.StateStore(place))


@pytest.fixture
def store(open_store: Callable[[], holdlog.StateStore]) -> holdlog.StateStore:
    return open_store()


def put(store, key="k", value=1, by="ann", namespace="n", **options):
    return store.set(namespace, key, value, updated_by=by, **options)


# --- log and replay


def tell(store):
    """Five events and, after the third, two refusals."""
    put(store, "budget", {"eur": "\u202e2000"}, reason="ads", namespace="campaign")
    store.claim("custom://deploy", agent="bob", note="ten minutes")
    store.delete("campaign", "budget", deleted_by="ann")
    with pytest.raises(holdlog.ConflictError):
        put(store, "budget", "secret", "ben", "campaign", expected_version=7)
    assert store.claim("custom://deploy", agent="ben").status == "busy"
    put(store, "budget", 3, namespace="campaign")
    put(store, "other", 4, "bob", "campaign")


def listed(store, **choice):
    """Positions of events and codes of refusals, from all pages."""
    found, page = [], store.log(**choice)
    while True:
        assert len(page.entries) <= choice.get("limit", 100)
        found += [getattr(it, "position", None) or it.code for it in page.entries]
        if page.next_after is None:
            return found
        page = store.log(**choice, after=page.next_after)


def test_log_is_restricted_by_range_and_filters_page_by_page(store):
    tell(store)
    deleted = store.events(2).events[0].at
    for choice, expected in [
        ({}, [1, 2, 3, 4, 5]),
        ({"refusals": True}, [1, 2, 3, "conflict", "busy", 4, 5]),
        ({"refusals": True, "start": 2, "end": "#4"}, [2, 3, "conflict", "busy", 4]),
        ({"refusals": True, "start": 3, "end": 3}, [3]),
        ({"refusals": True, "start": 4}, [4, 5]),
        ({"refusals": True, "start": deleted, "end": "now"}, [3, "conflict", "busy", 4, 5]),
        ({"refusals": True, "end": deleted}, [1, 2, 3]),
        ({"refusals": True, "agent": "ben"}, ["conflict", "busy"]),
        ({"refusals": True, "resource": "custom://deploy"}, [2, "busy"]),
        ({"refusals": True, "kinds": ["record"]}, [1, 3, "conflict", 4, 5]),
        ({"kinds": ["ValueDeleted", "claim"]}, [2, 3]),
        ({"start": "an hour ago", "namespace": "campaign", "prefix": "o"}, [5]),
    ]:
        for limit in (1, 3, 100):
            assert listed(store, limit=limit, **choice) == expected, choice


def test_refusal_says_who_wanted_what_and_why_not_without_values(store):
    tell(store)
    conflict, busy = (it for it in store.log(refusals=True).entries if hasattr(it, "code"))
    assert (conflict.by, conflict.namespace, conflict.key, conflict.after) == ("ben", "campaign", "budget", 3)
    assert conflict.message == "campaign/budget: expected version 7, but there is no value now"
    assert (busy.by, busy.resource, busy.message) == ("ben", "custom://deploy", "held by bob")
    assert conflict.session == busy.session
    assert "secret" not in str(store.log(refusals=True))


def test_refusal_names_its_author_and_subject_whatever_was_refused(store):
    for _ in range(2):
        store.token_create("ci", ["read:*"], created_by="ann")
    store.token_revoke("no", revoked_by="bob")
    with pytest.raises(holdlog.InvalidError):
        store.thread_append("t", agent="ben", messages=[{"type": "text", "role": "user", "content": "x" * 300_000}])
    put(store)
    exists, missing, long = (it for it in store.log(refusals=True).entries if hasattr(it, "code"))
    assert (exists.code, exists.by, exists.token) == ("exists", "ann", "ci")
    assert (missing.code, missing.by, missing.token) == ("not_found", "bob", "no")
    assert (long.code, long.by, long.thread) == ("invalid", "ben", "t")


def test_process_records_its_last_refusals_when_it_ends(open_store):
    store, other = open_store(), open_store()
    with pytest.raises(holdlog.NotFoundError):
        other.delete("n", "k", deleted_by="ben")
    assert store.log(refusals=True).entries == []
    other.close()
    assert [it.code for it in store.log(refusals=True).entries] == ["not_found"]


def test_call_that_waits_in_vain_is_one_refusal(store):
    store.claim("a.py", agent="ann")
    assert not store.claim("a.py", agent="bob", wait_seconds=0.05)
    put(store)
    assert listed(store, refusals=True).count("busy") == 1


def test_store_keeps_the_last_10000_refusals():
    with holdlog.StateStore(":memory:") as store:
        for number in range(300):
            for _ in range(40):
                with pytest.raises(holdlog.NotFoundError):
                    store.delete("n", "k", deleted_by="ben")
            put(store, "other", number)
        assert 10_000 <= listed(store, refusals=True, limit=1000).count("not_found") < 12_000


def test_bad_range_is_refused_by_name(store):
    tell(store)
    for read in (store.log, store.replay):
        for fields in (
            {"end": 1, "start": 3},
            {"start": "soon"},
            {"start": "v1"},
            {"start": 99},
            {"end": 99, "start": 1},
        ):
            with pytest.raises(holdlog.InvalidError) as refused:
                read(**fields)
            assert str(refused.value).startswith(*list(fields)[:1]), fields


def test_replay_is_the_events_of_a_range_and_the_state_then(store):
    tell(store)
    page = store.replay(2, 4)
    assert ([it.position for it in page.events], page.as_of.position) == ([2, 3, 4], 4)
    assert [(it.namespace, it.key, it.value) for it in page.values] == [("campaign", "budget", 3)]
    assert [(it.resource, it.held_by, it.expires_at) for it in page.claims] == [("custom://deploy", "bob", None)]
    assert (page.next_start, page.is_cut) == (None, None)
    page = store.replay(1, limit=1)
    assert ([it.position for it in page.events], page.next_start, page.is_cut) == ([1], 2, True)
    assert store.replay(1, 1).claims == []


def test_pages_of_long_events_are_short_and_read_few_of_them():
    with holdlog.StateStore(":memory:") as store:
        start = put(store, value=0).position
        for number in range(60):
            put(store, f"k{number:02}", "x" * 200_000)
        for read in (
            lambda: store.events(limit=100).events,
            lambda: store.events(limit=1).events,
            lambda: store.log().entries,
            lambda: store.replay(1).events,
            lambda: store.list("n").records,
            lambda: store.at("now", "n").records,
            lambda: [None for it in store.diff(start, namespace="n").changes if it.change == "none"],
        ):
            tracemalloc.start()
            assert len(read()) <= 4
            assert tracemalloc.get_traced_memory()[1] < 9_000_000
            tracemalloc.stop()
        assert listed(store) == list(range(1, 62))
        found, page = [], store.replay(1)
        while page.next_start is not None:
            found, page = [*found, *page.events], store.replay(page.next_start)
        assert [it.position for it in (*found, *page.events)] == list(range(1, 62))


def test_each_transaction_has_its_time_even_if_the_clock_was_set_back(tmp_path, monkeypatch):
    with holdlog.StateStore(tmp_path / "state.db") as store:
        put(store)
        earlier = time.time_ns() - 3_600_000_000_000
        monkeypatch.setattr(time, "time_ns", lambda: earlier)
        for number in range(3):
            put(store, value=number)
        assert [it.position for it in store.events(limit=1).events] == [1]
        times = [it.at for it in store.events().events]
        assert times == sorted(set(times))


def test_event_without_an_author_is_nobodys(store):
    put(store, ttl_seconds=0.05)
    until(lambda: store.list("n").records == [])
    put(store)
    assert [it.by for it in store.events(kinds=["ValueExpired"]).events] == [None]
    assert store.events(agent="None").events == []


# --- the past


def claim(store, resource, agent, **options):
    """The position of the last event."""
    assert store.claim(resource, agent=agent, **options).status in ("claimed", "busy")
    return put(store, "last").position - 1


def test_past_has_neither_leases_nor_connections(store):
    position = claim(store, "a.py", "ann", note="soon")
    (row,), held = store.at(position).claims, store.at(position, resource="a.py")
    for it in (row, held):
        assert (it.held_by, it.holder_note, it.version, it.mode, it.claimed_at) == (
            "ann",
            "soon",
            1,
            "exclusive",
            row.claimed_at,
        )
        assert (it.expires_at, it.expires_in_seconds, it.holder_connected, it.holder_idle_seconds) == (None,) * 4
    assert row.held_for_seconds == held.held_for_seconds == 0


def test_claim_counts_as_expired_when_it_was_due_and_at_a_position_when_that_was_recorded(store):
    claim(store, "a.py", "ann", lease_seconds=1)
    until(lambda: store.status("a.py").status == "available")
    claim(store, "a.py", "bob")
    expired = store.events(kinds=["ClaimExpired"]).events[0]
    assert store.at(expired.position - 1, resource="a.py").held_by == "ann"
    assert store.at(expired.position, resource="a.py").status == "available"
    due = datetime.fromisoformat(str(expired.due))
    assert store.at(due - timedelta(microseconds=1), resource="a.py").held_by == "ann"
    free = store.at(due, resource="a.py")
    assert free.as_of.position < expired.position
    assert (free.status, free.previous_holder, free.previous_outcome) == ("available", "ann", "expired")
    assert free.previous_outcome_at == due


def test_board_is_read_in_pages_and_by_agent(store):
    for agent, resource in (("ann", "a"), ("ann/tests", "b"), ("bob", "c")):
        position = claim(store, resource, agent)
    page = store.at(position, limit=2)
    assert ([it.resource for it in page.claims], page.next_after) == (["a", "b"], "b")
    assert [it.resource for it in store.at(position, after="b").claims] == ["c"]
    assert [it.resource for it in store.at(position, agent="ann").claims] == ["a", "b"]


@pytest.mark.rest
def test_value_with_many_versions_is_read_at_each_of_them(store):
    for number in range(430):
        put(store, value=number)
        put(store, "other", number)
    assert [store.at(2 * number + 2, "n", "k").value for number in range(430)] == list(range(430))
    times = [it.updated_at for it in store.history("n", "k", 1000)][::-1]
    assert [store.at(time.isoformat(), "n", "k").updated_at for time in times] == times
    with pytest.raises(holdlog.NotFoundError):
        store.at(1, "n", "other")


@pytest.mark.parametrize(
    "fields", [{"key": "k"}, {"namespace": "n", "resource": "a"}, {"moment": "v1"}, {"moment": True}, {"moment": 1.5}]
)
def test_bad_argument_of_at_is_refused_by_name(store, fields):
    put(store)
    with pytest.raises(holdlog.InvalidError) as refused:
        store.at(**{"moment": 1} | fields)
    assert str(refused.value).startswith([*fields][-1])


def test_claim_that_was_replaced_or_handed_over_is_read_as_it_was(open_store):
    first, second = open_store(), open_store()
    first.claim("a", agent="ann", mode="shared")
    first.claim("a", agent="ann")
    first.close()
    assert second.claim("a", agent="ann")
    second.release("a", agent="ann")
    kinds = [it.kind for it in second.events().events]
    assert kinds == ["ClaimGranted", "ClaimGranted", "ClaimHandedOver", "ClaimReleased"]
    boards = [[(it.version, it.mode) for it in second.at(position).claims] for position in range(1, 5)]
    assert boards == [[(1, "shared")], [(2, "exclusive")], [(2, "exclusive")], []]


# --- history of a resource


def holds(store, resource, **options):
    return [(it.resource, it.held_by, it.outcome) for it in store.resource_history(resource, **options)]


def test_history_of_a_resource_is_who_held_it_and_how_each_hold_ended(store):
    store.claim("src/a.py", agent="ann", note="one hour")
    store.release("src/a.py", agent="ann", outcome="moved", moved_to="src/b.py", note="done")
    store.claim("src/", agent="bob", mode="shared")
    store.claim("src/", agent="bob")
    store.claim("lib/", agent="cid")
    expected = [("src/", "bob", None), ("src/", "bob", "replaced"), ("src/a.py", "ann", "moved")]
    for resource in ("src/a.py", "src/"):
        assert holds(store, resource) == expected
    assert holds(store, "src/b.py") == expected[:2]
    first = store.resource_history("src/a.py")[-1]
    assert (first.version, first.position, first.note, first.outcome_note, first.moved_to) == (
        1,
        1,
        "one hour",
        "done",
        "src/b.py",
    )
    assert first.claimed_at <= first.outcome_at
    assert (
        holds(store, "src/", limit=2) + holds(store, "src/", before=store.resource_history("src/", 2)[-1].position)
        == expected
    )


@pytest.mark.rest
def test_history_of_a_resource_goes_back_through_a_long_log(store):
    for number in range(600):
        store.claim("a.py", agent=f"a{number}")
        store.release("a.py", agent=f"a{number}", outcome="modified")
    assert holds(store, "a.py", limit=1000) == [("a.py", f"a{number}", "modified") for number in reversed(range(600))]
