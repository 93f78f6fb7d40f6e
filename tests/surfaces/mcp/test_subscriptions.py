"""Clients of both eras are told which resources changed, whoever changed them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceUpdatedNotification

from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.adapters.mcp.resources import subscriptions as limits
from holdlog.adapters.mcp.resources.addresses import CLAIMS, NAMESPACES
from holdlog.adapters.mcp.resources.feeds import Feed, Follow, Subscriber
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.package import StateStore
from holdlog.adapters.runtime.engine import Engine
from tests.support.agent import ALL, ERAS, engine, process
from tests.support.slow import slow
from tests.support.uris import claim_uri, value_uri
from tests.support.wire import Wire

pytestmark = pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")

PATIENCE = 20.0

Next = Callable[[], Awaitable[str]]


@asynccontextmanager
async def following(server: Any, mode: Any, *uris: str) -> "AsyncIterator[tuple[Client[Any], Next]]":
    """A client that follows resources in the way of its era, and what tells the next that was updated."""
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            told.put_nowait(message.params.uri)

    async def soon() -> str:
        async with asyncio.timeout(PATIENCE):
            return await told.get()

    # A client that listens hands what it hears to both.
    async with Client(server, mode=mode, message_handler=heard if mode == "legacy" else None) as client:
        if mode == "legacy":
            for uri in uris:
                await client.session.subscribe_resource(uri)
            yield client, soon
            return
        async with listen(client.session, resource_subscriptions=uris) as stream:
            assert stream.honored.resource_subscriptions == list(uris)

            async def hear() -> None:
                async for event in stream:
                    assert isinstance(event, ResourceUpdated)
                    told.put_nowait(event.uri)

            hearing = asyncio.create_task(hear())
            yield client, soon
            hearing.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def nothing_is_left(store: Engine) -> bool:
    """Nobody listens to the bell, and nothing is swept for anybody."""
    return not store.notifier._wakers and not store.lease_maintenance._waiters


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "state.db")
    url: str = request.getfixturevalue("postgres")
    return url


@pytest.mark.check
@pytest.mark.parametrize(
    ("mode", "place"),
    [(ERAS[0], "postgres"), (ERAS[1], "file"), *slow((ERAS[0], "file"), (ERAS[1], "postgres"))],
    indirect=["place"],
)
async def test_client_is_notified_of_writes_by_other_processes(mode: str, place: str) -> None:
    value, claim = value_uri("Order/1 é", "a?b#c"), "claim://src/main.py"
    server = process("serve", "--db", place, "--tools", "claims,state")
    async with following(server, mode, value, claim) as (client, updated):
        with StateStore(place) as other:
            other.set("Order/1 é", "a?b#c", 1, updated_by="ann")
            assert await updated() == value
            assert '"version":1' in (await client.session.read_resource(value)).contents[0].text
            other.set("Order/1 é", "a", 1, updated_by="ann")  # is no resource that it follows
            other.claim("src/main.py", agent="ann")
            assert await updated() == claim
            other.delete("Order/1 é", "a?b#c", deleted_by="ann")
            assert await updated() == value


async def test_unsubscribed_client_is_not_notified() -> None:
    with engine() as store:
        async with following(build_server(store, ALL), "legacy", "state://n/a", "state://n/b") as (client, updated):
            await client.session.unsubscribe_resource("state://n/a")
            await client.session.unsubscribe_resource("state://n/never")
            for key in "ab":
                await write(client, key)
            assert await updated() == "state://n/b"
            await client.session.unsubscribe_resource("state://n/b")
            assert nothing_is_left(store)
            await client.session.subscribe_resource("state://n/a")
            for key in "ba":
                await write(client, key)
            assert await updated() == "state://n/a"


async def write(client: "Client[Any]", key: str, namespace: str = "n", **more: Any) -> None:
    arguments = {"namespace": namespace, "key": key, "value": 1, "updated_by": "ann", "force": True}
    answer = await client.call_tool("holdlog_set", arguments | more)
    assert answer.structured_content is not None
    assert answer.structured_content["status"] == "ok"


async def take(client: "Client[Any]", resource: str, agent: str = "ann", **more: Any) -> Any:
    return await client.call_tool("holdlog_claim", {"resource": resource, "agent": agent} | more)


@pytest.mark.parametrize("mode", ERAS)
async def test_disconnected_subscriber_leaves_nothing_behind(mode: str) -> None:
    with engine() as store:
        server = build_server(store, ALL)
        async with following(server, mode, "state://n/a", CLAIMS) as (client, updated):
            assert not nothing_is_left(store)
            await write(client, "a")
            assert await updated() == "state://n/a"
        await until(lambda: nothing_is_left(store))
        assert server.subscriptions is not None
        assert not server.subscriptions._clients
        assert not server.subscriptions._feeds


async def test_all_subscribers_of_a_store_share_one_reader_of_its_log() -> None:
    with engine() as store:
        server = build_server(store, ALL)
        async with (
            following(server, "legacy", "state://n/a", "state://n/b") as (client, first),
            following(server, "auto", "state://n/a", "claim://a.md") as (_, second),
        ):
            assert len(store.notifier._wakers) == 1
            await write(client, "a")
            assert [await first(), await second()] == ["state://n/a", "state://n/a"]


@pytest.mark.parametrize("mode", ERAS)
async def test_claim_resource_is_updated_with_everything_its_status_shows(mode: str) -> None:
    """Each step changes the status of what is named beside it, and not that of the others."""
    uris = [claim_uri(name) for name in ("src/a.py", "src/lib/", "src-app/a.py", "custom://deploy")]
    a, lib, app, deploy = uris
    with engine() as store:
        async with following(build_server(store, ALL), mode, *uris) as (client, updated):

            async def updates(*expected: str) -> None:
                assert {await updated() for _ in expected} == set(expected)

            await take(client, "src/a.py")
            await updates(a)
            await take(client, "src/", "ben")  # refused: nothing is told
            await take(client, "src/lib/deep/b.py", "ben")
            await updates(lib)
            await client.call_tool("holdlog_release", {"resource": "src/lib/deep/b.py", "agent": "ben"})
            await updates(lib)
            await client.call_tool("holdlog_release", {"resource": "src/a.py", "agent": "ann"})
            await updates(a)
            await take(client, "src/", "ben")  # the subtree that holds two of them
            await updates(a, lib)
            await take(client, "src-app/a.py", "ann")
            await updates(app)
            await client.call_tool("holdlog_register", {"agent": "ann", "model": "m-1"})
            await updates(app)
            waiting = asyncio.create_task(take(client, "src/a.py", "cleo", alternatives=["custom://deploy"]))
            await updates(deploy)  # granted there
            await waiting


async def test_queued_claim_of_several_resources_updates_each_of_them() -> None:
    uris = [claim_uri(name) for name in ("a.md", "b.md", "c.md")]
    with engine() as store:
        server = build_server(store, ALL)
        async with following(server, "legacy", *uris[1:]) as (client, updated), Client(server) as other:
            for name in ("a.md", "b.md", "c.md"):
                await take(client, name)
            assert {await updated(), await updated()} == set(uris[1:])
            waiting = asyncio.create_task(take(other, "a.md", "ben", alternatives=["b.md", "c.md"], wait_seconds=30))
            assert {await updated(), await updated()} == set(uris[1:])
            queue = (await client.session.read_resource(uris[2])).contents[0].text
            assert '"queue_length":1' in queue
            await client.call_tool("holdlog_release", {"resource": "a.md", "agent": "ann"})
            assert {await updated(), await updated()} == set(uris[1:])
            await waiting
            assert '"queue_length":0' in (await client.session.read_resource(uris[2])).contents[0].text


async def test_waiter_that_resumes_a_claim_leaves_every_queue_it_joined() -> None:
    uris = [claim_uri(name) for name in ("b.md", "c.md")]
    with engine() as store:
        store.keeps = False  # sessions live by their calls
        former = store.identity.session("meta", "holdlog/session one")
        server = build_server(store, ALL)
        async with following(server, "legacy", *uris) as (client, updated), Client(server) as other:
            one = {"resource": "a.md", "agent": "ann"}
            await client.call_tool("holdlog_claim", one, meta={"holdlog/session": "one"})
            for name in ("b.md", "c.md"):
                await take(client, name, "ben")
            assert {await updated(), await updated()} == set(uris)
            waiting = asyncio.create_task(take(other, "a.md", "ann", alternatives=["b.md", "c.md"], wait_seconds=30))
            assert {await updated(), await updated()} == set(uris)
            await store.end_session(store.caller.model_copy(update={"session": former}))
            assert {await updated(), await updated()} == set(uris)
            await waiting
            assert '"queue_length":0' in (await client.session.read_resource(uris[1])).contents[0].text


@pytest.mark.check
@pytest.mark.parametrize("mode", ERAS)
async def test_subscribers_are_notified_of_expired_leases_and_values_without_calls(mode: str) -> None:
    with engine() as store:
        async with following(build_server(store, ALL), mode, "claim://a.md", "state://n/a") as (client, updated):
            await write(client, "a", ttl_seconds=0.2)
            assert await updated() == "state://n/a"
            assert await updated() == "state://n/a"
            await take(client, "a.md", lease_seconds=1)
            assert await updated() == "claim://a.md"
            assert await updated() == "claim://a.md"
            assert (
                '"previous_outcome":"expired"' in (await client.session.read_resource("claim://a.md")).contents[0].text
            )


@pytest.mark.parametrize("mode", ERAS)
async def test_overview_resources_are_updated_by_every_event_of_their_kind(mode: str) -> None:
    with engine() as store:
        async with following(build_server(store, ALL), mode, CLAIMS, NAMESPACES) as (client, updated):
            await write(client, "a")
            assert await updated() == NAMESPACES
            await take(client, "a.md")
            assert await updated() == CLAIMS


async def test_slow_subscriber_blocks_nobody_and_gets_one_notification_for_many_changes() -> None:
    with engine() as store:
        told: dict[str, list[str]] = {"quick": [], "slow": []}
        free = asyncio.Event()

        async def to_quick(uri: str) -> None:
            told["quick"].append(uri)

        async def to_slow(uri: str) -> None:
            told["slow"].append(uri)
            await free.wait()

        feed = Feed(store, lambda _: None)
        quick, slow = Subscriber(to_quick), Subscriber(to_slow)
        running = [asyncio.create_task(it.run()) for it in (quick, slow)]
        for subscriber in (quick, slow):
            for key in "ab":
                await feed.add(subscriber, key, Follow(feed, (f"record:n/{key}",), EVERYTHING.sees))
        await store.write_async(store.requests.values.set("n", "a", 0, "ann", None), store.caller)
        await until(lambda: told == {"quick": ["a"], "slow": ["a"]})
        for number in range(1, 6):
            for key in "ab":
                await store.write_async(store.requests.values.set("n", key, number, "ann", None), store.caller)
            await until(lambda number=number: len(told["quick"]) > 2 * number)
        assert told["slow"] == ["a"]
        free.set()
        await until(lambda: len(told["slow"]) == 3)
        assert sorted(told["slow"]) == ["a", "a", "b"]
        for subscriber in (quick, slow):
            subscriber.end()
            for uri in "ab":
                subscriber.unfollow(uri)
        await asyncio.gather(*running)
        assert nothing_is_left(store)


@pytest.mark.parametrize(
    ("uri", "said"),
    [("other://a", "must be one of"), ("state://n/", "blank"), ("claim://../a", "contain '..'")],
)
async def test_unreadable_resource_cannot_be_subscribed_to(uri: str, said: str) -> None:
    with engine() as store:
        server = build_server(store, ALL)
        async with Client(server, mode="legacy") as client:
            with pytest.raises(MCPError, match=said):
                await client.session.subscribe_resource(uri)
            assert nothing_is_left(store)
        async with Client(server) as client:
            asked = [uri, "state://n/a"]
            async with listen(client.session, tools_list_changed=True, resource_subscriptions=asked) as stream:
                assert stream.honored.resource_subscriptions == ["state://n/a"]
                assert not stream.honored.tools_list_changed  # tools never change


async def test_number_of_subscriptions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"state://n/{number}" for number in range(limits.MOST_OF_ONE + 1)]
    with engine() as store:
        server = build_server(store, ALL)
        async with following(server, "legacy", *many[:-1]) as (client, updated):
            with pytest.raises(MCPError, match="at most 256 resources"):
                await client.session.subscribe_resource(many[-1])
            await client.session.subscribe_resource(many[0])  # is followed already
            await client.session.unsubscribe_resource(many[0])
            await client.session.subscribe_resource(many[-1])
            await write(client, str(limits.MOST_OF_ONE))
            assert await updated() == many[-1]
            monkeypatch.setattr(limits, "MOST_IN_ALL", limits.MOST_OF_ONE)
            async with Client(server, mode="legacy") as other:
                with pytest.raises(MCPError, match="try again later"):
                    await other.session.subscribe_resource(many[0])
            monkeypatch.setattr(limits, "MOST_CLIENTS", 1)
            async with Client(server) as other:
                with pytest.raises(MCPError, match="try again later"):
                    async with listen(other.session, resource_subscriptions=many[:1]):
                        pass
        monkeypatch.undo()
        async with Client(server) as other:
            with pytest.raises(MCPError, match="at most 256 resources"):
                async with listen(other.session, resource_subscriptions=many):
                    pass
        await until(lambda: nothing_is_left(store))


async def test_subscription_streams_end_cleanly_at_shutdown() -> None:
    with engine() as store:
        server = build_server(store, ALL)
        assert server.subscriptions is not None
        async with Client(server) as client, listen(client.session, resource_subscriptions=[CLAIMS]) as stream:
            server.subscriptions.close()
            assert [event async for event in stream] == []
        await until(lambda: nothing_is_left(store))


async def test_subscription_streams_end_when_all_waits_end() -> None:
    """As when a server over HTTP is told to end; what happened before is told."""
    with engine() as store:
        async with Client(build_server(store, ALL)) as client, Client(build_server(store, ALL)) as other:
            async with listen(client.session, resource_subscriptions=["state://n/a"]) as stream:
                await write(other, "a")
                store.finish_waiting()
                assert [event async for event in stream] == [ResourceUpdated("state://n/a")]
            async with listen(client.session, resource_subscriptions=["state://n/a"]) as stream:
                assert [event async for event in stream] == []
        await until(lambda: nothing_is_left(store))


async def test_closing_the_store_ends_its_subscriptions() -> None:
    with engine() as store:
        async with Client(build_server(store, ALL)) as client:
            async with listen(client.session, resource_subscriptions=[CLAIMS]) as stream:
                store.close()
                assert [event async for event in stream] == []
            assert nothing_is_left(store)


@pytest.mark.check
@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])
async def test_server_shutdown_does_not_wait_for_subscribers(modern: bool, tmp_path: Path) -> None:
    wire = Wire("-m", "holdlog", "serve", "--db", tmp_path / "state.db", modern=modern).open()
    try:
        if modern:
            params: dict[str, Any] = {"notifications": {"resourceSubscriptions": ["claim://a.md"]}}
            wire.send(wire.message("subscriptions/listen", params, "stream"))
            assert wire.answer()["method"] == "notifications/subscriptions/acknowledged"
        else:
            assert "result" in wire.ask("resources/subscribe", {"uri": "claim://a.md"})
        os.kill(wire.process.pid, signal.SIGTERM)
        code, said, _ = wire.ended()
        assert (code, said) == (0, [])
    finally:
        wire.close()
