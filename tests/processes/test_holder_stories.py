"""Holders over time: frameworks with a process for each call, namesakes, repeated requests, and who waits for whom."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.api.settings import Settings
from tests.processes.conftest import EVERY_STORE_IN_TIME, Serve
from tests.processes.test_holders import CALLERS
from tests.support.agent import connected, process
from tests.support.http import http_server
from tests.support.processes.claimants import leases, waiting
from tests.support.processes.holders import NAME, World
from tests.support.processes.soundness import Place, require_sound
from tests.support.processes.workers import until
from tests.support.slow import slow

pytestmark = [
    pytest.mark.xdist_group("holder stories"),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

AT = {"namespace": "n", "key": "k", "value": 1, "updated_by": NAME, "force": True}
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("stories") / "state.db", stack)


@pytest.fixture
def own_world(place: Place) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(place, stack)


def guard(version: int, resource: str = "custom://a") -> list[dict[str, Any]]:
    return [{"resource": resource, "version": version}]


# --- a process for each call, as LangChain's and LlamaIndex's MCP clients work


async def live_by_calls(call: Call, peer: StateStore) -> None:
    """Claim, edit, write what relies on the claim, claim again, release; then queue, and come back for the place."""
    claimed = await call("claim", resource="custom://a", agent=NAME)
    assert claimed["status"] == "claimed"
    assert peer.claim("custom://a", agent="peer").status == "busy"
    assert (await call("set", **AT, guard=guard(claimed["version"])))["status"] == "ok"
    again = await call("claim", resource="custom://a", agent=NAME)
    assert (again["status"], again["resumed"], "previous_session_ended_at" in again) == ("claimed", True, True)
    assert "look before you edit" in again["hint"]
    assert (await call("set", **AT, guard=guard(again["version"])))["status"] == "ok"
    assert (await call("set", **AT, guard=guard(claimed["version"])))["status"] == "fenced"
    assert (await call("release", resource="custom://a", agent=NAME))["status"] == "released"

    assert peer.claim("custom://a", agent="peer").status == "claimed"
    first = await call("claim", resource="custom://a", agent=NAME, wait_seconds=0.01)
    later: Any = peer.claim("custom://a", agent="later", wait_seconds=0.01)
    second = await call("claim", resource="custom://a", agent=NAME, wait_seconds=0.01)
    assert (second["ticket"], second["queue_position"], later.queue_position) == (first["ticket"], 1, 2)
    peer.release("custom://a", agent="peer")
    assert (await call("claim", resource="custom://a", agent=NAME))["status"] == "claimed"
    assert (await call("release", resource="custom://a", agent=NAME))["status"] == "released"


@pytest.mark.check
@EVERY_STORE_IN_TIME
async def test_framework_with_a_server_for_each_call_keeps_claims_and_queue_place(place: Place) -> None:
    async def call(tool: str, **arguments: Any) -> Any:
        async with connected(process("--db", str(place), "--tools", "claims,state")) as agent:
            return await agent(tool, **arguments)

    with StateStore(place) as peer:
        await live_by_calls(call, peer)
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
async def test_framework_with_an_http_session_for_each_call_keeps_claims_and_place(place: Place) -> None:
    with http_server(place, "--tools", "claims,state") as server, StateStore(place) as peer:

        async def call(tool: str, **arguments: Any) -> Any:
            async with connected(f"{server.url}/mcp", mode="legacy") as agent:
                return await agent(tool, **arguments)

        await live_by_calls(call, peer)


# --- two sessions with one name


@pytest.mark.check
@pytest.mark.parametrize("kind", ["http25 mcp", "http26 header"])
def test_two_http_clients_with_one_name_and_one_token_are_two_holders(world: World, kind: str) -> None:
    resource = f"custom://{kind.replace(' ', '-')}"
    first, second = world.client(kind, "first", "ci"), world.client(kind, "second", "ci")
    claimed = first("claim", resource=resource)
    busy = second("claim", resource=resource)
    assert (claimed["status"], busy["status"], busy["same_name"]) == ("claimed", "busy", True)
    assert "a name of your own" in busy["hint"]
    refused = second("release", resource=resource)
    assert (refused["status"], refused["held_by"]) == ("not_holder", NAME)
    assert second("release")["status"] == "already_free"
    kept = first("claim", resource=resource)
    assert (kept["status"], kept["version"]) == ("already_claimed", claimed["version"])
    assert first.guarded(resource, claimed["version"]) == "ok"
    assert second.guarded(resource, claimed["version"]) == "fenced"
    assert first("release", resource=resource)["status"] == "released"
    assert second("claim", resource=resource)["status"] == "claimed"
    assert second("release")["status"] == "released"


@pytest.mark.check
@pytest.mark.parametrize("kind", ["http25", "http26"])
def test_two_http_clients_without_a_session_are_identified_by_receipts(world: World, kind: str) -> None:
    resource = f"custom://receipts-{kind}"
    first, second = world.client(kind, "", "ci"), world.client(kind, "", "ci")
    claimed = first("claim", resource=resource)
    busy = second("claim", resource=resource)
    assert (busy["status"], busy["same_name"], "receipt" in busy) == ("busy", True, False)
    assert "the receipt you were given" in busy["hint"]
    assert "a name of your own, such as claude-7f3a" in busy["hint"]
    shown = {"receipt": claimed["receipt"]}
    assert first("claim", resource=resource, **shown)["version"] == claimed["version"]
    assert second("release", resource=resource)["status"] == "released"  # by name, as the seed's simple client does
    assert second("claim", resource=resource)["status"] == "claimed"
    lost = first("release", resource=resource, **shown)
    assert (lost["status"], [it["why"] for it in lost["lost"]]) == ("not_holder", ["released_by_name"])
    assert "lost" not in first("release", resource=resource, **shown)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_claim_of_a_killed_session_ends_whatever_its_namesake_claims(place: Place, serve: Serve) -> None:
    settings = ("--grace-seconds", 1, "--lease-seconds", 60)
    dead, namesake = serve(*settings), serve(*settings)
    version = dead("claim", resource="custom://a", agent=NAME)["version"]
    namesake.open()
    dead.kill()
    assert namesake("claim", resource="custom://b", agent=NAME)["status"] == "claimed"
    assert namesake("set", **AT)["status"] == "ok"
    servers = {server for _, _, _, server, _ in leases(place, "resource = ?", "custom://b")}
    assert not leases(place, "resource = ? AND server = ?", "custom://a", *servers)
    released = namesake("release", agent=NAME)
    assert [it["resource"] for it in released["released"]] == ["custom://b"]
    assert namesake("wait", resource="custom://a", timeout_seconds=20)["status"] == "available"
    fenced = namesake("set", **AT, guard=guard(version))
    assert (fenced["status"], "lost" in fenced) == ("fenced", False)
    claimed = namesake("claim", resource="custom://a", agent=NAME)
    assert (claimed["status"], claimed["previous_outcome"], "resumed" in claimed) == ("claimed", "expired", False)
    assert [(it["resource"], it["why"]) for it in claimed["former_session_lost"]] == [("custom://a", "expired")]
    assert "lost" not in claimed
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_session_that_returns_learns_once_what_its_namesake_resumed(place: Place, serve: Serve) -> None:
    first, namesake = serve(session="one"), serve(session="two")
    first("claim", resource="custom://a", agent=NAME)
    kept = first("claim", resource="custom://b", agent=NAME)["version"]
    first.kill()
    assert namesake("claim", resource="custom://a", agent=NAME)["resumed"] is True
    again = serve(session="one")
    assert again("status")["lost"] == [{"resource": "custom://a", "version": 1, "why": "resumed", "held_by": NAME}]
    assert "lost" not in again("status")
    assert (again("claim", resource="custom://a", agent=NAME)["status"]) == "busy"
    assert again("claim", resource="custom://b", agent=NAME)["version"] == kept
    assert "lost" not in namesake("status")


# --- repeated requests


@pytest.mark.check
@pytest.mark.parametrize("kind", [*slow("stdio"), "stdio meta", "http25 mcp", "http26 header", "library"])
def test_request_id_of_another_session_returns_nothing_of_its_claim(world: World, kind: str) -> None:
    resource, other = f"custom://again-{kind.replace(' ', '-')}", f"custom://others-{kind.replace(' ', '-')}"
    first, second = world.client(kind, "first"), world.client(kind, "second")
    first.request_id = second.request_id = "r1"
    claimed = first("claim", resource=resource)
    assert claimed["status"] == "claimed"
    assert second("claim", resource=resource)["status"] == "busy"
    assert second("claim", resource=other)["status"] == "claimed"  # an id of its own
    assert first("claim", resource=resource)["version"] == claimed["version"]
    first.request_id = second.request_id = "r2"
    assert first("release", resource=resource)["status"] == "released"
    assert second("release", resource=resource)["status"] == "already_free"
    first.request_id = "r1"
    assert first("claim", resource=resource)["status"] == "expired"
    second.request_id = None
    assert second("claim", resource=resource)["status"] == "claimed"
    first.request_id = "r1"
    assert first("claim", resource=resource)["status"] == "expired"
    for name in (resource, other):
        assert second("release", resource=name)["status"] == "released"


@pytest.mark.check
@pytest.mark.parametrize("kind", ["http25", "http26"])
def test_request_id_without_a_session_identifies_no_request(world: World, kind: str) -> None:
    first, second = world.client(kind, ""), world.client(kind, "")
    first.request_id = second.request_id = "r1"
    claimed = first("claim", resource=f"custom://nobody-{kind}")
    answers = [client("claim", resource=f"custom://nobody-{kind}") for client in (second, first)]
    assert [(it["status"], "receipt" in it) for it in answers] == [("busy", False)] * 2
    assert first("release", receipt=claimed["receipt"])["status"] == "released"


# --- waiting


QUICK = ("stdio meta", "http25", "http25 mcp", "http26 header", "library option", "cli option")


@pytest.mark.check
@pytest.mark.parametrize("kind", [*QUICK, *slow(*(it for it in CALLERS if it not in QUICK))])
def test_waiter_gets_a_released_claim_and_calling_wait_grants_nothing(world: World, kind: str) -> None:
    resource = f"custom://waits-{kind.replace(' ', '-')}"
    holder, client = world.client("http25 mcp", ""), world.client(kind, "waiter")
    holder("claim", resource=resource)
    with ThreadPoolExecutor(1) as executor:
        notified = executor.submit(client, "wait", resource=resource, timeout_seconds=20)
        holder("release", resource=resource)
        assert notified.result()["status"] == "available"
        assert world.peer.status(resource).status == "available"
        assert holder("claim", resource=resource)["status"] == "claimed"
        wanted = {"agent": NAME, "resource": resource, "wait_seconds": 20}
        granted = executor.submit(client.send, "claim", wanted)
        until(lambda: world.peer.status(resource).queue_length == 1)  # type: ignore[union-attr]
        released = holder("release", resource=resource)
        assert (released["granted_to"], granted.result()["status"]) == (NAME, "claimed")
        world.ledger.note(
            client, "claim", wanted, granted.result()
        )  # the release returned, whichever answer came first
    assert holder("claim", resource=resource)["status"] == ("claimed" if kind == "cli" else "busy")
    world.free(resource)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_resuming_a_killed_sessions_claim_in_a_cycle_is_a_deadlock(place: Place, own_world: World) -> None:
    former = own_world.client("library option", "s2", own=True)
    with StateStore(place, session="s1", settings=Settings(lease=300)) as store, ThreadPoolExecutor(2) as executor:
        assert former("claim", resource="custom://a/b", agent="x/1")["status"] == "claimed"
        assert store.claim("custom://a", agent="x/2").status == "claimed"
        one = executor.submit(store.claim, "custom://a", agent="x/1", wait_seconds=60)
        until(lambda: waiting(place) == 1)
        former.kill()
        two = executor.submit(store.claim, "custom://a/", agent="x/2", wait_seconds=60)
        until(lambda: waiting(place) == 2)
        refused: Any = store.claim("custom://a/b", agent="x/1")
        assert (refused.status, {it.agent for it in refused.cycle}) == ("deadlock", {"x/1", "x/2"})
        store.release("custom://a", agent="x/2")
        assert one.result().status == "claimed"
        resumed: Any = store.claim("custom://a/b", agent="x/1")
        assert (resumed.status, resumed.resumed) == ("claimed", True)
        assert not two.done()
        store.release(agent="x/1")
        assert two.result().status == "claimed"
    require_sound(place)
