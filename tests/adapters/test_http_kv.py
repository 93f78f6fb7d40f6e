"""The key-value API: what curl and scripts say, and what they are told."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdlog.adapters.call import Settings
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.ending import Ending
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.opened import Opened
from holdlog.adapters.spaces import Spaces
from holdlog.domain import names
from tests.agent import opened
from tests.clock import Clock

JSON = {"content-type": "application/json"}
AS_JSON = {"accept": "application/json"}
PATCH = {"content-type": "application/merge-patch+json"}
MONTH = 30 * 24 * 60 * 60


class Curl(httpx2.AsyncClient):
    """A client whose `request` also takes a path that is sent as it is."""

    def __init__(self, store: Opened) -> None:
        spaces = Spaces(":memory:", store, Settings())
        app = build_app(build_server(None, ("claims",)), spaces, None, HttpOptions(max_requests=0), Ending())
        super().__init__(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420")
        self.store = store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def curl(clock: Clock) -> AsyncIterator[Curl]:
    with opened(clock=clock) as store:
        async with Curl(store) as client:
            yield client


def everywhere(name: str) -> str:
    """Percent-encoded throughout, so that no client makes anything else of it."""
    return "".join(f"%{byte:02X}" for byte in name.encode())


# --- as echoValue


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_what_is_saved_as_text_is_read_as_text(curl: Curl, method: str) -> None:
    saved = await curl.request(method, "/kv/import/status?ttl=60", content="done")
    assert (saved.text, saved.headers["content-type"]) == ("OK", "text/plain; charset=utf-8")
    read = await curl.get("/kv/import/status")
    assert (read.status_code, read.text) == (200, "done")
    assert read.headers["content-type"] == "text/plain; charset=utf-8"


async def test_what_is_missing_expired_or_deleted_is_not_found(curl: Curl, clock: Clock) -> None:
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
async def test_a_value_lives_as_long_as_told_and_thirty_days_else(curl: Curl, query: str, lives: float | None) -> None:
    await curl.post(f"/kv/import/status{query}", content="done")
    assert _state(curl, "import", "status").expires_in_seconds == lives


def _state(curl: Curl, group: str, key: str) -> Any:
    return curl.store.read(curl.store.calls.get(group, key))


@pytest.mark.parametrize("ttl", ["", "-1", "soon", "1e3", "315360001", "nan", "%2B5", " 5"])
async def test_a_ttl_that_is_none_is_refused_by_name(curl: Curl, ttl: str) -> None:
    refused = await curl.post(f"/kv/import/status?ttl={ttl}", content="done")
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("ttl: ")
    assert (await curl.get("/kv/import/status")).status_code == 404


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "text/html", None]
)
async def test_a_body_of_any_type_but_json_is_text(curl: Curl, kind: str | None) -> None:
    text = 'a=1&b=%20+ü\r\n<script>alert(1)</script>\0"\\'
    await curl.post("/kv/g/k", content=text, headers={"content-type": kind} if kind else {})
    read = await curl.get("/kv/g/k")
    assert read.text == text
    assert read.headers["content-type"] == "text/plain; charset=utf-8"
    assert read.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in read.headers["content-security-policy"]


# --- JSON


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, [], 0, 1.5, True, None, 10**100])
async def test_a_json_body_is_a_value_and_read_as_json(curl: Curl, value: Any) -> None:
    await curl.put("/kv/g/k", content=json.dumps(value), headers={"content-type": "application/vnd.x+json"})
    read = await curl.get("/kv/g/k", headers={"accept": "text/plain"})
    assert (read.json(), read.headers["content-type"]) == (value, "application/json")


async def test_a_string_is_told_as_json_to_who_asks(curl: Curl) -> None:
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
async def test_json_is_told_where_it_is_preferred_to_text(curl: Curl, accept: str, as_json: bool) -> None:
    saved = await curl.put("/kv/g/k", content="done", headers={"accept": accept})
    assert (saved.text == "OK") is not as_json
    read = await curl.get("/kv/g/k", headers={"accept": accept})
    assert read.text == ('"done"' if as_json else "done")


async def test_a_write_tells_its_result_as_json_to_who_asks(curl: Curl) -> None:
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
async def test_a_body_that_is_no_value_is_refused_and_nothing_stored(
    curl: Curl, body: bytes, headers: dict[str, str], status: int
) -> None:
    refused = await curl.put("/kv/g/k", content=body, headers=headers)
    assert refused.status_code == status
    assert refused.json()["status"] == "error"
    assert (await curl.get("/kv/g/k")).status_code == 404


async def test_a_charset_is_honoured(curl: Curl) -> None:
    await curl.put("/kv/g/k", content=b"\xfc", headers={"content-type": 'text/plain; charset="ISO-8859-1"'})
    assert (await curl.get("/kv/g/k")).text == "ü"


# --- names


def _can_be_sent(text: str) -> bool:
    """A name without the parts `.` and `..`, of which too many that stand in between make something else."""
    try:
        return {".", ".."}.isdisjoint(re.split(r"[/\\]", names.name(text)))
    except ValueError:
        return False


legal = st.text(min_size=1, max_size=20).filter(_can_be_sent)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(group=legal, key=legal, value=values)
@example(group="a/b", key="/%2F/etc/passwd", value="x")
@example(group="...", key=".a/..b", value="x")
@example(group="%", key="?#;=&+ \u0301", value={})
async def test_every_legal_name_and_value_goes_through_a_url(curl: Curl, group: str, key: str, value: Any) -> None:
    path = f"/kv/{everywhere(group)}/{everywhere(key)}"
    saved = await curl.put(path, content=json.dumps(value), headers=JSON | AS_JSON)
    assert saved.status_code in (200, 201)
    assert (saved.json()["namespace"], saved.json()["key"]) == (names.name(group), names.name(key))
    assert (await curl.get(path, headers=AS_JSON)).json() == value
    listed = await curl.get(f"/kv/{everywhere(group)}", params={"prefix": key})
    assert names.name(key) in [record["key"] for record in listed.json()["records"]]
    assert (await curl.delete(path)).status_code == 200


async def test_a_slash_within_a_name_does_not_part_it(curl: Curl) -> None:
    await curl.put("/kv/a%2Fb/c", content="1")
    await curl.put("/kv/a/b%2Fc", content="2")
    assert (await curl.get("/kv/a%2Fb/c")).text == "1"
    assert (await curl.get("/kv/a/b%2fc")).text == "2"
    assert (await curl.get("/kv/a/b/c")).status_code == 404
    assert "%2F" in (await curl.put("/kv/a/b/c", content="3")).json()["message"]


async def test_a_name_is_decoded_once(curl: Curl) -> None:
    await curl.put("/kv/g/%2525", content="1")
    assert [it["key"] for it in (await curl.get("/kv/g")).json()["records"]] == ["%25"]


@pytest.mark.parametrize(
    "path",
    [
        "/kv/g/",
        "/kv//k",
        "/kv/g/%zz",
        "/kv/g/%",
        "/kv/g/%ff",
        "/kv/g/%0A",
        "/kv/g/%00",
        "/kv/g/%2E%2e",
        "/kv/g/..%2F..%2Fetc%2Fpasswd",
        "/kv/g/" + "x" * 513,
    ],
)
async def test_a_name_that_is_none_is_refused(curl: Curl, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        refused = await curl.request(method, path, content="x")
        assert (refused.status_code, refused.json()["status"]) == (400, "error")
    assert (await curl.get("/kv")).json()["count"] == 0


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/kv?prefix=x", "prefix"),
        ("GET", "/kv/g?ttl=1", "ttl"),
        ("GET", "/kv/g/k?token=secret", "token"),
        ("PUT", "/kv/g/k?tll=1", "tll"),
        ("DELETE", "/kv/g/k?force=1", "force"),
        ("PUT", "/kv/g/k?ttl=1&ttl=2", "ttl"),
        ("GET", "/kv/g/k?limit=1", "history"),
        ("GET", "/kv/g/k?history=no", "history"),
        ("GET", "/kv/g?limit=0", "limit"),
        ("GET", "/kv/g?limit=x", "limit"),
        ("GET", "/kv/g?prefix=%ff", "query"),
        ("GET", "/kv/g?prefix=%f", "query"),
        ("GET", "/kv/g?" + "&".join(f"a{n}=1" for n in range(20)), "query"),
    ],
)
async def test_an_unknown_or_wrong_argument_is_refused_by_name(curl: Curl, method: str, path: str, name: str) -> None:
    refused = await curl.request(method, path)
    assert refused.status_code == 400
    assert name in refused.json()["message"].partition(":")[0]
    assert "secret" not in refused.text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/kv", "GET, HEAD"),
        ("PUT", "/kv/g", "GET, HEAD"),
        ("OPTIONS", "/kv/g/k", "GET, HEAD, POST, PUT, PATCH, DELETE"),
    ],
)
async def test_another_method_is_told_which_are_allowed(curl: Curl, method: str, path: str, allowed: str) -> None:
    refused = await curl.request(method, path)
    assert (refused.status_code, sorted(refused.headers["allow"].split(", "))) == (405, sorted(allowed.split(", ")))


# --- versions and conditions


async def test_the_tag_of_a_value_is_its_version(curl: Curl) -> None:
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
async def test_a_write_is_made_under_its_condition(
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
async def test_a_read_is_made_under_its_condition(
    curl: Curl, headers: dict[str, str], status: int, method: str
) -> None:
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


async def test_a_deletion_is_made_under_its_condition(curl: Curl) -> None:
    async def delete(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await curl.delete("/kv/g/k", headers=named)).status_code

    for condition in ({"if_match": "*"}, {"if_match": '"1"'}, {"if_match": '"1", "2"'}, {"if_none_match": '"1"'}):
        assert await delete(**condition) == 404
    await curl.put("/kv/g/k", content="a")
    assert await delete(if_match='"2"') == await delete(if_none_match="*") == await delete(if_match='W/"1"') == 412
    assert await delete(if_match="*") == 200


async def test_of_writers_with_the_same_version_one_wins_whatever_the_form_of_the_condition(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="a")
    for form in ('"{0}"', '"{0}", "99"'):
        version = (await curl.get("/kv/g/k")).headers["etag"].strip('"')
        answers = await asyncio.gather(
            *(curl.put("/kv/g/k", content=str(n), headers={"if-match": form.format(version)}) for n in range(20))
        )
        assert sorted(it.status_code for it in answers) == [200] + [412] * 19


async def test_a_head_tells_what_a_get_does_but_the_value(curl: Curl) -> None:
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
async def test_a_merge_patch_does_what_its_specification_says(curl: Curl, value: Any, patch: Any, merged: Any) -> None:
    await curl.put("/kv/g/k", content=json.dumps(value), headers=JSON)
    answer = await curl.patch("/kv/g/k", content=json.dumps(patch), headers=PATCH)
    assert (answer.status_code, answer.text, answer.headers["etag"]) == (200, "OK", '"2"')
    assert (await curl.get("/kv/g/k", headers=AS_JSON)).json() == merged


async def test_many_merge_at_once_and_nothing_is_lost(curl: Curl) -> None:
    await asyncio.gather(*(curl.patch("/kv/g/k", content=json.dumps({f"a{n}": n}), headers=PATCH) for n in range(50)))
    assert (await curl.get("/kv/g/k")).json() == {f"a{n}": n for n in range(50)}


async def test_a_patch_of_what_is_missing_creates_it_unless_it_must_be_there(curl: Curl) -> None:
    refused = await curl.patch("/kv/g/k", content="{}", headers=PATCH | {"if-match": "*"})
    assert refused.status_code == 412
    created = await curl.patch("/kv/g/k", content='{"a": 1, "b": null}', headers=PATCH)
    assert created.status_code == 201
    assert (await curl.get("/kv/g/k")).json() == {"a": 1}
    assert _state(curl, "g", "k").expires_in_seconds == MONTH


async def test_a_patch_keeps_the_end_of_a_value_unless_told(curl: Curl, clock: Clock) -> None:
    await curl.put("/kv/g/k?ttl=100", content="{}", headers=JSON)
    clock.pass_by(40)
    await curl.patch("/kv/g/k", content='{"a": 1}', headers=PATCH)
    assert _state(curl, "g", "k").expires_in_seconds == 60
    await curl.patch("/kv/g/k?ttl=90", content='{"a": 2}', headers=PATCH)
    assert _state(curl, "g", "k").expires_in_seconds == 90
    await curl.patch("/kv/g/k?ttl=never", content='{"a": 3}', headers=PATCH)
    await curl.patch("/kv/g/k", content='{"a": 4}', headers=PATCH)
    assert _state(curl, "g", "k").expires_in_seconds is None


async def test_a_patch_of_another_type_is_told_which_is_taken(curl: Curl) -> None:
    for kind in ("application/json", "application/json-patch+json", "text/plain"):
        refused = await curl.patch("/kv/g/k", content="{}", headers={"content-type": kind})
        assert (refused.status_code, refused.headers["accept-patch"]) == (415, "application/merge-patch+json")


async def test_a_value_never_grows_beyond_its_bound_by_merging(curl: Curl) -> None:
    half = "x" * 140_000
    await curl.put("/kv/g/k", content=json.dumps({"a": half}), headers=JSON)
    refused = await curl.patch("/kv/g/k", content=json.dumps({"b": half}), headers=PATCH)
    assert refused.status_code == 413
    assert (await curl.get("/kv/g/k")).json() == {"a": half}


# --- once


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH"])
async def test_a_write_that_is_sent_again_is_done_once_and_answered_the_same(curl: Curl, method: str) -> None:
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


async def test_a_condition_goes_with_a_repeatable_write(curl: Curl) -> None:
    once = {"idempotency-key": "1", "if-none-match": "*"}
    for _ in range(2):
        assert (await curl.put("/kv/g/k", content="a", headers=once)).status_code == 201
    once = {"idempotency-key": "2", "if-match": '"1"'}
    for _ in range(2):
        assert (await curl.delete("/kv/g/k", headers=once)).status_code == 200
    refused = await curl.put("/kv/g/k", content="a", headers={"idempotency-key": "3", "if-match": "*"})
    assert (refused.status_code, refused.json()["message"][:16]) == (400, "Idempotency-Key:")


# --- who, claims


async def test_who_wrote_is_told(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="a")
    await curl.put("/kv/g/k", content="b", headers={"x-agent": "claude/tests"})
    history = (await curl.get("/kv/g/k?history=1")).json()["history"]
    assert [(it["value"], it["updated_by"]) for it in history] == [("b", "claude/tests"), ("a", "http")]
    for wrong in (b"", b"a//b", b"\xff", b"x" * 129):
        assert (await curl.put("/kv/g/k", content="c", headers={b"x-agent": wrong})).status_code == 400


async def test_a_write_that_relies_on_a_claim_is_fenced_without_it(curl: Curl) -> None:
    claimed = curl.store.claim(
        curl.store.calls.claim("src/a,b@c.py", "ann"), curl.store.caller.model_copy(update={"session": None})
    )
    guard = {"x-guard": f"{quote('src/a,b@c.py', safe='')}@{claimed.body()['version']}"}
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
