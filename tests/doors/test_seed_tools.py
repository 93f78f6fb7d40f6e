"""agenthold's four and eight tools over stdio, field by field, as its README shows them."""

import itertools
import re

import pytest

CLAIMS = {"claim", "release", "status", "wait"}
VALUES = {"get", "set", "list", "history", "delete", "clear_namespace", "export", "watch"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
NUMBERS = itertools.count()
pytestmark = pytest.mark.xdist_group("stdio")


@pytest.fixture
def agent(open_stdio):
    return open_stdio


@pytest.fixture
def at():
    """A namespace of the test's own, and a key."""
    return {"namespace": f"order-{next(NUMBERS)}", "key": "status"}


@pytest.fixture
def ann():
    return {"resource": f"intro-{next(NUMBERS)}.md", "agent": "writer-1"}


@pytest.fixture
def ben(ann):
    return ann | {"agent": "writer-2"}


def require(response, **fields):
    """These fields are as given; more may follow. TIME stands for any time, float for seconds, int for a position."""
    for name, value in fields.items():
        if value is TIME:
            assert TIME.fullmatch(response[name])
        elif value in (int, float):
            assert response[name] >= 0
        else:
            assert response[name] == value
    return response


def require_hint(response, *words):
    """Advice in a few words, none of which is to force, clear, delete or create anything again (promise 13)."""
    assert 10 < len(response["hint"]) <= 200
    assert not re.search(r"force|clear|delete|re-?create", response["hint"])
    assert [word for word in words if word not in response["hint"]] == []


def put(agent, at, value, expected_version, updated_by="intake-agent", **more):
    at = at | more
    return agent.call("set", **at, value=value, updated_by=updated_by, expected_version=expected_version)


# --- which tools there are


@pytest.mark.parametrize(
    ("options", "tools"),
    [
        ((), CLAIMS),
        pytest.param(("--tools", "standard"), CLAIMS, marks=pytest.mark.rest),
        pytest.param(
            ("--tools", "advanced"),
            VALUES,
            marks=pytest.mark.rest,
        ),
        pytest.param(("--tools", "claims,state"), CLAIMS | VALUES, marks=pytest.mark.rest),
    ],
)
def test_tools_option_selects_the_tools(stdio, options, tools):
    agent = stdio(*options)
    assert set(agent.tools()) == tools
    assert bool(agent.opening.get("instructions")) == bool(tools & CLAIMS)


def test_descriptions_fit_the_budget(agent):
    assert all(20 < len(tool["description"].encode()) <= 1000 for tool in agent.tools().values())
    assert len(agent.opening["instructions"].encode()) <= 2000


@pytest.mark.rest
def test_all_groups_together_have_at_most_22_tools(stdio):
    assert set(agent_tools := stdio("--tools", "all").tools()) > CLAIMS | VALUES
    assert len(agent_tools) <= 22


@pytest.mark.parametrize("prefix", ["agenthold_", pytest.param("", marks=pytest.mark.rest)])
def test_prefix_makes_the_server_a_drop_in_replacement(stdio, prefix, at, ann, ben):
    agent = stdio("--tools", "claims,state", "--tool-prefix", prefix, prefix=prefix)
    listed = agent.ask("tools/list")["tools"]
    assert {tool["name"] for tool in listed} == {prefix + name for name in CLAIMS | VALUES}
    agent.call("claim", **ann)
    put(agent, at, 1, 0)
    refused = [
        agent.call("claim", **ben),
        agent.call("wait", resource=ann["resource"], timeout_seconds=0),
        put(agent, at, 1, 0),
        agent.call("watch", **at, since_version=1, timeout_seconds=0),
    ]
    assert all(it["hint"] for it in refused)
    assert "holdlog_" not in str((listed, refused, agent.opening["instructions"]))


@pytest.mark.rest
def test_store_in_memory_creates_no_file(stdio, at, tmp_path):
    (tmp_path / "empty").mkdir()
    agent = stdio("--db", ":memory:", "--tools", "advanced", cwd=tmp_path / "empty")
    assert put(agent, at, 1, 0)["version"] == 1
    assert agent.call("get", **at)["value"] == 1
    assert list((tmp_path / "empty").iterdir()) == []


def test_file_is_created_on_the_first_run_and_its_values_and_waits_are_shared(stdio, at, ann, db):
    one, two = servers = stdio("--tools", "claims,state"), stdio("--tools", "claims,state")
    put(one, at, "received", 0)
    assert two.call("get", **at)["value"] == "received"
    assert db.is_file()
    one.call("claim", **ann)
    waiting = [it.start("wait", resource=ann["resource"], timeout_seconds=30) for it in servers]
    one.call("release", **ann)
    for server, number in zip(servers, waiting, strict=True):
        done = server.finish(number)
        require(done, status="available", resource=ann["resource"], elapsed_seconds=float)


# --- claims


def test_claim_is_granted_once_and_repeated_as_already_claimed(agent, ann):
    granted = require(agent.call("claim", **ann), status="claimed", resource=ann["resource"], version=1, position=int)
    require(granted, expires_at=TIME, expires_in_seconds=float)
    again = agent.call("claim", **ann)
    require(again, status="already_claimed", resource=ann["resource"], version=1, claimed_at=TIME, expires_at=TIME)


def test_second_agent_is_busy(agent, ann, ben):
    agent.call("claim", **ann)
    busy = agent.call("claim", **ben)
    require(busy, status="busy", resource=ann["resource"], held_by="writer-1", claimed_at=TIME, version=1)
    require(busy, held_for_seconds=float, expires_in_seconds=float, queue_length=0)
    require_hint(busy, "wait_seconds")


def test_release_frees_the_resource_for_the_next_agent(agent, ann, ben):
    agent.call("claim", **ann)
    require(agent.call("release", **ann), status="released", resource=ann["resource"], version=2)
    require(agent.call("release", **ann), status="already_free")
    require(agent.call("claim", **ben), status="claimed", version=3, previous_holder="writer-1")


def test_release_by_others_and_of_unknown_names_changes_nothing(agent, ann, ben):
    agent.call("claim", **ann)
    require_hint(require(agent.call("release", **ben), status="not_holder", held_by="writer-1"))
    require(agent.call("release", resource="never.md", agent="writer-1"), status="not_found")
    require(agent.call("status", resource=ann["resource"]), held_by="writer-1")


def test_status_shows_available_and_claimed(agent, ann):
    assert agent.call("status", resource=ann["resource"]) == {"status": "available", "resource": ann["resource"]}
    agent.call("claim", **ann)
    held = agent.call("status", resource=ann["resource"])
    require(held, status="claimed", resource=ann["resource"], held_by="writer-1", claimed_at=TIME, version=1)
    require(held, mode="exclusive", held_for_seconds=float, expires_at=TIME, expires_in_seconds=float, queue_length=0)


def test_wait_times_out_with_the_holder(agent, ann):
    agent.call("claim", **ann)
    timeout = agent.call("wait", resource=ann["resource"], timeout_seconds=0.05)
    require(
        timeout, status="timeout", resource=ann["resource"], held_by="writer-1", claimed_at=TIME, held_for_seconds=float
    )
    assert timeout["elapsed_seconds"] >= 0.05
    require_hint(timeout)


# --- values


def test_get_returns_the_value_or_not_found(agent, at):
    require(agent.call("get", **at), status="not_found", **at)
    for version, value in enumerate(["received", "validated", "processing"]):
        put(agent, at, value, version)
    read = agent.call("get", **at)
    require(read, status="ok", **at, value="processing", version=3, updated_by="intake-agent", updated_at=TIME)
    agent.call("delete", **at, deleted_by="cleanup-agent", expected_version=3)
    gone = agent.call("get", **at)
    require(gone, status="not_found", version=4, deleted_by="cleanup-agent", deleted_at=TIME)


def test_set_writes_with_the_version_that_was_read(agent, at):
    require(put(agent, at, "received", 0), status="ok", **at, version=1, previous_version=None, position=int)
    require(put(agent, at, "shipped", 1), status="ok", **at, version=2, previous_version=1, position=int)


@pytest.mark.parametrize("expected", [0, 1, 9])
def test_set_with_another_version_is_a_conflict(agent, at, expected):
    put(agent, at, "received", 0)
    put(agent, at, "shipped", 1, updated_by="logistics-agent")
    conflict = put(agent, at, "returned", expected)
    require(conflict, status="conflict", **at, expected_version=expected, actual_version=2, actual_value="shipped")
    require(conflict, actual_updated_by="logistics-agent", actual_updated_at=TIME)
    require_hint(conflict, "expected_version=2")
    require(agent.call("get", **at), value="shipped", version=2)


def test_conflict_on_a_missing_key_has_version_0(agent, at):
    missing = require(put(agent, at, 1, 3), status="conflict", expected_version=3, actual_version=0)
    require_hint(missing)


def test_force_writes_and_deletes_whatever_the_version_is(agent, at):
    put(agent, at, 1, 0)
    written = agent.call("set", **at, value=2, updated_by="a", force=True, expected_version=9)
    require(written, status="ok", version=2, previous_version=1)
    deleted = agent.call("delete", **at, deleted_by="a", force=True, expected_version=9)
    require(deleted, status="ok", deleted_version=2)


@pytest.mark.parametrize(("tool", "more"), [("set", {"value": 1, "updated_by": "a"}), ("delete", {"deleted_by": "a"})])
def test_write_needs_expected_version_or_force(agent, at, tool, more):
    assert "expected_version" in agent.error(tool, **at, **more)


def test_list_shows_the_records_of_a_namespace_by_key(agent, at):
    for key, value in {"total": 80.99, "reserved": True, "status": None}.items():
        put(agent, at, value, 0, key=key)
    put(agent, at, "new", 1)
    listed = require(agent.call("list", namespace=at["namespace"]), status="ok", namespace=at["namespace"], count=3)
    rows = [("reserved", True, 1), ("status", "new", 2), ("total", 80.99, 1)]
    assert [(it["key"], it["value"], it["version"]) for it in listed["records"]] == rows
    require(listed["records"][0], updated_by="intake-agent", updated_at=TIME)
    require(agent.call("list", namespace="empty"), status="ok", count=0, records=[])
    assert {"namespace": at["namespace"], "count": 3} in agent.call("list")["namespaces"]


def test_history_is_newest_first_with_tombstones(agent, at):
    for version, value in enumerate(["received", "validated", "processing"]):
        put(agent, at, value, version)
    agent.call("delete", **at, deleted_by="cleanup-agent", expected_version=3)
    history = require(agent.call("history", **at, limit=3), status="ok", **at)["history"]
    assert [(it["version"], it["value"], it["event_type"], it["updated_by"]) for it in history] == [
        (4, None, "delete", "cleanup-agent"),
        (3, "processing", "write", "intake-agent"),
        (2, "validated", "write", "intake-agent"),
    ]
    require(history[0], updated_at=TIME, position=int)
    require(agent.call("history", namespace=at["namespace"], key="never"), status="ok", history=[])


def test_delete_needs_the_current_version_and_leaves_a_tombstone(agent, at):
    put(agent, at, 1, 0)
    conflict = agent.call("delete", **at, deleted_by="cleanup-agent", expected_version=4)
    require_hint(require(conflict, status="conflict", expected_version=4, actual_version=1, actual_value=1))
    deleted = agent.call("delete", **at, deleted_by="cleanup-agent", expected_version=1)
    require(deleted, status="ok", **at, deleted_by="cleanup-agent", deleted_version=1, version=2, position=int)
    require(agent.call("delete", **at, deleted_by="cleanup-agent", expected_version=1), status="not_found")
    require(put(agent, at, 2, 0), status="ok", version=3, previous_version=None)


def test_export_has_live_records_with_their_histories(agent, at):
    for version, value in enumerate(["received", "processing", "shipped"]):
        put(agent, at, value, version)
    put(agent, at, 1, 0, key="items")
    put(agent, at, 1, 0, key="old")
    agent.call("delete", namespace=at["namespace"], key="old", deleted_by="cleanup-agent", expected_version=1)
    export = agent.call("export", namespace=at["namespace"])
    require(export, status="ok", namespace=at["namespace"], exported_at=TIME, record_count=2, history_count=4)
    assert [it["key"] for it in export["records"]] == ["items", "status"]
    status = require(export["records"][1], value="shipped", version=3, updated_by="intake-agent", updated_at=TIME)
    assert [(it["version"], it["value"], it["event_type"]) for it in status["history"]] == [
        (3, "shipped", "write"),
        (2, "processing", "write"),
        (1, "received", "write"),
    ]
    require(status["history"][0], updated_by="intake-agent", updated_at=TIME)


def test_watch_returns_the_next_value(agent, at):
    watching = agent.start("watch", **at, since_version=0, timeout_seconds=30)
    put(agent, at, {"score": 0.92}, 0, updated_by="agent-a")
    changed = agent.finish(watching)
    require(changed, status="ok", **at, value={"score": 0.92}, version=1, updated_by="agent-a", updated_at=TIME)


def test_watch_returns_a_deletion(agent, at):
    put(agent, at, 1, 0)
    watching = agent.start("watch", **at, since_version=1, timeout_seconds=30)
    agent.call("delete", **at, deleted_by="cleanup-agent", expected_version=1)
    require(agent.finish(watching), status="deleted", version=2, deleted_by="cleanup-agent", deleted_at=TIME)


def test_watch_times_out_with_the_version_to_watch_from(agent, at):
    timeout = agent.call("watch", **at, since_version=0, timeout_seconds=0.05)
    require(timeout, status="timeout", **at, since_version=0)
    assert timeout["elapsed_seconds"] >= 0.05
    require_hint(timeout, "since_version=0")


def test_clear_namespace_deletes_all_its_keys_at_once(agent, at):
    for key in ("total", "items", "status"):
        put(agent, at, 1, 0, key=key)
    put(agent, at, 1, 0, namespace="other")
    cleared = agent.call("clear_namespace", namespace=at["namespace"], deleted_by="cleanup-agent")
    require(cleared, status="ok", namespace=at["namespace"], deleted_count=3, deleted_keys=["items", "status", "total"])
    require(cleared, deleted_by="cleanup-agent", position=int)
    require(agent.call("history", **at)["history"][0], event_type="delete", value=None, updated_by="cleanup-agent")
    again = agent.call("clear_namespace", namespace=at["namespace"], deleted_by="cleanup-agent")
    require(again, status="ok", deleted_count=0, deleted_keys=[])
    require(agent.call("list", namespace="other"), count=1)
