"""Bad arguments over raw lines to a real server: the right refusal each time, nothing stored, the server unharmed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from tests.support.agent import message_of
from tests.support.malformed import HOLE
from tests.support.wire import Wire, text_of

AT = {"namespace": "n", "key": "k"}
FORCED = {**AT, "value": 1, "updated_by": "a", "force": True}
CLAIM = {"resource": "a.md", "version": 1}


@pytest.fixture(
    params=[pytest.param(era, marks=pytest.mark.xdist_group(f"input-{era}")) for era in ("legacy", "modern")]
)
def server(request: pytest.FixtureRequest) -> Wire:
    wire: Wire = request.getfixturevalue(f"{request.param}_server")
    return wire


@pytest.fixture
def untouched(input_store: Path) -> Iterator[None]:
    """Nothing is stored by what the test does."""
    with StateStore(input_store) as library:
        before = library.list_records("n").position
        yield
        assert library.list_records("n").position == before


def refusal(server: Wire, tool: str, hole: bytes = HOLE, **arguments: Any) -> str:
    """The message of the error that answers a call with these bytes in its hole."""
    server.send(server.call(f"holdlog_{tool}", 1, **arguments).replace(HOLE, hole))
    answer = server.answer()
    assert answer["id"] == 1
    assert answer["result"]["isError"] is True, answer
    assert "structuredContent" not in answer["result"]
    message = message_of(text_of(answer))
    assert "SECRET" not in message
    assert len(message) <= 300
    return message


NAMED = {'"\\u2003"': "U+2003 EM SPACE", '"\\u202eSECRET"': "U+202E RIGHT-TO-LEFT OVERRIDE"}
"""How a refusal of an agent or a new claim names the character; keys and namespaces have another rule."""


@pytest.mark.check
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ('""', "blank"),
        ('"  "', "blank"),
        ('"\\u2003"', "blank"),
        ('" SECRET"', "blank"),
        ('"SECRET\\n"', "control"),
        ('"SEC\\u0000RET"', "control"),
        ('"\\u202eSECRET"', "direction"),
        ('"\\ud800"', "surrogate"),
        ('"' + "x" * 513 + '"', "characters"),
        ('"' + "x" * 1_000_000 + '"', "characters"),
        ("5", "string"),
        ("null", "string"),
        ('["SECRET"]', "string"),
        ('{"SECRET":1}', "string"),
    ],
    ids=lambda case: case[:20],
)
def test_invalid_name_is_refused_in_every_argument(server: Wire, name: str, why: str) -> None:
    write = {**AT, "value": 1, "updated_by": "ann", "expected_version": 0}
    for tool, arguments in [
        ("set", write | {"namespace": "HOLE"}),
        ("set", write | {"key": "HOLE"}),
        ("set", write | {"updated_by": "HOLE"}),
        ("get", AT | {"key": "HOLE"}),
        ("delete", AT | {"deleted_by": "HOLE", "force": True}),
        ("clear_namespace", {"namespace": "HOLE", "deleted_by": "ann"}),
        ("export", {"namespace": "HOLE"}),
        ("history", AT | {"namespace": "HOLE"}),
        ("watch", AT | {"namespace": "HOLE", "since_version": 0}),
        ("claim", {"resource": "HOLE", "agent": "ann"}),
        ("claim", {"resource": "a.md", "agent": "HOLE"}),
        ("claim", {"resource": "a.md", "agent": "ann", "also": ["b.md", "HOLE"]}),
        ("claim", {"resource": "a.md", "agent": "ann", "alternatives": ["HOLE"]}),
        ("release", {"resource": "a.md", "agent": "ann", "also": ["HOLE"]}),
        ("release", {"resource": "HOLE", "agent": "ann"}),
        ("status", {"resource": "HOLE"}),
        ("wait", {"resource": "HOLE"}),
    ]:
        if name == "null" and tool in ("release", "status"):
            continue  # null is left out: everything
        message = refusal(server, tool, name.encode(), **arguments)
        assert why in message or "blank" in message or f"must not contain {NAMED.get(name)}" in message, (tool, message)
        if "surrogate" not in message:
            assert message.startswith(next(name for name, hole in arguments.items() if "HOLE" in str(hole)))


@pytest.mark.check
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("tool", "arguments", "argument"),
    [
        ("history", {**AT, "limit": 2**70}, "limit"),
        ("history", {**AT, "limit": 0}, "limit"),
        ("history", {**AT, "limit": True}, "limit"),
        ("history", {**AT, "before_version": 2**70}, "before_version"),
        ("list", {"namespace": "n", "limit": -1}, "limit"),
        ("list", {"limit": 1001}, "limit"),
        ("set", {**AT, "value": 1, "updated_by": "a", "expected_version": 2**70}, "expected_version"),
        ("set", {**AT, "value": 1, "updated_by": "a", "expected_version": -1}, "expected_version"),
        ("set", {**AT, "value": 1, "updated_by": "a", "expected_version": "0"}, "expected_version"),
        ("set", {**AT, "value": 1, "updated_by": "a", "expected_version": 0.5}, "expected_version"),
        ("set", {**AT, "value": 1, "updated_by": "a", "force": "yes"}, "force: must be true or false"),
        ("set", {**AT, "value": 1, "updated_by": "a", "force": True, "reason": ""}, "reason"),
        ("set", {**AT, "value": 1, "updated_by": "a", "force": True, "reason": "x" * 501}, "reason"),
        ("set", {**AT, "updated_by": "a", "expected_version": 0}, "value"),
        ("set", {**AT, "value": 1, "updated_by": "a", "expected_version": 0, "colour": 1}, "colour"),
        ("delete", {**AT, "deleted_by": "a", "expected_version": 2**63}, "expected_version"),
        ("watch", {**AT, "since_version": -1}, "since_version"),
        ("watch", {**AT, "since_version": 2**70}, "since_version"),
        ("watch", {**AT, "since_version": 0, "timeout_seconds": -1}, "timeout_seconds"),
        ("watch", {**AT, "since_version": 0, "timeout_seconds": "1"}, "timeout_seconds"),
        ("wait", {"resource": "a.md", "timeout_seconds": True}, "timeout_seconds"),
        ("claim", {"resource": "../../etc/passwd", "agent": "a"}, "resource"),
        ("claim", {"resource": "/", "agent": "a"}, "resource"),
        ("claim", {"resource": "./", "agent": "a"}, "resource"),
        ("claim", {"resource": "custom://", "agent": "a"}, "resource"),
        ("claim", {"resource": "file://nowhere/a.md", "agent": "a"}, "resource"),
        ("claim", {"resource": "/nowhere/a.md", "agent": "a"}, "resource"),
        ("claim", {"resource": "a.md", "agent": "a", "lease_seconds": 0}, "lease_seconds"),
        ("claim", {"resource": "a.md", "agent": "a", "lease_seconds": 86_401}, "lease_seconds"),
        ("claim", {"resource": "a.md", "agent": "a", "lease_seconds": 1e300}, "lease_seconds"),
        ("claim", {"resource": "a.md", "agent": "a", "lease_seconds": "300"}, "lease_seconds"),
        ("claim", {"resource": "a.md", "agent": "a", "wait_seconds": -1}, "wait_seconds"),
        ("claim", {"resource": "a.md", "agent": "a", "wait_seconds": True}, "wait_seconds"),
        ("claim", {"resource": "a.md", "agent": "a", "mode": "SECRET"}, "mode: must be 'exclusive' or 'shared'"),
        ("claim", {"resource": "a.md", "agent": "a", "note": "x" * 501}, "note"),
        ("claim", {"resource": "a.md", "agent": "a", "note": "\x1b[2J"}, "note"),
        ("claim", {"resource": "a.md", "agent": "a", "also": "b.md"}, "also: must be a list"),
        ("claim", {"resource": "a.md", "agent": "a", "also": [f"{n}.md" for n in range(1_000)]}, "also"),
        ("claim", {"resource": "a.md", "agent": "a", "alternatives": [f"{n}.md" for n in range(100)]}, "alternatives"),
        ("claim", {"resource": "a.md", "agent": "a", "also": ["b"], "alternatives": ["c"]}, "alternatives"),
        ("release", {"resource": "a.md", "agent": "a", "outcome": "SECRET"}, "outcome"),
        ("release", {"resource": "a.md", "agent": "a", "outcome": "moved"}, "moved_to: is required"),
        ("release", {"resource": "a.md", "agent": "a", "moved_to": "b.md"}, "moved_to: is only allowed with"),
        ("release", {"resource": "a.md", "agent": "a", "outcome": "moved", "moved_to": "../b"}, "moved_to"),
        ("release", {"agent": "a", "also": ["b.md"]}, "also"),
        ("release", {"resource": "a.md"}, "agent"),
        ("status", {"resource": "a.md", "version": -1}, "version"),
        ("status", {"agent": " "}, "agent"),
        ("status", {"version": 1}, "version: requires resource"),
        ("set", FORCED | {"guard": [{"resource": "a.md"}]}, "guard"),
        ("set", FORCED | {"guard": ["SECRET"]}, "guard[0]: must be an object"),
        ("set", FORCED | {"guard": [CLAIM, {"resource": "../a", "version": 1}]}, "guard[1].resource: must"),
        ("set", FORCED | {"guard": [{"resource": "a", "version": "1"}]}, "guard[0].version: must be a whole number"),
        ("set", FORCED | {"guard": [CLAIM] * 101}, "guard: must have at most 100 entries"),
        ("register", {"agent": "a"}, "name"),
        ("register", {"agent": "a", "purpose": "x" * 501}, "purpose"),
        ("claim", {"resource": "ftp://SECRET", "agent": "a"}, "resource"),
        ("claim", {"resource": "a.md"}, "agent"),
        ("claim", {"resource": "a.md", "agent": "x" * 129}, "agent"),
        ("claim", {"resource": "a.md", "agent": "a", "colour": "SECRET"}, "colour"),
        ("claim", {}, "resource"),
        ("get", {**AT, "colour": None}, "colour"),
    ],
)
def test_arguments_out_of_range_wrong_missing_or_unknown_are_refused_by_name(
    server: Wire, tool: str, arguments: dict[str, Any], argument: str
) -> None:
    assert refusal(server, tool, **arguments).startswith(argument)


@pytest.mark.check
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("seconds", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1", b"null", b'""'])
def test_wait_without_a_finite_timeout_is_refused(server: Wire, seconds: bytes) -> None:
    assert "timeout_seconds" in refusal(server, "wait", seconds, resource="a.md", timeout_seconds="HOLE")
    assert "timeout_seconds" in refusal(server, "watch", seconds, **AT, since_version=0, timeout_seconds="HOLE")


@pytest.mark.parametrize("arguments", [b"5", b"[1]", b'"SECRET"', b"true"])
def test_arguments_that_are_not_an_object_are_an_error_of_the_request(server: Wire, arguments: bytes) -> None:
    server.send(server.message("tools/call", {"name": "holdlog_get", "arguments": "HOLE"}).replace(HOLE, arguments))
    answer = server.answer()
    assert answer["error"]["code"] == -32602
    assert "SECRET" not in json.dumps(answer)
    assert "pydantic" not in json.dumps(answer)


def test_tools_that_do_not_exist_are_answered_as_errors(server: Wire) -> None:
    for name in ("nope", "", "claim", "x" * 1000, "\x1b[2J", "0123456789abcdef_claim"):
        server.send(server.message("tools/call", {"name": name, "arguments": {}}))
        assert message_of(text_of(server.answer())).startswith("unknown tool; ")


@pytest.mark.parametrize(
    "value",
    [
        {"_type_": "holdlog.domain.record:ValueWritten", "_data_": {}},
        {"__class__": "os.system", "__reduce__": ["ls"]},
        {"py/object": "os.system"},
        {"$ref": "#/x", "$schema": "y"},
        {"status": "error", "result": {"a": 1}},
        [{"_data_": "x", "_type_": "datetime_iso"}],
        {"": {"": ""}},
        10**30,
        -0.0,
        1.0,
        1e-320,
        "\u0000\u2028\u202e😀",
        "e\u0301",
        [],
        {},
        None,
        "x" * 262_142,
        json.loads("[" * 100 + "]" * 100),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_values_over_mcp_read_back_unchanged(server: Wire, value: Any) -> None:
    at = {"namespace": "values", "key": "k"}
    server.send(server.call("holdlog_set", **at, value=value, updated_by="ann", force=True))
    version = server.answer()["result"]["structuredContent"]["version"]
    server.send(server.call("holdlog_get", **at))
    read = server.answer()["result"]["structuredContent"]
    assert (json.dumps(read["value"]), read["version"]) == (json.dumps(value), version)
    server.send(server.call("holdlog_export", namespace="values"))
    exported = server.answer()["result"]["structuredContent"]["records"][0]
    assert json.dumps(exported["value"]) == json.dumps(exported["history"][0]["value"]) == json.dumps(value)
