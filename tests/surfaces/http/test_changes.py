"""`/diff`, `/blame` and `/reverts` over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
from holdlog.adapters.runtime.verifier import Verifier
from holdlog.domain.message import NOBODY
from holdlog.domain.token import IssueToken
from tests.support.curl import AS_JSON, JSON, Curl

ANN = {"x-agent": "ann", "holdlog-session": "of ann"}
BAD = {"x-agent": "bad", "holdlog-session": "of bad"}


async def put(curl: Curl, key: str, value: Any, who: dict[str, str]) -> int:
    written = await curl.put(f"/kv/g/{key}", json=value, headers=who | AS_JSON)
    assert written.status_code < 300
    return int(written.json()["position"])


async def test_difference_of_a_key_and_of_a_group(curl: Curl) -> None:
    await put(curl, "a%2Fb", {"n": 1}, ANN)
    position = await put(curl, "k", 1, ANN)
    await put(curl, "a%2Fb", {"n": 2}, BAD)
    key = await curl.get("/diff/g/a%2Fb?from_version=1&to_version=2")
    step = {"op": "replace", "path": "/n", "value": 2, "previous": 1}
    assert (key.status_code, key.json()["changes"][0]["paths"]) == (200, [step])
    group = (await curl.get(f"/diff/g?from_position={position}")).json()
    assert [(it["key"], it["change"], it["updated_by"]) for it in group["changes"]] == [("a/b", "changed", "bad")]
    time = group["after"]["at"].replace("+00:00", "Z")
    assert (await curl.get(f"/diff/g?from_position=0&to_time={time}&limit=1")).json()["next_after"] == "a/b"


async def test_blame_names_the_author_and_the_session(curl: Curl) -> None:
    await put(curl, "k", {"a": 1, "b": 1}, ANN)
    await put(curl, "k", {"a": 1, "b": 2}, BAD)
    found = (await curl.get("/blame/g/k?fields=1")).json()
    assert (found["value"], found["author"]["updated_by"]) == ({"a": 1, "b": 2}, "bad")
    assert found["author"]["session"].startswith("header-")
    assert [(it["field"], it["updated_by"], it["version"]) for it in found["fields"]] == [
        ("a", "ann", 1),
        ("b", "bad", 2),
    ]
    assert (await curl.get("/blame/g/k?version=1")).json()["author"]["updated_by"] == "ann"
    missing = await curl.get("/blame/g/none")
    assert (missing.status_code, missing.json()["status"]) == (404, "not_found")


async def test_revert_undoes_a_session_and_can_be_undone(curl: Curl) -> None:
    await put(curl, "k", 1, ANN)
    await put(curl, "k", 2, BAD)
    await put(curl, "new", 2, BAD)
    session = (await curl.get("/blame/g/k")).json()["author"]["session"]
    body = {"session": session, "dry_run": True}
    dry = (await curl.post("/reverts", json=body, headers=ANN)).json()
    assert (dry["dry_run"], len(dry["reverted"])) == (True, 2)
    assert (await curl.get("/kv/g/k")).text == "2"
    done = (await curl.post("/reverts", json={"session": "of bad", "reason": "oops"}, headers=ANN)).json()
    assert {it["key"]: it["change"] for it in done["reverted"]} == {"k": "restored", "new": "deleted"}
    assert (await curl.get("/kv/g/k")).text == "1"
    assert (await curl.get("/blame/g/k")).json()["author"]["reason"] == "oops"
    again = await curl.post("/reverts", json={"correlation_id": done["correlation_id"]}, headers=ANN)
    assert len(again.json()["reverted"]) == 2
    assert ((await curl.get("/kv/g/k")).text, (await curl.get("/kv/g/new")).text) == ("2", "2")


async def test_repeated_revert_is_done_once(curl: Curl) -> None:
    await put(curl, "k", 1, ANN)
    await put(curl, "k", 2, BAD)
    key = ANN | {"idempotency-key": "r-1"}
    first = await curl.post("/reverts", json={"session": "of bad"}, headers=key)
    again = await curl.post("/reverts", json={"session": "of bad"}, headers=key)
    other = await curl.post("/reverts", json={"session": "of ann"}, headers=key)
    assert (first.status_code, again.json(), other.status_code) == (200, first.json(), 422)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "session: required"),
        ({"session": "s", "sesion": "s"}, "body: sesion: unknown"),
        ({"session": "s", "dry_run": "yes"}, "dry_run: must be true or false"),
        ({"session": 5}, "session: must be"),
        ({"session": "s", "since": 5}, "since: must be a time"),
        ({"session": "s", "namespace": " "}, "namespace: must not be blank"),
        ({"session": "s", "reason": ""}, "reason: must not be blank"),
        ({"agent": "a"}, "agent: needs session"),
        ([], "body: must be a JSON object"),
    ],
)
async def test_bad_reverts_are_refused_by_name(curl: Curl, body: Any, said: str) -> None:
    refused = await curl.post("/reverts", json=body, headers=JSON)
    assert (refused.status_code, refused.json()["message"][: len(said)]) == (400, said)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/diff/g", "from_position: required"),
        ("/diff/g?from_version=1", "from_version: unknown argument"),
        ("/diff/g/k", "from_version: required"),
        ("/diff/g/k?from_version=1&from_position=1", "from_position: not together with from_version"),
        ("/diff/g/k?from_version=x", "from_version: must be a whole number"),
        ("/diff/g/k?from_version=7", "from_version: is 7, but the key has version 1"),
        ("/diff/g?from_time=yesterday", "from_time: "),
        ("/blame/g/k?position=99", "position: is 99, but the log ends at position 1"),
        ("/blame/g/k?fields=2", "fields: "),
    ],
)
async def test_bad_moments_are_refused_by_name(curl: Curl, path: str, said: str) -> None:
    await put(curl, "k", 1, ANN)
    refused = await curl.get(path)
    assert (refused.status_code, refused.json()["message"][: len(said)]) == (400, said)


@asynccontextmanager
async def with_tokens(place: Path, *grants: str) -> AsyncIterator[tuple[httpx2.AsyncClient, list[dict[str, str]]]]:
    """A client, and the header of a token for each grant."""
    store = open_holdlog(place)
    headers = []
    for number, grant in enumerate(grants):
        token = fresh(f"t{number}")
        command = IssueToken(name=f"t{number}", hash=token.hash, allow=(grant,), lifetime_seconds=None, by="ann")
        await store.change_token_async(command, NOBODY)
        headers.append({"x-token": token.text})
    spaces = Tenants(place, store, Settings())
    app = build_app(build_server(None, ("claims",)), spaces, Verifier(store), HttpOptions(), Shutdown())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420") as client:
        yield client, headers
    await spaces.close()
    store.close()


async def test_only_administrators_see_sessions_and_revert(tmp_path: Path) -> None:
    async with with_tokens(tmp_path / "state.db", "write:*", "admin:g", "admin:*") as (curl, tokens):
        writer, of_g, of_all = tokens
        assert (await curl.put("/kv/g/k", content="a", headers=writer | {"holdlog-session": "s"})).status_code == 201
        sessions = [(await curl.get("/blame/g/k", headers=it)).json()["author"].get("session") for it in tokens]
        assert sessions[0] is None
        assert sessions[1] == sessions[2] is not None
        for token, body, status in (
            (writer, {"session": "s", "namespace": "g"}, 403),
            (of_g, {"session": "s"}, 403),
            (of_g, {"session": "s", "namespace": "g", "dry_run": True}, 200),
            (of_all, {"session": "s"}, 200),
        ):
            assert (await curl.post("/reverts", json=body, headers=token)).status_code == status
        assert (await curl.get("/kv/g/k", headers=writer)).status_code == 404
        author = (await curl.get("/blame/g/k", headers=writer)).json()["author"]
        assert (author["event_type"], author["principal"]) == ("delete", "token:t2")
