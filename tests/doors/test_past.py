"""The past: values, lists, the board and claims at a version, position and time; blame, diff and revert."""

import hashlib
import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.library import in_thread
from tests.support.waiting import until

in_file = pytest.mark.parametrize("kind", ["file"], indirect=True)


def put(store, key="k", value=1, by="ann", **options):
    return store.set("n", key, value, updated_by=by, **options)


def values(store):
    return {it.key: it.value for it in store.list("n").records}


# --- at


def test_value_is_read_at_a_version_a_position_and_a_time(store):
    put(store, value="first")
    then = store.get("n", "k").updated_at
    put(store, value="second", by="bob")
    store.delete("n", "k", deleted_by="ann")
    put(store, value="third")
    for moment in ("v1", 1, then.isoformat(), then.isoformat().replace("+00:00", "Z")):
        assert store.at(moment, "n", "k").value == "first", moment
    found = store.at(2, "n", "k")
    assert (found.value, found.version, found.updated_by, found.as_of.position) == ("second", 2, "bob", 2)
    with pytest.raises(holdlog.NotFoundError):
        store.at(3, "n", "k")
    assert store.get("n", "k").value == store.at("v4", "n", "k").value == "third"


def test_list_is_read_as_it_was(store):
    for key in ("b", "a", "c"):
        put(store, key)
    store.clear_namespace("n", deleted_by="ann")
    put(store, "d")
    page = store.at(3, "n", limit=2)
    assert ([it.key for it in page.records], page.next_after, page.position) == (["a", "b"], "b", 3)
    assert [it.key for it in store.at(3, "n", after_key="b").records] == ["c"]
    assert [it.key for it in store.at(3, "n", prefix="a").records] == ["a"]
    assert store.at(6, "n").records == []


def test_claims_and_queues_are_read_as_they_were(store):
    store.claim("src/", agent="ann")
    waiting = in_thread(store.claim, "src/a.py", agent="bob", wait_seconds=50)
    until(lambda: store.status().queues)
    store.release("src/", agent="ann", outcome="modified")
    assert waiting.result().status == "claimed"
    first, queued, last = store.at(1), store.at(2), store.at(4)
    assert [(it.resource, it.held_by) for it in first.claims] == [("src/", "ann")]
    assert first.queues == []
    assert [(it.resource, [waiter.agent for waiter in it.line]) for it in queued.queues] == [("src/a.py", ["bob"])]
    assert [(it.resource, it.held_by) for it in last.claims] == [("src/a.py", "bob")]
    assert last.queues == []
    for name, length in (("src/a.py", 1), ("src", 0)):
        held = store.at(2, resource=name)
        assert (held.status, held.held_by, held.queue_length) == ("claimed", "ann", length)


def test_free_resource_shows_how_its_last_claim_had_ended(store):
    put(store)
    store.claim("a.py", agent="ann")
    store.release("a.py", agent="ann", outcome="modified")
    put(store)
    assert store.at(1, resource="a.py").status == "available"
    free = store.at(3, resource="a.py")
    assert (free.status, free.previous_holder, free.previous_outcome) == ("available", "ann", "modified")


def test_time_means_the_last_event_until_then_and_an_expiry_counts_when_due(store):
    put(store, ttl_seconds=0.05)
    ends = store.at(1, "n", "k").expires_at  # a slow machine may not see the value itself
    until(lambda: datetime.now(UTC) > ends)
    put(store, "later")
    just_before = (ends - timedelta(microseconds=1)).isoformat()
    assert store.at(just_before, "n", "k").value == store.at(1, "n", "k").value == 1
    with pytest.raises(holdlog.NotFoundError):
        store.at(ends.isoformat(), "n", "k")


@pytest.mark.parametrize("moment", [99, -1, "2999-01-01T00:00:00Z", "1999-01-01T00:00:00Z", "soon", "v9"])
@in_file
def test_moment_that_the_log_does_not_have_is_refused(store, moment):
    put(store)
    with pytest.raises(holdlog.InvalidError):
        store.at(moment, "n", "k")


def test_command_takes_moments_as_people_say_them(command, db):
    with holdlog.StateStore(db) as store:
        store.claim("custom://deploy", agent="ann")
        store.release("custom://deploy", agent="ann")
    for moment, holders in (("#1", ["ann"]), ("now", [])):
        done = command("at", moment, "--json")
        assert (done.code, [it["held_by"] for it in done.json["claims"]]) == (0, holders), done
    done = command("at", "yesterday 9:00")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done


# --- blame


def author(blame):
    return getattr(blame, "author", blame)


def test_blame_names_author_basis_guard_and_reason(store):
    put(store)
    grant = store.claim("a.py", agent="bob")
    guard = [{"resource": "a.py", "version": grant.version}]
    put(store, value=2, by="bob", expected_version=1, guard=guard, reason="because")
    found = author(store.blame("n", "k"))
    assert (found.version, found.updated_by, found.based_on, found.reason) == (2, "bob", 1, "because")
    assert [(it.resource, it.version) for it in found.guard] == [("a.py", grant.version)]
    first = author(store.blame("n", "k", at="v1"))
    assert (first.updated_by, first.forced, first.reason) == ("ann", None, None)
    assert author(store.blame("n", "k", at=2)).updated_by == "ann"
    put(store, value=3)
    assert author(store.blame("n", "k")).forced is True


def test_blame_of_a_deleted_value_names_who_deleted_it(store):
    put(store)
    store.delete("n", "k", deleted_by="bob", reason="done")
    found = author(store.blame("n", "k"))
    assert (found.event_type, found.updated_by, found.reason) == ("delete", "bob", "done")
    with pytest.raises(holdlog.NotFoundError):
        store.blame("n", "never")
    with pytest.raises(holdlog.InvalidError):
        store.blame("n", "k", at="v3")


def test_blame_of_a_file_names_the_agent_whose_hook_changed_it(command, db, tmp_path):
    file = tmp_path / "project" / "a.py"
    file.parent.mkdir()
    subprocess.run(["git", "init", "-q", file.parent], check=True)
    payload = {"session_id": "s1", "cwd": str(file.parent), "tool_name": "Write", "tool_use_id": "t1"}
    payload |= {"tool_input": {"file_path": str(file), "content": "one"}}

    def edit():
        """Returns the event. A hook that has no time, because others use the machine, only allows the edit."""
        for more in ({"hook_event_name": "PreToolUse"}, {"hook_event_name": "PostToolUse", "tool_response": {}}):
            done = command("hook", stdin=json.dumps(payload | more), cwd=file.parent)
            assert (done.code, "deny" in done.out) == (0, False), done
            file.write_text("one")
        found = store.events(kinds=["FileChanged"]).events
        file.unlink()
        return found

    with holdlog.StateStore(db) as store:
        until(edit, within=600)
        changed = store.events(kinds=["FileChanged"]).events[-1]
    change = command("blame", "a.py", "--json", cwd=file.parent).json["changes"][0]
    assert (change["agent"], change["position"]) == (changed.agent, changed.position)
    digest = hashlib.sha256(b"one").hexdigest()
    assert change["sha256"] == changed.sha256 == digest
    shown = command("blame", "a.py", cwd=file.parent).out
    assert (f"  {digest[:10]}  " in shown, digest in shown) == (True, False)


# --- diff


def test_diff_of_a_namespace_lists_what_was_added_removed_and_changed(store):
    for key in ("changed", "kept", "removed"):
        put(store, key)
    start = put(store, "there and back").position
    put(store, "changed", 2, by="bob")
    put(store, "added")
    put(store, "there and back", 2)
    put(store, "there and back", 1)
    end = store.delete("n", "removed", deleted_by="bob").position

    def listed(*moments, **more):
        return [(it.key, it.change) for it in store.diff(*moments, namespace="n", **more).changes]

    expected = [("added", "added"), ("changed", "changed"), ("removed", "removed")]
    assert listed(start) == listed(start, end) == expected
    assert listed(end, start) == [("added", "removed"), ("changed", "changed"), ("removed", "added")]
    assert listed(start, limit=1) == expected[:1]
    by = {
        it.key: (it.updated_by, it.version_before, it.version_after) for it in store.diff(start, namespace="n").changes
    }
    assert by == {"added": ("ann", None, 1), "changed": ("bob", 1, 2), "removed": ("bob", 1, 2)}


def test_diff_of_a_value_names_the_members_that_differ(store):
    put(store, value={"budget": 1000, "ads": ["a"], "note": "x"})
    then = store.get("n", "k").updated_at.isoformat()
    put(store, value={"budget": 2000, "ads": ["a", "b"], "owner": None}, by="bob", reason="May")
    for moments in (("v1", "v2"), (1,), (then, 2)):
        (change,) = store.diff(*moments, namespace="n", key="k").changes
        assert [(it.op, it.path, it.value, it.previous) for it in change.paths] == [
            ("add", "/ads/1", "b", None),
            ("replace", "/budget", 2000, 1000),
            ("remove", "/note", None, "x"),
            ("add", "/owner", None, None),
        ]
        assert (change.change, change.updated_by, change.reason) == ("changed", "bob", "May")
    assert store.diff("v2", "v2", namespace="n", key="k").changes == []


# --- revert


@pytest.fixture
def runs(open_store):
    """A handle of each session, by its name."""
    return {name: open_store(session=name) for name in ("ann", "bad", "boss")}


def revert(store, **fields):
    """What was reverted, and what was kept, each with the reason."""
    done = store.revert(reverted_by="boss", **fields)
    assert all(it.reason for it in done.kept)
    return {it.key for it in done.reverted}, {it.key for it in done.kept}, done


@both_stores
def test_revert_restores_what_was_before_a_session(runs):
    ann, bad, boss = runs["ann"], runs["bad"], runs["boss"]
    for key in ("changed", "deleted", "twice", "other"):
        put(ann, key, {"by": "ann"})
    put(bad, "changed", 1, "bad")
    bad.delete("n", "deleted", deleted_by="bad")
    put(bad, "twice", 1, "bad")
    put(bad, "twice", 2, "bad")
    put(bad, "new", 1, "bad")
    before = boss.list("n").position
    assert revert(boss, session="bad", dry_run=True)[:2] == ({"changed", "deleted", "twice", "new"}, set())
    assert boss.list("n").position == before
    found, kept, done = revert(boss, session="bad", reason="wrong budget")
    assert (found, kept) == ({"changed", "deleted", "twice", "new"}, set())
    assert values(boss) == {key: {"by": "ann"} for key in ("changed", "deleted", "twice", "other")}
    by = author(boss.blame("n", "changed"))
    assert (by.updated_by, by.reason, by.version) == ("boss", "wrong budget", 3)
    revert(boss, correlation_id=done.correlation_id)
    assert values(boss) == {"changed": 1, "twice": 2, "new": 1, "other": {"by": "ann"}}


@both_stores
def test_revert_never_overwrites_what_others_wrote_or_hold(runs):
    ann, bad, boss = runs["ann"], runs["bad"], runs["boss"]
    for key in ("claimed", "guarded", "own"):
        put(ann, key, "before")
    put(bad, "written", 1, "bad")
    put(ann, "written", 2)
    put(bad, "gone", 1, "bad")
    ann.delete("n", "gone", deleted_by="ann")
    put(bad, "between", 1, "bad")
    put(ann, "between", [1, "ann"])
    put(bad, "between", 3, "bad")
    grant = bad.claim("src/a.py", agent="bad").version
    put(bad, "guarded", 2, "bad", guard=[{"resource": "src/a.py", "version": grant}])
    bad.release("src/a.py", agent="bad")
    for key in ("claimed", "own"):
        put(bad, key, 2, "bad")
    for agent, resource in (("bob", "custom://n/claimed"), ("bob", "src/")):
        assert ann.claim(resource, agent=agent).status == "claimed"
    before = values(boss)
    found, kept, _ = revert(boss, session="bad")
    assert (found, kept) == ({"own"}, {"written", "gone", "between", "claimed", "guarded"})
    assert values(boss) == before | {"own": "before"}
    assert [it.kind for it in boss.events(boss.list("n").position - 1).events] == ["ValueWritten"]


@both_stores
def test_revert_is_restricted_to_an_agent_a_namespace_and_a_time(open_store):
    store = open_store(session="shared")
    for by, key in (("claude", "a"), ("claude/tests", "b"), ("other", "c")):
        put(store, key, 1, by)
    store.set("m", "d", 1, updated_by="claude")
    assert revert(store, session="shared", agent="claude/tests")[0] == {"b"}
    assert revert(store, session="shared", agent="claude", namespace="m")[0] == {"d"}
    late = store.get("n", "a").updated_at + timedelta(microseconds=1)
    put(store, "e", 1, "claude")
    assert revert(store, session="shared", agent="claude", since=late.isoformat())[0] == {"e"}
    assert values(store) == {"a": 1, "c": 1}
    assert revert(store, session="nobody")[:2] == (set(), set())


@both_stores
def test_revert_under_a_correlation_id_and_its_repeat_are_done_once(open_store):
    task = open_store(correlation_id="task-7")
    put(task, "k", 1)
    put(task, "new", 2)
    boss = open_store()
    first = revert(boss, correlation_id="task-7", request_id="r-1")
    count = boss.list("n").position
    assert first[0] == revert(boss, correlation_id="task-7", request_id="r-1")[0] == {"k", "new"}
    assert (values(boss), boss.list("n").position) == ({}, count)


@in_file
def test_revert_without_a_clear_run_is_refused(store):
    put(store)
    run = {"session": "s"}
    wrong = ({"correlation_id": "c"}, {"session": " "}, {"since": "yesterday"}, {"since": "2999-01-01T00:00:00Z"})
    for fields in ({}, {"agent": "ann"}, *(run | it for it in wrong)):
        with pytest.raises(holdlog.InvalidError):
            store.revert(reverted_by="boss", **fields)
    assert values(store) == {"k": 1}
