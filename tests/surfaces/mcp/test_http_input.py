"""Bad input over HTTP: an answer of the right kind each time, as over stdio; nothing stored, others unharmed."""

import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.agent import message_of
from tests.support.endpoint import ERAS, LEGACY, MODERN, Answer, Place, call, one_replica, request

HOLE = b'"HOLE"'
WRITE = {"namespace": "n", "key": "k", "value": "HOLE", "updated_by": "ann", "expected_version": 0}


@pytest.fixture
async def place(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Place]:
    caplog.set_level(logging.DEBUG)
    async with one_replica() as place:
        yield place
        assert (await place.call(MODERN, "list", {})).content["position"] == 0  # nothing is stored
    assert "SECRET" not in caplog.text
    assert "Traceback" not in caplog.text


def check(answer: Answer) -> None:
    """No traceback, no address of pydantic's, no stored value."""
    assert not re.search(rb"Traceback|pydantic|https?:|SECRET|File \\", answer.body), answer.body[:500]
    assert len(answer.body) < 2000


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"NaN", "finite"),
        (b"1e999", "finite"),
        (b'"SECRET \\ud800"', "surrogate"),
        (b'{"\\udfff":"SECRET"}', "surrogate"),
        (b'"SECRET \xed\xa0\x80"', "UTF-8"),
        (b'"SECRET \xff"', "UTF-8"),
        (b"[" * 101 + b"]" * 101, "100 levels"),
        (b"[" * 300 + b"]" * 300, "nested too deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
        (b'"' + b"x" * 1_000_000 + b'"', "262144 bytes"),
        (b"9" * 5000, "JSON"),
        (b"SECRET", "JSON"),
    ],
    ids=lambda case: case[:20].decode("latin-1") if isinstance(case, bytes) else None,
)
async def test_invalid_value_over_http_is_refused_for_the_agent_to_read(
    place: Place, era: str, value: bytes, why: str
) -> None:
    body, headers = call(era, "set", WRITE)
    answer = await place.raw(body.replace(HOLE, value), headers)
    check(answer)
    assert answer.status == 200
    assert answer.json["id"] == 1
    assert answer.result["isError"] is True
    assert why in message_of(answer.result["content"][0]["text"])
    assert answer.result.get("resultType") == ("complete" if era == MODERN else None)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("body", "identity"),
    [
        (b"", None),
        (b"SECRET", None),
        (b"null", None),
        (b"[]", None),
        (b'"SECRET"', None),
        (b"\xff\xfe{\x00}\x00", None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', 1),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
        (b'{"jsonrpc":"2.0","id":1}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', 1),
        (b'{"jsonrpc":"2.0","id":"1","method":"tools/list","params":[]}', "1"),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', None),
        (b'{"jsonrpc":"2.0","id":{"SECRET":1},"method":"tools/list"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', 1.5),
        (b'{"id":1,"method":"tools/list","params":' + b"[" * 50_000, 1),
    ],
    ids=lambda case: case[:40].decode("latin-1") if isinstance(case, bytes) else None,
)
async def test_invalid_message_over_http_is_refused_with_its_id(
    place: Place, era: str, body: bytes, identity: Any
) -> None:
    _, headers = request(era, "tools/list")
    answer = await place.raw(body, headers)
    check(answer)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["id"] == identity
    assert answer.json["error"]["code"] in (-32700, -32600)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "holdlog_get", "arguments": ["SECRET"]}),
        ("tools/call", {"name": "SECRET"}),
        ("tools/call", {"name": "holdlog_get", "arguments": {"SECRET": 1}}),
        ("tools/list", {"cursor": 5}),
        ("tools/list", {"cursor": "SECRET"}),
        ("SECRET", {}),
        ("", {}),
        ("tools/call\n", {}),
        ("initialize", {"protocolVersion": {}}),
    ],
)
async def test_request_for_the_impossible_is_answered(
    place: Place, era: str, method: str, params: dict[str, Any]
) -> None:
    body, headers = request(era, method, params)
    told = {name: str(value).strip() for name, value in headers.items()}
    answer = await place.raw(body, told)
    assert not re.search(rb"Traceback|pydantic|https?:", answer.body)
    assert answer.status in (200, 400, 404)
    assert answer.json["id"] == 1
    assert "error" in answer.json or answer.result.get("isError") or "tools" in answer.result


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mcp-protocol-version": "1999-01-01"}, -32602),
        ({"mcp-protocol-version": "SECRET" * 1000}, -32602),
        ({"mcp-protocol-version": ""}, -32602),
    ],
)
async def test_unsupported_protocol_version_is_refused(place: Place, change: dict[str, str], code: int) -> None:
    body, headers = request(LEGACY, "tools/list")
    answer = await place.raw(body, headers | change)
    check(answer)
    assert (answer.status, answer.json["error"]["code"]) == (400, code)


@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method"])
async def test_modern_request_with_contradicting_headers_is_refused(place: Place, header: str) -> None:
    body, headers = request(MODERN, "tools/list")
    for value in (None, "2025-11-25" if "version" in header else "tools/call"):
        told = {name: it for name, it in (headers | {header: value}).items() if it is not None}
        answer = await place.raw(body, told)
        check(answer)
        assert (answer.status, answer.json["error"]["code"]) == (400, -32020)
        assert answer.json["id"] == 1


@pytest.mark.parametrize("era", ERAS)
async def test_responses_and_notifications_of_clients_change_nothing(place: Place, era: str) -> None:
    _, headers = request(era, "x")
    for body in (
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"SECRET"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"SECRET"}}',
    ):
        assert (await place.raw(body, headers)).status == (202 if era == LEGACY else 400)
    for body in (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"holdlog_set"}}',
    ):
        assert (await place.raw(body, headers)).status == 202


async def test_strange_session_ids_are_served_and_not_kept(place: Place) -> None:
    for session in ("x" * 5000, "'; DROP TABLE", "\xe9\xff", "../../etc"):
        assert (await place.call(LEGACY, "list", {}, mcp_session_id=session)).status == 200
        _, headers = request(LEGACY, "x", mcp_session_id=session)
        assert (await place.raw(b"", headers, "DELETE")).status == 200
    sessions = place.endpoint.sessions
    assert not sessions.open
    assert all(len(session) <= 128 for _, session in sessions._ended)
