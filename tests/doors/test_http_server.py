"""`holdlog serve --transport http` as it is run: its start, replicas, a crash, the end with waits in flight."""

import os
import signal
import socket
from datetime import datetime, timedelta

import pytest

from tests.support.library import in_thread
from tests.support.mcp import LEGACY, MODERN, OverHttp
from tests.support.waiting import PATIENCE, until
from tests.support.wire import Connection, EventStream, waiters

SSE = {"accept": "text/event-stream"}


@pytest.fixture
def refused(command):
    """The one line with which a server refuses to start."""

    def line(*options, **more):
        done = command("serve", "--transport", "http", "--port", "0", *options, **more)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
        return done.err

    return line


@pytest.mark.rest
def test_server_beyond_loopback_needs_tokens(refused):
    assert "token" in refused("--host", "0.0.0.0")


@pytest.mark.rest
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--path", "mcp"), "path"),
        (("--port", "70000"), "--port"),
        (("--host", "no.such.name.invalid"), "host"),
        (("--allowed-host", "http://x"), "allowed-host"),
        (("--tools", "nonsense"), "tools"),
        (("--jwt-issuer", "https://issuer.example"), "--jwt-audience"),
        (
            ("--jwt-issuer", "x", "--jwt-audience", "x", "--jwt-jwks-url", "http://issuer.example/keys"),
            "--jwt-jwks-url",
        ),
    ],
)
def test_bad_setting_is_reported_in_one_line(refused, options, named):
    assert named in refused(*options)


@pytest.mark.rest
def test_port_in_use_is_reported_in_one_line(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--port" in refused("--port", str(taken.getsockname()[1]))


CHUNKED = {"content_length": "", "transfer_encoding": "chunked"}


@pytest.mark.rest
@pytest.mark.parametrize("part", ["address", "header", "headers", "trailer"])
def test_request_that_goes_on_before_or_after_its_body_is_cut_off(http, part):
    server, text = http(), b"x: 1\r\n" * 100_000 if part == "headers" else b"x" * 500_000
    connection = Connection(server.url)
    if part == "trailer":
        connection.send("PUT", "/v1/values/n/k", b"1\r\n1\r\n0\r\nx: ", content_type="application/json", **CHUNKED)
    else:
        connection.socket.sendall(b"GET /" + (b"" if part == "address" else b" HTTP/1.1\r\nx: "))
    with pytest.raises(OSError):
        for _ in range(100):
            connection.socket.sendall(text)
    assert server.request("GET", "/healthz").status_code == 200


@pytest.mark.rest
def test_options_come_from_the_environment_and_passwords_are_masked(http, postgres):
    env = {"HOLDLOG_PATH": "/agents", "HOLDLOG_ALLOWED_HOST": "a.example, b.example"}
    server = http(db=postgres.replace("postgres@", "postgres:s3cret@"), env=env)
    hosts = ("a.example", "b.example", "c.example")
    statuses = [server.request("GET", "/v1/claims", headers={"host": it}).status_code for it in hosts]
    assert statuses == [200, 200, 421]
    assert OverHttp(server.url + "/agents").call("status")["status"] == "ok"
    assert "s3cret" not in "\n".join(server.log)


@pytest.mark.rest
def test_first_token_closes_a_server_at_its_next_start(http, command):
    server = http()
    assert server.url.startswith("http://127.0.0.1:")
    created = command("token", "create", "--name", "ci", "--allow", "read:*")
    assert "restarted" in created.err
    assert server.request("GET", "/v1/claims").status_code == 200
    beyond = http("--host", "0.0.0.0")
    beyond.url = "http://127.0.0.1:" + beyond.url.rpartition(":")[2]
    assert [it.request("GET", "/v1/claims").status_code for it in (beyond, server)] == [401, 200]


# --- a crash


@pytest.mark.rest
def test_session_outlives_the_crash_of_its_server(http):
    server = http("--tools", "claims,state")
    agent, other = OverHttp(server.url + "/mcp"), OverHttp(server.url + "/mcp")
    resource = {"resource": "custom://x", "agent": "ann"}
    claimed = agent.call("claim", **resource)
    agent.call("set", namespace="n", key="k", value=1, updated_by="ann", expected_version=0)
    server.process.kill()
    server.process.wait(PATIENCE)
    again = http("--tools", "claims,state", "--port", server.url.rpartition(":")[2])
    assert again.url == server.url
    kept = agent.call("claim", **resource)
    assert (kept["status"], kept["version"]) == ("already_claimed", claimed["version"])
    assert other.call("claim", **resource)["status"] == "busy"
    guard = [{"resource": "custom://x", "version": claimed["version"]}]
    write = {"namespace": "n", "key": "k", "value": 2, "updated_by": "ann", "expected_version": 1, "guard": guard}
    assert agent.call("set", **write)["version"] == 2
    assert agent.call("release", **resource)["status"] == "released"


# --- replicas


@pytest.mark.rest
@pytest.mark.parametrize("place", ["db", "postgres"])
def test_replicas_serve_each_others_sessions_and_waits(http, request, place):
    one, two = (http("--tools", "claims,state", db=request.getfixturevalue(place)) for _ in "12")
    ann, bob = OverHttp(one.url + "/mcp"), OverHttp(two.url + "/mcp")
    ann.call("claim", resource="custom://x", agent="ann")
    queued = in_thread(bob.call, "claim", resource="custom://x", agent="bob", wait_seconds=40)
    until(lambda: ann.call("status", resource="custom://x")["queue_length"] == 1)
    ann.url = two.url + "/mcp"  # the proxy chooses another one
    assert ann.call("claim", resource="custom://x", agent="ann")["status"] == "already_claimed"
    ann.url = one.url + "/mcp"
    assert ann.call("release", resource="custom://x", agent="ann")["granted_to"] == "bob"
    assert queued.result()["status"] == "claimed"
    watching = in_thread(ann.call, "watch", namespace="n", key="k", since_version=0, timeout_seconds=40)
    bob.call("set", namespace="n", key="k", value=1, updated_by="bob", expected_version=0)
    assert watching.result()["value"] == 1


@pytest.mark.rest
def test_calls_of_its_holder_alone_keep_a_claim_over_http_alive(http):
    server = http("--lease-seconds", "5")
    ann, bob = OverHttp(server.url + "/mcp"), OverHttp(server.url + "/mcp")
    claimed = ann.call("claim", resource="custom://x", agent="ann")
    assert claimed["expires_in_seconds"] <= 5

    def ends():
        assert ann.call("claim", resource="custom://y", agent="ann")["version"]  # any call prolongs all that she holds
        return datetime.fromisoformat(bob.call("status", resource="custom://x")["expires_at"])

    first = ends()
    until(lambda: ends() - first > timedelta(seconds=1))
    assert bob.call("wait", resource="custom://x", timeout_seconds=45)["previous_outcome"] == "expired"


# --- the end


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 0, marks=pytest.mark.rest)]
)
def test_waits_are_answered_and_streams_end_when_the_server_ends(http, number, code):
    server = http("--tools", "claims,state")
    assert server.url.startswith("http://127.0.0.1:")
    ann, bob, eve = (OverHttp(server.url + "/mcp", era) for era in (LEGACY, MODERN, LEGACY))
    ann.call("claim", resource="custom://x", agent="ann")
    watch = {"namespace": "n", "key": "k", "since_version": 0, "timeout_seconds": 45}
    waits = [in_thread(eve.exchange, eve.calling("watch", watch))]
    waits += [
        in_thread(bob.exchange, bob.calling("claim", {"resource": "custom://x", "agent": "bob", "wait_seconds": 45}))
    ]
    poll = in_thread(server.request, "GET", "/v1/events", params={"wait_seconds": 45, "namespace": "none", "after": 1})
    stream = EventStream(server.request("GET", "/v1/events", params={"namespace": "none"}, headers=SSE, stream=True))
    idle, half = Connection(server.url), Connection(server.url)
    half.send("POST", "/mcp", b"x", content_length="10")
    until(lambda: ann.call("status", resource="custom://x")["queue_length"] == 1)
    until(lambda: waiters(server.url) == 3)
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == code
    statuses = [it.result()["result"]["structuredContent"]["status"] for it in waits]
    assert statuses == ["timeout", "busy"]
    assert poll.result().json()["events"] == []
    assert [sent.data for sent in stream if "kind" in sent.data] == []
    assert idle.rest() == b""
    half.socket.close()


@pytest.mark.rest
def test_killed_database_makes_a_server_not_ready_but_alive(http, postgres, postgres_server):
    server = http(db=postgres)
    server.request("POST", "/kv/n/k", data="1")
    assert server.request("GET", "/readyz").status_code == 200
    postgres_server.kill()
    try:
        until(lambda: server.request("GET", "/readyz").status_code == 503)
        assert server.request("GET", "/healthz").status_code == 200
        refused = server.request("GET", "/kv/n/k")
        assert (refused.status_code, refused.json()["status"]) == (503, "unavailable")
        assert "retry-after" in refused.headers
    finally:
        postgres_server.start()
    until(lambda: server.request("GET", "/readyz").status_code == 200)
    assert server.request("GET", "/kv/n/k").text == "1"


@pytest.mark.rest
def test_clients_that_vanish_leave_nothing_open(http):
    server = http()

    def descriptors():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    server.request("POST", "/kv/n/k", data="x")
    before = descriptors()
    halves = [Connection(server.url) for _ in range(50)]
    for number, half in enumerate(halves):
        half.socket.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nx"[: number * 2])
    until(lambda: descriptors() >= before + 40)
    for half in halves:
        half.reset()
    until(lambda: descriptors() <= before + 10)
    assert server.request("GET", "/healthz").json() == {"status": "ok"}
    assert server.log[1:] == []
