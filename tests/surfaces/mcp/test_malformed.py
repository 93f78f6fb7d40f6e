"""Every row of tests/support/malformed.py over every transport: the right response; nothing stored or revealed."""

import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from holdlog import StateStore
from tests.support.agent import message_of
from tests.support.endpoint import LEGACY, MODERN, Answer, Place, call, one_replica, request
from tests.support.malformed import (
    BLANK,
    HOLE,
    HTTP,
    MESSAGES,
    REQUESTS,
    STDIO,
    UNANSWERED,
    VALUES,
    Message,
    Request,
    Unanswered,
    Value,
)
from tests.support.wire import Wire

WRITE = {"namespace": "n", "key": "k", "value": "HOLE", "updated_by": "ann", "expected_version": 0}


class Reply(NamedTuple):
    """A JSON-RPC response, and the HTTP status it came with."""

    message: dict[str, Any]
    status: int | None = None


class Transport(Protocol):
    modern: bool

    async def message(self, body: bytes) -> Reply: ...

    async def request(self, method: str, params: dict[str, Any]) -> Reply: ...

    async def call(self, value: bytes) -> Reply:
        """Of `set` with these bytes as its value."""

    async def require_no_response(self, row: Unanswered) -> None: ...


class OverStdio:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.modern = wire.modern

    async def message(self, body: bytes) -> Reply:
        self.wire.send(body)
        line = self.wire.line()
        require_discreet(line)
        return Reply(json.loads(line))

    async def request(self, method: str, params: dict[str, Any]) -> Reply:
        self.wire.send(self.wire.message(method, params))
        return Reply(self.wire.answer())

    async def call(self, value: bytes) -> Reply:
        return await self.message(self.wire.call("holdlog_set", **WRITE).replace(HOLE, value))

    async def require_no_response(self, row: Unanswered) -> None:
        self.wire.send(row.body)
        assert self.wire.ask("tools/list", identity="next")["result"]["tools"]


class OverHttp:
    def __init__(self, place: Place, era: str) -> None:
        self.place = place
        self.era = era
        self.modern = era == MODERN

    async def message(self, body: bytes) -> Reply:
        reply = self.reply(await self.place.raw(body, request(self.era, "tools/list")[1]))
        assert reply.status == 400
        return reply

    async def request(self, method: str, params: dict[str, Any]) -> Reply:
        body, headers = request(self.era, method, params)
        answer = await self.place.raw(body, {name: str(value).strip() for name, value in headers.items()})
        assert answer.status in (200, 400, 404)
        return Reply(answer.json, answer.status)

    async def call(self, value: bytes) -> Reply:
        body, headers = call(self.era, "set", WRITE)
        reply = self.reply(await self.place.raw(body.replace(HOLE, value), headers))
        assert reply.status == 200
        return reply

    async def require_no_response(self, row: Unanswered) -> None:
        answer = await self.place.raw(row.body, request(self.era, "x")[1])
        assert answer.status == (row.modern_status if self.modern else row.legacy_status)

    def reply(self, answer: Answer) -> Reply:
        require_discreet(answer.body)
        assert answer.headers["content-type"] == "application/json"
        return Reply(answer.json, answer.status)


def require_discreet(body: bytes) -> None:
    """No traceback, no address of pydantic's, nothing that an agent wrote."""
    assert not re.search(rb"Traceback|pydantic|https?:|SECRET|File \\", body), body[:500]
    assert len(body) < 2000


def rows(table: Any, *names: str) -> Any:
    """Each row of the table over each transport that it is for."""
    return pytest.mark.parametrize(
        ("transport", "row"),
        [
            pytest.param(
                f"{name}-{era}",
                row,
                marks=pytest.mark.xdist_group(f"input-{era}") if name == STDIO else (),
                id=f"{name}-{era}-{named(row)}",
            )
            for row in table
            for name in getattr(row, "over", names or (STDIO, HTTP))
            for era in ("legacy", "modern")
        ],
        indirect=["transport"],
    )


def named(row: Any) -> str:
    match row:
        case Request(method, params):
            return f"{method} {params}"[:60]
        case Message() | Value() | Unanswered():
            return row.body[:60].decode("latin-1")
        case _:
            return str(row[:60].decode("latin-1"))


@pytest.fixture
async def transport(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Transport]:
    """Nothing is stored by what the test does, and nothing that it sent is logged."""
    name, _, era = request.param.partition("-")
    if name == STDIO:
        path: Path = request.getfixturevalue("input_store")
        with StateStore(path) as library:
            before = library.list_records("n").position
            yield OverStdio(request.getfixturevalue(f"{era}_server"))
            assert library.list_records("n").position == before
    else:
        caplog.set_level(logging.DEBUG)
        async with one_replica() as place:
            yield OverHttp(place, MODERN if era == "modern" else LEGACY)
            assert (await place.call(MODERN, "list", {})).content["position"] == 0
        assert "SECRET" not in caplog.text
        assert "Traceback" not in caplog.text


@rows(MESSAGES)
async def test_malformed_message_gets_an_error_with_its_id(transport: Transport, row: Message) -> None:
    message, _ = await transport.message(row.body)
    assert message["id"] == row.id
    assert message["error"]["message"]
    assert row.code in (None, message["error"]["code"])


@pytest.mark.check
@rows(REQUESTS)
async def test_impossible_request_is_answered(transport: Transport, row: Request) -> None:
    message, _ = await transport.request(row.method, row.params)
    assert not re.search("Traceback|pydantic|https?:", json.dumps(message))
    assert message["id"] == 1
    assert "error" in message or message["result"].get("isError") or "tools" in message["result"]


@pytest.mark.check
@rows(VALUES)
async def test_malformed_value_is_refused_for_the_agent_to_read(transport: Transport, row: Value) -> None:
    message, _ = await transport.call(row.body)
    assert message["id"] == 1
    result = message["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    why = message_of(result["content"][0]["text"])
    if not why.startswith("message too long"):  # of which nothing is read that would tell the era
        assert result.get("resultType") == ("complete" if transport.modern else None)
    assert row.why in why
    assert len(why) <= 300


@pytest.mark.check
@rows(UNANSWERED)
async def test_notifications_and_responses_of_clients_get_no_response(transport: Transport, row: Unanswered) -> None:
    await transport.require_no_response(row)


@rows(BLANK, STDIO)
async def test_blank_lines_get_no_response(transport: Transport, row: bytes) -> None:
    await transport.require_no_response(Unanswered(row, 0, 0))
