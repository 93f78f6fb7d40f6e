"""The key-value API: conditions, merge patches, repeated requests."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.curl import AS_JSON, JSON, MONTH, PATCH, Curl

# --- versions and conditions


async def test_etag_of_a_value_is_its_version(curl: Curl) -> None:
    first = await curl.put("/kv/g/k", content="a")
    second = await curl.put("/kv/g/k", content="b")
    read = await curl.get("/kv/g/k")
    assert (first.status_code, first.headers["etag"]) == (201, '"1"')
    assert (second.status_code, second.headers["etag"]) == (200, '"2"')
    assert read.headers["etag"] == '"2"'
    assert (await curl.post("/kv/g/new", content="a")).status_code == 200


@pytest.mark.parametrize(
    ("stands", "headers", "status"),
    [
        (True, {"if-match": '"2"'}, 200),
        (True, {"if-match": '"1", "2"'}, 200),
        (True, {"if-match": ' , "1" ,, "2" ,'}, 200),
        (True, {"if-match": "*"}, 200),
        (True, {"if-match": '"1"'}, 412),
        (True, {"if-match": '"0"'}, 412),
        (True, {"if-match": '"02"'}, 412),
        (True, {"if-match": 'W/"2"'}, 412),
        (True, {"if-match": '"x,y", "z"'}, 412),
        (True, {"if-match": '"9999999999999999999"'}, 412),
        (False, {"if-match": "*"}, 412),
        (False, {"if-match": '"0"'}, 412),
        (False, {"if-match": '"2"'}, 412),
        (False, {"if-none-match": "*"}, 201),
        (False, {"if-none-match": '"2"'}, 201),
        (True, {"if-none-match": "*"}, 412),
        (True, {"if-none-match": '"2"'}, 412),
        (True, {"if-none-match": 'W/"2"'}, 412),
        (True, {"if-none-match": '"1"'}, 200),
        (True, {"if-match": "*", "if-none-match": '"1"'}, 200),
        (True, {"if-match": '"2"', "if-none-match": '"2"'}, 412),
        (True, {"if-match": "2"}, 400),
        (True, {"if-match": '"1" "2"'}, 400),
        (True, {"if-match": '"1", *'}, 400),
        (True, {"if-match": ""}, 400),
        (True, {"if-none-match": "2"}, 400),
        (True, {"if-none-match": '"2'}, 400),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_write_is_made_only_under_its_condition(
    curl: Curl, stands: bool, headers: dict[str, str], status: int, method: str
) -> None:
    if stands:
        await curl.put("/kv/g/k", content="a")
        await curl.put("/kv/g/k", content="b", headers={"x-agent": "ann"})
    answer = await curl.request(method, "/kv/g/k", content='"c"', headers=headers | PATCH)
    assert answer.status_code == status
    if status == 412:
        told = answer.json()
        assert (told["status"], told["actual_version"]) == ("conflict", 2 if stands else 0)
        assert told["actual_value"] == ("b" if stands else None)
        assert told.get("actual_updated_by") == ("ann" if stands else None)
    now = await curl.get("/kv/g/k")
    assert now.text == ("c" if status < 300 else "b" if stands else "Key Not Found")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if-none-match": '"2"'}, 304),
        ({"if-none-match": 'W/"2"'}, 304),
        ({"if-none-match": '"1", "2"'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"1"'}, 200),
        ({"if-match": '"2"'}, 200),
        ({"if-match": '"1"'}, 412),
        ({"if-match": '"2"', "if-none-match": '"2"'}, 304),
        ({"if-none-match": "2"}, 400),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_read_honours_its_condition(curl: Curl, headers: dict[str, str], status: int, method: str) -> None:
    await curl.put("/kv/g/k", content="a")
    await curl.put("/kv/g/k", content="b")
    answer = await curl.request(method, "/kv/g/k", headers=headers)
    assert answer.status_code == status
    if status in (200, 304):
        assert answer.headers["etag"] == '"2"'
        assert answer.headers["cache-control"] == "no-store"
    if status == 304:
        assert answer.content == b""
    assert (await curl.request(method, "/kv/g/none", headers=headers)).status_code == 404


async def test_deletion_is_made_only_under_its_condition(curl: Curl) -> None:
    async def delete(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await curl.delete("/kv/g/k", headers=named)).status_code

    for condition in ({"if_match": "*"}, {"if_match": '"1"'}, {"if_match": '"1", "2"'}, {"if_none_match": '"1"'}):
        assert await delete(**condition) == 404
    await curl.put("/kv/g/k", content="a")
    assert await delete(if_match='"2"') == await delete(if_none_match="*") == await delete(if_match='W/"1"') == 412
    assert await delete(if_match="*") == 200


async def test_one_of_several_writers_with_the_same_version_wins(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="a")
    for form in ('"{0}"', '"{0}", "99"'):
        version = (await curl.get("/kv/g/k")).headers["etag"].strip('"')
        answers = await asyncio.gather(
            *(curl.put("/kv/g/k", content=str(n), headers={"if-match": form.format(version)}) for n in range(20))
        )
        assert sorted(it.status_code for it in answers) == [200] + [412] * 19


async def test_head_returns_the_headers_of_a_get(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="done", headers={b"x-agent": "müller/100%".encode()})
    read, head = await curl.get("/kv/g/k"), await curl.head("/kv/g/k")
    assert head.headers == read.headers
    assert (head.content, head.headers["content-length"]) == (b"", "4")
    assert head.headers["holdlog-updated-by"] == "m%C3%BCller/100%25"
    assert head.headers["holdlog-expires-at"] > head.headers["holdlog-updated-at"]


# --- merging


@pytest.mark.parametrize(
    ("value", "patch", "merged"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
async def test_merge_patch_follows_its_specification(curl: Curl, value: Any, patch: Any, merged: Any) -> None:
    await curl.put("/kv/g/k", content=json.dumps(value), headers=JSON)
    answer = await curl.patch("/kv/g/k", content=json.dumps(patch), headers=PATCH)
    assert (answer.status_code, answer.text, answer.headers["etag"]) == (200, "OK", '"2"')
    assert (await curl.get("/kv/g/k", headers=AS_JSON)).json() == merged


async def test_concurrent_merges_lose_nothing(curl: Curl) -> None:
    await asyncio.gather(*(curl.patch("/kv/g/k", content=json.dumps({f"a{n}": n}), headers=PATCH) for n in range(50)))
    assert (await curl.get("/kv/g/k")).json() == {f"a{n}": n for n in range(50)}


async def test_merge_patch_creates_a_missing_value_unless_it_must_exist(curl: Curl) -> None:
    refused = await curl.patch("/kv/g/k", content="{}", headers=PATCH | {"if-match": "*"})
    assert refused.status_code == 412
    created = await curl.patch("/kv/g/k", content='{"a": 1, "b": null}', headers=PATCH)
    assert created.status_code == 201
    assert (await curl.get("/kv/g/k")).json() == {"a": 1}
    assert curl.record("g", "k").expires_in_seconds == MONTH


async def test_merge_patch_keeps_the_expiry_of_a_value_by_default(curl: Curl, clock: Clock) -> None:
    await curl.put("/kv/g/k?ttl=100", content="{}", headers=JSON)
    clock.pass_by(40)
    await curl.patch("/kv/g/k", content='{"a": 1}', headers=PATCH)
    assert curl.record("g", "k").expires_in_seconds == 60
    await curl.patch("/kv/g/k?ttl=90", content='{"a": 2}', headers=PATCH)
    assert curl.record("g", "k").expires_in_seconds == 90
    await curl.patch("/kv/g/k?ttl=never", content='{"a": 3}', headers=PATCH)
    await curl.patch("/kv/g/k", content='{"a": 4}', headers=PATCH)
    assert curl.record("g", "k").expires_in_seconds is None


async def test_patch_of_another_type_is_refused_with_the_supported_type(curl: Curl) -> None:
    for kind in ("application/json", "text/plain"):
        refused = await curl.patch("/kv/g/k", content="{}", headers={"content-type": kind})
        assert (refused.status_code, refused.headers["accept-patch"]) == (
            415,
            "application/merge-patch+json, application/json-patch+json",
        )


async def test_value_never_grows_beyond_its_limit_by_merging(curl: Curl) -> None:
    half = "x" * 140_000
    await curl.put("/kv/g/k", content=json.dumps({"a": half}), headers=JSON)
    refused = await curl.patch("/kv/g/k", content=json.dumps({"b": half}), headers=PATCH)
    assert refused.status_code == 413
    assert (await curl.get("/kv/g/k")).json() == {"a": half}


# --- once


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH"])
async def test_repeated_write_is_done_once_and_gets_the_same_response(curl: Curl, method: str) -> None:
    headers = PATCH | AS_JSON | {"idempotency-key": '"8e03978e"', "x-agent": "ann"}
    first = await curl.request(method, "/kv/g/k", content='{"a": 1}', headers=headers)
    await curl.put("/kv/g/k", content='{"b": 2}', headers=JSON)
    again = await curl.request(method, "/kv/g/k", content='{"a": 1}', headers=headers)
    assert (again.status_code, again.headers, again.text) == (first.status_code, first.headers, first.text)
    assert (await curl.get("/kv/g/k")).json() == {"b": 2}
    other = await curl.request(method, "/kv/g/k", content='{"a": 2}', headers=headers)
    assert other.status_code == 422
    assert other.json()["message"].startswith("Idempotency-Key: ")
    assert (await curl.get("/kv/g/k", headers=headers)).json() == {"b": 2}


async def test_condition_is_checked_on_a_repeatable_write(curl: Curl) -> None:
    once = {"idempotency-key": "1", "if-none-match": "*"}
    for _ in range(2):
        assert (await curl.put("/kv/g/k", content="a", headers=once)).status_code == 201
    once = {"idempotency-key": "2", "if-match": '"1"'}
    for _ in range(2):
        assert (await curl.delete("/kv/g/k", headers=once)).status_code == 200
    refused = await curl.put("/kv/g/k", content="a", headers={"idempotency-key": "3", "if-match": "*"})
    assert (refused.status_code, refused.json()["message"][:16]) == (400, "Idempotency-Key:")
