"""MCP over HTTP in both eras: who is the same agent, waits and their ends, repeated calls, bad requests."""

import json

import pytest
import requests

from tests.support.library import in_thread
from tests.support.mcp import INITIALIZE, LEGACY, MODERN, OverHttp
from tests.support.waiting import PATIENCE, until
from tests.support.wire import Connection, waiters

pytestmark = pytest.mark.xdist_group("http")
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])


@pytest.fixture
def connect(open_server):
    """Opens clients, with headers of their own."""

    def one(era=LEGACY, **headers):
        agent = OverHttp(open_server.url + "/mcp", era)
        agent.http.headers.update({name.replace("_", "-"): text for name, text in headers.items()})
        return agent

    return one


@pytest.fixture
def resource(name):
    return f"custom://{name}"


@ERAS
def test_claim_is_waited_for_and_handed_over(connect, resource, era):
    ann, bob, eve = (connect(era, holdlog_session=f"{resource} {it}") for it in ("ann", "bob", "eve"))
    assert ann.call("claim", resource=resource, agent="ann")["status"] == "claimed"
    queued = in_thread(bob.call, "claim", resource=resource, agent="bob", wait_seconds=30)
    until(lambda: ann.call("status", resource=resource)["queue_length"] == 1)
    noticed = in_thread(eve.call, "wait", resource=resource, timeout_seconds=0)
    assert noticed.result()["status"] == "timeout"
    assert ann.call("release", resource=resource, agent="ann", outcome="modified")["granted_to"] == "bob"
    assert queued.result() | {"status": "claimed", "previous_outcome": "modified"} == queued.result()


def test_both_eras_list_the_same_tools(connect):
    old, new = connect(LEGACY), connect(MODERN)
    assert old.tools() == new.tools()
    assert {"claim", "release", "status", "wait", "get", "set"} <= set(old.tools())
    assert old.opening["instructions"] == new.opening["instructions"]


@ERAS
def test_slash_behind_the_path_of_mcp_changes_nothing(open_server, era):
    """Case 22 of the field: no redirect, which many clients do not follow."""
    agent = OverHttp(open_server.url + "/mcp/", era)
    assert agent.call("list")["status"] == "ok"
    assert agent.post(agent.message("tools/list")).history == []


# --- who is who


def test_clients_of_2025_are_told_apart_by_their_sessions(connect, name, resource):
    one, two = connect(), connect()
    claimed = one.call("claim", resource=resource, agent="ann")
    assert "receipt" not in claimed
    assert claimed["renewal"] == "by your calls only"
    busy = two.call("claim", resource=resource, agent="ann")
    assert (busy["status"], busy["held_by"]) == ("busy", "ann")
    assert "name" in busy["hint"]
    assert two.call("release", resource=resource, agent="ann")["status"] == "not_holder"
    guard = [{"resource": resource, "version": claimed["version"]}]
    write = {"namespace": name, "key": "k", "value": 1, "updated_by": "ann", "force": True, "guard": guard}
    assert [it.call("set", **write)["status"] for it in (two, one)] == ["fenced", "ok"]
    again = one.call("claim", resource=resource, agent="ann")
    assert (again["status"], again["version"]) == ("already_claimed", claimed["version"])


@pytest.mark.parametrize(("era", "way"), [(LEGACY, "meta"), (MODERN, "meta"), (MODERN, "header")])
def test_client_may_name_its_session(connect, resource, era, way):
    def claim(session):
        if way == "header":
            return connect(era, holdlog_session=session).call("claim", resource=resource, agent="ann")
        return connect(era).call("claim", _meta={"holdlog/session": session}, resource=resource, agent="ann")

    assert "receipt" not in claim(f"{resource} one")
    assert claim(f"{resource} two")["status"] == "busy"
    assert claim(f"{resource} one")["status"] == "already_claimed"


def test_client_without_a_session_is_known_by_its_receipt(connect, resource):
    agent, ann = connect(MODERN), {"resource": resource, "agent": "ann"}
    receipt = agent.call("claim", **ann)["receipt"]
    busy = agent.call("claim", **ann)
    assert (busy["status"], busy["same_name"]) == ("busy", True)
    assert "receipt" in busy["hint"]
    assert agent.call("claim", **ann, receipt=receipt)["status"] == "already_claimed"
    assert agent.call("claim", **ann, receipt="another")["status"] == "busy"
    assert agent.call("release", **ann | {"agent": "bob"})["status"] == "not_holder"
    assert agent.call("release", **ann)["status"] == "released"


def test_release_by_name_alone_ends_no_claim_of_a_session(connect, resource):
    connect(MODERN, holdlog_session=resource).call("claim", resource=resource, agent="ann")
    assert connect(MODERN).call("release", resource=resource, agent="ann")["status"] == "not_holder"


def test_claim_over_http_lasts_for_300_s_without_a_call(connect, resource):
    claimed = connect().call("claim", resource=resource, agent="ann")
    assert 290 < claimed["expires_in_seconds"] <= 300


# --- calls that wait


@pytest.mark.parametrize(("era", "gone"), [(LEGACY, "reset"), (MODERN, "reset"), (MODERN, "closed")])
def test_wait_ends_when_its_client_is_gone(open_server, connect, name, era, gone):
    agent = connect(era)
    message = agent.calling("watch", {"namespace": name, "key": "k", "since_version": 0, "timeout_seconds": 200})
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers |= {"mcp-protocol-version": era}
    if era == MODERN:
        headers |= {"mcp-method": "tools/call", "mcp-name": "holdlog_watch"}
    before = waiters(open_server.url)
    connection = Connection(open_server.url)
    connection.send("POST", "/mcp", json.dumps(message).encode(), **headers)
    until(lambda: waiters(open_server.url) == before + 1)
    if gone == "reset":
        connection.reset()
    else:
        connection.socket.close()
    until(lambda: waiters(open_server.url) == before)


def test_client_of_2025_cancels_its_wait(open_server, connect, name):
    agent = connect()
    message = agent.calling("watch", {"namespace": name, "key": "k", "since_version": 0, "timeout_seconds": 200})
    before = waiters(open_server.url)
    waiting = in_thread(agent.post, message)
    until(lambda: waiters(open_server.url) == before + 1)
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": message["id"]}}
    assert agent.post({"jsonrpc": "2.0", **cancelled}).status_code == 202
    until(lambda: waiters(open_server.url) == before)
    assert "structuredContent" not in waiting.result().text


@pytest.mark.rest
@ERAS
def test_wait_reports_its_progress_to_a_client_that_asks(connect, name, era):
    agent = connect(era)
    watch = {"namespace": name, "key": "k", "since_version": 0, "timeout_seconds": 11}
    response = agent.post(agent.calling("watch", watch, {"progressToken": "p"}))
    messages = [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]
    progress = [it["params"]["progressToken"] for it in messages if it.get("method") == "notifications/progress"]
    assert set(progress) == {"p"}
    assert len(progress) >= 2
    assert messages[-1]["result"]["structuredContent"]["status"] == "timeout"


# --- repeated calls


def test_repeated_request_is_done_once(connect, name):
    write = {"namespace": name, "key": "k", "value": 1, "updated_by": "ann", "expected_version": 0}
    meta = {"holdlog/request_id": name}
    first = connect().call("set", _meta=meta, **write)
    assert connect().call("set", _meta=meta, **write) == first
    assert connect(idempotency_key=name).call("set", **write) == first
    assert connect().call("set", **write)["status"] == "conflict"
    assert "request_id" in connect().error("set", _meta=meta, **write | {"value": 2})


# --- bad requests


def test_unknown_tools_and_bad_arguments_are_errors_of_the_call(connect):
    agent = connect(MODERN)
    assert "tool" in agent.error("nothing")
    assert "namespace" in agent.error("get", namespace="", key="k")
    assert agent.error("get", namespace="n", key="k", colour="red")


@ERAS
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"jsonrpc": "2.0", "id": 1', {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[" * 50_000, {}, 400),
        (b"[]", {}, 400),
        (b"7", {}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"accept": "text/html"}, 406),
        (None, {"mcp-protocol-version": "1999-01-01"}, 400),
    ],
)
def test_request_that_is_no_message_gets_a_status_and_an_error(open_server, connect, era, body, headers, status):
    agent = connect(era)
    message = json.dumps(agent.message("tools/list")).encode()
    usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    usual |= {"mcp-protocol-version": era} | ({"mcp-method": "tools/list"} if era == MODERN else {})
    response = requests.post(open_server.url + "/mcp", data=body or message, headers=usual | headers, timeout=PATIENCE)
    assert response.status_code == status
    assert "Traceback" not in response.text
    assert response.text
    assert agent.call("list")["status"] == "ok"


def test_modern_headers_that_contradict_the_message_are_refused(open_server, connect):
    agent = connect(MODERN)
    body = json.dumps(agent.message("tools/list"))
    usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers = usual | {"mcp-protocol-version": MODERN, "mcp-method": "tools/call"}
    response = requests.post(open_server.url + "/mcp", data=body, headers=headers, timeout=PATIENCE)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


def test_unknown_method_is_reported(connect):
    agent = connect()
    response = agent.post(agent.message("nonsense/list"))
    assert response.json()["error"]["code"] == -32601


def test_version_of_the_protocol_is_negotiated(open_server):
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    headers = {"accept": "application/json, text/event-stream"}
    for asked in ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY):
        params = INITIALIZE | {"protocolVersion": asked}
        response = requests.post(
            open_server.url + "/mcp", json=message | {"params": params}, headers=headers, timeout=PATIENCE
        )
        assert f'"protocolVersion":"{asked}"' in response.text
