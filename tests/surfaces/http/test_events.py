"""GET /events over a real server: a stream that resumes without gap or double, and pages."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import uvicorn

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.http import events
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime import tail
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from tests.support.commands import PATIENCE, until_async
from tests.support.thread_story import KINDS, story

SSE = {"accept": "text/event-stream"}


class Tokens:
    """Every token of the form `grant grant …` is valid until it is revoked."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    async def verify(self, text: str) -> Principal | None:
        return None if text in self.revoked else Principal(f"token:{text}", Grants.parse(text.split()))


class Site(NamedTuple):
    engine: Engine
    client: httpx2.AsyncClient
    server: uvicorn.Server


@asynccontextmanager
async def site(place: Path | str, verifier: Any = None, settings: Settings | None = None) -> AsyncIterator[Site]:
    engine = open_holdlog(place, settings or Settings())
    spaces = Tenants(place, engine, Settings())
    app = build_app(build_server(None, ["claims"], ""), spaces, verifier, HttpOptions(), Shutdown())
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=10))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        await until_async(lambda: server.started)
        yield Site(engine, client, server)
    engine.finish_waiting()
    server.should_exit = True
    await asyncio.wait_for(serving, PATIENCE)
    engine.close()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path / "state.db") as it:
        yield it


def write(here: Site, key: str, value: Any = 1, namespace: str = "n") -> None:
    here.engine.write(here.engine.requests.values.set(namespace, key, value, "ann", None), NOBODY)


class Told(NamedTuple):
    id: int | None
    kind: str
    data: dict[str, Any]


class Stream:
    """An event stream as it is read, as the HTML standard says."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.comments = 0
        self.last = 0
        self._lines = response.aiter_lines()

    async def next(self) -> Told | None:
        """None: it ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    self.last = int(fields.get("id", self.last))
                    place = int(fields["id"]) if "id" in fields else None
                    return Told(place, fields["event"], json.loads(fields["data"]))
                else:
                    fields = {}
        return None

    async def some(self, count: int) -> list[Told]:
        """So many events, bookmarks apart."""
        found: list[Told] = []
        while len(found) < count:
            told = await self.next()
            assert told is not None
            if told.kind != "bookmark":
                found.append(told)
        return found

    async def rest(self) -> list[Told]:
        found = []
        while (told := await self.next()) is not None:
            found.append(told)
        return found


@asynccontextmanager
async def stream(here: Site, last: int | None = None, token: str | None = None, **asked: Any) -> AsyncIterator[Stream]:
    headers = SSE | ({} if last is None else {"last-event-id": f"{last}"})
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with here.client.stream("GET", "/events", params=asked, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield Stream(response)


# --- streams


async def test_event_stream_sends_past_events_new_ones_and_its_end_position(here: Site) -> None:
    write(here, "a", {"x": "line\nbreak <script>"})
    async with stream(here, after=0) as it:
        assert it.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        first = await it.next()
        assert first is not None
        assert (first.id, first.kind, first.data["id"]) == (1, "ValueWritten", "record:n/a@1")
        assert first.data["value"] == {"x": "line\nbreak <script>"}
        assert await it.next() == Told(1, "bookmark", {"position": 1})
        write(here, "b")
        here.engine.claim(here.engine.requests.claims.claim("src/", "bob"), NOBODY)
        assert [(told.id, told.kind) for told in await it.some(2)] == [(2, "ValueWritten"), (3, "ClaimGranted")]


async def test_event_stream_without_a_position_starts_now(here: Site) -> None:
    write(here, "a")
    async with stream(here) as it:
        assert await it.next() == Told(1, "bookmark", {"position": 1})
        write(here, "b")
        assert [told.id for told in await it.some(1)] == [2]


async def test_last_event_id_overrides_after(here: Site) -> None:
    for key in "abc":
        write(here, key)
    async with stream(here, after=0, last=2) as it:
        assert [told.id for told in await it.some(1)] == [3]


async def test_event_stream_sends_only_selected_events_and_bookmarks_advance(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.05)
    async with stream(here, after=0, namespace="m", kinds="ValueWritten,claim") as it:
        assert await it.next() == Told(0, "bookmark", {"position": 0})
        write(here, "a")
        assert await it.next() == Told(1, "bookmark", {"position": 1})
        write(here, "b", namespace="m")
        assert [told.id for told in await it.some(1)] == [2]
        before = it.comments
        assert await it.next() == Told(2, "bookmark", {"position": 2})
        write(here, "c", namespace="m")
        await it.some(1)
    assert before >= 0


async def test_idle_event_stream_sends_keep_alives(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.01)
    async with stream(here) as it:
        await it.next()
        reading = asyncio.create_task(it.next())
        await until_async(lambda: it.comments >= 3)
        write(here, "a")
        told = await reading
        assert told is not None


@pytest.mark.check
async def test_reconnecting_client_gets_every_event_exactly_once(here: Site) -> None:
    found: list[int] = []
    last = 0

    async def work() -> None:
        for number in range(300):
            await asyncio.to_thread(write, here, f"k{number % 7}", number)

    working = asyncio.create_task(work())
    while len(found) < 300:
        async with stream(here, last=last) as it:
            found += [told.data["position"] for told in await it.some(min(7, 300 - len(found)))]
            last = it.last  # and the connection is cut
    await working
    assert found == list(range(1, 301))


@asynccontextmanager
async def serving(place: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server process, killed at the end."""
    command = ["-m", "holdlog", "serve", "--transport", "http", "--db", str(place), "--port", f"{port}"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(PATIENCE), httpx2.AsyncClient() as client:
            while True:
                with suppress(httpx2.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200:
                        break
                await asyncio.sleep(0.05)  # it starts faster when nobody asks all the time
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.check
async def test_client_that_reconnects_to_restarted_servers_gets_every_event_once(tmp_path: Path) -> None:
    """Another process writes all the while."""
    place, count = tmp_path / "state.db", 400
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = open_holdlog(place)
    found: list[int] = []
    ahead = asyncio.Semaphore(50)

    async def work() -> None:
        for number in range(count):
            call = engine.requests.values.set("n", f"k{number % 7}", number, "ann", None)
            await asyncio.to_thread(engine.write, call, NOBODY)
            await ahead.acquire()

    working = asyncio.create_task(work())
    last = 0
    while len(found) < count:
        async with serving(place, port) as server:
            client = httpx2.AsyncClient(timeout=PATIENCE)
            headers = SSE | {"last-event-id": f"{last}"}
            until = len(found) + count // 2
            async with client, client.stream("GET", f"http://127.0.0.1:{port}/events", headers=headers) as response:
                it = Stream(response)
                with suppress(httpx2.TransportError):
                    while len(found) < count and (told := await it.next()) is not None:
                        if told.kind != "bookmark":
                            found.append(told.data["position"])
                            ahead.release()
                        if len(found) == until and server.returncode is None:
                            server.kill()
                last = it.last
    await working
    engine.close()
    assert found == list(range(1, count + 1))


async def test_many_event_streams_share_one_reader_of_the_log(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = 0
    above = tail.Tail._above

    def count(it: tail.Tail, position: int) -> Any:
        nonlocal readings
        readings += 1
        return above(it, position)

    monkeypatch.setattr(tail.Tail, "_above", count)

    async def follow() -> list[int | None]:
        async with stream(here, after=0) as it:
            return [told.id for told in await it.some(60)]

    following = [asyncio.create_task(follow()) for _ in range(20)]
    await until_async(lambda: bool(tail._tails) and len(next(iter(tail._tails.values()))._backlogs) == 20)
    readings = 0
    for number in range(60):
        write(here, "k", number)
        await asyncio.sleep(0)
    assert await asyncio.gather(*following) == [list(range(1, 61))] * 20
    assert readings <= 2 * 60
    await until_async(lambda: tail._tails == {})


async def test_slow_event_stream_continues_from_the_log(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "BACKLOG_BYTES", 300)
    async with stream(here, after=0) as it:
        await it.next()
        here.engine.write(here.engine.requests.values.set("n", "k", "x" * 100, "ann", None), NOBODY)
        for number in range(200):
            write(here, "k", number)
        assert [told.id for told in await it.some(201)] == list(range(1, 202))


async def test_client_that_reads_nothing_is_disconnected(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEND_SECONDS", 0.2)
    port = here.client.base_url.port
    assert port is not None
    for number in range(40):
        write(here, f"{number}", "x" * 250_000)
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", port))
        stuck.sendall(b"GET /events?after=0 HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        cut = asyncio.Event()
        monkeypatch.setattr(events._log, "info", lambda *_: cut.set())
        await asyncio.wait_for(cut.wait(), PATIENCE)
    await until_async(lambda: tail._tails == {})


async def test_two_hundred_abandoned_event_streams_leave_nothing(here: Site) -> None:
    tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))

    async def abandoned(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.client.base_url.port)
        writer.write(b"GET /events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"bookmark"), PATIENCE)
        if number % 2:
            writer.transport.abort()
        else:
            writer.close()

    for _ in range(4):
        await asyncio.gather(*(abandoned(number) for number in range(50)))
    await until_async(lambda: len(asyncio.all_tasks()) <= tasks)
    await until_async(lambda: here.engine.notifier._wakers == [] and tail._tails == {})
    assert here.engine.log_tailer._subscribers == []
    await until_async(lambda: len(os.listdir("/proc/self/fd")) < descriptors + 60)  # the store's own readers stay open


async def test_server_shutdown_ends_each_event_stream_with_a_bookmark(here: Site) -> None:
    async with stream(here, namespace="m") as it:
        await it.next()
        for number in range(3):
            write(here, "k", number)
        here.engine.finish_waiting()
        assert (await it.rest())[-1] in (Told(3, "bookmark", {"position": 3}), Told(0, "bookmark", {"position": 0}))
    async with stream(here) as it:
        assert [told.kind for told in await it.rest()] == ["bookmark"]


async def test_unreadable_store_ends_the_event_stream_with_the_reason(here: Site) -> None:
    async with stream(here) as it:
        await it.next()
        await asyncio.to_thread(here.engine.close)
        ended = (await it.rest())[-1]
        assert (ended.id, ended.kind) == (None, "end")
        assert "closed" in ended.data["message"]


# --- who may see what


async def test_event_stream_shows_only_what_its_token_may_read(tmp_path: Path) -> None:
    async with site(tmp_path / "state.db", Tokens()) as here:
        write(here, "a", namespace="open")
        write(here, "a", namespace="hidden")
        async with stream(here, after=0, token="read:open") as it:
            assert [told.data["namespace"] for told in await it.some(1)] == ["open"]
            assert await it.next() == Told(2, "bookmark", {"position": 2})
            write(here, "b", namespace="hidden")
            write(here, "b", namespace="open")
            assert [(told.id, told.data["stream"]) for told in await it.some(1)] == [(4, "record:open/b")]
        for path in ("/events?namespace=hidden", "/events?resource=hidden.py"):
            for headers in (SSE, {}):
                answer = await here.client.get(path, headers=headers | {"authorization": "Bearer read:open"})
                assert (answer.status_code, answer.json()["status"]) == (403, "denied")
        assert (await here.client.get("/events", headers=SSE)).status_code == 401


async def test_event_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    tokens = Tokens()
    async with site(tmp_path / "state.db", tokens) as here:
        write(here, "a", namespace="open")
        async with stream(here, after=0, token="read:open") as it:
            assert [told.id for told in await it.some(1)] == [1]
            assert await it.next() == Told(1, "bookmark", {"position": 1})
            tokens.revoked.add("read:open")
            write(here, "b", namespace="open")
            assert await it.rest() == [Told(1, "bookmark", {"position": 1})]


# --- pages


async def test_event_pages_are_json(here: Site) -> None:
    for key in "abc":
        write(here, key)
    answer = await here.client.get("/events", params={"after": 1, "limit": 1})
    body = answer.json()
    assert (answer.status_code, body["status"], body["next_position"], body["bookmark"]) == (200, "ok", 2, 3)
    assert [event["key"] for event in body["events"]] == ["b"]
    assert (await here.client.get("/events", params={"after": 3})).json()["events"] == []


async def test_events_of_one_thread_are_selected_by_its_id(here: Site) -> None:
    story(here.engine, "run 7/é")
    story(here.engine, "run")
    answer = await here.client.get("/events", params={"thread": "run 7/é", "kinds": "ThreadStarted,ResultAppended"})
    assert [(it["position"], it["thread"]) for it in answer.json()["events"]] == [(at, "run 7/é") for at in (1, 4, 7)]
    async with stream(here, after=0, thread="run") as it:
        assert [told.id for told in await it.some(len(KINDS))] == list(range(8, 15))


async def test_long_poll_over_http_returns_new_events(here: Site) -> None:
    waiting = asyncio.create_task(here.client.get("/events", params={"wait": 40, "namespace": "m"}))
    await until_async(lambda: here.engine.lease_maintenance.waiters == 1)
    write(here, "a")
    write(here, "b", namespace="m")
    body = (await waiting).json()
    assert ([event["key"] for event in body["events"]], body["next_position"]) == (["b"], 2)


async def test_long_poll_ends_when_its_client_disconnects(here: Site) -> None:
    waiting = asyncio.create_task(here.client.get("/events", params={"wait": 40}))
    await until_async(lambda: here.engine.lease_maintenance.waiters == 1)
    waiting.cancel()
    await until_async(lambda: here.engine.lease_maintenance.waiters == 0)
    assert here.engine.notifier._wakers == []
    figures = (await here.client.get("/metrics")).text
    assert 'holdlog_http_requests_total{method="GET",route="/events",status="499"} 1.0' in figures


@pytest.mark.check
@pytest.mark.parametrize("headers", [SSE, {}])
@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("after=1", "after: is 1, but the log ends at position 0; pass that or less"),
        ("after=-1", "after"),
        ("after=0&after=0", "after: must be given only once"),
        ("namespace=n&namespace=m", "namespace: must be given only once"),
        ("after=x", "after"),
        ("after=99999999999999999999", "after"),
        ("after=%D9%A3", "after"),
        ("kinds=", "kinds"),
        ("kinds=written", "kinds"),
        ("prefix=a", "prefix"),
        ("namespace=", "namespace"),
        ("namespace=%01", "namespace"),
        ("resource=..", "resource"),
        ("agent=a/", "agent"),
        ("kind=claim", "kind: unknown argument; did you mean kinds? Known arguments: "),
        ("%1B%5B2J=1", "query: unknown argument"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        pytest.param(f"limit={'9' * 5000}", "limit: has too many digits", id="5000 digits"),
        ("wait=-1", "wait"),
        ("wait=nan", "wait"),
        ("wait=x", "wait"),
    ],
)
async def test_bad_arguments_of_the_events_route_are_reported_by_name(
    here: Site, headers: dict[str, str], asked: str, named: str
) -> None:
    answer = await here.client.get(f"/events?{asked}", headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (400, "error")
    assert named in answer.json()["message"]


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "٣", "99999999999999999999", "1"])
async def test_bad_last_event_id_is_refused(here: Site, given: str) -> None:
    answer = await here.client.get(
        "/events", headers=[(b"last-event-id", given.encode()), (b"accept", b"text/event-stream")]
    )
    assert answer.status_code == 400


async def test_events_are_readable_by_everybody_without_authentication(here: Site) -> None:
    assert EVERYTHING.sees("record:n/k")
    assert (await here.client.head("/events", headers=SSE)).status_code == 200
