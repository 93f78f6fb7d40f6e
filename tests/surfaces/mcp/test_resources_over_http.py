"""Resources of a server for many: each client reads, completes and follows what its grants allow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.adapters.compose import MEMORY
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.resources import subscriptions
from holdlog.adapters.mcp.resources.addresses import CLAIM, CLAIMS, NAMESPACES, STATE
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from tests.support.agent import ALL, ERAS, engine
from tests.support.endpoint import INITIALIZE, LEGACY, MODERN, Connection, request, until
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")


class Known:
    """Whose tokens say what they allow: `read:a-*+claim:src/*`."""

    revoked = False

    async def verify(self, text: str) -> Principal | None:
        return None if self.revoked else Principal(f"token:{text}", Grants.parse(text.split("+")))


@asynccontextmanager
async def serving(store: Engine, tokens: Known | None = None) -> AsyncIterator[str]:
    spaces = Tenants(MEMORY, store, Settings())
    app = build_app(build_server(None, ALL), spaces, tokens or Known(), HttpOptions(), Shutdown())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    await running


def client(url: str, allowed: str, mode: Any) -> "Client[Any]":
    return Client(StreamableHttpTransport(url, auth=allowed), mode=mode)


async def write(store: Engine, namespace: str, key: str) -> None:
    await store.write_async(store.requests.values.set(namespace, key, "STORED", "ann", None), store.caller)


@pytest.mark.parametrize("mode", ERAS)
async def test_client_reads_and_completes_what_its_grants_allow(mode: str) -> None:
    with engine() as store:
        for namespace in ("a-1", "a-2", "b-1"):
            await write(store, namespace, "k")
        for name in ("src/a.py", "lib/b.py"):
            await store.claim_async(store.requests.claims.claim(name, "ann"), store.caller)
        async with serving(store) as url, client(url, "read:a-*+claim:src/*", mode) as allowed:
            assert "STORED" in (await allowed.read_resource("state://a-1/k"))[0].text  # type: ignore[union-attr]
            assert "ann" in (await allowed.read_resource("claim://src/a.py"))[0].text  # type: ignore[union-attr]
            for uri, needed in (("state://b-1/k", "read-values:b-1"), ("state://b-1/other", "read-values:b-1")):
                with pytest.raises(MCPError, match=needed) as caught:
                    await allowed.read_resource(uri)
                assert caught.value.data == {"uri": uri, "status": "denied", "needed": needed}
            state, claim = ResourceTemplateReference(uri=STATE), ResourceTemplateReference(uri=CLAIM)
            found = await allowed.complete(state, {"name": "namespace", "value": ""})
            assert (found.values, found.total) == (["a-1", "a-2"], 2)
            found = await allowed.complete(claim, {"name": "resource", "value": ""})
            assert found.values == ["src/a.py"]
            with pytest.raises(MCPError, match="read-values:b-1"):
                await allowed.complete(state, {"name": "key", "value": ""}, context_arguments={"namespace": "b-1"})


async def test_client_is_notified_of_nothing_it_may_not_read() -> None:
    with engine() as store:
        async with serving(store) as url:
            async with client(url, "read:a-*", "legacy") as allowed:
                with pytest.raises(MCPError, match="read-values:b-1"):
                    await allowed.session.subscribe_resource("state://b-1/k")
            uris = ["state://b-1/k", "state://a-1/k", NAMESPACES, CLAIMS]
            async with (
                client(url, "read:a-*", "auto") as allowed,
                listen(allowed.session, resource_subscriptions=uris) as stream,
                asyncio.timeout(20),
            ):
                assert stream.honored.resource_subscriptions == uris[1:]
                await write(store, "b-1", "k")
                await store.claim_async(store.requests.claims.claim("b.md", "ann"), store.caller)
                await write(store, "a-1", "other")
                assert await anext(stream) == ResourceUpdated(NAMESPACES)
                await store.claim_async(store.requests.claims.claim("a-1.md", "ann"), store.caller)
                assert await anext(stream) == ResourceUpdated(CLAIMS)
                await write(store, "a-1", "k")
                assert {await anext(stream), await anext(stream)} == {
                    ResourceUpdated("state://a-1/k"),
                    ResourceUpdated(NAMESPACES),
                }


async def test_streams_of_a_revoked_token_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("exchange", "stream"):
        monkeypatch.setattr(f"holdlog.adapters.mcp.http.{module}.PING_EVERY", 0.02)
    tokens, bearer = Known(), {"authorization": "Bearer read:*"}
    with engine() as store:
        async with serving(store, tokens) as url, AsyncExitStack() as stack:

            async def sent(body: bytes, headers: dict[str, str], method: str = "POST") -> Connection:
                connection = Connection(*await asyncio.open_connection("127.0.0.1", int(url[17:-4])))
                stack.callback(connection.drop)
                await connection.send(method, body, headers | bearer)
                return connection

            given = await (await sent(*request(LEGACY, "initialize", INITIALIZE))).head()
            asked = {"notifications": {"resourceSubscriptions": [CLAIMS]}}
            streams = [
                await sent(*request(MODERN, "subscriptions/listen", asked)),
                await sent(b"", {"mcp-session-id": given[1]["mcp-session-id"]}, "GET"),
            ]
            for stream in streams:
                assert (await stream.head())[0] == 200
                assert await stream.chunk()
            tokens.revoked = True
            for stream in streams:
                async with asyncio.timeout(20):
                    while await stream.chunk():
                        pass


@pytest.mark.parametrize("mode", ERAS)
async def test_waiting_call_returns_nothing_after_its_token_was_revoked(mode: str) -> None:
    tokens = Known()
    with engine() as store:
        await write(store, "a-1", "k")
        async with serving(store, tokens) as url, client(url, "read:*", mode) as reader, asyncio.timeout(PATIENCE):
            asked = {"namespace": "a-1", "key": "k", "since_version": 1, "timeout_seconds": 40}
            waiting = asyncio.create_task(reader.call_tool("holdlog_watch", asked, raise_on_error=False))
            await until(lambda: store.lease_maintenance._waiters)
            tokens.revoked = True
            await write(store, "a-1", "k")
            told = await waiting
            tokens.revoked = False
    assert told.is_error
    assert "the token is not valid" in str(told.content)


LONG_BEFORE_THE_TIMEOUT = 20.0
WAITS = {
    "holdlog_watch": {"namespace": "a-1", "key": "k", "since_version": 1, "timeout_seconds": 40},
    "holdlog_wait": {"resource": "custom://tea", "timeout_seconds": 40},
    "holdlog_claim": {"resource": "custom://tea", "agent": "bob", "wait_seconds": 40},
}


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("tool", WAITS)
async def test_waiting_call_ends_when_its_token_is_revoked(mode: str, tool: str) -> None:
    tokens = Known()
    with engine() as store:
        await write(store, "a-1", "k")
        await store.claim_async(store.requests.claims.claim("custom://tea", "ann"), store.caller)
        allowed = "read:*+claim:*"
        async with serving(store, tokens) as url, client(url, allowed, mode) as bob:
            waiting = asyncio.create_task(bob.call_tool(tool, WAITS[tool], raise_on_error=False))
            await until(lambda: store.lease_maintenance._waiters)
            tokens.revoked = True
            told = await asyncio.wait_for(waiting, LONG_BEFORE_THE_TIMEOUT)
            tokens.revoked = False
    assert told.is_error
    assert "the token is not valid" in str(told.content)


@pytest.mark.parametrize("mode", ERAS)
async def test_waiting_claim_is_not_collected_after_its_token_was_revoked(mode: str) -> None:
    tokens = Known()
    with engine() as store:
        await store.claim_async(store.requests.claims.claim("custom://tea", "ann"), store.caller)
        async with serving(store, tokens) as url, client(url, "claim:*", mode) as bob, asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(bob.call_tool("holdlog_claim", WAITS["holdlog_claim"], raise_on_error=False))
            await until(lambda: store.lease_maintenance._waiters)
            tokens.revoked = True
            await store.write_async(store.requests.claims.release("custom://tea", "ann"), store.caller)
            told = await waiting
            tokens.revoked = False
        with store.store.reader() as reader:
            kinds = [lease.kind for lease in reader.leases.of(["custom://tea"])]
    assert told.is_error
    assert "held" not in kinds


@pytest.mark.parametrize("mode", ERAS)
async def test_one_principal_does_not_block_the_others(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_CLIENTS", 4)
    with engine() as store:
        async with serving(store) as url, AsyncExitStack() as stack:

            async def follows(allowed: str) -> None:
                found = await stack.enter_async_context(client(url, allowed, mode))
                if mode == "legacy":
                    await found.session.subscribe_resource(CLAIMS)
                else:
                    await stack.enter_async_context(listen(found.session, resource_subscriptions=[CLAIMS]))

            await follows("read:*")
            with pytest.raises(MCPError, match="1 clients already subscribe to resources"):
                await follows("read:*")
            for other in "abc":
                await follows(f"read:{other}")
            with pytest.raises(MCPError, match="4 clients already subscribe to resources"):
                await follows("read:d")
