"""Threads over HTTP: routes, names, conditions, tokens."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from tests.support.agent import engine
from tests.support.curl import JSON, Curl
from tests.support.endpoint import until
from tests.support.wire import PATIENCE

HELLO = {"type": "text", "role": "user", "content": "hello"}
FOUND = {"agent_name": "writer", "output": [HELLO], "created_at": "2026-11-21T12:00:00Z"}


@pytest.fixture
async def thread(curl: Curl) -> str:
    """The path of one that has `plan`, at data_version 2."""
    started = await curl.post("/threads", json={"thread_id": "t", "data": {"plan": "draft"}})
    assert started.status_code == 201
    return "/threads/t"


# --- what was said and found


async def test_thread_is_started_once_and_then_resumed_over_http(curl: Curl) -> None:
    started = await curl.post("/threads", json={"thread_id": "run/1"}, headers={"x-agent": "ann"})
    assert (started.status_code, started.json()["status"]) == (201, "started")
    resumed = await curl.post("/threads", json={"thread_id": "run/1", "data": {"k": 1}})
    assert (resumed.status_code, resumed.json()["status"], resumed.json()["data_version"]) == (200, "resumed", 0)
    facts = await curl.get("/threads/run%2F1")
    told = facts.json()
    assert (told["thread_id"], told["version"], told["started_by"], told["messages"]) == ("run/1", 1, "ann", 0)
    assert (facts.headers["cache-control"], facts.headers["x-content-type-options"]) == ("no-store", "nosniff")
    named = (await curl.post("/threads", json={})).json()["thread_id"]
    assert len(named) == 32
    fork = await curl.post("/threads", json={"parent": "run/1", "thread_id": "fork"})
    assert (fork.status_code, fork.json()["parent"]) == (201, "run/1")
    assert (await curl.post("/threads", json={"parent": "nowhere"})).status_code == 404


async def test_threads_are_listed_in_pages_over_http(curl: Curl) -> None:
    for name in ("b", "a", "c/d"):
        await curl.post("/threads", json={"thread_id": name})
    first = (await curl.get("/threads?limit=2")).json()
    assert ([it["thread_id"] for it in first["threads"]], first["next_after"], first["count"]) == (["a", "b"], "b", 2)
    rest = (await curl.get("/threads?after=b")).json()
    assert [it["thread_id"] for it in rest["threads"]] == ["c/d"]
    assert "next_after" not in rest


async def test_appended_items_are_read_as_items_and_as_model_input(curl: Curl, thread: str) -> None:
    said = {"messages": [HELLO], "results": [FOUND]}
    appended = await curl.post(f"{thread}/items", json=said, headers={"x-agent": "writer"})
    assert (appended.status_code, appended.json()["appended"]) == (200, 2)
    again = await curl.post(f"{thread}/items", json={"results": [FOUND]})
    assert (again.json()["appended"], again.json()["already"]) == (0, 1)
    page = (await curl.get(f"{thread}/items")).json()
    assert [(it["version"], it["kind"], it["by"]) for it in page["items"]] == [
        (3, "message", "writer"),
        (4, "result", "writer"),
    ]
    assert (await curl.get(f"{thread}/items?format=model")).json()["messages"] == [HELLO, HELLO]
    first = (await curl.get(f"{thread}/items?after=0&limit=1")).json()
    assert ([it["version"] for it in first["items"]], first["next_after"]) == ([3], 3)
    last = (await curl.get(f"{thread}/items?limit=1")).json()
    assert ([it["version"] for it in last["items"]], last["next_before"]) == ([4], 4)
    assert (await curl.get(f"{thread}/items?before=4")).json()["items"] == page["items"][:1]


async def test_long_poll_of_a_thread_returns_new_items(curl: Curl, thread: str) -> None:
    waiting = asyncio.create_task(curl.get(f"{thread}/items?after=2&wait=3600"))
    await until(lambda: curl.store.lease_maintenance._waiters)
    await curl.post(f"{thread}/items", json={"messages": [HELLO]})
    async with asyncio.timeout(PATIENCE):
        assert [it["version"] for it in (await waiting).json()["items"]] == [3]
    assert (await curl.get(f"{thread}/items?after=3&wait=0.01")).json()["items"] == []


async def test_repeated_thread_write_with_an_idempotency_key_is_done_once(curl: Curl, thread: str) -> None:
    once = {"idempotency-key": "k-1"}
    untimed = {"messages": [HELLO], "results": [{"agent_name": "writer"}]}
    answers = [await curl.post(f"{thread}/items", json=untimed, headers=once) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert (await curl.get(thread)).json()["version"] == 4
    assert (await curl.post(f"{thread}/items", json={"messages": [HELLO]}, headers=once)).status_code == 422


# --- data


async def test_thread_value_is_written_read_and_deleted_as_json(curl: Curl, thread: str) -> None:
    for value in ({"a": [1, None, "ü"]}, None, "text", 0):
        saved = await curl.put(f"{thread}/data/a%2Fb", content=json.dumps(value), headers=JSON)
        read = await curl.get(f"{thread}/data/a%2Fb")
        assert (saved.status_code, saved.headers["etag"]) == (200, f'"{saved.json()["data_version"]}"')
        assert (read.json(), read.headers["etag"]) == (value, saved.headers["etag"])
        assert read.headers["content-type"] == "application/json"
    there = await curl.head(f"{thread}/data/a%2Fb")
    assert (there.status_code, there.headers["etag"]) == (200, '"6"')
    everything = await curl.get(f"{thread}/data")
    assert (everything.json()["data"], everything.headers["etag"]) == ({"a/b": 0, "plan": "draft"}, '"6"')
    deleted = await curl.delete(f"{thread}/data/a%2Fb")
    assert (deleted.json()["deleted"], deleted.headers["etag"]) == (["a/b"], '"7"')
    for method in ("GET", "HEAD", "DELETE"):
        assert (await curl.request(method, f"{thread}/data/a%2Fb")).status_code == 404
    assert (await curl.get(f"{thread}/data/a%2Fb")).json()["status"] == "not_found"


async def test_several_thread_keys_are_changed_at_once(curl: Curl, thread: str) -> None:
    patched = await curl.patch(f"{thread}/data", json={"plan": None, "a": {"x": 1}, "none": None, "b": False})
    told = patched.json()
    assert (told["written"], told["deleted"], told["data_version"]) == (["a", "b"], ["plan"], 3)
    merged = await curl.patch(f"{thread}/data", json={"a": {"y": 2}}, headers={"if-match": '"3"'})
    assert merged.status_code == 200
    assert (await curl.get(f"{thread}/data")).json()["data"] == {"a": {"y": 2}, "b": False}  # a key as a whole
    late = await curl.patch(f"{thread}/data", json={"b": 1}, headers={"if-match": '"3"'})
    assert (late.status_code, late.json()["changed_keys"]) == (412, ["a"])
    assert (await curl.patch(f"{thread}/data", json={})).status_code == 400


async def test_key_in_two_spellings_is_refused_instead_of_losing_a_value(curl: Curl, thread: str) -> None:
    twice = {"\u00e9": 1, "e\u0301": 2}
    for method, path, body in (("PATCH", f"{thread}/data", twice), ("POST", "/threads", {"data": twice})):
        refused = await curl.request(method, path, json=body)
        assert (refused.status_code, refused.json()["message"]) == (
            400,
            "data: has the same key in two Unicode spellings",
        )
    assert (await curl.get(thread)).json()["version"] == 2


@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        ("plan", {"if-match": '"2"'}, 200),
        ("new", {"if-match": '"2"'}, 200),
        ("plan", {"if-match": '"1"'}, 412),
        ("plan", {"if-match": '"0"'}, 412),
        ("plan", {"if-match": '"1", "2"'}, 200),
        ("plan", {"if-match": '"1", "3"'}, 412),
        ("plan", {"if-match": "*"}, 200),
        ("new", {"if-match": "*"}, 412),
        ("plan", {"if-none-match": "*"}, 412),
        ("new", {"if-none-match": "*"}, 200),
        ("plan", {"if-none-match": '"2"'}, 412),
        ("plan", {"if-none-match": '"1"'}, 200),
        ("plan", {"if-match": 'W/"2"'}, 412),
        ("plan", {"if-match": "2"}, 400),
        ("new", {"if-none-match": "*", "idempotency-key": "k"}, 400),
        ("plan", {"if-match": '"2"', "idempotency-key": "k"}, 200),
    ],
)
async def test_thread_write_is_done_only_where_its_condition_holds(
    curl: Curl, thread: str, key: str, headers: dict[str, str], status: int
) -> None:
    written = await curl.put(f"{thread}/data/{key}", content="1", headers=JSON | headers)
    assert written.status_code == status
    told = written.json()
    if status == 412:
        assert (told["status"], told["actual_data_version"]) == ("conflict", 2)
        assert "draft" not in written.text
    assert (await curl.get(thread)).json()["data_version"] == (3 if status == 200 else 2)


async def test_first_change_of_thread_data_may_require_that_none_exists(curl: Curl) -> None:
    await curl.post("/threads", json={"thread_id": "t"})
    assert (await curl.get("/threads/t/data")).headers["etag"] == '"0"'
    for status in (200, 412):
        first = await curl.put("/threads/t/data/k", content="1", headers=JSON | {"if-match": '"0"'})
        assert first.status_code == status


async def test_conditional_get_returns_new_items_only(curl: Curl, thread: str) -> None:
    for path in (f"{thread}/data", f"{thread}/data/plan"):
        same = await curl.get(path, headers={"if-none-match": '"2"'})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", '"2"')
        assert (await curl.get(path, headers={"if-none-match": '"1"'})).status_code == 200
        assert (await curl.get(path, headers={"if-match": '"1"'})).status_code == 412


async def test_of_concurrent_thread_writes_exactly_the_acknowledged_ones_are_stored(curl: Curl) -> None:
    await curl.post("/threads", json={"thread_id": "t", "data": {"n": 0}})

    async def add() -> None:
        for _ in range(5):
            while True:
                read = await curl.get("/threads/t/data/n")
                tag = {"if-match": read.headers["etag"]}
                done = await curl.put("/threads/t/data/n", content=str(read.json() + 1), headers=JSON | tag)
                if done.status_code == 200:
                    break

    await asyncio.gather(*(add() for _ in range(4)))
    assert (await curl.get("/threads/t/data/n")).json() == 20


@pytest.mark.parametrize("condition", [{"if-none-match": "*"}, {"if-match": '"0", "2"'}])
async def test_one_of_several_concurrent_conditional_writes_succeeds(
    curl: Curl, thread: str, condition: dict[str, str]
) -> None:
    async def write(value: int) -> int:
        done = await curl.put(f"{thread}/data/new", content=str(value), headers=JSON | condition)
        return done.status_code

    statuses = await asyncio.gather(*map(write, range(8)))
    assert sorted(statuses) == [200] + [412] * 7
    assert (await curl.get(f"{thread}/data/new")).json() == statuses.index(200)


# --- what is refused


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "told"),
    [
        ("POST", "/threads", b"[]", JSON, 400, "body: must be a JSON object"),
        ("POST", "/threads", b"{", JSON, 400, "body: is not valid JSON"),
        (
            "POST",
            "/threads",
            b'{"agent": "ann"}',
            JSON,
            400,
            "body: agent: unknown argument; did you mean parent? Known arguments: thread_id, ",
        ),
        ("POST", "/threads", b'{"thread_id": 7}', JSON, 400, "thread_id: must be a string"),
        ("POST", "/threads", b"{}", {}, 415, "the body must be JSON"),
        ("POST", "/threads", b"{}", JSON | {"x-agent": " "}, 400, "agent: "),
        ("POST", "/threads?x=1", b"{}", JSON, 400, "x: "),
        ("GET", "/threads?limit=0", b"", {}, 400, "limit: "),
        ("GET", "/threads/", b"", {}, 400, "thread_id: must not be blank"),
        ("GET", "/threads/%zz", b"", {}, 400, "path: "),
        ("GET", "/threads/t?after=1", b"", {}, 400, "after: "),
        ("GET", "/threads/t/items?after=x", b"", {}, 400, "after: "),
        ("GET", "/threads/t/items?after=99", b"", {}, 400, "after_version: "),
        ("GET", "/threads/t/items?wait=1", b"", {}, 400, "wait_seconds: "),
        ("GET", "/threads/t/items?wait=1&after=0&before=2", b"", {}, 400, "wait_seconds: "),
        ("GET", "/threads/t/items?wait=nan&after=0", b"", {}, 400, "wait: "),
        ("GET", "/threads/t/items?format=xml", b"", {}, 400, "format: "),
        ("POST", "/threads/t/items", b"{}", JSON, 400, "messages and results: "),
        ("POST", "/threads/t/items", b'{"messages": [{"type": 1}]}', JSON, 400, "messages[0].type: "),
        ("POST", "/threads/t/items", b'{"messages": "x"}', JSON, 400, "messages: must be a list"),
        ("POST", "/threads/t/items", b'{"results": [1]}', JSON, 400, "results[0]: must be an object"),
        ("PUT", "/threads/t/data/k", b'"%s"' % (b"x" * 300_000), JSON, 413, "value: "),
        ("PUT", "/threads/t/data/k", b"text", {}, 415, "the body must be JSON"),
        ("PUT", "/threads/t/data/k", b"1", JSON | {"x-guard": "a.py@1"}, 400, "X-Guard: "),
        ("PUT", "/threads/t/data/", b"1", JSON, 400, "key: must not be blank"),
        ("PATCH", "/threads/t/data", b'{" ": 1}', JSON, 400, "data: "),
        ("PUT", "/threads/t/data", b"1", JSON, 405, "method not allowed; this path accepts GET, HEAD, PATCH"),
        ("DELETE", "/threads/t", b"", {}, 405, "method not allowed; this path accepts GET, HEAD"),
        ("GET", "/threads/t/nothing", b"", {}, 404, "unknown path"),
        ("GET", "/threads/t/data/k/l", b"", {}, 404, "unknown path"),
        ("GET", "/threads%2Ft", b"", {}, 404, "unknown path"),
    ],
)
async def test_invalid_thread_request_is_refused_by_name_and_changes_nothing(
    curl: Curl, thread: str, method: str, path: str, body: bytes, headers: dict[str, str], status: int, told: str
) -> None:
    before = (await curl.get(thread)).json()
    refused = await curl.request(method, path, content=body, headers=headers)
    assert refused.status_code == status
    assert refused.json()["message"].startswith(told)
    assert (await curl.get(thread)).json() == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/threads/none", None),
        ("GET", "/threads/none/items", None),
        ("GET", "/threads/none/items?after=0&wait=1", None),
        ("POST", "/threads/none/items", {"messages": [HELLO]}),
        ("GET", "/threads/none/data", None),
        ("PATCH", "/threads/none/data", {"a": 1}),
        ("GET", "/threads/none/data/k", None),
        ("HEAD", "/threads/none/data/k", None),
        ("PUT", "/threads/none/data/k", 1),
        ("DELETE", "/threads/none/data/k", None),
    ],
)
async def test_unknown_thread_is_404_on_every_route(curl: Curl, method: str, path: str, body: Any) -> None:
    for condition in ({}, {"if-none-match": "*"}) if body is not None and method != "POST" else ({},):
        missing = await curl.request(method, path, content=json.dumps(body), headers=JSON | condition)
        assert missing.status_code == 404
        if method != "HEAD":
            assert (missing.json()["status"], missing.json()["thread_id"]) == ("not_found", "none")


# --- tokens, figures


class Known:
    """Principals by their tokens."""

    def __init__(self, **allowed: str) -> None:
        self._known = {name: Principal(f"token:{name}", Grants.parse(it.split())) for name, it in allowed.items()}

    async def verify(self, text: str) -> Principal | None:
        return self._known.get(text)

    def revoke(self, text: str) -> None:
        del self._known[text]


@asynccontextmanager
async def guarded(store: Engine, known: Known) -> AsyncIterator[httpx2.AsyncClient]:
    spaces = Tenants(":memory:", store, Settings())
    app = build_app(build_server(None, ("threads",)), spaces, known, HttpOptions(), Shutdown())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420") as client:
        yield client


ROUTES: list[tuple[str, str, Any, str]] = [
    ("GET", "/threads/t", None, "read-threads:t"),
    ("GET", "/threads/t/items", None, "read-threads:t"),
    ("GET", "/threads/t/items?after=0&wait=1", None, "read-threads:t"),
    ("GET", "/threads/t/data", None, "read-threads:t"),
    ("GET", "/threads/t/data/plan", None, "read-threads:t"),
    ("HEAD", "/threads/t/data/plan", None, "read-threads:t"),
    ("POST", "/threads/t/items", {"messages": [HELLO]}, "write-threads:t"),
    ("PUT", "/threads/t/data/plan", 1, "write-threads:t"),
    ("PATCH", "/threads/t/data", {"plan": 1}, "write-threads:t"),
    ("DELETE", "/threads/t/data/plan", None, "write-threads:t"),
    ("POST", "/threads", {"thread_id": "t"}, "write-threads:t"),
]


async def test_each_thread_route_names_the_grant_it_needs() -> None:
    some = {"reader": "read:t", "writer": "write:t", "other": "admin:other", "forker": "write:f-* read:other"}
    with engine() as store:
        for name in ("t", "other"):
            store.write(store.requests.threads.start("ann", name, {"plan": 1}), store.caller)
        async with guarded(store, Known(**some)) as client:

            async def ask(token: str, method: str, path: str, body: Any) -> httpx2.Response:
                content = None if body is None else json.dumps(body)
                return await client.request(method, path, content=content, headers=JSON | {"x-token": token})

            for method, path, body, needed in ROUTES:
                assert (await ask("nobody", method, path, body)).status_code == 401
                refused = await ask("other", method, path, body)
                assert refused.status_code == 403
                if method != "HEAD":
                    assert refused.json()["needed"] == needed
                assert (await ask("reader", method, path, body)).status_code == (403 if "write" in needed else 200)
                assert (await ask("writer", method, path, body)).status_code == 200
            unnamed = await ask("forker", "POST", "/threads", {})
            assert (unnamed.status_code, unnamed.json()["needed"]) == (
                403,
                "write-threads:*",
            )  # not of an id made up just now
            fork = {"thread_id": "f-1", "parent": "t"}
            assert (await ask("forker", "POST", "/threads", fork)).json()["needed"] == "read-threads:t"
            assert (await ask("forker", "POST", "/threads", fork | {"parent": "other"})).status_code == 201
            listed = {
                token: [it["thread_id"] for it in (await ask(token, "GET", "/threads", None)).json()["threads"]]
                for token in some
            }
            assert listed == {"reader": ["t"], "writer": ["t"], "other": ["other"], "forker": ["f-1", "other"]}
            (event,) = store.read(
                store.requests.events.page(store.requests.events.choice(agent="token:writer"), 0, 1)
            ).events
            assert event.by == "token:writer"


@pytest.mark.parametrize("path", ["/threads/t/items?after=1&wait=60", "/events?thread=t&after=1&wait=60"])
async def test_long_poll_of_a_thread_returns_nothing_after_its_token_was_revoked(path: str) -> None:
    with engine() as store:
        store.write(store.requests.threads.start("ann", "t"), store.caller)
        known = Known(reader="read:t")
        async with guarded(store, known) as client, asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(client.get(path, headers={"x-token": "reader"}))
            await until(lambda: store.lease_maintenance._waiters)
            known.revoke("reader")
            await store.write_async(store.requests.threads.append("t", "ann", [HELLO]), store.caller)
            told = await waiting
    assert (told.status_code, told.json()["message"]) == (
        401,
        "the token is not valid or no longer valid; ask the operator for a new one",
    )


@pytest.mark.parametrize("path", ["/threads/t/items?after=1&wait=60", "/events?thread=t&after=1&wait=60"])
async def test_long_poll_of_a_thread_ends_when_its_token_is_revoked(path: str) -> None:
    with engine() as store:
        store.write(store.requests.threads.start("ann", "t"), store.caller)
        known = Known(reader="read:t")
        async with guarded(store, known) as client, asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(client.get(path, headers={"x-token": "reader"}))
            await until(lambda: store.lease_maintenance._waiters)
            known.revoke("reader")
            told = await asyncio.wait_for(waiting, 20)  # long before its timeout
    assert told.status_code == 401


async def test_metrics_name_thread_routes_and_never_threads(curl: Curl, thread: str) -> None:
    for path in (thread, f"{thread}/items", f"{thread}/data", f"{thread}/data/plan", "/threads/a%2Fb%2Fc"):
        await curl.get(path)
    await curl.get("/threads")
    text = (await curl.get("/metrics")).text
    routes = {
        sample.labels["route"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "holdlog_http_requests_total"
    }
    assert routes == {
        "/threads",
        "/threads/{thread_id}",
        "/threads/{thread_id}/items",
        "/threads/{thread_id}/data",
        "/threads/{thread_id}/data/{key}",
    }
    assert "plan" not in text
