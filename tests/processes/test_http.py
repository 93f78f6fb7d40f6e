"""`holdlog serve --transport http` as it is run: what it refuses to start with, two replicas, and how it ends."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.lease import BY_CALLS
from holdlog.domain.token import IssueToken
from tests.processes.conftest import EVERY_STORE, EVERY_STORE_IN_TIME
from tests.support.endpoint import INITIALIZE, LEGACY, MODERN, Connection, request
from tests.support.http import HttpServer, http_server
from tests.support.processes.soundness import Place
from tests.support.slow import slow

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

TOKEN = "a-static-token-of-tests-0123456789"
PATIENCE = 30.0


class Agent:
    """Calls tools over HTTP as 2026-07-28 does: one request each, without a session of the protocol."""

    def __init__(self, url: str, token: str | None = None, session: str | None = None) -> None:
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        if session is not None:
            headers["holdlog-session"] = session
        self.client = httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False)

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        response = self.post(tool, **arguments)
        assert response.status_code == 200, response.text
        text = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            text = re.findall(r"^data: (.*)$", text, re.MULTILINE)[-1]
        result = json.loads(text)["result"]
        answer: dict[str, Any] = json.loads(result["content"][0]["text"])
        return answer

    def post(self, tool: str, **arguments: Any) -> httpx2.Response:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": f"holdlog_{tool}", "arguments": arguments, "_meta": meta}
        headers = {"mcp-method": "tools/call", "mcp-name": f"holdlog_{tool}"}
        return self.client.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers=headers
        )


def until(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- the start


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """One server for the tests that leave nothing behind."""
    options = ("--tools", "claims,state", "--allowed-host", "holdlog.example")
    with http_server(tmp_path_factory.mktemp("http") / "state.db", *options) as server:
        yield server


def refused(path: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """The one line with which a server refuses to start."""
    server = HttpServer(path, *options, env=env)
    try:
        assert server.ended() == 2, server.said
    finally:
        server.close()
    (line,) = server.said
    assert line.startswith("holdlog")
    return line


@pytest.mark.check
def test_server_beyond_loopback_needs_tokens_or_the_insecure_option(path: Path) -> None:
    line = refused(path, "--host", "0.0.0.0")
    assert "--insecure" in line
    assert "--auth-token-file" in line
    for options, env in ((("--insecure",), {}), ((), {"HOLDLOG_AUTH_TOKEN": TOKEN})):
        with http_server(path, "--host", "0.0.0.0", *options, env=env) as server:
            expected = 401 if env else 404
            assert httpx2.get(f"http://127.0.0.1:{server.port}/nothing", trust_env=False).status_code == expected


@pytest.mark.check
def test_server_that_requires_tokens_does_not_start_without_any(path: Path, tmp_path: Path) -> None:
    assert "holdlog token create" in refused(path, "--auth")
    assert "HOLDLOG_AUTH_TOKEN" in refused(path, env={"HOLDLOG_AUTH_TOKEN": ""})
    empty = tmp_path / "token"
    empty.write_text("\n")
    assert "token" in refused(path, "--auth-token-file", str(empty))
    assert "cannot be read" in refused(path, "--auth-token-file", str(tmp_path / "nothing"))


@pytest.mark.check
def test_incomplete_jwt_options_are_reported_in_one_line(path: Path) -> None:
    line = refused(path, "--jwt-issuer", "https://issuer.example")
    assert "--jwt-audience and --jwt-jwks-url" in line


@pytest.mark.check
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--path", "mcp"), "path"),
        *slow(
            (("--path", "/kv"), "path"),
            (("--allowed-host", "http://x"), "allowed-host"),
            (("--allowed-origin", "app.example"), "allowed-origin"),
            (("--allowed-origin", "*"), "every web page"),
            (("--host", "no.such.name.invalid"), "host"),
        ),
        (("--max-in-flight", "-1"), "--max-in-flight"),
        (("--port", "70000"), "--port"),
    ],
)
def test_invalid_server_setting_is_reported_in_one_line(path: Path, options: tuple[str, ...], told: str) -> None:
    assert told in refused(path, *options)


@pytest.mark.check
def test_occupied_port_is_reported_in_one_line(running: HttpServer, path: Path) -> None:
    assert "--port" in refused(path, "--port", str(running.port))


@pytest.mark.check
def test_ready_line_shows_url_store_without_password_and_token_requirement(
    postgres: str,
) -> None:
    url = postgres.replace("postgresql://postgres:@", "postgresql://postgres:not-needed@")
    with http_server(url, env={"HOLDLOG_AUTH_TOKEN": TOKEN}) as server:
        assert "not-needed" not in server.ready
        assert TOKEN not in server.ready
        assert server.ready.endswith("tokens are required")
        assert Agent(server.url).post("status").status_code == 401
        assert Agent(server.url, TOKEN)("status")["status"] == "ok"


@pytest.mark.check
def test_server_options_may_come_from_the_environment(path: Path) -> None:
    env = {"HOLDLOG_PATH": "/agents", "HOLDLOG_ALLOWED_HOST": "a.example, b.example", "HOLDLOG_MAX_REQUESTS": "2"}
    with http_server(path, env=env) as server:
        statuses = [
            httpx2.get(f"{server.url}/nothing", headers={"host": host}, trust_env=False).status_code
            for host in ("c.example", "a.example", "b.example", "b.example")
        ]
        assert statuses == [421, 404, 404, 429]
        assert "/agents" in server.ready


# --- bad clients


def test_fifty_megabytes_are_refused_without_being_read_or_kept(running: HttpServer) -> None:
    before = _memory(running)
    for head in (b"content-length: 52428800\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n3200000\r\n"):
        with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as connection:
            connection.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n" + head)
            sent = 0
            try:
                while sent < 52_428_800:
                    sent += connection.send(b"x" * 65_536)
            except OSError:
                pass  # the connection was closed
            assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
            assert sent < 30_000_000
    assert _memory(running) - before < 8_000_000


@pytest.mark.check
def test_clients_that_disconnect_leave_nothing_open(running: HttpServer) -> None:
    def files() -> int:
        return len(os.listdir(f"/proc/{running.process.pid}/fd"))

    with httpx2.Client(base_url=running.url, trust_env=False) as stays:
        stays.get("/healthz")
        before = files()
        halves = [socket.create_connection(("127.0.0.1", running.port), PATIENCE) for _ in range(50)]
        for number, half in enumerate(halves):
            half.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nx"[: number * 2])
        until(lambda: files() >= before + 50)
        for half in halves:
            half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            half.close()
        until(lambda: files() <= before + 1)
        assert stays.get("/healthz").json() == {"status": "ok"}


@pytest.mark.slow
def test_slow_client_gets_a_timeout_within_seconds_while_others_are_served(running: HttpServer) -> None:
    slow = [socket.create_connection(("127.0.0.1", running.port), PATIENCE) for _ in range(200)]
    for connection in slow:
        connection.sendall(b"GET /")
    began = time.monotonic()
    told = b""
    while not told:
        for connection in slow:
            connection.sendall(b"x")
        assert httpx2.get(f"{running.url}/healthz", trust_env=False).status_code == 200
        slow[0].settimeout(0.5)
        try:
            told = slow[0].recv(65536)
        except TimeoutError:
            continue
    assert told.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - began > 9


def _memory(server: HttpServer) -> int:
    """Bytes that the process has in memory."""
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- replicas


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_claim_outlives_its_server_and_is_renewed_through_another(place: Place) -> None:
    with http_server(place, "--grace-seconds", "1") as first, http_server(place, "--grace-seconds", "1") as second:
        ann, bob = Agent(first.url, session="of-ann"), Agent(second.url, session="of-bob")
        claimed = ann("claim", resource="custom://x", agent="ann")
        assert claimed["status"] == "claimed"
        assert claimed["renewal"] == "by your calls only"
        assert claimed["expires_in_seconds"] > 1700
        busy = bob("claim", resource="custom://x", agent="bob")
        assert (busy["status"], busy["held_by"]) == ("busy", "ann")
        assert busy["expires_in_seconds"] > 1700
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
        time.sleep(2.5)  # longer than the grace of a claim whose server were gone
        assert bob("claim", resource="custom://x", agent="bob", wait_seconds=0.2)["status"] == "busy"
        ann = Agent(second.url, session="of-ann")
        again = ann("claim", resource="custom://x", agent="ann")
        assert (again["status"], again["version"]) == ("already_claimed", claimed["version"])
        assert again["expires_in_seconds"] > 1790
        with http_server(place) as third:
            released = Agent(third.url, session="of-ann")("release", resource="custom://x", agent="ann")
            assert released["status"] == "released"
        assert bob("claim", resource="custom://x", agent="bob")["status"] == "claimed"


@pytest.mark.check
@EVERY_STORE
def test_server_over_http_never_keeps_a_lease_alive_itself(place: Place) -> None:
    with http_server(place) as server:
        Agent(server.url, session="of-ann")("claim", resource="custom://x", agent="ann")
        Agent(server.url)("claim", resource="custom://y", agent="bob")
        engine = open_holdlog(place)
        try:
            with engine.store.reader() as reader:
                leases = {it.resource: it.server for it in reader.leases.of(["custom://x", "custom://y"])}
                assert leases == {"custom://x": BY_CALLS, "custom://y": ""}
        finally:
            engine.close()


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_waiter_at_one_replica_gets_what_is_released_at_another(place: Place) -> None:
    with http_server(place) as first, http_server(place) as second, ThreadPoolExecutor() as pool:
        ann, bob = Agent(first.url), Agent(second.url)
        ann("claim", resource="custom://x", agent="ann")
        waiting = pool.submit(bob, "claim", resource="custom://x", agent="bob", wait_seconds=20)
        until(lambda: ann("status", resource="custom://x")["queue_length"] == 1)
        assert ann("release", resource="custom://x", agent="ann")["granted_to"] == "bob"
        assert waiting.result()["status"] == "claimed"


# --- the end


@pytest.mark.check
def test_waiters_are_answered_when_the_server_ends_with_exit_code_0(path: Path) -> None:
    with http_server(path) as server, ThreadPoolExecutor(20) as pool:
        ann, bob = Agent(server.url), Agent(server.url)
        ann("claim", resource="custom://x", agent="ann")
        waits = [pool.submit(bob, "wait", resource="custom://x", timeout_seconds=45) for _ in range(10)]
        claims = [
            pool.submit(bob, "claim", resource="custom://x", agent=f"bob{number}", wait_seconds=45)
            for number in range(3)
        ]
        until(lambda: ann("status", resource="custom://x")["queue_length"] == 3)
        assert server.stop() == 0  # in less time than they would wait
        assert {it.result()["status"] for it in waits} == {"timeout"}
        assert {it.result()["status"] for it in claims} == {"busy"}
        assert [line for line in server.said if line != server.ready] == []


@pytest.mark.check
def test_server_ends_in_time_whatever_clients_do(path: Path) -> None:
    with http_server(path) as server:
        idle = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        half = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        half.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nx")
        early = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        early.sendall(b"POST /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nx")
        assert early.recv(100).startswith(b"HTTP/1.1 405")
        kept = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        kept.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert kept.recv(1)
        assert server.stop() == 0
        assert server.said == [server.ready]
        for connection in (idle, half, early, kept):
            connection.close()
    with http_server(path) as server:
        assert server.stop(signal.SIGINT) == 0


@pytest.mark.check
async def test_streams_of_both_eras_end_cleanly_at_shutdown(path: Path) -> None:
    with http_server(path) as server:
        given = await raw(server, *request(LEGACY, "initialize", INITIALIZE))
        _, headers = await given.head()
        sse = {"mcp-session-id": headers["mcp-session-id"], "accept": "text/event-stream"}
        idle = await raw(server, b"", sse, "GET")
        asked = {"notifications": {"resourceSubscriptions": ["holdlog://claims"]}}
        listening = await raw(server, *request(MODERN, "subscriptions/listen", asked))
        for stream in (idle, listening):
            assert (await stream.head())[0] == 200
            assert await stream.chunk()
        server.process.send_signal(signal.SIGTERM)
        for stream in (idle, listening):
            while await stream.chunk():  # until the last one, which is empty: nothing was cut
                pass
        assert await asyncio.to_thread(server.ended) == 0
        assert server.said == [server.ready]


async def raw(server: HttpServer, body: bytes, headers: dict[str, str], method: str = "POST") -> Connection:
    connection = Connection(*await asyncio.open_connection("127.0.0.1", server.port))
    await connection.send(method, body, headers)
    return connection


@pytest.mark.check
def test_second_signal_ends_the_server_at_once(path: Path) -> None:
    with http_server(path) as server:
        half = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        half.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nx")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not _accepts(server.port))
        assert server.stop() == 128 + signal.SIGTERM
        half.close()


@pytest.mark.check
def test_server_reports_not_ready_before_it_stops_listening(path: Path) -> None:
    with http_server(path, "--drain-seconds", "2") as server:
        client = httpx2.Client(base_url=server.url, trust_env=False)
        assert client.get("/readyz").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/healthz").status_code == 200
        assert Agent(server.url)("status")["status"] == "ok"
        assert server.ended() == 0


@pytest.mark.check
def test_killed_server_leaves_nothing_that_disturbs_the_next(path: Path) -> None:
    with http_server(path) as server:
        Agent(server.url)("claim", resource="custom://x", agent="ann")
        port = server.port
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    with http_server(path, "--port", str(port)) as server:
        assert Agent(server.url)("status", resource="custom://x")["held_by"] == "ann"


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return False
    return True


# --- spaces


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_token_of_a_space_sees_that_space_only_through_every_replica(place: Place) -> None:
    main, one, other = (_token(place, name, space) for name, space in (("m", None), ("a", "one"), ("b", "other")))
    with http_server(place) as first, http_server(place) as second:
        assert "tokens are required" in first.ready
        for token in (main, one, other):
            assert Agent(first.url, token)("claim", resource="custom://x", agent="ann")["status"] == "claimed"
        for token in (main, one, other):
            assert len(Agent(second.url, token)("status")["claims"]) == 1
            assert Agent(second.url, token)("release", resource="custom://x", agent="ann")["status"] == "released"
    if isinstance(place, Path):
        folder = place.with_name("state.db.spaces")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sorted(it.name for it in folder.glob("*.db")) == ["one.db", "other.db"]


@pytest.mark.check
def test_space_that_cannot_be_opened_fails_for_its_own_callers_only(path: Path) -> None:
    main, one, other = (_token(path, name, space) for name, space in (("m", None), ("a", "one"), ("b", "other")))
    folder = path.with_name("state.db.spaces")
    folder.mkdir(0o700)
    (folder / "one.db").write_bytes(b"this is no store" * 100)
    with http_server(path) as server:
        response = Agent(server.url, one).post("status")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert "one.db" not in response.text
        for token in (main, other):
            assert Agent(server.url, token)("status")["status"] == "ok"
        (folder / "one.db").unlink()
        assert Agent(server.url, one)("status")["status"] == "ok"


def _token(place: Place, name: str, space: str | None) -> str:
    """A new token that is bound to a space."""
    made = fresh(name)
    engine = open_holdlog(place)
    try:
        issue = IssueToken(name=name, hash=made.hash, allow=("admin:*",), space=space, by="test")
        engine.writer.run(issue, engine.caller)
    finally:
        engine.close()
    return made.text


@pytest.mark.check
def test_open_server_stays_open_until_a_restart_after_the_first_token(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_server(path) as server:
        assert main(["token", "create", "--name", "ci", "--allow", "read:*", f"--db={path}"]) == 0
        assert "stays open to everybody until it is restarted" in capsys.readouterr().err
        assert httpx2.get(f"{server.url}/claims").status_code == 200
    with http_server(path) as server:
        assert httpx2.get(f"{server.url}/claims").status_code == 401
