"""The key-value API: what curl and scripts say, and what they are told."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.clock import Clock
from tests.support.curl import AS_JSON, JSON, MONTH, Curl

# --- as echoValue


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_text_is_saved_and_read_as_text(curl: Curl, method: str) -> None:
    saved = await curl.request(method, "/kv/import/status?ttl=60", content="done")
    assert (saved.text, saved.headers["content-type"]) == ("OK", "text/plain; charset=utf-8")
    read = await curl.get("/kv/import/status")
    assert (read.status_code, read.text) == (200, "done")
    assert read.headers["content-type"] == "text/plain; charset=utf-8"


async def test_missing_expired_and_deleted_values_are_not_found(curl: Curl, clock: Clock) -> None:
    async def missing() -> bool:
        read = await curl.get("/kv/import/status")
        return (read.status_code, read.text) == (404, "Key Not Found")

    assert await missing()
    await curl.post("/kv/import/status?ttl=60", content="done")
    assert not await missing()
    clock.pass_by(60)
    assert await missing()
    await curl.post("/kv/import/status", content="done")
    deleted = await curl.delete("/kv/import/status")
    assert (deleted.status_code, deleted.text) == (200, "OK")
    assert await missing()
    again = await curl.delete("/kv/import/status")
    assert (again.status_code, again.text) == (404, "Key Not Found")
    told = await curl.get("/kv/import/status", headers=AS_JSON)
    assert (told.status_code, told.json()["status"], told.json()["version"]) == (404, "not_found", 4)


@pytest.mark.parametrize(
    ("query", "lives"), [("", MONTH), ("?ttl=0", MONTH), ("?ttl=0.0", MONTH), ("?ttl=1.5", 1.5), ("?ttl=never", None)]
)
async def test_value_lives_for_its_ttl_or_thirty_days_by_default(curl: Curl, query: str, lives: float | None) -> None:
    await curl.post(f"/kv/import/status{query}", content="done")
    assert curl.record("import", "status").expires_in_seconds == lives


@pytest.mark.parametrize("ttl", ["", "-1", "soon", "1e3", "315360001", "nan", "%2B5", " 5"])
async def test_invalid_ttl_is_refused_by_name(curl: Curl, ttl: str) -> None:
    refused = await curl.post(f"/kv/import/status?ttl={ttl}", content="done")
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("ttl: ")
    assert (await curl.get("/kv/import/status")).status_code == 404


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "text/html", None]
)
async def test_body_of_any_type_but_json_is_text(curl: Curl, kind: str | None) -> None:
    text = 'a=1&b=%20+ü\r\n<script>alert(1)</script>\0"\\'
    await curl.post("/kv/g/k", content=text, headers={"content-type": kind} if kind else {})
    read = await curl.get("/kv/g/k")
    assert read.text == text
    assert read.headers["content-type"] == "text/plain; charset=utf-8"
    assert read.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in read.headers["content-security-policy"]


# --- JSON


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, [], 0, 1.5, True, None, 10**100])
async def test_json_body_is_stored_and_read_as_json(curl: Curl, value: Any) -> None:
    await curl.put("/kv/g/k", content=json.dumps(value), headers={"content-type": "application/vnd.x+json"})
    read = await curl.get("/kv/g/k", headers={"accept": "text/plain"})
    assert (read.json(), read.headers["content-type"]) == (value, "application/json")


async def test_string_is_returned_as_json_on_request(curl: Curl) -> None:
    await curl.put("/kv/g/k", content='"done"', headers=JSON)
    assert (await curl.get("/kv/g/k")).text == "done"
    assert (await curl.get("/kv/g/k", headers=AS_JSON)).text == '"done"'


@pytest.mark.parametrize(
    ("accept", "as_json"),
    [
        ("*/*", False),
        ("application/json, */*;q=0.5", True),
        ("application/json, */*", True),
        ("application/json, text/plain, */*", False),  # what axios sends of itself
        ("text/*, application/json;q=0.9", False),
        ("text/plain;q=0.1, application/json", True),
        ("application/json;q=0", False),
        ("application/json;q=x", False),
        ("application/json-patch", False),
        ("application/*", True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", False),
    ],
)
async def test_json_is_returned_where_the_client_prefers_it(curl: Curl, accept: str, as_json: bool) -> None:
    saved = await curl.put("/kv/g/k", content="done", headers={"accept": accept})
    assert (saved.text == "OK") is not as_json
    read = await curl.get("/kv/g/k", headers={"accept": accept})
    assert read.text == ('"done"' if as_json else "done")


async def test_write_returns_json_on_request(curl: Curl) -> None:
    saved = await curl.put("/kv/g/k", content="done", headers=AS_JSON)
    assert saved.json() == {
        "status": "ok",
        "namespace": "g",
        "key": "k",
        "version": 1,
        "previous_version": None,
        "position": 1,
    }
    deleted = await curl.delete("/kv/g/k", headers=AS_JSON)
    assert deleted.json() == {
        "status": "ok",
        "namespace": "g",
        "key": "k",
        "deleted_by": "http",
        "deleted_version": 1,
        "version": 2,
        "position": 2,
        "hint": "The history keeps the deleted value. If it must not stay there, ask a person to run holdlog redact.",
    }


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff", {}, 400),
        (b"\xff", {"content-type": "text/plain; charset=us-ascii"}, 400),
        (b"x", {"content-type": "text/plain; charset=utf-16"}, 415),
        (b"x", {"content-type": "nonsense"}, 415),
        (b"x", {"content-encoding": "gzip"}, 415),
        (b"x", {"content-type": "multipart/form-data; boundary=x"}, 415),
        (b"x", {"content-range": "bytes 0-0/2"}, 400),
        (b"", JSON, 400),
        (b"{", JSON, 400),
        (b"\xef\xbb\xbf1", JSON, 400),
        (b'"\xff"', JSON, 400),
        (b'"\\ud800"', JSON, 400),
        (b"NaN", JSON, 400),
        (b"1e999", JSON, 400),
        (b"[" * 101 + b"]" * 101, JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b"1" * 4301, JSON, 400),
        (b'"x"', {"content-type": "application/json; charset=iso-8859-1"}, 415),
        (b"x" * 262_143, {}, 413),
    ],
)
async def test_body_that_is_not_a_value_is_refused_and_nothing_stored(
    curl: Curl, body: bytes, headers: dict[str, str], status: int
) -> None:
    refused = await curl.put("/kv/g/k", content=body, headers=headers)
    assert refused.status_code == status
    assert refused.json()["status"] == "error"
    assert (await curl.get("/kv/g/k")).status_code == 404


async def test_charset_of_a_request_body_is_honoured(curl: Curl) -> None:
    await curl.put("/kv/g/k", content=b"\xfc", headers={"content-type": 'text/plain; charset="ISO-8859-1"'})
    assert (await curl.get("/kv/g/k")).text == "ü"


# --- who, claims


async def test_value_is_returned_with_its_author(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="a")
    await curl.put("/kv/g/k", content="b", headers={"x-agent": "claude/tests"})
    history = (await curl.get("/kv/g/k?history=1")).json()["history"]
    assert [(it["value"], it["updated_by"]) for it in history] == [("b", "claude/tests"), ("a", "http")]
    for wrong in (b"", b"a//b", b"\xff", b"x" * 129):
        assert (await curl.put("/kv/g/k", content="c", headers={b"x-agent": wrong})).status_code == 400


async def test_write_conditional_on_a_lost_claim_is_fenced(curl: Curl) -> None:
    claimed = curl.store.claim(
        curl.store.requests.claims.claim("src/a,b@c.py", "ann"), curl.store.caller.model_copy(update={"session": None})
    )
    bare = {"x-guard": f"{quote('src/a,b@c.py', safe='')}@{claimed.body()['version']}"}
    nobody = await curl.put("/kv/g/k", content="a", headers=bare | {"x-agent": "ann"})
    assert (nobody.status_code, "receipt you were given" in nobody.json()["hint"]) == (409, True)
    guard = {"x-guard": f"{bare['x-guard']};receipt={claimed.body()['receipt']}"}
    assert (await curl.put("/kv/g/k", content="a", headers=guard | {"x-agent": "ann"})).status_code == 201
    fenced = await curl.put("/kv/g/k", content="b", headers=guard | {"x-agent": "ben"})
    assert (fenced.status_code, fenced.json()["status"]) == (409, "fenced")
    assert (await curl.delete("/kv/g/k", headers=guard | {"x-agent": "ben"})).status_code == 409
    assert (await curl.get("/kv/g/k")).text == "a"
    for wrong in ("src/a.py", "@1", "a@x", "%zz@1"):
        assert (await curl.put("/kv/g/k", content="c", headers={"x-guard": wrong})).status_code == 400


# --- lists


async def test_groups_keys_and_histories_are_listed_in_pages(curl: Curl) -> None:
    for group, key in (("a", "x1"), ("a", "x2"), ("a", "y"), ("b", "x")):
        await curl.put(f"/kv/{group}/{key}", content=key)
    groups = (await curl.get("/kv", params={"limit": 1})).json()
    assert (groups["namespaces"], groups["next_after"]) == ([{"namespace": "a", "count": 3}], "a")
    assert (await curl.get("/kv", params={"after": "a"})).json()["namespaces"] == [{"namespace": "b", "count": 1}]
    first = (await curl.get("/kv/a", params={"prefix": "x", "limit": 1})).json()
    assert ([it["value"] for it in first["records"]], first["next_after"]) == (["x1"], "x1")
    second = (await curl.get("/kv/a", params={"prefix": "x", "after": "x1"})).json()
    assert [it["value"] for it in second["records"]] == ["x2"]
    await curl.delete("/kv/a/y")
    await curl.put("/kv/a/y", content="again")
    newest = (await curl.get("/kv/a/y?history=&limit=1")).json()
    assert ([it["value"] for it in newest["history"]], newest["next_before"]) == (["again"], 3)
    older = (await curl.get("/kv/a/y?history=true&before=3")).json()["history"]
    assert [it["event_type"] for it in older] == ["delete", "write"]
