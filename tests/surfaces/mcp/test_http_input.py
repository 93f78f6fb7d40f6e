"""Bad input over HTTP: an answer of the right kind each time, as over stdio; nothing stored, others unharmed."""

import logging
import re
from collections.abc import AsyncIterator

import pytest

from tests.support.endpoint import LEGACY, MODERN, Answer, Place, one_replica, request

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


async def test_strange_session_ids_are_served_and_not_kept(place: Place) -> None:
    for session in ("x" * 5000, "'; DROP TABLE", "\xe9\xff", "../../etc"):
        assert (await place.call(LEGACY, "list", {}, mcp_session_id=session)).status == 200
        _, headers = request(LEGACY, "x", mcp_session_id=session)
        assert (await place.raw(b"", headers, "DELETE")).status == 200
    sessions = place.endpoint.sessions
    assert not sessions.open
    assert all(len(session) <= 128 for _, session in sessions._ended)
