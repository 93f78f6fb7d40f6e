"""Values over MCP beyond agenthold's tools: update, transact, guard."""

import itertools

import pytest

NUMBERS = itertools.count()
pytestmark = pytest.mark.xdist_group("stdio")


@pytest.fixture
def agent(open_stdio):
    return open_stdio


@pytest.fixture
def at():
    return {"namespace": f"n{next(NUMBERS)}", "key": "k"}


def update(agent, at, **more):
    return agent.call("update", **at, updated_by="ann", **more)


def has(response, **fields):
    assert response | fields == response
    return response


def test_update_is_decided_by_the_server(agent, at):
    done = update(agent, at, increment=2)
    has(done, status="ok", **at, value=2, version=1, previous_version=None)
    assert done["position"] >= 1
    has(update(agent, at, merge={"a": {"b": 1}}), value={"a": {"b": 1}}, version=2, previous_version=1)
    has(update(agent, at, merge={"a": {"b": None}}), value={"a": {}})
    has(update(agent, at | {"key": "list"}, append="x"), value=["x"], version=1)
    has(update(agent, at | {"key": "list"}, append="x", unique=True), value=["x"], version=1)
    conflict = update(agent, at, merge={}, expected_version=1)
    has(conflict, status="conflict", expected_version=1, actual_version=3, actual_value={"a": {}})
    assert conflict["hint"]


def test_update_that_does_not_apply_is_an_error_that_shows_no_value(agent, at):
    agent.call("set", **at, value="secret", updated_by="ann", expected_version=0)
    for change in ({"increment": 1}, {"append": 1}, {}, {"increment": 1, "append": 1}):
        assert "secret" not in agent.error("update", **at, updated_by="ann", **change)
    has(agent.call("get", **at), version=1)


def test_transact_does_all_or_nothing(agent, at):
    steps = [
        {"op": "set", **at, "value": 1, "expected_version": 0},
        {"op": "increment", **at, "by": 2},
        {"op": "append", **at, "key": "list", "value": "x"},
        {"op": "check", **at, "key": "none", "expected_version": 0},
    ]
    done = agent.call("transact", operations=steps, updated_by="ann")
    assert done["results"] == [
        {**at, "version": 1},
        {**at, "version": 2, "value": 3},
        {**at, "key": "list", "version": 1, "value": ["x"]},
        {**at, "key": "none", "version": 0},
    ]
    conflict = agent.call("transact", operations=[steps[2], steps[0]], updated_by="ann")
    has(conflict, status="conflict", operation=1, **at, expected_version=0, actual_version=2, actual_value=3)
    error = agent.error("transact", operations=[steps[1], {"op": "incr", **at, "by": 1}], updated_by="ann")
    assert "operations[1]" in error
    error = agent.error("transact", operations=[{"op": "set", **at}, {**steps[1], "to": 1}], updated_by="ann")
    assert ("operations[0]: value: is required" in error, "to:" in error) == (True, False), "it is of another step"
    has(agent.call("get", **at), version=2, value=3)


def test_guarded_write_is_fenced_after_the_claim_ended(agent, at):
    resource = f"custom://{at['namespace']}"
    claim = agent.call("claim", resource=resource, agent="ann")
    guard = [{"resource": resource, "version": claim["version"]}]
    has(update(agent, at, increment=1, guard=guard), status="ok")
    agent.call("release", resource=resource, agent="ann")
    write = {**at, "updated_by": "ann", "guard": guard}
    fenced = [
        agent.call("set", **write, value=1, force=True),
        agent.call("update", **write, increment=1),
        agent.call("transact", operations=[{"op": "increment", **at, "by": 1}], updated_by="ann", guard=guard),
        agent.call("delete", **at, deleted_by="ann", force=True, guard=guard),
    ]
    for response in fenced:
        has(response, status="fenced", resource=resource, version=claim["version"])
        assert response["hint"]
    has(agent.call("get", **at), version=1)


# --- arguments
