"""POST /token gives anybody a token with a space of its own; GET /token tells whose one is."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.verifier import Verifier
from holdlog.domain.message import NOBODY
from holdlog.domain.token import IssueToken

TOKEN = r"holdlog_open-[0-9a-f]{16}_[A-Za-z0-9_-]{43}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(place: Path) -> Iterator[Engine]:
    engine = open_holdlog(place)
    yield engine
    engine.close()


@asynccontextmanager
async def client(place: Path, store: Engine, open_tokens: bool) -> AsyncIterator[httpx2.AsyncClient]:
    verifier = Verifier(store) if open_tokens else None
    spaces = Tenants(place, store, Settings())
    app = build_app(build_server(None, ("claims",)), spaces, verifier, HttpOptions(open_tokens=open_tokens), Shutdown())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420") as it:
        yield it
    await spaces.close()


@pytest.fixture
async def curl(place: Path, store: Engine) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(place, store, open_tokens=True) as it:
        yield it


async def new_token(curl: httpx2.AsyncClient) -> str:
    given = await curl.post("/token", data={"token": "new"})
    assert given.status_code == 200
    assert given.headers["content-type"].startswith("text/plain")
    assert given.headers["cache-control"] == "no-store"
    return given.text


async def test_each_token_has_a_separate_space(curl: httpx2.AsyncClient, place: Path) -> None:
    ann, ben = [{"x-token": await new_token(curl)} for _ in range(2)]
    assert not place.with_name("state.db.spaces").exists()  # a token that nobody uses costs no file
    await curl.post("/kv/g/k", content="ann's", headers=ann)
    assert (await curl.get("/kv/g/k", headers=ben)).status_code == 404
    assert (await curl.get("/kv/g/k", headers=ann)).text == "ann's"
    assert (
        (await curl.get("/kv/g/k?history=1", headers=ann)).json()["history"][0]["updated_by"].startswith("token:open-")
    )


async def test_token_route_shows_the_owner_of_a_token_and_not_the_token(curl: httpx2.AsyncClient) -> None:
    text = await new_token(curl)
    name = text.split("_")[1]
    for headers in ({"x-token": text}, {"authorization": f"Bearer {text}"}):
        answer = await curl.get("/token", headers=headers)
        told = answer.json()
        expires_at = datetime.fromisoformat(told.pop("expires_at"))
        assert told == {
            "status": "ok",
            "principal": f"token:{name}",
            "allow": ["read:*", "write:*", "claim:*"],
            "space": name,
        }
        assert timedelta(days=729) < expires_at - datetime.now(UTC) < timedelta(days=731)
        assert text not in answer.text
        assert text.split("_", 2)[2] not in answer.text


async def test_issued_token_appears_only_in_its_response(curl: httpx2.AsyncClient, store: Engine, place: Path) -> None:
    secret = (await new_token(curl)).split("_", 2)[2]
    assert not any(secret.encode() in path.read_bytes() for path in place.parent.iterdir() if path.is_file())


@pytest.mark.parametrize("body", ["", "token=old", "token=new&x=1", '{"token": "new"}'])
async def test_malformed_requests_get_no_token(curl: httpx2.AsyncClient, store: Engine, body: str) -> None:
    assert (await curl.post("/token", content=body)).status_code == 400
    assert (await curl.post("/token?token=new", content="token=new")).status_code == 400
    with store.store.reader() as reader:
        assert reader.tokens(None, -1) == []


async def test_tokens_per_address_are_limited_with_a_retry_time(curl: httpx2.AsyncClient) -> None:
    answers = [await curl.post("/token", content="token=new") for _ in range(61)]
    assert [it.status_code for it in answers] == [200] * 60 + [429]
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_tokens_are_issued_only_where_that_is_enabled(place: Path, store: Engine) -> None:
    async with client(place, store, open_tokens=False) as curl:
        refused = await curl.post("/token", content="token=new")
        assert refused.status_code == 403
        assert "--open-tokens" in refused.json()["message"]
        assert (await curl.get("/token")).json() == {"status": "ok", "allow": ["admin:*"]}


async def test_request_without_a_token_is_refused(curl: httpx2.AsyncClient) -> None:
    for path in ("/token", "/kv", "/kv/g/k", "/claims", "/claims/a.py"):
        assert (await curl.get(path)).status_code == 401
        assert (await curl.get(f"{path}?token=x")).status_code == 401


async def test_issued_token_may_do_what_its_grants_allow_and_no_more(curl: httpx2.AsyncClient, store: Engine) -> None:
    token = fresh("ci")
    command = IssueToken(name="ci", hash=token.hash, allow=("write:build-*", "read:docs", "claim:src/*"), by="ann")
    await store.change_token_async(command, NOBODY)
    ci = {"x-token": token.text}
    patch = {"content-type": "application/merge-patch+json"}
    for method, path, needed in (
        ("PUT", "/kv/docs/k", "write-values:docs"),
        ("DELETE", "/kv/docs/k", "write-values:docs"),
        ("PATCH", "/kv/docs/k", "write-values:docs"),
        ("GET", "/kv/other/k", "read-values:other"),
        ("GET", "/kv/other/k?history=1", "read-values:other"),
        ("GET", "/kv/other", "read-values:other"),
        ("PUT", "/kv/other/k", "write-values:other"),
    ):
        for condition in ({}, {"if-match": "*"}, {"if-none-match": '"1"'}):
            refused = await curl.request(method, path, content="{}", headers=ci | patch | condition)
            assert (refused.status_code, refused.json()["status"], refused.json()["needed"]) == (403, "denied", needed)
    assert (await curl.put("/kv/build-1/k", content="x", headers=ci)).status_code == 201
    assert (await curl.get("/kv/build-1/k", headers=ci)).text == "x"
    assert (await curl.get("/kv/docs/k", headers=ci)).status_code == 404
    await curl.put("/kv/secret/k", content="x", headers={"x-token": await new_token(curl)})
    assert [it["namespace"] for it in (await curl.get("/kv", headers=ci)).json()["namespaces"]] == ["build-1"]
    assert (await curl.get("/claims/src/a.py", headers=ci)).json()["status"] == "available"
    assert (await curl.get("/claims/other.py", headers=ci)).status_code == 403
    assert (await curl.get("/token", headers=ci)).json()["principal"] == "token:ci"
