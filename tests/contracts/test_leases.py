"""Leases and losses beside the log: every store keeps them alike."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdlog.domain.claims.lease import BY_CALLS, SECOND, SESSION_ENDS, SESSION_IDLE, HeldCounts, Lease, Loss, Who
from holdlog.domain.ports import LeaseWrites, Store
from tests.support.clock import Clock
from tests.support.commands import PATIENCE

LENGTH = 80 * SECOND
ANN = Who("ann", None, "s1")
NOW = 1_000 * SECOND


@contextmanager
def leases(store: Store) -> Iterator[LeaseWrites]:
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        yield transaction.leases


def held(
    resource: str = "a", version: int = 1, agent: str = "ann", deadline: int = NOW + LENGTH, **more: object
) -> Lease:
    fields: dict[str, object] = {"session": "s1", "server": "v1", "duration": LENGTH, "principal": None} | more
    kind = fields.pop("kind", "held")
    return Lease(resource, version, kind, agent, deadline=deadline, **fields)  # type: ignore[arg-type]


def put(store: Store, *given: Lease) -> None:
    with leases(store) as writes:
        writes.put(given)


def of(store: Store, *resources: str) -> list[Lease]:
    with store.reader() as reader:
        return sorted(reader.leases.of(resources))


# --- what is put is found


def test_lease_reads_as_it_was_put(store: Store) -> None:
    whole = held(
        explicit=True,
        waiting_until=7,
        last_call_at=8,
        position=9,
        note="ten more minutes",
        principal="org",
        kind="offered",
    )
    bare = held("b", session=None, server="")
    put(store, whole, bare)
    assert of(store, "a", "b", "c") == [whole, bare]
    assert of(store, "c") == []


def test_putting_a_lease_replaces_the_one_of_the_same_grant(store: Store) -> None:
    put(store, held(deadline=1), held(version=2, deadline=1))
    put(store, held(deadline=5))
    assert of(store, "a") == [held(deadline=5), held(version=2, deadline=1)]


def test_dropped_lease_is_gone_and_dropping_a_missing_one_is_allowed(store: Store) -> None:
    put(store, held(), held("b"))
    with leases(store) as writes:
        writes.drop([("a", 1), ("a", 2)])
    assert of(store, "a", "b") == [held("b")]


def test_a_transaction_that_fails_changes_no_lease(store: Store) -> None:
    put(store, held())
    try:
        with leases(store) as writes:
            writes.put([held("b")])
            writes.drop([("a", 1)])
            raise LookupError
    except LookupError:
        pass
    assert of(store, "a", "b") == [held()]


def test_leases_of_an_agent_match_name_and_principal_in_all_sessions(store: Store) -> None:
    mine, left = held("mine"), held("left", session="s0", server="")
    bare = held("bare", session=None, server="", receipt="r1")
    put(store, mine, left, bare, held("bob", agent="bob"), held("org", principal="org"))
    with leases(store) as writes:
        assert sorted(it.resource for it in writes.of_agent("ann", None)) == ["bare", "left", "mine"]
        assert [it.resource for it in writes.of_agent("ann", "org")] == ["org"]


def test_leases_of_a_session_include_all_its_agents(store: Store) -> None:
    put(store, held("a"), held("b", agent="bob"), held("c", session="s2"), held("d", session=None))
    with leases(store) as writes:
        assert sorted(it.resource for it in writes.of_session("s1")) == ["a", "b"]


def test_held_count_has_live_grants_and_tickets_apart(store: Store) -> None:
    put(store, held("a"), held("b", kind="offered"), held("c", kind="waits"), held("d", deadline=NOW))
    with leases(store) as writes:
        assert writes.held(ANN, NOW).by_session == 2
        assert writes.held(Who("ann", None, "s2"), NOW).by_session == 0
        assert 2 <= writes.held(ANN, NOW).by_principal <= 3
        assert writes.held(ANN, NOW).awaited_by_principal == 1
        assert writes.held(Who("ann", "org", "s1"), NOW) == HeldCounts(0, 0)


def test_grants_without_a_session_count_for_the_agent_name(store: Store) -> None:
    bare = {"session": None, "server": ""}
    put(store, held("a", receipt="r1", **bare), held("b", receipt="r2", **bare))
    put(store, held("c", agent="bob", receipt="r3", **bare), held("d"))
    with leases(store) as writes:
        assert writes.held(Who("ann", None, None, "r1"), NOW) == HeldCounts(2, 4)


def test_lease_servers_lists_each_server_once(store: Store) -> None:
    put(store, held("a"), held("b"), held("c", server=""), held("d", server="v0"))
    with leases(store) as writes:
        assert sorted(writes.servers()) == ["v0", "v1"]


# --- ends


def test_expired_leases_come_earliest_first_before_ended_calls(store: Store) -> None:
    waits = held("waits", kind="waits", waiting_until=NOW)
    last, first = held("last", deadline=NOW), held("first", deadline=NOW - 5)
    put(store, last, held("not yet", deadline=NOW + 1), first, waits, held("w", kind="waits", waiting_until=NOW + 1))
    with leases(store) as writes:
        assert writes.due(NOW, 10) == [first, last, waits]
        assert writes.due(NOW, 1) == [first, waits]
        assert writes.due(NOW - 6, 10) == []


def test_next_due_time_is_a_lease_deadline_or_the_end_of_a_call(store: Store) -> None:
    with store.reader() as reader:
        assert reader.leases.next_end() is None
    put(store, held("a", deadline=30), held("b", deadline=50, waiting_until=0))
    with store.reader() as reader:
        assert reader.leases.next_end() == 30
    put(store, held("c", kind="waits", deadline=90, waiting_until=20))
    with store.reader() as reader:
        assert reader.leases.next_end() == 20


# --- renewal


def heard(store: Store, now: int, who: Who = ANN, server: str = "v1") -> None:
    with leases(store) as writes:
        writes.record_call(who, server, now)


def test_call_renews_a_lease_after_an_eighth_of_its_duration(store: Store) -> None:
    put(store, held())
    heard(store, NOW + LENGTH // 8)
    assert of(store, "a") == [held()]
    heard(store, NOW + LENGTH // 8 + 1)
    (renewed,) = of(store, "a")
    assert (renewed.deadline, renewed.last_call_at) == (NOW + LENGTH // 8 + 1 + LENGTH, NOW + LENGTH // 8 + 1)


def test_call_neither_shortens_a_lease_nor_revives_an_expired_one(store: Store) -> None:
    put(store, held("long", deadline=NOW + 10 * LENGTH), held("due", deadline=NOW))
    before = of(store, "due", "long")
    heard(store, NOW)
    with leases(store) as writes:
        writes.renew("v1", [("s1", NOW)], [("due", 1), ("long", 1)], NOW)
    after = of(store, "due", "long")
    assert [it.deadline for it in after] == [it.deadline for it in before]
    assert after[0] == before[0]


def test_call_does_not_renew_offers_tickets_or_other_sessions(store: Store) -> None:
    others = [held("o", kind="offered"), held("s", session="s2"), held("w", kind="waits")]
    put(store, *others)
    heard(store, NOW + LENGTH // 2)
    assert of(store, "o", "s", "w") == others


def test_call_restores_nothing_of_another_session_that_ended(store: Store) -> None:
    left = [held("g", session="s0", server="", ended_at=1), held("r", session=None, server="", receipt="r1")]
    put(store, *left)
    heard(store, NOW + LENGTH // 2)
    assert of(store, "g", "r") == left


def test_returning_session_has_its_leases_again(store: Store) -> None:
    put(store, held("g", server="", ended_at=1), held("w", server="", kind="waits", ended_at=1))
    heard(store, NOW)
    assert [(it.server, it.last_seen_at) for it in of(store, "g", "w")] == [("v1", NOW)] * 2
    assert of(store, "g")[0].ended_at == 0


def test_holder_without_a_session_renews_by_its_receipt(store: Store) -> None:
    put(store, held("a", session=None, server="", receipt="r1"), held("b", session=None, server="", receipt="r2"))
    with leases(store) as writes:
        for who in (Who("ann", None, None, "r1"), Who("ann", None, None)):
            writes.record_call(who, "", NOW + LENGTH // 2)
    a, b = of(store, "a", "b")
    assert (a.deadline, b.deadline) == (NOW + LENGTH // 2 + LENGTH, NOW + LENGTH)


def test_sessions_kept_alive_by_calls_are_touched_and_end(store: Store) -> None:
    put(
        store,
        held("a", server=BY_CALLS, last_seen_at=NOW),
        held("b", session="s2", server=BY_CALLS, last_seen_at=NOW),
        held("c"),
    )
    with leases(store) as writes:
        assert sorted(writes.sessions_of(BY_CALLS)) == ["s1", "s2"]
        writes.touch([(None, "s1", NOW + 29 * SECOND)], NOW + 30 * SECOND)
        assert not writes.has_idle_sessions(NOW + SESSION_ENDS - 1)
        assert not writes.end_idle_sessions(NOW + SESSION_ENDS - 1, 5)
        assert writes.has_idle_sessions(NOW + SESSION_ENDS)
        at = 5_000 * SECOND
        assert writes.end_idle_sessions(NOW + SESSION_ENDS, at)
    a, b, c = of(store, "a", "b", "c")
    assert (a.server, a.last_seen_at, c) == (BY_CALLS, NOW + 30 * SECOND, held("c"))
    assert (b.server, b.ended_at, b.deadline) == ("", at - SESSION_ENDS + SESSION_IDLE, NOW + LENGTH)


def test_session_ended_by_a_client_is_that_of_its_principal(store: Store) -> None:
    waits = held("w", server=BY_CALLS, kind="waits", waiting_until=NOW + 50)
    put(store, held("a", server=BY_CALLS), waits, held("b", principal="org", server=BY_CALLS), held("c"))
    with leases(store) as writes:
        writes.end_session("s1", None, NOW, 7)
    a, b, c, w = of(store, "a", "b", "c", "w")
    assert (a, c) == (held("a", server="", ended_at=7, last_seen_at=NOW), held("c"))
    assert (b.server, w.waiting_until) == (BY_CALLS, NOW)


def test_call_without_a_server_keeps_the_recorded_server(store: Store) -> None:
    put(store, held())
    heard(store, NOW + LENGTH // 2, server="")
    (renewed,) = of(store, "a")
    assert (renewed.server, renewed.deadline) == ("v1", NOW + LENGTH // 2 + LENGTH)


def test_server_renews_and_adopts_its_sessions(store: Store) -> None:
    put(store, held("a", server="v0"), held("b", agent="bob", server="", last_call_at=NOW + 9), held("c", session="s2"))
    with leases(store) as writes:
        writes.renew("v1", [("s1", NOW + 5)], [], NOW + 7)
    a, b, c = of(store, "a", "b", "c")
    assert (a.server, a.deadline, a.last_call_at) == ("v1", NOW + 7 + LENGTH, NOW + 5)
    assert (b.server, b.deadline, b.last_call_at) == ("v1", NOW + 7 + LENGTH, NOW + 9)
    assert c == held("c", session="s2")


@pytest.mark.parametrize("kind", ["waits", "offered"])
def test_waiter_is_present_as_long_as_the_server_it_called(store: Store, kind: str) -> None:
    """Another one of the same session takes it over only when that one is known to be gone."""
    put(store, held("a", server="v0", kind=kind), held("b", server="", kind=kind))
    with leases(store) as writes:
        writes.renew("v1", [("s1", NOW)], [], NOW)
        writes.record_call(ANN, "v1", NOW)
    assert [lease.server for lease in of(store, "a", "b")] == ["v0", "v1"]


def test_grant_is_renewed_by_its_key_and_keeps_its_server(store: Store) -> None:
    put(store, held("a", server="v0"), held("a", 2), held("w", kind="waits"))
    with leases(store) as writes:
        writes.renew("v1", [], [("a", 1), ("w", 1), ("x", 1)], NOW + 7)
    assert of(store, "a", "w") == [
        held("a", server="v0", deadline=NOW + 7 + LENGTH),
        held("a", 2),
        held("w", kind="waits"),
    ]


# --- servers that end


def test_end_of_a_server_cuts_its_leases_to_the_grace_unless_set_explicitly(store: Store) -> None:
    short, told = held("short", deadline=NOW + 5), held("told", explicit=True)
    put(store, held("long"), short, told, held("other", server="v2"), held("offer", kind="offered"))
    put(store, held("waits", kind="waits", waiting_until=NOW + 50), held("away", kind="waits", waiting_until=0))
    with leases(store) as writes:
        assert writes.end(["v1", "v0"], NOW, 3, 20)
    away, long, offer, other, short_after, told_after, waits = of(
        store, "away", "long", "offer", "other", "short", "told", "waits"
    )
    assert long == held("long", server="", ended_at=3, deadline=NOW + 20)
    assert (short_after, told_after) == (
        short._replace(server="", ended_at=3),
        told._replace(server="", ended_at=3),
    )
    assert (offer.deadline, other) == (NOW + 20, held("other", server="v2"))
    assert (waits.waiting_until, waits.deadline, waits.server) == (NOW, NOW + LENGTH, "")
    assert away.waiting_until == 0
    with leases(store) as writes:
        assert not writes.end(["v1", "v0"], NOW, 3, 20)


def test_clean_shutdown_may_leave_leases_as_they_are(store: Store) -> None:
    put(store, held())
    with leases(store) as writes:
        assert writes.end(["v1"], NOW, 3, None)
    assert of(store, "a") == [held(server="", ended_at=3)]


def test_empty_server_id_cannot_end(store: Store) -> None:
    put(store, held(server=""))
    with leases(store) as writes:
        assert not writes.end([""], NOW, 3, 20)
    assert of(store, "a") == [held(server="")]


# --- losses


def loss(resource: str = "a", session: str | None = "s1", agent: str = "ann", at: int = 1) -> Loss:
    return Loss(resource, 1, "forced", agent, None, session, "v1", at, "off duty")


def test_losses_are_found_by_session_and_by_receipt(store: Store, clock: Clock) -> None:
    at = clock()
    given = [loss("a", at=at), loss("b", session="s2", at=at), loss("c", session="s1", agent="bob", at=at)]
    given += [loss("d", session=None, at=at)._replace(receipt="r1"), loss("e", session=None, at=at)]
    with leases(store) as writes:
        writes.lose(given, at)
        found = {
            who: sorted(it.resource for it in writes.losses(None, *who))
            for who in ((None, None), (None, "r1"), ("s1", None), ("s1", "r1"), ("s0", "r0"))
        }
    assert found == {
        (None, None): [],
        (None, "r1"): ["d"],
        ("s1", None): ["a", "c"],
        ("s1", "r1"): ["a", "c", "d"],
        ("s0", "r0"): [],
    }


def test_acknowledged_losses_are_not_reported_again(store: Store, clock: Clock) -> None:
    given = [loss("a", at=clock()), loss("b", at=clock())]
    with leases(store) as writes:
        writes.lose([*given, given[1]], clock())
        writes.forget(given[:1])
    with store.reader() as reader:
        assert reader.leases.losses(None, "s1", None) == given[1:]


def test_unreported_losses_are_kept_for_a_day(store: Store, clock: Clock) -> None:
    day = 24 * 3600 * SECOND
    with leases(store) as writes:
        writes.lose([loss("old", at=clock())], clock())
        writes.lose([loss("new", at=clock() + day)], clock() + day)
        assert [it.resource for it in writes.losses(None, "s1", None)] == ["old", "new"]
        writes.lose([], clock() + day + 1)
        assert [it.resource for it in writes.losses(None, "s1", None)] == ["new"]
