"""`POST /transactions`, and JSON patches of one value."""

import asyncio
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.curl import AS_JSON, JSON, PATCH, Curl

JSON_PATCH = {"content-type": "application/json-patch+json"}


def op(name: str, key: str = "k", /, **fields: Any) -> dict[str, Any]:
    return {"op": name, "namespace": "g", "key": key, **fields}


async def transact(curl: Curl, *operations: Any, **more: Any) -> Any:
    headers = more.pop("headers", {})
    return await curl.post("/transactions", json={"operations": operations, **more}, headers=headers)


def position(curl: Curl) -> int:
    return curl.store.read_now(lambda reader: reader.position())


async def test_transaction_changes_several_values(curl: Curl) -> None:
    done = await transact(curl, op("set", value={"a": 1}), op("increment", "n", by=0.5), updated_by="ann", reason="why")
    assert (done.status_code, done.headers["content-type"]) == (200, "application/json")
    assert done.json() == {
        "status": "ok",
        "results": [
            {"namespace": "g", "key": "k", "version": 1},
            {"namespace": "g", "key": "n", "version": 1, "value": 0.5},
        ],
        "position": 2,
    }
    assert (await curl.get("/kv/g/k")).headers["holdlog-updated-by"] == "ann"
    history = (await curl.get("/kv/g/n?history=1")).json()["history"]
    assert [(it["reason"], it["operation"]) for it in history] == [("why", "increment")]


async def test_author_of_a_transaction_is_the_header_or_the_server(curl: Curl) -> None:
    await transact(curl, op("set", value=1), headers={"x-agent": "bob"})
    assert curl.record("g", "k").updated_by == "bob"
    await transact(curl, op("set", value=1))
    assert curl.record("g", "k").updated_by == "http"


@pytest.mark.parametrize(
    ("operations", "status", "told"),
    [
        (
            [op("set", "a", value=1), op("set", value=1, expected_version=9)],
            409,
            {"status": "conflict", "operation": 1},
        ),
        ([op("delete", "a")], 404, {"status": "not_found", "operation": 0}),
        ([op("set", "a", value=1), op("increment", by=1)], 409, {"status": "error", "operation": 1}),
        ([op("patch", patch=[{"op": "remove", "path": "/a"}])], 409, {"status": "error", "operation": 0}),
        ([op("incr", by=1)], 400, {"status": "error", "operation": 0}),
        ([op("set", value=1, x=1)], 400, {"status": "error", "operation": 0}),
        ([op("set", value=1)] * 1001, 400, {"message": "operations: must have 1 to 1000 entries"}),
        ([op("set", value="x" * 300_000)], 413, {"status": "error", "operation": 0}),
        ([op("set", value="x" * 250_000)] * 17, 413, {"status": "error", "operation": 16}),
        ([op("merge", value={}, expected_version="1")], 400, {"status": "error", "operation": 0}),
    ],
)
async def test_refused_transaction_names_its_operation_and_changes_nothing(
    curl: Curl, operations: list[Any], status: int, told: dict[str, Any]
) -> None:
    await curl.put("/kv/g/k", content="secret")
    refused = await transact(curl, *operations)
    body = refused.json()
    assert refused.status_code == status, body
    assert body | told == body
    assert "If-Match" not in body.get("hint", "")
    assert "secret" not in body.get("message", "")
    assert position(curl) == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "operations: is required"),
        ({"operations": {}}, "operations: must be a list of objects with op, namespace and key"),
        ({"operations": []}, "operations: must have 1 to 1000 entries"),
        ({"operations": [op("set", value=1)], "by": "ann"}, "body: by: unknown argument"),
        ({"operations": [op("set", value=1)], "guard": "a@1"}, "guard: must be a list of objects"),
        ({"operations": [op("set", value=1)], "updated_by": ""}, "updated_by: "),
        ({"operations": [op("set", value=1)], "reason": 1}, "reason: must be a string"),
        ([], "body: must be a JSON object"),
    ],
)
async def test_invalid_body_is_refused_by_name(curl: Curl, body: Any, text: str) -> None:
    refused = await curl.post("/transactions", json=body)
    assert (refused.status_code, refused.json()["message"][: len(text)]) == (400, text)
    assert position(curl) == 0


async def test_repeated_transaction_is_done_once_and_gets_the_same_response(curl: Curl) -> None:
    headers = {"idempotency-key": "8e03978e"}
    first = await transact(curl, op("increment", by=1), headers=headers)
    again = await transact(curl, op("increment", by=1), headers=headers)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert (await curl.get("/kv/g/k")).json() == 1
    other = await transact(curl, op("increment", by=2), headers=headers)
    assert other.status_code == 422


async def test_transaction_relies_on_claims(curl: Curl) -> None:
    guard = [{"resource": "custom://deploy", "version": 1}]
    fenced = await transact(curl, op("set", value=1), guard=guard)
    assert (fenced.status_code, fenced.json()["status"]) == (409, "fenced")
    assert position(curl) == 0


async def test_concurrent_increments_lose_nothing(curl: Curl) -> None:
    answers = await asyncio.gather(*(transact(curl, op("increment", by=1)) for _ in range(50)))
    assert sorted(answer.json()["results"][0]["value"] for answer in answers) == list(range(1, 51))


# --- JSON patches


async def patch(curl: Curl, *steps: dict[str, Any], **headers: str) -> Any:
    return await curl.patch("/kv/g/k", json=steps, headers=JSON_PATCH | headers)


async def test_json_patch_changes_a_value_and_keeps_its_expiry(curl: Curl, clock: Clock) -> None:
    await curl.put("/kv/g/k?ttl=100", content='{"a": [1]}', headers=JSON)
    clock.pass_by(40)
    done = await patch(curl, {"op": "add", "path": "/a/-", "value": 2}, **AS_JSON)
    assert (done.status_code, done.headers["etag"]) == (200, '"2"')
    assert done.json() | {"version": 2, "previous_version": 1, "value": {"a": [1, 2]}} == done.json()
    assert curl.record("g", "k").expires_in_seconds == 60
    plain = await patch(curl, {"op": "remove", "path": "/a/0"})
    assert (plain.text, (await curl.get("/kv/g/k")).json()) == ("OK", {"a": [2]})


async def test_json_patch_is_made_only_under_its_condition(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="{}", headers=JSON)
    step = {"op": "add", "path": "/a", "value": 1}
    assert (await patch(curl, step, **{"if-match": '"9"'})).status_code == 412
    assert (await patch(curl, step, **{"if-match": '"1"'})).status_code == 200
    assert (await patch(curl, step, **{"if-match": "*"})).status_code == 200
    assert (await patch(curl, step, **{"if-none-match": "*"})).status_code == 412


async def test_json_patch_that_cannot_be_applied_changes_nothing(curl: Curl) -> None:
    step = {"op": "test", "path": "/a", "value": 1}
    missing = await patch(curl, step, **AS_JSON)
    assert (missing.status_code, missing.json()["status"]) == (404, "not_found")
    await curl.put("/kv/g/k", content='{"a": "secret"}', headers=JSON)
    refused = await patch(curl, step)
    assert (refused.status_code, refused.json()) == (
        409,
        {"status": "error", "message": "patch[0]: the test failed; the value has something else there"},
    )
    for wrong in ({"op": "x", "path": ""}, {"op": "remove", "path": "a"}):
        assert (await patch(curl, wrong)).status_code == 400
    timed = await curl.patch("/kv/g/k?ttl=9", json=[], headers=JSON_PATCH)
    assert (timed.status_code, timed.json()["message"][:5]) == (400, "ttl: ")
    assert position(curl) == 1


async def test_merge_patch_and_json_patch_are_distinguished_by_their_content_type(curl: Curl) -> None:
    steps = [{"op": "add", "path": "", "value": {"a": 1}}]
    await curl.patch("/kv/g/k", json=steps, headers=PATCH)
    assert (await curl.get("/kv/g/k")).json() == steps
    await curl.patch("/kv/g/k", json=steps, headers=JSON_PATCH)
    assert (await curl.get("/kv/g/k")).json() == {"a": 1}


async def test_openapi_describes_transactions_and_both_patches(curl: Curl) -> None:
    document = (await curl.get("/openapi.json")).json()
    body = document["paths"]["/kv/{group}/{key}"]["patch"]["requestBody"]["content"]
    assert list(body) == ["application/merge-patch+json", "application/json-patch+json"]
    schemas = document["components"]["schemas"]
    assert schemas["TransactionBody"]["required"] == ["operations"]
    kinds = schemas["TransactionBody"]["properties"]["operations"]["items"]["discriminator"]["mapping"]
    assert list(kinds) == ["append", "check", "delete", "increment", "merge", "patch", "set"]
