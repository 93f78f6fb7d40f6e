"""Sessions over HTTP: what is no session, what names one, and sessions that end and return."""

import asyncio
import json
import time
from typing import Any

import pytest

from holdlog.domain.claims.lease import BY_CALLS
from tests.support.agent import engine
from tests.support.endpoint import ERAS, LEGACY, replica, until
from tests.support.wire import PATIENCE

CLAIM = ("claim", {"resource": "custom://x", "agent": "ann"})


@pytest.mark.parametrize("blank", ["", " "])
async def test_empty_session_id_means_no_session(blank: str) -> None:
    with engine() as store:
        store.keeps = False
        async with replica(store) as here:
            first, second = [(await here.call(LEGACY, *CLAIM, **{"mcp-session-id": blank})).content for _ in "12"]
    assert (first["status"], "receipt" in first) == ("claimed", True)
    assert (second["status"], second["same_name"]) == ("busy", True)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("given", [7, [1], {"a": 1}, True])
async def test_invalid_session_id_is_refused_or_kept_apart(era: str, given: Any) -> None:
    with engine() as store:
        store.keeps = False
        async with replica(store) as here:
            answer = (await here.call(era, *CLAIM, {"holdlog/session": given})).result
            if type(given) is int:
                assert (await here.call(era, *CLAIM, {"holdlog/session": 8})).content["status"] == "busy"
            else:
                assert "holdlog/session: must be a string" in answer["content"][0]["text"]


async def test_session_that_writes_again_regains_its_claims() -> None:
    mine, other = {"holdlog/session": "one"}, {"holdlog/session": "two"}
    with engine() as store:
        store.keeps = False
        async with replica(store) as here:
            await here.call(LEGACY, *CLAIM, mine)
            end_sessions(store)
            written = await here.call(
                LEGACY,
                "set",
                {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann", "expected_version": 0},
                mine,
            )
            assert written.content["status"] == "ok"
            assert (await here.call(LEGACY, *CLAIM, other)).content["status"] == "busy"


async def test_session_that_reads_again_regains_its_claims() -> None:
    mine = {"holdlog/session": "one"}
    with engine() as store:
        store.keeps = False
        async with replica(store) as here:
            await here.call(LEGACY, *CLAIM, mine)
            end_sessions(store)
            await here.call(LEGACY, "status", {"resource": "custom://x"}, mine)
            store.lease_maintenance._touch()
        with store.store.reader() as reader:
            assert [lease.server for lease in reader.leases.of(["custom://x"])] == [BY_CALLS]


async def test_end_of_a_session_ends_its_waiting_calls() -> None:
    session = {"mcp-session-id": "s-1"}
    with engine() as store:
        store.keeps = False
        async with replica(store) as here:
            await here.call(LEGACY, "claim", {"resource": "custom://x", "agent": "hal"})
            waits = {"resource": "custom://x", "agent": "ann", "wait_seconds": PATIENCE}
            waiting = asyncio.ensure_future(here.call(LEGACY, "claim", waits, **session))
            await until(lambda: here.waiters == 1)
            assert (await here.raw(b"", session, "DELETE")).status == 200
            assert "error" in json.loads((await asyncio.wait_for(waiting, PATIENCE / 2)).body)
            assert not here.waiters


def end_sessions(store: Any) -> None:
    """As when all of them were idle for a minute, and somebody noticed."""
    with store.store.transaction(time.monotonic() + 5) as transaction:
        for lease in transaction.leases.of(["custom://x"]):
            transaction.leases.end_session(lease.session or "", None, transaction.steady, transaction.at)
