"""MCP over HTTP beyond the doors: streams, whose call may be cancelled, spaces, large values, paths, the relay."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.mcp.tools import list_kinds
from holdlog.adapters.operations.base import OPERATIONS
from tests.support.library import in_thread
from tests.support.mcp import ENVELOPE, LEGACY, MODERN, OverHttp
from tests.support.programs import HttpServer, run
from tests.support.waiting import PATIENCE, until
from tests.support.wire import Connection, waiters
from tests.test_http import SECRET, arguments_of
from tests.test_nats import count_messages

pytestmark = [pytest.mark.rest, pytest.mark.xdist_group("test_mcp_http")]
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
BOTH = "application/json, text/event-stream"
WATCH = {"namespace": "n", "key": "none", "since_version": 0, "timeout_seconds": 200}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--tools", "all", "--max-wait", "300", "--max-value-bytes", "7000000", "--path", "/agents/")
    server = HttpServer(folder / "state.db", *options, cwd=folder)
    yield server
    server.close()


def connect(server: HttpServer, era: str = LEGACY, path: str = "/agents", token: str | None = None) -> OverHttp:
    return OverHttp(server.url + path, era, token=token)


# --- the two eras


@ERAS
@pytest.mark.parametrize("path", ["/agents", "/agents/"])
def test_path_is_served_with_and_without_a_slash(server: HttpServer, era: str, path: str) -> None:
    agent = connect(server, era, path)
    assert agent.call("list")["status"] == "ok"
    assert server.request("POST", "/mcp", json={}).status_code == 404


@ERAS
def test_value_of_several_megabytes_is_written_and_read(server: HttpServer, era: str) -> None:
    agent, text = connect(server, era), "é" * 3_000_000
    agent.call("set", namespace="large", key=era, value=text, updated_by="ann", force=True)
    assert agent.call("get", namespace="large", key=era)["value"] == text


@ERAS
def test_denied_call_is_an_error_of_the_tool(tmp_path: Path, era: str) -> None:
    db = tmp_path / "state.db"
    token = run("token", "create", "--name", "t", "--allow", "read:*", "--db", db).out.strip()
    server = HttpServer(db, "--tools", "state", cwd=tmp_path)
    agent = connect(server, era, "/mcp", token)
    write = {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann", "force": True}
    result = agent.exchange(agent.calling("set", write))["result"]
    server.close()
    denied = json.loads(result["content"][0]["text"])
    assert (result["isError"], denied["status"], denied["needed"]) == (True, "denied", "write:n")
    assert "structuredContent" not in result


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_methods_but_post_are_refused(server: HttpServer, method: str) -> None:
    headers = {"accept": BOTH, "mcp-session-id": "one"}
    refused = server.request(method, "/agents", headers=headers)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_request_with_a_version_in_its_metadata_alone_is_refused(server: HttpServer) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": ENVELOPE}}
    refused = server.request("POST", "/agents", json=message, headers={"accept": BOTH})
    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (400, -32020, 7)


# --- streams of 2025


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "*/*", BOTH])
def test_response_has_a_form_that_its_client_accepts(server: HttpServer, accept: str) -> None:
    agent = connect(server)
    agent.http.headers["accept"] = accept
    response = agent.post(agent.message("tools/list"))
    kind = response.headers["content-type"].partition(";")[0]
    assert kind == ("text/event-stream" if accept == "text/event-stream" else "application/json")
    assert agent.call("list")["status"] == "ok"


@pytest.mark.rest
def test_silent_wait_shows_its_client_that_it_goes_on(server: HttpServer) -> None:
    agent = connect(server)
    response = agent.post(agent.calling("watch", WATCH | {"timeout_seconds": 16}))
    assert response.text.startswith(": ping")
    assert '"timeout"' in response.text


# --- whose call


def test_client_cancels_only_its_own_calls(server: HttpServer) -> None:
    ann, bob = connect(server), connect(server)
    before = waiters(server.url)
    message = ann.calling("watch", WATCH)
    waiting = in_thread(ann.post, message)
    until(lambda: waiters(server.url) == before + 1)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}
    del bob.http.headers["mcp-session-id"]
    assert [bob.post(cancel, **session).status_code for session in ({}, {"mcp-session-id": "other"})] == [202, 202]
    assert bob.call("list")["status"] == "ok"
    assert waiters(server.url) == before + 1
    assert ann.post(cancel).status_code == 202
    assert waiting.result().json()["error"]["code"] == -32800
    assert waiters(server.url) == before


def test_client_without_a_session_cancels_no_call(server: HttpServer) -> None:
    """Another one without a session may use the same id."""
    ann, bob = connect(server), connect(server)
    for agent in (ann, bob):
        del agent.http.headers["mcp-session-id"]
    before = waiters(server.url)
    message = ann.calling("watch", WATCH | {"key": "late"})
    waiting = in_thread(ann.exchange, message)
    until(lambda: waiters(server.url) == before + 1)
    bob.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}})
    bob.call("set", namespace="n", key="late", value=1, updated_by="bob", expected_version=0)
    assert waiting.result()["result"]["structuredContent"]["value"] == 1


@ERAS
def test_claim_of_a_client_that_vanishes_in_the_queue_goes_to_the_next(server: HttpServer, era: str) -> None:
    resource = f"custom://{era}"
    ann, gone, last = (connect(server, era) for _ in "123")
    receipt = ann.call("claim", resource=resource, agent="ann").get("receipt")
    before = waiters(server.url)
    message = gone.calling("claim", {"resource": resource, "agent": "gone", "wait_seconds": 200})
    headers = {"accept": BOTH, "content-type": "application/json", "mcp-protocol-version": era}
    headers |= {"mcp-method": "tools/call", "mcp-name": "holdlog_claim"} if era == MODERN else {}
    connection = Connection(server.url).send("POST", "/agents", json.dumps(message).encode(), **headers)
    until(lambda: waiters(server.url) == before + 1)
    connection.reset()
    until(lambda: waiters(server.url) == before)
    queued = in_thread(last.call, "claim", resource=resource, agent="last", wait_seconds=PATIENCE)
    until(lambda: waiters(server.url) == before + 1)
    ann.call("release", resource=resource, agent="ann", **({"receipt": receipt} if receipt else {}))
    assert queued.result()["status"] == "claimed"


def test_session_header_of_the_user_connects_clients_that_begin_a_session_per_call(server: HttpServer) -> None:
    def call(tool: str) -> Any:
        agent = connect(server)
        agent.http.headers["holdlog-session"] = "lc-1"
        return agent.call(tool, resource="custom://lc", agent="ann")["status"]

    assert [call(tool) for tool in ("claim", "claim", "release")] == ["claimed", "already_claimed", "released"]


@ERAS
@pytest.mark.parametrize("session", ["receipt-0123456789abcdef", "x" * 2000, "a b", "é"])
def test_odd_session_is_no_one_elses(server: HttpServer, era: str, session: str) -> None:
    """Whatever a client calls its session, the call is answered, and reaches no claim of others."""
    ann = connect(server, era)
    resource = f"custom://odd/{len(session)}/{era}"
    ann.call("claim", resource=resource, agent="ann")
    odd = connect(server, era)
    message = odd.calling("claim", {"resource": resource, "agent": "ann"})
    response = odd.post(message, **{"mcp-session-id": session.encode().decode("latin-1")})
    result = response.json()["result"]
    assert result.get("isError") or result["structuredContent"]["status"] == "busy"


# --- spaces


@ERAS
def test_no_tool_shows_a_token_of_a_space_what_is_elsewhere(tmp_path: Path, era: str) -> None:
    db = tmp_path / "state.db"

    def create(name: str, *space: str) -> str:
        return run("token", "create", "--name", name, "--allow", "admin:*", "--db", db, *space).out.strip()

    admin, mine = create("admin"), create("mine", "--space", "mine")
    theirs = create("theirs", "--space", "theirs")
    server = HttpServer(db, "--tools", "all", cwd=tmp_path)
    for token in (admin, theirs):
        server.request("POST", "/kv/n/k", data=SECRET, headers={"x-token": token})
    others = connect(server, era, "/mcp", admin)
    others.call("claim", resource="custom://theirs", agent="ann", note=SECRET)
    message = {"type": "text", "role": "user", "content": SECRET}
    others.call("thread_append", thread_id="theirs", agent="ann", messages=[message])
    agent, count = connect(server, era, "/mcp", mine), 0
    for tool in agent.tools():
        kind = list_kinds()[tool]
        for namespace in ("n", "theirs/n", "../theirs/n"):
            arguments: Any = arguments_of(kind.name, namespace) if kind.name in OPERATIONS else {"key": "k"}
            result = agent.exchange(agent.calling(tool, arguments))["result"]
            assert SECRET not in json.dumps(result), (tool, namespace)
            assert result.get("isError") or kind.has_spaces, (tool, result)
            count += 1
    server.close()
    assert count == 3 * len(list_kinds())


# --- start and end


def test_server_publishes_to_nats_and_ends(tmp_path: Path, nats_server: Any) -> None:
    server = HttpServer(tmp_path / "state.db", "--tools", "state", "--nats", nats_server.url, cwd=tmp_path)
    agent = connect(server, MODERN, "/mcp")
    agent.call("set", namespace="n", key="k", value=1, updated_by="ann", force=True)
    until(lambda: count_messages(tmp_path / "state.db", nats_server) == 1)
    assert server.close() == 0


@pytest.mark.rest
def test_root_is_no_path_for_agents() -> None:
    done = run("serve", "--transport", "http", "--port", "0", "--path", "/")
    assert (done.code, "--path" in done.err) == (2, True)
