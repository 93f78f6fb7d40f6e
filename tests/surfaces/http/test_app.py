"""What no request may do, whoever sends it: a real server in a thread, asked over real sockets."""

import asyncio
import itertools
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.http import app
from holdlog.adapters.http.answers import answer, json_response
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.authentication import context_of
from holdlog.adapters.http.edge import connections
from holdlog.adapters.http.edge import key_quota as room
from holdlog.adapters.http.edge.key_quota import KeyQuota
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.running import bound_socket, server_of, url_of
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.projections.fold import EVENTS

PATIENCE = 20.0


class Tokens:
    """A verifier of two tokens."""

    async def verify(self, text: str) -> Principal | None:
        known = {
            "good": Principal("token:good", EVERYTHING),
            "reader": Principal("token:reader", Grants.parse(["read:*"])),
            "spaced": Principal("token:spaced", EVERYTHING, space="one"),
        }
        return known.get(text)


class Served:
    """A running application. `let_go` ends the calls of `/held`."""

    def __init__(self, url: str, let_go: threading.Event, tokens: Tokens | None) -> None:
        self.url = url
        self.let_go = let_go
        self.tokens = tokens
        self.port = int(url.rpartition(":")[2])

    def client(self, token: str | None = None, **options: Any) -> httpx2.Client:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, **options)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def raw(self, *parts: bytes) -> tuple[int, dict[str, Any]]:
        """The answer to bytes, after which the server closes the connection."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            return answered(connection)


def answered(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of the last answer on a connection that the server closes."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    head, _, body = data.rpartition(b"\r\n\r\n")
    return int(head.rpartition(b"HTTP/1.1 ")[2][:3]), json.loads(body)


@contextmanager
def application(
    *options: tuple[str, Any], tokens: Tokens | None = None, route: Callable[[Request], Any] | None = None
) -> Iterator[Served]:
    http = HttpOptions(**dict(options))
    let_go, ending = threading.Event(), Shutdown()

    async def body(request: Request) -> Response:
        return json_response({"bytes": len(await request.body())})

    async def held(request: Request) -> Response:
        while not let_go.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
        return json_response({})

    async def value(request: Request) -> Response:
        served = context_of(request)
        call = served.requests.values.set("n", request.query_params["key"], 1, "ann", None)
        return answer(await served.engine.write_async(call, served.caller))

    async def broken(request: Request) -> Response:
        raise RuntimeError("a secret")

    main = open_holdlog(":memory:")
    if http.max_keys:
        main.check_quota = KeyQuota(main, http.max_keys).require
    app = build_app(build_server(None, ["claims"]), Tenants(":memory:", main, Settings()), tokens, http, ending)
    routes = [("/body", body), ("/held", held), ("/value", value), ("/broken", broken)]
    _starlette(app).router.routes[:0] = [Route(path, it, methods=["GET", "POST"]) for path, it in routes]
    bound = bound_socket("127.0.0.1", 0)
    ready = threading.Event()
    server = server_of(app, http, ending, ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    url = url_of(bound)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield Served(url, let_go, tokens)
    finally:
        let_go.set()
        server.should_exit = True
        thread.join(PATIENCE)
        main.close()
        assert not thread.is_alive()


def _starlette(app: ASGIApp) -> Any:
    """What the guards stand around."""
    inner: Any = app
    while hasattr(inner, "_app"):
        inner = inner._app
    return inner


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with application(("allowed_hosts", ("holdlog.example", "*.example.org")), ("max_body_bytes", 10_000)) as it:
        yield it


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx2.Client]:
    with served.client() as it:
        yield it


def error_of(response: httpx2.Response) -> str:
    body = response.json()
    assert list(body) == ["status", "message"]
    assert body["status"] == "error"
    assert "\n" not in body["message"]
    return str(body["message"])


# --- Host and Origin


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:{port}", "[::1]:80", "holdlog.example", "HOLDLOG.example:443", "a.b.example.org"]
)
def test_server_accepts_loopback_host_names_and_configured_ones(served: Served, host: str) -> None:
    with served.client() as client:
        assert client.get("/body", headers={"host": host.format(port=served.port)}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "holdlog.example.evil.com", "localhost.evil.com", "example.org", "10.1.2.3", "localhost:x", "a b"],
)
def test_request_for_another_host_name_is_refused_with_421(served: Served, host: str) -> None:
    with served.client() as client:
        response = client.get("/body", headers={"host": host})
        assert response.status_code == 421
        assert "--allowed-host" in error_of(response)
        assert client.get("/healthz", headers={"host": host}).status_code == 200


def test_request_with_two_host_headers_is_refused(served: Served) -> None:
    assert served.raw(b"GET /body HTTP/1.1\r\n\r\n")[0] == 400
    assert served.raw(b"GET /body HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n\r\n")[0] == 400


def test_only_pages_of_the_server_itself_may_call(client: httpx2.Client, served: Served) -> None:
    assert client.get("/body", headers={"origin": served.url}).status_code == 200
    own = {"host": "holdlog.example", "origin": "https://holdlog.example"}
    assert client.post("/body", headers=own).status_code == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "holdlog.example", ""):
        response = client.post("/body", headers={"origin": origin})
        assert response.status_code == 403, origin
        assert "access-control-allow-origin" not in response.headers


def test_cross_site_subresource_requests_are_refused(client: httpx2.Client) -> None:
    image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/body", headers=image).status_code == 403
    assert client.get("/body", headers=image | {"sec-fetch-mode": "navigate"}).status_code == 200
    assert client.get("/body", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_cors_is_off_by_default(client: httpx2.Client) -> None:
    asked = {"origin": "https://app.example", "access-control-request-method": "PUT"}
    assert client.options("/body", headers=asked).status_code == 403
    with application(("allowed_origins", ("https://app.example",))) as open_, open_.client() as other:
        preflight = other.options("/body", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        value = other.get("/kv/g/k", headers={"origin": "https://app.example"})
        assert value.headers["vary"] == "accept, Origin"
        response = other.get("/body", headers={"origin": "https://app.example"})
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        assert response.headers["vary"] == "Origin"
        assert other.get("/body", headers={"origin": "https://other.example"}).status_code == 403
        assert other.get("/body", headers={"origin": "null"}).status_code == 403


# --- bytes


@pytest.mark.parametrize(
    "target",
    [b"/%ff", b"/a%00b", b"/../etc/passwd", b"/kv/%2e%2e/x", b"/kv/..%5cx", b"/body?x=%ff", b"/body?x=%00", b"/\xff"],
)
def test_invalid_or_climbing_request_target_is_refused_with_400(served: Served, target: bytes) -> None:
    request = b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert served.raw(request)[0] == 400


@pytest.mark.parametrize(
    "request_",
    [
        b"HELLO\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /body HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /body HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /body HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_malformed_http_is_refused_with_400(served: Served, request_: bytes) -> None:
    status, body = served.raw(request_)
    assert status == 400
    assert body["status"] == "error"


def test_response_to_a_malformed_request_is_never_taken_for_an_earlier_one(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nhost: localhost\r\n\r\nNONSENSE\r\n\r\n")
        assert connection.recv(100) == b""


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    ("length", "body"),
    [(b"content-length: 5", b"hello"), (b"transfer-encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n")],
)
def test_requested_protocol_upgrade_is_ignored(served: Served, protocol: bytes, length: bytes, body: bytes) -> None:
    upgrade = b"host: localhost\r\nconnection: upgrade\r\nupgrade: " + protocol + b"\r\n"
    head = b"POST /body HTTP/1.1\r\n" + upgrade + length + b"\r\n\r\n"
    last = b"POST /body HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + length + b"\r\n\r\n" + body
    for parts in ([head + body + last], [head, body, last], [head + body[:1], body[1:] + last]):
        with served.connect() as connection:
            for part in parts:
                connection.sendall(part)
            answers = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answers.count(b"HTTP/1.1 200") == 2
        assert answers.count(b'{"bytes":5}') == 2
    gets = (b"GET /body HTTP/1.1\r\n" + upgrade + b"\r\n") * 300
    with served.connect() as connection:
        connection.sendall(gets + last)
        assert b"".join(iter(lambda: connection.recv(65536), b"")).count(b"HTTP/1.1 200") == 301


def test_connect_requests_get_no_tunnel(served: Served) -> None:
    for target in (b"example.org:80", b"/body"):
        request = b"CONNECT " + target + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello"
        assert served.raw(request)[0] == 400


def test_stream_ends_with_its_client_even_with_pipelined_requests(
    served: Served, client: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with served.connect() as connection:
        head = b" HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        connection.sendall(b"GET /events" + head + b"GET /body" + head)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    deadline = time.monotonic() + PATIENCE
    while 'holdlog_http_streams{route="/events"} 0.0' not in client.get("/metrics").text:
        assert time.monotonic() < deadline
        client.get("/value", params={"key": "of the stream"})
    assert not caplog.records


def test_unknown_paths_and_methods_are_reported_as_json(client: httpx2.Client) -> None:
    missing = client.get("/nothing/here")
    assert missing.status_code == 404
    assert error_of(missing)
    assert client.get("/body/").status_code == 404
    wrong = client.put("/body")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    assert error_of(wrong) == "method not allowed; this path accepts GET, HEAD, POST"


def test_internal_error_is_reported_without_its_text(client: httpx2.Client) -> None:
    response = client.get("/broken")
    assert response.status_code == 500
    assert "secret" not in error_of(response)


# --- sizes


def test_request_body_size_is_limited(client: httpx2.Client) -> None:
    assert client.post("/body", content=b"x" * 10_000).json() == {"bytes": 10_000}
    response = client.post("/body", content=b"x" * 10_001)
    assert response.status_code == 413
    assert "10000 bytes" in error_of(response)
    assert client.get("/body").status_code == 200


def test_chunked_request_body_is_counted_while_it_arrives(client: httpx2.Client) -> None:
    def chunks(number: int) -> Iterator[bytes]:
        yield from [b"x" * 1000] * number

    assert client.post("/body", content=chunks(10)).json() == {"bytes": 10_000}
    assert client.post("/body", content=chunks(11)).status_code == 413


def test_request_headers_are_limited_in_size_and_number(served: Served) -> None:
    start = b"GET /body HTTP/1.1\r\nhost: localhost\r\n"
    large = b"x: " + b"y" * connections.MAX_HEADER_BYTES + b"\r\n"
    assert served.raw(start, large, b"\r\n")[0] == 431
    assert served.raw(start + b"x: y\r\n" * 101 + b"\r\n")[0] == 431
    assert served.raw(b"GET /" + b"x" * connections.MAX_HEADER_BYTES + b" HTTP/1.1\r\n\r\n")[0] == 431
    with served.connect() as connection:
        connection.sendall(start)
        with suppress(OSError):  # which one depends on who is faster
            for _ in range(1000):
                connection.sendall(large)
            pytest.fail("everything was taken")


def test_client_that_still_sends_reads_the_refusal_of_its_headers(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /body HTTP/1.1\r\nx: " + b"y" * connections.MAX_HEADER_BYTES)
        assert select.select([connection], [], [], PATIENCE)[0]
        for _ in range(10):
            connection.sendall(b"y" * 1000)  # to a closed connection: the answer would be lost with a reset
        assert answered(connection)[0] == 431


def test_trailers_are_dropped(served: Served) -> None:
    head = b"POST /body HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    assert served.raw(head + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 500 + b"\r\n") == (200, {"bytes": 1})


# --- time


@pytest.mark.check
def test_client_that_does_not_finish_its_headers_gets_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_SECONDS", 0.2)
    with application() as served:
        for start in (b"", b"GET /body HT", b"GET /body HTTP/1.1\r\nhost: localhost\r\nx: ", b"\r\n"):
            assert served.raw(start)[0] == 408
        with served.connect() as connection:
            connection.sendall(b"GET /body HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET /bo")
            assert answered(connection)[0] == 408


def test_client_that_sends_its_body_byte_by_byte_gets_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)
    with application() as served, served.connect() as connection:
        connection.sendall(b"POST /body HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n")
        while not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"x")
        assert answered(connection)[0] == 408


@pytest.mark.check
def test_client_that_waits_for_a_response_gets_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_SECONDS", 0.1)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.1)
    with application() as served, served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nhost: localhost\r\n\r\nGET /body HTTP/1.1\r\nhost: lo")
        connection.settimeout(2.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        served.let_go.set()
        connection.sendall(b"calhost\r\nconnection: close\r\n\r\n")
        connection.settimeout(PATIENCE)
        assert answered(connection) == (200, {"bytes": 0})


def test_client_that_disconnects_with_queued_requests_is_dropped_without_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ask(path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    with application(("max_in_flight", 1)) as served, served.client() as client:
        for path in ("/events?wait=40", "/held"):
            with served.connect() as vanishing:
                vanishing.sendall(ask("/body") + ask(path) + ask("/body"))
                until(lambda: client.get("/body").status_code == 429)
                vanishing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if path == "/held":
                served.let_go.set()
            until(lambda: client.get("/body").status_code == 200)
    assert caplog.records == []


def test_number_of_connections_is_limited() -> None:
    with application(("max_connections", 3)) as served, ExitStack() as stack:
        held = [stack.enter_context(served.connect()) for _ in range(3)]
        for connection in held:
            connection.sendall(b"GET /body HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with served.connect() as another:
            assert answered(another)[0] == 503
        held[0].close()
        with served.client() as client:
            until(lambda: _status(client) == 200)


def _status(client: httpx2.Client) -> int:
    return client.get("/body", headers={"connection": "close"}).status_code


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- who, and how much


def test_token_is_accepted_in_a_header_only() -> None:
    with application(tokens=Tokens()) as served:
        with served.client() as nobody:
            response = nobody.get("/body?token=good&x-token=good")
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert nobody.get("/body", headers={"x-token": "good"}).status_code == 200
            assert nobody.get("/body", headers={"authorization": "Basic good"}).status_code == 401
            assert nobody.get("/healthz").status_code == 200
        with served.client("bad") as bad:
            assert 'error="invalid_token"' in bad.get("/body").headers["www-authenticate"]
        with served.client("reader") as reader:
            denied = reader.post("/value?key=a")
            assert denied.status_code == 403
            assert denied.json()["needed"] == "write-values:n"


def test_invalid_header_is_reported_by_its_name(client: httpx2.Client) -> None:
    for name in ("Idempotency-Key", "Holdlog-Session"):
        response = client.get("/body", headers={name: "x" * 200})
        assert response.status_code == 400
        assert error_of(response).startswith(f"{name}: ")
        for given in (b"k-\xff", b"\xc3\x28", b"\xed\xa0\x80"):
            response = client.get("/body", headers={name.encode(): given})
            assert (response.status_code, error_of(response)) == (400, f"{name}: must be UTF-8")


def test_wrong_tokens_do_not_block_valid_ones_from_the_same_address() -> None:
    with application(("max_requests", 3), tokens=Tokens()) as served:
        with served.client() as bad:
            wrong = {bad.get("/body", headers={"x-token": f"{number}"}).status_code for number in range(80)}
            assert wrong == {401}
        with served.client("good") as good:
            assert good.get("/body").status_code == 200


def test_concurrent_calls_per_principal_are_limited_and_others_unaffected() -> None:
    with application(("max_in_flight", 5), tokens=Tokens()) as served, ThreadPoolExecutor(20) as pool:
        good, reader = served.client("good"), served.client("reader")
        with good, reader:
            held = [pool.submit(good.get, "/held") for _ in range(20)]
            until(lambda: sum(it.done() for it in held) == 15)
            refused = [it.result() for it in held if it.done()]
            assert {it.status_code for it in refused} == {429}
            assert refused[0].headers["retry-after"] == "1"
            assert "--max-in-flight" in error_of(refused[0])
            assert reader.get("/body").status_code == 200
            served.let_go.set()
            assert sorted(it.result().status_code for it in held)[:5] == [200] * 5
            assert good.get("/body").status_code == 200


def test_requests_and_bytes_per_minute_are_limited() -> None:
    with application(("max_requests", 3), tokens=Tokens()) as served:
        good, reader = served.client("good"), served.client("reader")
        with good, reader:
            assert [good.get("/body").status_code for _ in range(4)] == [200, 200, 200, 429]
            assert 1 <= int(good.get("/body").headers["retry-after"]) <= 20
            assert good.get("/healthz").status_code == 200
            nobody = [served.client().get("/openapi.json").status_code for _ in range(4)]
            assert nobody == [200, 200, 200, 429]
            assert reader.get("/body").status_code == 200
    with application(("max_upload", 1000)) as served, served.client() as client:
        assert client.post("/body", content=b"x" * 999).status_code == 200
        assert client.post("/body", content=b"x" * 999).status_code == 200
        assert client.post("/body", content=b"x").status_code == 429


def test_number_of_keys_is_limited_and_existing_keys_stay_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "COUNTED_EVERY", 0)
    numbers = itertools.count()
    with application(("max_keys", 3)) as served, served.client() as client:
        until(lambda: client.post(f"/value?key={next(numbers)}").status_code == 429)
        response = client.post("/value?key=another")
        assert response.status_code == 429
        assert "retry-after" in response.headers
        assert "--max-keys" in response.json()["message"]
        assert client.post("/value?key=0").status_code == 200


def test_threads_count_as_keys_and_existing_threads_stay_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "COUNTED_EVERY", 0)
    numbers = itertools.count()

    def start(number: int) -> httpx2.Response:
        return client.post("/threads", json={"thread_id": f"t{number}"})

    with application(("max_keys", 3)) as served, served.client() as client:
        until(lambda: start(next(numbers)).status_code == 429)
        assert "--max-keys" in start(next(numbers)).json()["message"]
        assert start(0).status_code == 200
        items = {"messages": [{"type": "text", "role": "user", "content": "hi"}]}
        assert client.post("/threads/t0/items", json=items).status_code == 200


def test_page_has_a_sentence_for_every_event_but_those_of_tokens() -> None:
    page = (Path(app.__file__).parent / "page.html").read_text()
    missing = [topic for topic in EVENTS if f"\n  {topic}: (e)" not in page]
    assert all(topic.startswith("Token") for topic in missing), missing
