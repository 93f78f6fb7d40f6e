"""Who holds a claim while sessions, sub-agents and processes come, fall silent and go; and who learns of a loss."""

import threading

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.claims import LONG, file_alone, holders, line, statuses, take
from tests.support.library import in_thread
from tests.support.waiting import until

R = "custom://r"


def losses(response):
    return [(it.resource, it.why) for it in response.lost or ()]


# --- sessions


@both_stores
def test_namesake_in_another_session_is_another_holder(open_store):
    mine, yours = open_store(session="one"), open_store(session="two")
    version = take(mine, "a").version
    busy = yours.claim("a", agent="ann")
    assert (busy.status, busy.same_name, busy.held_by) == ("busy", True, "ann")
    assert "name of your own" in busy.hint
    assert [yours.release("a", agent="ann").status, yours.release(agent="ann").status] == ["not_holder", "already_free"]
    with pytest.raises(holdlog.FencedError):
        yours.set("n", "k", 1, updated_by="ann", guard=[{"resource": "a", "version": version}])
    assert holders(yours) == {"a": ["ann"]}


@both_stores
def test_processes_of_one_session_are_one_holder_as_long_as_any_lives(open_store):
    first, second, other = open_store(session="job"), open_store(session="job"), open_store(session="other")
    version = take(first, "a").version
    first.close()
    assert statuses(second, "a", "ann") == ["already_claimed"]
    assert second.set("n", "k", 1, updated_by="ann", guard=[{"resource": "a", "version": version}]).version == 1
    assert statuses(other, "a", "ann") == ["busy"]


@both_stores
def test_closed_store_leaves_nothing_that_another_of_its_session_keeps(open_store):
    first, second, other = open_store(session="job"), open_store(session="job"), open_store(session="other")
    take(first, "a")
    take(second, "b")
    first.close()
    assert statuses(other, "a", "ann") == statuses(other, "b", "ann") == ["busy"]


@both_stores
def test_caller_acts_as_the_holder_that_a_closed_store_of_its_name_left(open_store):
    first, second = open_store(session="one"), open_store(session="two")
    version = take(first, "a").version
    take(first, "b")
    first.close()
    assert statuses(second, "a", "bob") == ["busy"]
    assert second.set("n", "k", 1, updated_by="ann", guard=[{"resource": "a", "version": version}]).version == 1
    again = second.claim("a", agent="ann")
    assert (again.status, again.version) == ("already_claimed", version)
    assert second.release("b", agent="ann").status == "released"


@file_alone
def test_claim_that_no_thread_can_keep_is_unavailable(open_store):
    store = open_store()
    size = threading.stack_size(2**44)  # no thread starts
    try:
        with pytest.raises(holdlog.UnavailableError, match="thread"):
            store.claim("a", agent="ann")
    finally:
        threading.stack_size(size)
    assert store.status("a").status == "available"
    take(store, "a")


@both_stores
def test_every_call_of_a_name_counts_for_what_it_left(open_store):
    first = open_store(session="one")
    take(first, "a")
    first.close()
    later = open_store(session="two")
    seen = later.status("a").holder_idle_seconds
    until(lambda: later.claim("b", agent="ann") and later.status("a").holder_idle_seconds < seen)


@both_stores
def test_caller_learns_what_was_lost_by_the_holder_that_left_to_it(open_store):
    first = open_store(session="one")
    take(first, "a", lease_seconds=1)
    take(first, "b")
    first.close()
    later = open_store(session="two")
    assert later.wait("a", LONG)
    assert losses(later.claim("c", agent="ann")) == [("a", "expired")]
    assert losses(later.claim("c", agent="ann")) == []


# --- sub-agents

FAMILIES = {  # who holds it, who claims it, and what that returns in the same session
    ("ann", "ann/tests"): "claimed",
    ("ann", "ann/tests/unit"): "claimed",
    ("ann/tests", "ann/tests/unit"): "claimed",
    ("ann/tests", "ann"): "busy",
    ("ann/tests", "ann/docs"): "busy",
    ("ann", "ann-2"): "busy",
    ("ann/t", "ann/tests"): "busy",
    ("ann", "ANN/tests"): "busy",
}


@both_stores
def test_claim_admits_the_sub_agents_of_its_own_session_only(open_store):
    mine, yours = open_store(session="one"), open_store(session="two")
    for number, ((holder, caller), status) in enumerate(FAMILIES.items()):
        take(mine, f"{number}/", holder)
        assert statuses(yours, f"{number}/a", caller) == ["busy"], (holder, caller)
        assert statuses(mine, f"{number}/a", caller) == [status], (holder, caller)
        assert mine.release(f"{number}/", agent=caller).status == "not_holder"
    take(mine, "x", "ann")
    take(mine, "x", "ann/tests")
    assert holders(mine)["x"] == ["ann", "ann/tests"]
    assert statuses(mine, "x", "ann/docs") == ["busy"]
    assert mine.release("x", agent="ann").status == "released"
    assert holders(mine)["x"] == ["ann/tests"]


def test_parent_takes_over_what_a_silent_sub_agent_holds(stdio):
    server = stdio("--lease-seconds", "10")
    version = server.call("claim", resource=R, agent="ann/sub", note="half done")["version"]
    assert server.call("claim", resource=R, agent="ann")["status"] == "busy"
    assert server.call("claim", resource=R, agent="bob", wait_seconds=2.2)["status"] == "busy"
    taken = server.call("claim", resource=R, agent="ann")
    assert (taken["status"], taken["previous_holder"]) == ("claimed", "ann/sub")
    assert taken["version"] > version


@pytest.mark.rest
def test_live_server_keeps_the_claims_of_those_that_were_heard_within_the_idle_limit(stdio, db):
    with holdlog.StateStore(db) as store:
        for limit in ("60", "1"):
            server = stdio("--lease-seconds", "6", "--idle-limit", limit)
            server.call("claim", resource=R + limit, agent="ann")
        first = store.status(R + "60").expires_at
        until(lambda: store.status(R + "1").status == "available")
        until(lambda: store.status(R + "60").expires_at > first)
        assert store.status(R + "60").held_by == "ann"


# --- a deadline of its own


def test_claim_with_a_deadline_of_its_own_is_not_prolonged_by_other_calls(store):
    take(store, "a", lease_seconds=1)
    deadline = store.status("a").expires_at

    def ends():
        store.set("n", "k", 1, updated_by="ann")
        status = store.status("a")
        return status.status == "available" or abs((status.expires_at - deadline).total_seconds()) > 0.01

    until(ends)
    assert store.status("a").status == "available"


def test_repeated_claim_extends_its_deadline(store):
    take(store, "a", lease_seconds=100)
    again = store.claim("a", agent="ann", lease_seconds=200)
    assert (again.status, 150 < again.expires_in_seconds <= 200) == ("already_claimed", True)
    assert 150 < store.status("a").expires_in_seconds <= 200


def test_claim_in_another_mode_keeps_its_deadline(store):
    take(store, "a", lease_seconds=100)
    take(store, "a", mode="shared")
    assert 50 < store.status("a").expires_in_seconds <= 100


# --- a loss is reported once


def test_expired_claim_is_reported_to_its_holder_once_and_to_nobody_else(store):
    version = take(store, "a", lease_seconds=1).version
    store.wait("a", LONG)
    taken = take(store, "a", "bob")
    assert (taken.previous_holder, taken.previous_outcome) == ("ann", "expired")
    results = [taken, *(store.claim(name, agent="ann") for name in "bbd")]  # bob is of the same session
    assert [loss for result in results for loss in losses(result)] == [("a", "expired")]
    expired = store.release("a", agent="ann")
    assert (expired.status, expired.held_by) == ("expired", "bob")
    assert take(store, "c").version > 0
    with pytest.raises(holdlog.FencedError):
        store.set("n", "k", 1, updated_by="ann", guard=[{"resource": "a", "version": version}])


@both_stores
def test_loss_is_reported_in_its_session_alone(open_store):
    mine, yours = open_store(session="one"), open_store(session="two")
    take(mine, "a", lease_seconds=1)
    assert yours.wait("a", LONG)
    take(yours, "a")
    assert losses(yours.claim("b", agent="ann")) == []
    (lost,) = mine.claim("c", agent="ann").lost
    assert (lost.resource, lost.why, lost.held_by) == ("a", "expired", "ann")
    assert losses(mine.status("a")) == losses(mine.claim("c", agent="ann")) == []


def test_write_reports_a_loss(store):
    take(store, "a", lease_seconds=1)
    store.wait("a", LONG)
    assert losses(store.set("n", "k", 1, updated_by="ann")) == [("a", "expired")]
    assert losses(store.claim("b", agent="ann")) == []


@file_alone
def test_person_ends_any_claim_and_its_holder_learns_why(open_store, command):
    store, other = open_store(session="one"), open_store(session="two")
    version = take(store, R, mode="shared").version
    take(store, R, "bob", mode="shared")
    waiting = in_thread(other.claim, R, agent="cleo", wait_seconds=LONG)
    until(lambda: line(other, R))
    assert command("release", R, "--agent", "boss", "--force").code != 0  # without a reason
    assert holders(other) == {R: ["ann", "bob"]}
    assert command("release", R, "--agent", "boss", "--force", "--reason", "off duty").code == 0
    assert waiting.result().previous_outcome == "forced"
    assert holders(other) == {R: ["cleo"]}
    refused = store.release(R, agent="ann")
    assert (refused.status, refused.held_by) == ("not_holder", "cleo")
    assert [(it.resource, it.why, it.reason) for it in refused.lost] == [(R, "forced", "off duty")] * 2
    with pytest.raises(holdlog.FencedError, match=R):
        store.set("n", "k", 1, updated_by="ann", guard=[{"resource": R, "version": version}])
