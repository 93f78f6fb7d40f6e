"""What whoever runs a server can see of it: probes, figures, the access log, traces, the OpenAPI document."""

import asyncio
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from fastmcp import Client
from jsonschema import Draft202012Validator
from openapi_pydantic import OpenAPI
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import StreamingResponse
from starlette.routing import Route

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.operations.access_log import AccessLog, AccessLogEntry
from holdlog.adapters.http.operations.metrics import Metrics
from holdlog.adapters.http.operations.observers import MetricsMiddleware
from holdlog.adapters.http.operations.tracing import Traces
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.groups import GROUPS
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.nats.relay import Status
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.sqlite.memory import MemoryDatabase
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.commands import Sweep
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.refusals import BusyError, ConflictError, UnavailableError
from tests.support.agent import engine
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, until_async
from tests.support.curl import openapi_document
from tests.support.http import HttpServer, http_server
from tests.support.processes.workers import until

SECRET = "holdlog_ci_" + "s3cret" * 7
Numbers = Callable[..., float]


@asynccontextmanager
async def serving(store: Engine, verifier: Any = None, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the whole application."""
    relay, ending = options.pop("relay", None), options.pop("ending", Shutdown())
    spaces = options.pop("spaces", None) or Tenants(":memory:", store, Settings())
    mcp = build_server(None, tuple(GROUPS))
    app: Any = build_app(mcp, spaces, verifier, HttpOptions(**options), ending, relay)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    inner = starlette_of(app)
    async with inner.router.lifespan_context(inner), httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        yield client


def starlette_of(app: Any) -> Starlette:
    """The application within what is around it."""
    while not isinstance(app, Starlette):
        app = app._app
    return app


BASE = "http://127.0.0.1:8420"


async def figures(client: httpx2.AsyncClient, token: str | None = None) -> Numbers:
    """The number of a figure with these labels; 0 where there is none."""
    answer = await client.get("/metrics", headers={"x-token": token} if token else {})
    assert answer.status_code == 200, answer.text
    return numbers(answer.text)


def numbers(text: str) -> Numbers:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def number(name: str, **labels: str) -> float:
        return sum(it.value for it in samples if it.name == name and labels.items() <= it.labels.items())

    return number


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    place = tmp_path_factory.mktemp("operations") / "state.db"
    with http_server(place, "--access-log", "json", "--tools", "all") as started:
        yield started


# --- probes


class Stuck(SqliteStore):
    """A store that says nothing until `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.asked = 0
        self.error: UnavailableError | None = None

    @contextmanager
    def reader(self) -> Iterator[SqliteReader]:
        self.asked += 1
        self.goes_on.wait()
        if self.error is not None:
            raise self.error
        with super().reader() as reader:
            yield reader


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    store = Stuck()
    yield store
    store.goes_on.set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdlog.adapters.http.operations.routes.PROBE_TIMEOUT", 0.1)
    monkeypatch.setattr("holdlog.adapters.http.operations.routes.READY_FRESH", 0.0)


async def test_server_is_ready_while_its_store_can_be_read() -> None:
    with engine() as store:
        async with serving(store) as client:
            for path in ("/healthz", "/readyz"):
                answer = await client.get(path)
                assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
                assert (await client.head(path)).status_code == 200


@pytest.mark.usefixtures("impatient")
async def test_hanging_store_is_reported_in_time_and_probed_by_one_thread_only(stuck: Stuck) -> None:
    with engine(store=stuck) as store:
        async with serving(store) as client:
            stuck.goes_on.clear()
            asked = stuck.asked
            answers = await asyncio.gather(*(client.get("/readyz") for _ in range(20)))
            assert {answer.status_code for answer in answers} == {503}
            assert {answer.json()["message"] for answer in answers} == {"the store does not respond"}
            assert answers[0].headers["retry-after"] == "1"
            assert stuck.asked == asked + 1
            assert (await client.get("/healthz")).status_code == 200
            stuck.goes_on.set()
            await becomes_ready(client)


@pytest.mark.usefixtures("impatient")
async def test_reason_for_not_being_ready_is_logged_once_and_not_sent_to_clients(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(store=stuck) as store:
        async with serving(store) as client:
            stuck.error = UnavailableError("could not connect to db.internal")
            for _ in range(3):
                answer = await client.get("/readyz")
                assert (answer.status_code, answer.json()["message"]) == (503, "the store cannot be read now")
            assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
                "not ready: could not connect to db.internal"
            ]
            stuck.error = None
            assert await ready(client)


async def test_probes_within_a_second_share_one_check(stuck: Stuck) -> None:
    with engine(store=stuck) as store:
        async with serving(store) as client:
            asked = stuck.asked
            for _ in range(50):
                assert await ready(client)
            assert stuck.asked - asked <= 3  # a slow machine may need more than a second


async def test_server_about_to_end_reports_not_ready() -> None:
    ending = Shutdown()
    with engine() as store:
        async with serving(store, ending=ending) as client:
            ending.began = True
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()["message"]) == (503, "the server is shutting down")
            assert (await client.get("/healthz")).status_code == 200


@pytest.mark.check
def test_server_about_to_end_reports_it_while_it_still_answers(tmp_path: Path) -> None:
    with http_server(tmp_path / "state.db", "--drain-seconds", "2") as server, httpx2.Client() as client:
        assert client.get(f"{server.url}/readyz").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        until(lambda: client.get(f"{server.url}/readyz").status_code == 503)
        assert client.get(f"{server.url}/healthz").status_code == 200
        assert server.ended() == 0


@pytest.mark.usefixtures("impatient")
async def test_silent_database_makes_a_server_not_ready_within_its_time_limit(postgres: str) -> None:
    store: Any = open_holdlog(postgres)
    try:
        async with serving(store) as client:
            assert await ready(client)
            (connection,) = store.store._idle
            os.kill(connection.info.backend_pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                assert not await ready(client)
                assert time.monotonic() - began < 5
            finally:
                os.kill(connection.info.backend_pid, signal.SIGCONT)
            await becomes_ready(client)
    finally:
        store.close()


async def ready(client: httpx2.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def becomes_ready(client: httpx2.AsyncClient) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await ready(client):
        assert time.monotonic() < deadline


# --- figures


async def test_commands_of_every_surface_are_counted_by_kind_and_outcome() -> None:
    with engine() as store:
        async with serving(store) as client:
            ann = Caller(session="s1")
            await store.write_async(store.requests.values.set("n", "k", 1, "ann", 0), ann)
            with pytest.raises(ConflictError):
                await store.write_async(store.requests.values.set("n", "k", 2, "ann", 0), ann)
            await asyncio.to_thread(store.write, store.requests.values.delete("n", "k", "ann", None), ann)
            await store.claim_async(store.requests.claims.claim("a.md", "ann"), ann)
            await store.claim_async(store.requests.claims.claim("a.md", "ann"), ann)
            with pytest.raises(BusyError):
                await store.claim_async(store.requests.claims.claim("a.md", "ben"), ann)
            await store.write_async(store.requests.claims.release("a.md", "ann"), ann)
            number = await figures(client)
            told = {
                ("set", "ok"): 1,
                ("set", "conflict"): 1,
                ("delete", "ok"): 1,
                ("claim", "claimed"): 1,
                ("claim", "already_claimed"): 1,
                ("claim", "busy"): 1,
                ("release", "released"): 1,
            }
            for (kind, outcome), count in told.items():
                assert number("holdlog_commands_total", kind=kind, outcome=outcome) == count, (kind, outcome)
            assert number("holdlog_command_seconds_count", kind="set") == 2
            assert number("holdlog_command_seconds_bucket", kind="set", le="+Inf") == 2
            assert number("holdlog_batch_commands_sum") == 7
            assert number("holdlog_events_total", topic="ValueWritten") == 1
            assert number("holdlog_events_total", topic="ClaimGranted") == 1
            assert number("holdlog_store_position") == 4


async def test_store_errors_and_rejected_commands_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine() as store:
        async with serving(store) as client:
            store.store.close()
            with pytest.raises(Exception, match="closed"):
                await store.write_async(store.requests.values.set("n", "k", 1, "ann", 0), NOBODY)
            monkeypatch.setattr("holdlog.adapters.runtime.group_commit.MAX_WAITING", 0)
            with pytest.raises(UnavailableError):
                await store.write_async(store.requests.values.set("n", "k", 1, "ann", 0), NOBODY)
            number = await figures(client)
            assert number("holdlog_commands_total", kind="set", outcome="store") == 1
            assert number("holdlog_commands_turned_away_total") == 1
            assert number("holdlog_store_up") == 0


async def test_failing_command_observer_harms_no_caller(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with engine() as store:
        async with serving(store):
            monkeypatch.setattr(Metrics, "ran", lambda *_: 1 / 0)
            answer = await store.write_async(store.requests.values.set("n", "k", 1, "ann", 0), NOBODY)
            assert answer.version == 1
            assert "failed to record" in caplog.text


async def test_expired_leases_are_counted_when_they_are_noticed() -> None:
    clock = Clock()
    with engine(clock=clock) as store:
        async with serving(store) as client:
            await store.claim_async(store.requests.claims.claim("a.md", "ann", lease_seconds=1), Caller(session="s"))
            clock.pass_by(2)
            await store.writer.run_async(Sweep(), NOBODY)
            number = await figures(client)
            assert number("holdlog_events_total", topic="ClaimExpired") == 1


async def test_waiters_are_shown_in_the_metrics() -> None:
    with engine() as store:
        async with serving(store) as client:
            assert (await figures(client))("holdlog_waiters") == 0
            wait = asyncio.create_task(store.wait_async(store.requests.values.watch("n", "k", 0)))
            await until_async(lambda: store.lease_maintenance.waiters == 1)
            assert (await figures(client))("holdlog_waiters") == 1
            wait.cancel()


async def test_relay_lag_is_reported_once_it_is_known() -> None:
    status = [Status("connecting")]
    with engine() as store:
        async with serving(store, relay=lambda: status[0]) as client:
            await store.write_async(store.requests.values.set("n", "k", 1, "ann", 0), NOBODY)
            await store.write_async(store.requests.values.set("n", "k", 1, "ann", 1), NOBODY)
            assert "relay_lag" not in (await client.get("/metrics")).text
            status[0] = Status("failed", position=1)
            number = await figures(client)
            assert number("holdlog_relay_lag_events") == 1
            assert number("holdlog_relay_state", state="failed") == 1
            assert number("holdlog_relay_state") == 1
            status[0] = Status("waiting", position=1)
            assert "relay_lag" not in (await client.get("/metrics")).text


async def test_spaces_and_their_commands_are_counted() -> None:
    with engine() as store:
        spaces = Tenants(":memory:", store, Settings())
        async with serving(store, spaces=spaces) as client:
            async with spaces.enter("team") as space:
                await space.write_async(space.requests.values.set("n", "k", 1, "ann", 0), NOBODY)
            number = await figures(client)
            assert number("holdlog_spaces_open") == 1
            assert number("holdlog_commands_total", kind="set") == 1


async def test_open_event_streams_are_counted() -> None:
    metrics, ends = Metrics(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b": hello\n\n"
        await ends.wait()

    async def stream(request: Any) -> StreamingResponse:
        return StreamingResponse(lines(), media_type="text/event-stream")

    def number(name: str) -> float:
        return numbers(metrics.exposed().decode())(name, route="/events")

    routes = [Route("/events", stream)]
    app = Starlette(routes=routes, middleware=[Middleware(MetricsMiddleware, routes=routes, metrics=metrics)])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        asked = asyncio.create_task(client.get("/events"))
        await until_async(lambda: number("holdlog_http_streams") == 1)
        ends.set()
        await asked
        assert number("holdlog_http_streams") == 0
        assert number("holdlog_http_sent_bytes_total") == len(": hello\n\n")


@pytest.mark.check
async def test_mcp_calls_are_counted_as_tools_requests_and_commands(server: HttpServer) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as curl:
        before = await figures(curl)
        async with Client(f"{server.url}/mcp") as client:
            await client.call_tool("holdlog_claim", {"resource": "custom://m", "agent": "ann"})
            await client.call_tool("holdlog_claim", {"resource": "custom://m", "agent": "ben"})
            await client.call_tool("holdlog_get", {"namespace": "n", "key": "k"})
            await client.call_tool_mcp(f"no_{SECRET}", {})
        after = await figures(curl)

    def more(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    assert more("holdlog_tool_calls_total", tool="holdlog_claim", status="claimed") == 1
    assert more("holdlog_tool_calls_total", tool="holdlog_claim", status="busy") == 1
    assert more("holdlog_tool_calls_total", tool="holdlog_get", status="not_found") == 1
    assert more("holdlog_tool_calls_total", tool="none", status="error") == 1
    assert more("holdlog_commands_total", kind="claim") == 2
    assert more("holdlog_http_requests_total", route="/mcp", method="POST", status="200") >= 4
    assert after("holdlog_store_bytes", store="main") > 0
    assert after("process_resident_memory_bytes") > 0


@pytest.mark.check
async def test_metrics_contain_nothing_that_clients_wrote(server: HttpServer) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as curl, Client(f"{server.url}/mcp") as client:
        resource = {"resource": f"custom://{SECRET}", "agent": SECRET, "note": SECRET}
        await client.call_tool("holdlog_claim", resource)
        await client.call_tool_mcp(SECRET, {})
        for path in (f"/{SECRET}", f"/kv/{SECRET}/{SECRET}", f"/healthz?token={SECRET}"):
            await curl.get(path, headers={"x-request-id": SECRET, "user-agent": SECRET})
        await curl.request("PROPFIND", "/healthz")
        text = (await curl.get("/metrics")).text
    assert SECRET[11:20] not in text.lower()
    assert numbers(text)("holdlog_http_requests_total", method="other") == 1


class Known:
    """Principals by their tokens."""

    def __init__(self, **principals: Principal) -> None:
        self._principals = principals

    async def verify(self, text: str) -> Principal | None:
        return self._principals.get(text)


async def test_metrics_need_a_token_that_may_read_everything() -> None:
    known = Known(
        root=Principal("token:root", EVERYTHING),
        some=Principal("token:some", Grants.parse(["admin:build-*", "write:*"])),
        tenant=Principal("token:tenant", EVERYTHING, space="team"),
        theirs=Principal("token:theirs", Grants.parse(["metrics:*"]), space="team"),
    )
    with engine() as store:
        async with serving(store, known) as client:
            assert (await client.get("/metrics")).status_code == 401
            for token in ("some", "tenant", "theirs"):
                answer = await client.get("/metrics", headers={"x-token": token})
                assert (answer.status_code, answer.json()["status"]) == (403, "denied")
            assert (await figures(client, "root"))("holdlog_http_requests_total", status="403") == 3
            for path in ("/healthz", "/readyz", "/openapi.json"):
                assert (await client.get(path)).status_code == 200


async def test_token_for_metrics_reads_the_metrics_and_nothing_else() -> None:
    known = Known(prometheus=Principal("token:prometheus", Grants.parse(["metrics:*"])))
    shown = {"x-token": "prometheus"}
    with engine() as store:
        store.write(store.requests.values.set("n", "k", 1, "ann", None), NOBODY)
        store.write(store.requests.claims.register("ann", name="Ann"), NOBODY)
        async with serving(store, known) as client:
            assert (await figures(client, "prometheus"))("holdlog_store_up") == 1
            for path in ("/kv/n/k", "/kv/n", "/claims/a.py", "/threads/t", "/events?namespace=n"):
                refused = await client.get(path, headers=shown)
                assert (refused.status_code, refused.json()["status"]) == (403, "denied"), path
            put = await client.put("/kv/n/k", content="{}", headers=shown)
            assert put.status_code == 403
            assert (await client.get("/kv", headers=shown)).json()["namespaces"] == []
            events = await client.get("/events", headers=shown | {"accept": "application/json"})
            assert events.json()["events"] == []


async def test_documents_name_every_metric_and_no_other() -> None:
    told = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    named = set(re.findall(r"^\| `(holdlog_\w+)", told, re.MULTILINE))
    with engine() as store:
        async with serving(store, relay=lambda: Status("current", position=1)) as client:
            text = (await client.get("/metrics")).text
    there = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE holdlog_")}
    assert named == there
    for name in set(re.findall(r"holdlog_\w+", told[told.index("```yaml") :])) - {"holdlog_store_"}:
        assert name.removesuffix("_bucket") in there


def test_documented_alerts_are_valid_prometheus_rules() -> None:
    (rules,) = re.findall(
        r"```yaml\n(.*?)```", (Path(__file__).parents[3] / "docs/operations.md").read_text(), re.DOTALL
    )
    (group,) = yaml.safe_load(rules)["groups"]
    assert all({"alert", "expr", "for"} == rule.keys() for rule in group["rules"])


async def test_route_with_path_parameters_has_one_label() -> None:
    with engine() as store:
        async with serving(store) as client:
            for path in ("/nowhere", "/nowhere/2", "/healthz/3"):
                assert (await client.get(path)).status_code == 404
            await client.post("/healthz")
            number = await figures(client)
            assert number("holdlog_http_requests_total", route="none", status="404") == 3
            assert number("holdlog_http_requests_total", route="/healthz", status="405") == 1


async def test_paths_with_names_are_labelled_by_their_route_and_never_named() -> None:
    with engine() as store:
        async with serving(store) as client:
            for path in ("/kv", "/kv/a", "/kv/b%2Fc", "/kv/a/b", "/kv/a/%2F", "/claims/src/a.py", "/kv/a/b/c/d"):
                await client.get(path)
            number = await figures(client)
    for route, count in {
        "/kv": 1,
        "/kv/{group}": 2,
        "/kv/{group}/{key}": 2,
        "/claims/{resource}": 1,
        "none": 1,
    }.items():
        assert number("holdlog_http_requests_total", route=route) == count


# --- the access log


@pytest.mark.check
async def test_access_log_has_one_line_per_request_without_secrets(server: HttpServer) -> None:
    seen = len(access_lines(server))
    script, forged = "<script>alert(1)</script>", "%0d%0aat=forged%20status=200"
    async with httpx2.AsyncClient(base_url=server.url) as client:
        given = {"authorization": f"Bearer {SECRET}", "x-token": SECRET, "x-request-id": "ann.1"}
        assert (await client.get("/healthz", headers=given)).headers["x-request-id"] == "ann.1"
        assert (await client.get(f"/{script}{forged}/{SECRET}")).status_code == 404
        await client.get(f"/healthz?token={SECRET}&{forged}={script}")
        made = (await client.post("/healthz", content=SECRET, headers={"x-request-id": f"{script}"})).headers
        assert re.fullmatch("[0-9a-f]{16}", made["x-request-id"])
    until(lambda: len(access_lines(server)) == seen + 4)
    lines = access_lines(server)[seen:]
    for told in lines:
        assert SECRET not in told
        assert "script" not in told
        assert "forged" not in told
    told = [json.loads(line) for line in lines]
    assert [(it["method"], it["route"], it["status"]) for it in told] == [
        ("GET", "/healthz", 200),
        ("GET", "none", 404),
        ("GET", "/healthz", 200),
        ("POST", "/healthz", 405),
    ]
    assert told[0]["request"] == "ann.1"
    assert told[0]["bytes"] == 15
    assert 0 < told[0]["ms"] < 60_000


def access_lines(server: HttpServer) -> list[str]:
    """What the server wrote on stderr so far, but for what it says of itself."""
    assert server.process.stderr is not None
    os.set_blocking(server.process.stderr.fileno(), False)
    while text := server.process.stderr.read(65536):
        server.said += text.decode().splitlines()
    return [line for line in server.said if line.startswith("{")]


@pytest.mark.parametrize("form", ["text", "json"])
def test_name_in_the_access_log_forges_no_line_and_moves_no_cursor(form: Any) -> None:
    to = io.StringIO()
    name = 'jwt:ann" status=200\n\x1b[2J at=\u202e\u2028'
    AccessLog(form, to).write(AccessLogEntry("GET", "/kv/{group}/{key}", 200, 1.25, 3, name, "r", None))
    text = to.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert text.isascii()
    if form == "json":
        assert json.loads(text)["principal"] == name
    else:
        assert re.fullmatch(
            r"at=\S+Z method=GET route=/kv/\{group}/\{key} status=200 ms=1.25 bytes=3"
            r' principal="jwt:ann\\" status=200\\n.*" request=r',
            text[:-1],
        )


async def test_access_log_names_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    known = Known(root=Principal("token:root", EVERYTHING))
    with engine() as store:
        async with serving(store, known, access_log="text") as client:
            await client.get("/metrics", headers={"x-token": "root"})
            await client.get("/metrics", headers={"x-token": "none"})
    first, second = capsys.readouterr().err.splitlines()
    assert "status=200" in first
    assert "principal=token:root" in first
    assert "status=401" in second
    assert "principal" not in second


async def test_access_log_is_off_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    with engine() as store:
        async with serving(store) as client:
            assert "x-request-id" not in (await client.get("/healthz")).headers
    assert capsys.readouterr().err == ""


# --- traces

CALLERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("holdlog.adapters.http.operations.routes.find_traces", lambda: Traces(provider))
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [span for span in spans.get_finished_spans() if span.name == name]
    return span


async def test_request_is_a_span_of_the_trace_of_its_caller(spans: InMemorySpanExporter) -> None:
    known = Known(root=Principal("token:root", EVERYTHING))
    with engine() as store:
        async with serving(store, known) as client:
            await client.get("/openapi.json", headers={"traceparent": CALLERS})
            await client.get(f"/{SECRET}?{SECRET}", headers={"x-token": "root"})
            for path in ("/healthz", "/readyz", "/metrics"):
                await client.get(path, headers={"x-token": "root"})
    known_route, no_route = spans.get_finished_spans()
    assert known_route.name == "GET /openapi.json"
    assert known_route.parent is not None
    assert f"{known_route.context.trace_id:032x}-{known_route.parent.span_id:016x}" == CALLERS[3:52]
    assert (known_route.attributes or {})["http.response.status_code"] == 200
    assert no_route.name == "GET none"
    assert (no_route.attributes or {})["enduser.id"] == "token:root"
    assert SECRET not in "".join(span.to_json() for span in (known_route, no_route))


async def test_command_is_a_span_within_its_request(spans: InMemorySpanExporter) -> None:
    with engine() as store:
        async with serving(store) as client:
            tracer = TracerProvider().get_tracer("test")
            with tracer.start_as_current_span("request") as request:
                await store.write_async(store.requests.values.set("n", SECRET, SECRET, SECRET, 0), NOBODY)
                with pytest.raises(ConflictError):
                    await store.write_async(store.requests.values.set("n", SECRET, 2, "ann", 7), NOBODY)
            await store.write_async(store.requests.values.delete("n", SECRET, "ann", None), NOBODY)  # of nobody's trace
            assert (await figures(client))("holdlog_commands_total") == 3
    written, refused = spans.get_finished_spans()
    assert written.name == "holdlog set"
    assert written.parent is not None
    assert written.parent.span_id == request.get_span_context().span_id
    assert dict(written.attributes or {}) == {
        "holdlog.command": "set",
        "holdlog.outcome": "ok",
        "holdlog.batch": 1,
        "holdlog.position": 1,
    }
    assert (written.start_time or 0) < (written.end_time or 0)
    assert (refused.attributes or {})["holdlog.outcome"] == "conflict"
    assert SECRET not in written.to_json() + refused.to_json()


def test_requests_without_an_sdk_are_not_traced() -> None:
    find = "from holdlog.adapters.http.operations.tracing import find_traces; print(find_traces())"
    assert said_by(find).strip() == "None"
    configured = (
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
        f"trace.set_tracer_provider(TracerProvider()); {find}"
    )
    assert "Traces object" in said_by(configured)


@pytest.mark.check
def test_server_over_stdio_imports_no_http_operations() -> None:
    served = "import sys; import holdlog.adapters.cli.serve, holdlog.adapters.mcp.stdio.serving;"
    served += " from holdlog.adapters.mcp.server import build_server"
    loaded = said_by(f"{served}; build_server(None, ('claims',)); print(*sys.modules)").split()
    served_over_http = {name for name in loaded if name.startswith(("prometheus_client", "holdlog.adapters.http"))}
    assert served_over_http == {"holdlog.adapters.http", "holdlog.adapters.http.options"}  # the parser has the options


def said_by(program: str) -> str:
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


# --- the OpenAPI document


async def test_every_route_but_mcp_and_the_page_is_in_the_openapi_document() -> None:
    with engine() as store:
        async with serving(store) as client:
            found = (await client.get("/openapi.json")).json()
            for route in starlette_of(client._transport.app).routes:  # type: ignore[attr-defined]
                if route.path not in ("/mcp", "/"):
                    assert route.path.replace(":path}", "}") in found["paths"]


def test_openapi_document_is_valid() -> None:
    found = openapi_document()
    OpenAPI.model_validate(found)
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)))
    assert references <= set(found["components"]["schemas"])
    for schema in found["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for path, parts in found["paths"].items():
        given = {it["name"] for it in parts.get("parameters", ()) if it["in"] == "path"}
        assert given == set(re.findall(r"\{(\w+)}", path))


UNUSUAL = ("e\u0301" * 512, "日本 語", "jörg", ".../a..b", "%", "?#&=+", "a" * 512)
"""Names that the server accepts; the first has 512 characters in NFC, and twice as many as it is sent."""


@pytest.mark.parametrize("name", UNUSUAL)
async def test_openapi_document_accepts_names_that_the_server_accepts(name: str) -> None:
    with engine() as store:
        async with serving(store) as client:
            document = (await client.get("/openapi.json")).json()
            route = document["paths"]["/kv/{group}/{key}"]
            schemas = {it["name"]: it["schema"] for it in (*route["parameters"], *route["put"]["parameters"])}
            given = {"group": name, "key": name, "X-Agent": name.replace("/", "")[:64]}
            for argument, text in given.items():
                Draft202012Validator(schemas[argument]).validate(text)
            path = "/kv/" + "/".join("".join(f"%{byte:02X}" for byte in name.encode()) for _ in "gk")
            written = await client.put(path, content="x", headers={"x-agent": given["X-Agent"].encode()})
            assert written.status_code == 201, written.text
            (listed,) = (await client.get("/kv")).json()["namespaces"]
            assert listed["namespace"] == unicodedata.normalize("NFC", name)
