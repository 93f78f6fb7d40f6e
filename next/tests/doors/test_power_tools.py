"""Values over MCP beyond agenthold's tools: update, transact, guard, request ids, and the rules for arguments."""

import itertools

import pytest

from tests.doors.old import changes_in_02
from tests.support.mcp import Stdio

NUMBERS = itertools.count()
pytestmark = pytest.mark.xdist_group("power tools")  # one server, in one worker


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """A server that the tests of a worker share: each uses a namespace of its own."""
    folder = tmp_path_factory.mktemp("power")
    client = Stdio("--db", folder / "state.db", "--tools", "claims,state,power", "--max-wait", "0.3", cwd=folder)
    yield client
    client.kill()


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


def test_request_id_of_a_call_makes_it_repeatable(agent, at):
    meta = {"holdlog/request_id": at["namespace"]}
    call = {**at, "increment": 1, "updated_by": "ann"}
    first = agent.call("update", _meta=meta, **call)
    assert agent.call("update", _meta=meta, **call) == first
    assert "request_id" in agent.error("update", _meta=meta, **call | {"increment": 2})
    has(agent.call("get", **at), version=1, value=1)


def test_longer_waits_are_cut_at_the_cap_and_say_so(agent, at):
    timeout = agent.call("watch", **at, since_version=0, timeout_seconds=3600)
    has(timeout, status="timeout", capped_at_seconds=0.3)
    assert "capped_at_seconds" not in agent.call("watch", **at, since_version=0, timeout_seconds=0.01)


# --- arguments


@changes_in_02("null means left out for every optional argument")
def test_null_for_an_optional_argument_means_left_out(agent, at):
    nulls = {"ttl_seconds": None, "guard": None, "reason": None, "force": None}
    has(agent.call("set", **at, value=None, updated_by="ann", expected_version=0, **nulls), status="ok", version=1)
    has(agent.call("list", namespace=at["namespace"], prefix=None, limit=None, after_key=None, deleted=None), count=1)
    assert agent.call("get", **at)["value"] is None


@changes_in_02("integral floats and arguments as text are read where the schema leaves no doubt")
def test_integral_floats_and_arguments_as_text_are_read(agent, at):
    has(agent.call("set", **at, value="5", updated_by="ann", expected_version=0.0), status="ok")
    has(agent.call("set", **at, value="6", updated_by="ann", expected_version="1"), status="ok", version=2)
    has(agent.call("set", **at, value="7", updated_by="ann", force="true"), status="ok", version=3)
    has(agent.call("get", **at), value="7")
    has(agent.call("watch", **at, since_version="3", timeout_seconds="0.01"), status="timeout", since_version=3)
    steps = f'[{{"op": "increment", "namespace": "{at["namespace"]}", "key": "n", "by": 2}}]'
    has(agent.call("transact", operations=steps, updated_by="ann"), status="ok")


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("set", {"value": 1, "updated_by": "ann", "expected_version": -1}, "expected_version"),
        ("set", {"value": 1, "updated_by": "ann", "expected_version": 0.5}, "expected_version"),
        ("set", {"value": 1, "updated_by": "ann", "expected_version": 0, "ttl_seconds": 0}, "ttl_seconds"),
        ("set", {"updated_by": "ann", "expected_version": 0}, "value"),
        ("set", {"value": 1, "expected_version": 0}, "updated_by"),
        ("set", {"value": 1, "updated_by": "ann", "expected_version": 0, "expectd": 1}, "expectd"),
        ("set", {"value": 1, "updated_by": "a\nb", "expected_version": 0}, "updated_by"),
        ("history", {"limit": 0}, "limit"),
        ("history", {"limit": 1001}, "limit"),
        ("watch", {"since_version": "x"}, "since_version"),
        ("watch", {"since_version": 0, "timeout_seconds": -1}, "timeout_seconds"),
        ("update", {"updated_by": "ann", "increment": "x"}, "increment"),
        ("transact", {"operations": [], "updated_by": "ann"}, "operations"),
    ],
)
def test_bad_argument_is_refused_by_its_name(agent, at, tool, arguments, named):
    where = {} if tool == "transact" else at
    assert named in agent.error(tool, **where, **arguments)
    has(agent.call("list", namespace=at["namespace"]), count=0)


def schemas(node):
    """All objects within a schema."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from schemas(value)


@pytest.fixture
def inputs(agent):
    return {name: tool["inputSchema"] for name, tool in agent.tools().items()}


@changes_in_02("every array has items")
def test_schemas_are_plain_enough_for_every_host(inputs):
    for name, schema in inputs.items():
        assert schema["type"] == "object"
        for part in schemas(schema):
            assert not {"$ref", "$defs", "oneOf"} & part.keys(), name
            assert part.get("anyOf") is None or len(part["anyOf"]) > 2, name  # only where any JSON is meant
            assert not isinstance(part.get("type"), list), name
            assert part.get("type") != "array" or "items" in part, name


def test_every_tool_is_annotated_and_has_an_object_as_output(agent):
    for name, tool in agent.tools().items():
        hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
        assert hints <= tool["annotations"].keys(), name
        assert tool["outputSchema"]["type"] == "object"
    assert agent.tools()["get"]["annotations"]["readOnlyHint"] is True
    assert agent.tools()["clear_namespace"]["annotations"]["destructiveHint"] is True


def test_output_schema_has_the_enum_of_status_alone(agent):
    for tool in agent.tools().values():
        assert list(tool["outputSchema"]["properties"]) == ["status"]
        assert tool["outputSchema"]["properties"]["status"]["enum"]
