"""MCP over Streamable HTTP: both eras at one address, on any replica, with sessions only where one is needed."""

import asyncio
from typing import Any

import pytest
from fastmcp import Client

from holdlog.adapters.mcp.http import sessions
from holdlog.adapters.mcp.resources.addresses import CLAIMS
from holdlog.adapters.mcp.server import FixedTools
from holdlog.domain.claims.commands import Sweep
from holdlog.domain.message import NOBODY
from holdlog.domain.names import record_stream
from tests.support.agent import connected, engine
from tests.support.endpoint import ERAS, INITIALIZE, LEGACY, MODERN, Place, call, one_replica, replica, request, until

PLACE = {"namespace": "n", "key": "k"}
WRITE = {**PLACE, "value": {"a": None}, "updated_by": "ann", "expected_version": 0}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_real_client_works_over_http_in_both_eras(mode: Any) -> None:
    async with one_replica() as place, connected(f"http://127.0.0.1:{place.port}/mcp", mode=mode) as agent:
        assert (await agent("set", **WRITE))["version"] == 1
        assert (await agent("get", **PLACE))["value"] == {"a": None}
        assert (await agent("claim", resource="a.md", agent="ann"))["status"] == "claimed"
        assert "unknown tool" in await agent.error("nothing")


@pytest.mark.parametrize("era", ERAS)
async def test_quick_call_is_answered_in_plain_json(era: str) -> None:
    async with one_replica() as place:
        answer = await place.call(era, "set", WRITE)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.content["status"] == "ok"
        assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("accept", "form"), [("application/json", "json"), ("text/event-stream", "event-stream")])
async def test_client_gets_the_one_response_form_it_accepts(era: str, accept: str, form: str) -> None:
    async with one_replica(progress_every=0.02) as place:
        arguments = {**PLACE, "since_version": 0, "timeout_seconds": 0.1}
        answer = await place.call(era, "watch", arguments, {"progressToken": "p"}, accept=accept)
        assert form in answer.headers["content-type"]
        assert answer.content["status"] == "timeout"


@pytest.mark.parametrize("era", ERAS)
async def test_wait_over_http_sends_progress_on_request(era: str) -> None:
    async with one_replica(progress_every=0.02) as place:
        arguments = {**PLACE, "since_version": 0, "timeout_seconds": 0.2}
        answer = await place.call(era, "watch", arguments, {"progressToken": "p"})
        *told, last = answer.events
        assert len(told) > 2
        assert {it["method"] for it in told} == {"notifications/progress"}
        assert {it["params"]["progressToken"] for it in told} == {"p"}
        assert last["result"]["structuredContent"]["status"] == "timeout"
        assert (await place.call(era, "watch", arguments)).headers["content-type"] == "application/json"


@pytest.mark.parametrize("era", ERAS)
async def test_silent_wait_over_http_sends_keep_alives(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdlog.adapters.mcp.http.exchange.PING_EVERY", 0.02)
    async with one_replica() as place:
        answer = await place.call(era, "watch", {**PLACE, "since_version": 0, "timeout_seconds": 0.3})
        assert answer.body.startswith(b": ping\n\n")
        assert answer.content["status"] == "timeout"


async def test_any_replica_answers_any_call_for_any_session() -> None:
    with engine() as store:
        async with replica(store) as one, replica(store) as another:
            given = (await one.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
            for place in (one, another):
                for session in ({"mcp-session-id": given}, {"mcp-session-id": "from-before-a-restart"}, {}):
                    body, headers = call(LEGACY, "set", {**WRITE, "force": True})
                    answer = await place.raw(body, headers | session)
                    assert answer.content["status"] == "ok"
                    noticed = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
                    assert (await place.raw(noticed, headers | session)).status == 202
            assert not one.endpoint.sessions.open  # nothing is kept of who does not subscribe


async def test_each_initialize_creates_a_session() -> None:
    async with one_replica() as place:
        answers = [await place.ask(LEGACY, "initialize", INITIALIZE) for _ in range(3)]
        assert {it.json["result"]["protocolVersion"] for it in answers} == {LEGACY}
        assert len({it.headers["mcp-session-id"] for it in answers}) == 3
        bad = await place.ask(LEGACY, "initialize", {"protocolVersion": 5})
        assert "error" in bad.json
        assert "mcp-session-id" not in bad.headers


async def test_session_ended_by_its_client_is_over() -> None:
    async with one_replica() as place:
        given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
        for _ in range(2):
            assert (await place.raw(b"", {"mcp-session-id": given}, "DELETE")).status == 200
        assert (await place.call(LEGACY, "get", PLACE, mcp_session_id=given)).status == 404
        assert (await place.raw(b"", {"mcp-session-id": given}, "GET")).status == 404
        # Nobody ends the session of another, and who has no session goes on.
        assert (await place.call(LEGACY, "get", PLACE, mcp_session_id=given, x_principal="token:b")).status == 200
        assert (await place.call(LEGACY, "get", PLACE)).status == 200


@pytest.mark.check
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 405),
        ("GET", {"mcp-session-id": "x", "mcp-protocol-version": MODERN}, 405),
        ("GET", {"mcp-session-id": "x", "accept": "application/json"}, 406),
        ("GET", {"mcp-session-id": "of-another-replica"}, 404),
        ("DELETE", {}, 405),
        ("PUT", {}, 405),
        ("HEAD", {}, 405),
        ("POST", {"content-type": "text/plain"}, 415),
        ("POST", {"content-type": "application/json", "accept": "text/html"}, 406),
    ],
)
async def test_invalid_mcp_request_gets_its_http_status(method: str, headers: dict[str, str], status: int) -> None:
    async with one_replica() as place, place.connect() as connection:
        await connection.send(method, b"{}" if method == "POST" else b"", headers)
        assert (await connection.head())[0] == status


async def stream_of(place: Place, given: str, connection: Any, **headers: str) -> None:
    await connection.send("GET", b"", {"mcp-session-id": given, "accept": "text/event-stream"} | headers)
    status, told = await connection.head()
    assert (status, told["content-type"]) == (200, "text/event-stream")


async def test_session_messages_come_once_each_on_its_stream() -> None:
    async with one_replica() as place, place.connect() as old, place.connect() as new:
        given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
        await stream_of(place, given, old)
        (session,) = place.endpoint.sessions.open.values()
        for uri in ("a", "b", "a"):
            await session.connection.notify("notifications/resources/updated", {"uri": uri})
        assert [(await old.event())["params"]["uri"] for _ in "ab"] == ["a", "b"]
        await stream_of(place, given, new)
        while await old.chunk():
            pass  # the newer stream took over
        await session.connection.notify("notifications/resources/updated", {"uri": "c"})
        assert (await new.event())["params"]["uri"] == "c"


async def test_stream_of_another_principal_is_another_session() -> None:
    async with one_replica() as place, place.connect() as mine, place.connect() as theirs:
        given = (await place.ask(LEGACY, "initialize", INITIALIZE, x_principal="token:a")).headers["mcp-session-id"]
        await stream_of(place, given, mine, **{"x-principal": "token:a"})
        await stream_of(place, given, theirs, **{"x-principal": "token:b"})
        session = place.endpoint.sessions.open["token:a", given]
        await session.connection.notify("notifications/resources/updated", {"uri": "a"})
        assert (await mine.event())["params"]["uri"] == "a"
        other = place.endpoint.sessions.open["token:b", given]
        await other.connection.notify("notifications/resources/updated", {"uri": "b"})
        assert (await theirs.event())["params"]["uri"] == "b"


async def test_session_state_is_removed_soon_after_its_last_stream() -> None:
    async with one_replica() as place:
        place.endpoint.sessions._idle = 0.05
        left: list[str] = []
        given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
        async with place.connect() as connection:
            await stream_of(place, given, connection)
            (session,) = place.endpoint.sessions.open.values()
            session.subscribed = True
            session.connection.exit_stack.callback(left.append, "unsubscribed")
        await until(lambda: left)
        assert not place.endpoint.sessions.open
        assert (await place.raw(b"", {"mcp-session-id": given}, "GET")).status == 404  # so that it subscribes again
        assert (await place.call(LEGACY, "get", PLACE, mcp_session_id=given)).status == 200


async def test_overlong_session_id_is_not_kept() -> None:
    async with one_replica() as place:
        given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"] + "x" * 10_000
        assert (await place.raw(b"", {"mcp-session-id": given}, "GET")).status == 404
        answer = await place.ask(LEGACY, "resources/subscribe", {"uri": CLAIMS}, mcp_session_id=given)
        assert answer.status == 404
        assert not place.endpoint.sessions.open


async def test_session_that_missed_messages_must_start_again() -> None:
    """As when a space is closed of which nobody streams: changes would be missed silently."""
    async with one_replica() as place, place.connect() as connection:
        ids = [(await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"] for _ in "ab"]
        await stream_of(place, ids[0], connection)
        for given in ids:
            answer = await place.ask(LEGACY, "resources/subscribe", {"uri": CLAIMS}, mcp_session_id=given)
            assert answer.result == {}
        place.engine.close()
        await until(lambda: (None, ids[0]) not in place.endpoint.sessions.open)  # its stream has ended
        for given in ids:
            assert (await place.raw(b"", {"mcp-session-id": given}, "GET")).status == 404
        assert not place.endpoint.sessions.open


async def test_sessions_are_limited_and_idle_ones_are_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)
    async with one_replica() as place, place.connect() as one, place.connect() as two, place.connect() as three:
        ids = [(await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"] for _ in range(4)]
        for given, connection in zip(ids, (one, two), strict=False):
            await stream_of(place, given, connection)
        assert (await place.raw(b"", {"mcp-session-id": ids[2]}, "GET")).status == 404
        one.drop()
        await until(lambda: not place.endpoint.sessions.open[None, ids[0]].users)
        await stream_of(place, ids[3], three)
        assert set(place.endpoint.sessions.open) == {(None, ids[1]), (None, ids[3])}


@pytest.mark.parametrize("era", ERAS)
async def test_call_carries_its_session_and_request_id(era: str) -> None:
    async with one_replica() as place:
        meta = {"holdlog/session": "s1", "holdlog/request_id": "r1"}
        first = await place.call(era, "set", WRITE, meta, x_principal="token:a")
        assert (await place.call(era, "set", WRITE, meta, x_principal="token:a")).content == first.content
        assert (await place.call(era, "set", WRITE, meta, x_principal="token:b")).content["status"] == "conflict"
        again = await place.call(era, "set", WRITE, x_principal="token:a", idempotency_key="r1")
        assert again.content == first.content
        with place.engine.store.reader() as reader:
            (recorded,) = reader.history(record_stream("n", "k"), None, -1)
        session = place.engine.identity.session("meta", "holdlog/session s1")
        assert (recorded.envelope.caller.principal, recorded.envelope.caller.session) == ("token:a", session)


async def test_unauthenticated_calls_have_no_principal() -> None:
    async with one_replica() as place:
        await place.call(MODERN, "set", WRITE)
        with place.engine.store.reader() as reader:
            (recorded,) = reader.history(record_stream("n", "k"), None, -1)
        assert (recorded.envelope.caller.principal, recorded.envelope.caller.session) == (None, None)


@pytest.mark.check
@pytest.mark.parametrize("era", ERAS)
async def test_losses_are_reported_to_their_principal_only(era: str) -> None:
    async with one_replica() as place:
        claim = {"resource": "a.md", "agent": "ann", "lease_seconds": 1}
        receipt = (await place.call(era, "claim", claim, x_principal="token:a")).content["receipt"]
        waited = await place.call(era, "wait", {"resource": "a.md", "timeout_seconds": 5})
        assert waited.content["status"] == "available"
        write = {**WRITE, "force": True}
        with_receipt = {"resource": "b.md", "agent": "ann", "receipt": receipt}
        for principal in ({"x_principal": "token:b"}, {}):
            assert "lost" not in (await place.call(era, "set", write, **principal)).content
            assert "lost" not in (await place.call(era, "release", with_receipt, **principal)).content
        assert "lost" not in (await place.call(era, "set", write, x_principal="token:a")).content  # no receipt
        told = (await place.call(era, "release", with_receipt, x_principal="token:a")).content
        assert [it["resource"] for it in told["lost"]] == ["a.md"]
        assert "lost" not in (await place.call(era, "release", with_receipt, x_principal="token:a")).content


async def test_client_of_2025_can_cancel_its_call_and_no_other() -> None:
    async with one_replica() as place, place.connect() as connection:
        given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
        mine = {"mcp_session_id": given, "x_principal": "token:a"}
        arguments = {**PLACE, "since_version": 0, "timeout_seconds": 30}
        await connection.send("POST", *call(LEGACY, "watch", arguments, **mine))
        await until(lambda: place.endpoint.sessions.calls)
        cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
        _, headers = request(LEGACY, "x", **mine)
        for other in ({"x-principal": "token:b"}, {"mcp-session-id": "x"}):
            assert (await place.raw(cancel, headers | other)).status == 202
        assert place.endpoint.sessions.calls
        assert (await place.raw(cancel, headers)).status == 202
        assert (await connection.answer()).json["error"]["code"] == -32800
        assert not place.endpoint.sessions.calls


async def test_server_error_reveals_nothing_internal() -> None:
    async with one_replica() as place:

        async def broken(*arguments: Any, **options: Any) -> None:
            raise RuntimeError("SECRET")

        tools = FixedTools.list_tools
        try:
            FixedTools.list_tools = broken  # type: ignore[method-assign,assignment]
            for era in ERAS:
                answer = await place.ask(era, "tools/list")
                assert answer.json["error"] == {"code": -32603, "message": "Internal server error"}
        finally:
            FixedTools.list_tools = tools  # type: ignore[method-assign]
        assert (await place.ask(LEGACY, "tools/list")).status == 200


async def test_many_concurrent_clients_each_get_their_answer() -> None:
    async with one_replica() as place:

        async def agent(number: int, mode: Any) -> None:
            async with Client(f"http://127.0.0.1:{place.port}/mcp", mode=mode) as client:
                for version in range(3):
                    arguments = {"namespace": "n", "key": f"k{number}", "value": number, "updated_by": f"a{number}"}
                    answer = await client.call_tool("holdlog_set", arguments | {"expected_version": version})
                    assert answer.structured_content["key"] == f"k{number}"  # type: ignore[index]

        await asyncio.gather(*(agent(number, ("legacy", "auto")[number % 2]) for number in range(12)))


@pytest.mark.parametrize("era", ERAS)
async def test_sessions_named_by_clients_are_distinct_on_every_replica(era: str) -> None:
    """Two machines with one token whose agents both took the name that seemed obvious."""
    one, two = {"holdlog/session": "one"}, {"holdlog/session": "two"}
    claim, release = ("claim", {"resource": "a.md", "agent": "ann"}), ("release", {"resource": "a.md", "agent": "ann"})
    with engine() as store:
        store.keeps = False
        async with replica(store) as here, replica(store) as there:
            version = (await here.call(era, *claim, one)).content["version"]
            busy = (await there.call(era, *claim, two)).content
            assert (busy["status"], busy["holder_connected"]) == ("busy", True)
            assert "Another session with this name" in busy["hint"]
            assert (await there.call(era, *claim)).content["status"] == "busy"
            assert (await there.call(era, *release, two)).content["status"] == "not_holder"
            guarded = {**WRITE, "guard": [{"resource": "a.md", "version": version}]}
            assert (await there.call(era, "set", guarded, two)).content["status"] == "fenced"
            assert (await there.call(era, *claim, one)).content["status"] == "already_claimed"
            store.writer.run(Sweep(ended=("a server that is gone",), grace=0), NOBODY)
            assert (await there.call(era, "set", guarded, one)).content["status"] == "ok"
            assert (await there.call(era, *release, one)).content["status"] == "released"
            assert (await here.call(era, *claim, two)).content["status"] == "claimed"
