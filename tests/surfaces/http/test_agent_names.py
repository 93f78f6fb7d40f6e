"""Whose names a caller over HTTP may not use, and requests with two tokens."""

import getpass
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.name_protection import OwnNames, first_part
from holdlog.adapters.runtime.verifier import Verifier
from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.refusals import InvalidError
from holdlog.domain.token import IssueToken, RevokeToken
from tests.support.agent import ALL
from tests.support.curl import AS_JSON, JSON

USER = getpass.getuser()
SAID = {"type": "text", "role": "user", "content": "hello"}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Engine]:
    place = {"memory": MEMORY, "sqlite": tmp_path / "state.db"}.get(request.param)
    engine = open_holdlog(place if place is not None else request.getfixturevalue("postgres"))
    yield engine
    engine.close()


def issue(store: Engine, name: str, space: str | None = None) -> str:
    made = fresh(name)
    store.change_token(IssueToken(name=name, hash=made.hash, allow=("admin:*",), by="ann", space=space), NOBODY)
    return made.text


@asynccontextmanager
async def serving(store: Engine, verifier: Any) -> AsyncIterator[httpx2.AsyncClient]:
    spaces = Tenants(MEMORY, store, Settings())
    app = build_app(build_server(None, ALL), spaces, verifier, HttpOptions(), Shutdown())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420") as client:
        yield client
    await spaces.close()


async def put(client: httpx2.AsyncClient, token: str, name: str, key: str = "k") -> httpx2.Response:
    headers = {"x-token": token, "x-agent": name.encode().decode("latin-1")} | AS_JSON
    return await client.put(
        f"/kv/n/{key}", content="v", headers={it: each.encode("latin-1") for it, each in headers.items()}
    )


@pytest.mark.check
@pytest.mark.parametrize(
    "name",
    [
        USER,
        USER.upper(),
        f"{USER}/x",
        "dev",
        "DEV",
        "dev/x",
        "ｄｅｖ",
        "ｄｅｖ／x",
        "token:dev",
        "Token:dev/x",
        "static",
        "jwt:ann",
    ],
)
async def test_names_of_the_server_user_and_of_other_tokens_are_refused(store: Engine, name: str) -> None:
    ci, _ = issue(store, "ci"), issue(store, "dev")
    async with serving(store, Verifier(store)) as client:
        refused = await put(client, ci, name)
        assert (refused.status_code, refused.json()["status"]) == (400, "error")
        assert "choose a name of your own" in refused.json()["message"]
        assert "updated_by: " in refused.json()["message"]
        assert (await client.get("/kv/n/k", headers={"x-token": ci})).status_code == 404


@pytest.mark.check
@pytest.mark.parametrize(
    "name", ["ci", "CI", "ci/tests", "token:ci", "token:ci/x", "claude", "devel", f"x{USER}", "x/dev"]
)
async def test_token_may_use_its_name_and_any_free_one(store: Engine, name: str) -> None:
    ci, _ = issue(store, "ci"), issue(store, "dev")
    async with serving(store, Verifier(store)) as client:
        assert (await put(client, ci, name)).status_code == 201


async def test_every_call_that_names_an_author_refuses_the_name_of_another(store: Engine) -> None:
    ci = issue(store, "ci")
    store.write(store.requests.values.set("n", "k", "v", "ann", None), NOBODY)
    store.write(store.requests.threads.start("ann", "t"), NOBODY)
    calls: list[tuple[str, str, Any]] = [
        ("PUT", "/kv/n/k", "v"),
        ("DELETE", "/kv/n/k", None),
        ("POST", "/threads", {"thread_id": "u"}),
        ("POST", "/threads/t/items", {"messages": [SAID]}),
        ("PUT", "/threads/t/data/plan", 1),
        ("PATCH", "/threads/t/data", {"plan": 1}),
        ("DELETE", "/threads/t/data/plan", None),
    ]
    position = store.read(store.requests.events.page(store.requests.events.choice())).bookmark
    async with serving(store, Verifier(store)) as client:
        for method, path, body in calls:
            content = None if body is None else json.dumps(body)
            headers = JSON | AS_JSON | {"x-token": ci, "x-agent": USER}
            refused = await client.request(method, path, content=content, headers=headers)
            assert (refused.status_code, "choose a name" in refused.text) == (400, True), (method, path, refused.text)
    assert store.read(store.requests.events.page(store.requests.events.choice())).bookmark == position


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_over_http_refuse_the_name_of_another(tmp_path: Any, mode: Any) -> None:
    from tests.surfaces.mcp.test_resources_over_http import serving as listening

    store = open_holdlog(tmp_path / "state.db")
    ci = issue(store, "ci")
    tools: list[tuple[str, dict[str, Any]]] = [
        ("claim", {"resource": "a", "agent": USER}),
        ("register", {"agent": USER, "name": "Root"}),
        ("set", {"namespace": "n", "key": "k", "value": 1, "updated_by": USER, "force": True}),
        ("delete", {"namespace": "n", "key": "k", "deleted_by": USER, "force": True}),
        ("clear_namespace", {"namespace": "n", "deleted_by": USER}),
        ("thread_start", {"agent": USER, "thread_id": "t"}),
    ]
    async with (
        listening(store, Verifier(store)) as url,  # type: ignore[arg-type]
        Client(StreamableHttpTransport(url, auth=ci), mode=mode) as client,
    ):
        for tool, arguments in tools:
            answer = await client.call_tool_mcp(f"holdlog_{tool}", arguments)
            assert answer.is_error, tool
            assert "choose a name of your own" in answer.content[0].text  # type: ignore[union-attr]
        mine = await client.call_tool_mcp("holdlog_claim", {"resource": "a", "agent": "ci"})
        assert not mine.is_error
    store.close()


async def test_static_token_and_jwt_may_not_use_the_name_of_the_user(store: Engine) -> None:
    rule = OwnNames(store, [USER])
    for principal in ("static", "jwt:ann"):
        with pytest.raises(InvalidError):
            await rule.require(AcquireClaim(resource="a", agent=f"{USER}/x"), Caller(principal=principal))
        await rule.require(AcquireClaim(resource="a", agent="claude"), Caller(principal=principal))
        await rule.require(AcquireClaim(resource="a", agent=principal), Caller(principal=principal))


async def test_local_user_may_use_every_name(store: Engine) -> None:
    issue(store, "dev")
    rule = OwnNames(store, [USER])
    for name in (USER, "dev", "token:dev"):
        await rule.require(AcquireClaim(resource="a", agent=name), Caller())
    async with serving(store, None) as client:
        assert (await client.put("/kv/n/k", content="v", headers={"x-agent": USER})).status_code == 201


async def test_token_that_already_has_the_name_of_the_user_keeps_it(store: Engine) -> None:
    own, other = issue(store, first_part(USER)), issue(store, "ci")
    async with serving(store, Verifier(store)) as client:
        assert (await put(client, own, USER)).status_code == 201
        assert (await put(client, other, USER)).status_code == 400


async def test_names_of_tokens_are_refused_in_spaces_too(store: Engine) -> None:
    ci, _ = issue(store, "ci", space="team"), issue(store, "dev")
    async with serving(store, Verifier(store)) as client:
        assert (await put(client, ci, "dev")).status_code == 400
        assert (await put(client, ci, "ci")).status_code == 201


async def test_claim_under_a_name_that_a_token_got_later_can_be_released(store: Engine) -> None:
    caller = Caller(principal="token:ci", session="s1", server="calls")
    store.own_names = OwnNames(store, [USER]).require
    await store.claim_async(store.requests.claims.claim("a", "dev"), caller)
    issue(store, "dev")
    with pytest.raises(InvalidError):
        await store.claim_async(store.requests.claims.claim("b", "dev"), caller)
    released = await store.write_async(store.requests.claims.release("a", "dev"), caller)
    assert released.body()["status"] == "released"
    with pytest.raises(InvalidError):
        await store.write_async(store.requests.claims.release("a", "dev", note="why", forced=True), caller)


async def test_token_names_are_cached_for_a_while(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, caller = OwnNames(store, []), Caller(principal="token:ci")
    await rule.require(AcquireClaim(resource="a", agent="dev"), caller)
    monkeypatch.setattr(store, "read_async", None)  # a further read would fail
    for name in ("dev", "DEV/x", "ci", "token:ci", "Claude Code"):
        await rule.require(AcquireClaim(resource="a", agent=name), caller)
    monkeypatch.undo()
    issue(store, "dev")
    with pytest.raises(InvalidError):
        await rule.require(AcquireClaim(resource="a", agent="dev"), caller)
    store.change_token(RevokeToken(name="dev", by="ann"), NOBODY)
    await rule.require(AcquireClaim(resource="a", agent="dev"), caller)


# --- two tokens in one request


class Tokens:
    async def verify(self, text: str) -> Principal | None:
        from holdlog.adapters.auth.grants import EVERYTHING

        return Principal(f"token:{text}", EVERYTHING) if text in ("ci", "dev") else None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("authorization", "Bearer ci"), ("x-token", "dev")], 400),
        ([("authorization", "Bearer ci"), ("x-token", "wrong")], 400),
        ([("authorization", "Bearer ci"), ("authorization", "Bearer dev")], 400),
        ([("x-token", "ci"), ("x-token", "dev")], 400),
        ([("authorization", "Bearer ci"), ("x-token", "ci")], 200),
        ([("x-token", "ci"), ("x-token", "ci")], 200),
        ([("authorization", "Bearer ci"), ("authorization", "Bearer ci")], 200),
        ([("authorization", "Basic Y2k6eA=="), ("x-token", "ci")], 200),
    ],
)
async def test_two_different_tokens_in_one_request_are_refused(headers: list[tuple[str, str]], status: int) -> None:
    with_store = open_holdlog(MEMORY)
    async with serving(with_store, Tokens()) as client:
        assert (await client.get("/token", headers=headers)).status_code == status
    with_store.close()
