"""Values and claims of an earlier moment, over HTTP."""

import json

import pytest

from holdlog.domain.message import NOBODY
from tests.support.clock import Clock
from tests.support.curl import Curl


async def history(curl: Curl, clock: Clock) -> None:
    """Two values, a second apart; between them, a claim that ends later."""
    await curl.put("/kv/g/k", content=b"one")
    clock.pass_by(1)
    curl.store.claim(curl.store.requests.claims.claim("a.py", "ann"), NOBODY)
    clock.pass_by(1)
    await curl.put("/kv/g/k", json={"n": 2})
    await curl.put("/kv/g/later", content=b"x")
    curl.store.write(curl.store.requests.claims.release("a.py", "ann", outcome="modified"), NOBODY)


async def test_value_of_an_earlier_position_has_its_own_version_and_headers(curl: Curl, clock: Clock) -> None:
    await history(curl, clock)
    first = await curl.get("/kv/g/k?at=2")
    assert (first.text, first.headers["etag"], first.headers["holdlog-as-of"]) == ("one", '"1"', "2")
    assert "holdlog-may-change" not in first.headers
    again = await curl.get(f"/kv/g/k?at={first.headers['holdlog-as-of-time'].replace('+', '%2B')}")
    assert (again.text, again.headers["holdlog-as-of"]) == ("one", "2")
    plus = await curl.get(f"/kv/g/k?at={first.headers['holdlog-as-of-time']}")
    assert plus.headers["holdlog-as-of"] == "2"
    assert (await curl.get("/kv/g/k?at=3")).json() == {"n": 2}
    missing = await curl.get("/kv/g/later?at=3", headers={"accept": "application/json"})
    assert (missing.status_code, missing.json()["as_of"]["position"]) == (404, 3)
    assert "at that moment" in missing.json()["hint"]


async def test_lists_and_histories_of_an_earlier_position_end_there(curl: Curl, clock: Clock) -> None:
    await history(curl, clock)
    listed = (await curl.get("/kv/g?at=3")).json()
    assert ([it["key"] for it in listed["records"]], listed["position"], listed["as_of"]["position"]) == (["k"], 3, 3)
    assert (await curl.get("/kv?at=1")).json()["namespaces"] == [{"namespace": "g", "count": 1}]
    past = (await curl.get("/kv/g/k?history=1&at=2")).json()
    assert [it["version"] for it in past["history"]] == [1]


async def test_claims_of_an_earlier_position_show_how_they_ended(curl: Curl, clock: Clock) -> None:
    await history(curl, clock)
    board = (await curl.get("/claims?at=2")).json()
    (held,) = board["claims"]
    assert (held["resource"], held["held_by"], held["outcome"]) == ("a.py", "ann", "modified")
    assert held["ended_at"] == held["noticed_at"] > held["claimed_at"]
    assert "expires_at" in board["not_recorded"]
    assert [it["agent"] for it in board["agents"]] == ["ann"]
    assert (await curl.get("/claims?at=1")).json()["claims"] == []
    assert (await curl.get("/claims/a.py?at=3")).json()["status"] == "claimed"
    free = (await curl.get("/claims/a.py?at=5")).json()
    assert (free["status"], free["previous_holder"], free["previous_outcome"]) == ("available", "ann", "modified")


@pytest.mark.parametrize("path", ["/kv/g/k", "/kv/g", "/kv", "/claims", "/claims/a.py"])
@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("6", "at: is 6, but the log ends at position 5"),
        ("0", "at: must be 1 or more, the position of an event"),
        ("2999-01-01T00:00:00Z", "at: is in the future; the last position is 5"),
        ("1960-01-01T00:00:00Z", "at: is before the first event of the log, which begins at 1970-01-01"),
        ("soon", "at: must be a position such as 1234, or a time such as 2026-01-31T12:00:00Z"),
    ],
)
async def test_moment_that_the_log_does_not_have_is_refused(
    curl: Curl, clock: Clock, path: str, moment: str, message: str
) -> None:
    await history(curl, clock)
    refused = await curl.get(f"{path}?at={moment}")
    assert (refused.status_code, json.loads(refused.text)["status"]) == (400, "error")
    assert refused.json()["message"].startswith(message)
