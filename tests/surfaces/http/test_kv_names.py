"""The key-value API: names in a URL, arguments, methods, and whatever else may come."""

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdlog.domain import names
from tests.support.curl import AS_JSON, JSON, Curl


def everywhere(name: str) -> str:
    """Percent-encoded throughout, so that no client makes anything else of it."""
    return "".join(f"%{byte:02X}" for byte in name.encode())


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


@pytest.mark.check
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(group=legal, key=legal, value=values)
@example(group="a/b", key="/%2F/etc/passwd", value="x")
@example(group="...", key=".a/..b", value="x")
@example(group="%", key="?#;=&+ \u0301", value={})
async def test_every_legal_name_and_value_survives_a_url(curl: Curl, group: str, key: str, value: Any) -> None:
    path = f"/kv/{everywhere(group)}/{everywhere(key)}"
    saved = await curl.put(path, content=json.dumps(value), headers=JSON | AS_JSON)
    assert saved.status_code in (200, 201)
    assert (saved.json()["namespace"], saved.json()["key"]) == (names.name(group), names.name(key))
    assert (await curl.get(path, headers=AS_JSON)).json() == value
    listed = await curl.get(f"/kv/{everywhere(group)}", params={"prefix": key})
    assert names.name(key) in [record["key"] for record in listed.json()["records"]]
    assert (await curl.delete(path)).status_code == 200


async def test_encoded_slash_within_a_name_does_not_split_it(curl: Curl) -> None:
    await curl.put("/kv/a%2Fb/c", content="1")
    await curl.put("/kv/a/b%2Fc", content="2")
    assert (await curl.get("/kv/a%2Fb/c")).text == "1"
    assert (await curl.get("/kv/a/b%2fc")).text == "2"
    assert (await curl.get("/kv/a/b/c")).status_code == 404
    assert "%2F" in (await curl.put("/kv/a/b/c", content="3")).json()["message"]


async def test_slash_of_the_route_cannot_be_percent_encoded(curl: Curl) -> None:
    await curl.put("/kv/k/k", content="x")
    for path in ("/kv%2Fk", "/kv%2Fk/k", "/kv%2fg/k/k", "/claims%2Fk"):
        assert (await curl.get(path)).status_code == 404
    assert (await curl.get("/%6Bv/k/k")).text == "x"


async def test_percent_encoding_of_a_name_is_decoded_once(curl: Curl) -> None:
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
async def test_invalid_name_in_a_url_is_refused(curl: Curl, path: str) -> None:
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
async def test_unknown_or_wrong_query_argument_is_refused_by_name(
    curl: Curl, method: str, path: str, name: str
) -> None:
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
async def test_unsupported_method_gets_the_list_of_allowed_ones(
    curl: Curl, method: str, path: str, allowed: str
) -> None:
    refused = await curl.request(method, path)
    assert (refused.status_code, sorted(refused.headers["allow"].split(", "))) == (405, sorted(allowed.split(", ")))


# --- anything


odd = st.binary(max_size=12) | st.sampled_from(
    [
        b'"1"',
        b"*",
        b'W/"1"',
        b'"1", "2"',
        b"a@1",
        b"%ff@1",
        b"application/json",
        b"a;q=2",
        b"ann",
        b"-1",
        b"never",
        b"1",
    ]
)
HEADERS = b"accept content-type content-encoding content-range if-match if-none-match x-agent x-guard idempotency-key"
header = st.tuples(st.sampled_from([*HEADERS.split(), b"holdlog-session"]), odd)
part = st.sampled_from([b"/", b"kv", b"g", b"k", b"%2F", b"%", b"%25", b"%00", b"%ff", b"..", b"%C3%BC", b"+", b"@"])
argument = st.tuples(
    st.sampled_from([b"ttl", b"history", b"limit", b"before", b"after", b"prefix", b"token", b"%ff"]), odd
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"]),
    start=st.sampled_from([b"/kv/g/k", b"/kv/g/", b"/kv", b"/claims/", b"/claims", b"/threads", b"/threads/t/data/k"]),
    parts=st.lists(part, max_size=5),
    query=st.lists(argument, max_size=3),
    headers=st.lists(header, max_size=4),
    body=st.binary(max_size=30) | st.sampled_from([b"{}", b'{"a": null}', b"[1", b"NaN"]),
)
async def test_random_requests_are_answered_and_never_cause_an_internal_error(
    curl: Curl,
    method: str,
    start: bytes,
    parts: list[bytes],
    query: list[tuple[bytes, bytes]],
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    raw = start + b"".join(parts)
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": unquote(raw.decode()),
        "raw_path": raw,
        "root_path": "",
        "query_string": b"&".join(name + b"=" + value for name, value in query),
        "headers": [(b"host", b"127.0.0.1"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8420),
        "state": {},
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await curl.app(scope, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    status, answer = sent[0]["status"], sent[1]["body"]
    assert status < 500
    if status >= 400 and answer != b"Key Not Found":
        assert json.loads(answer)["status"] in ("error", "conflict", "not_found", "fenced")
