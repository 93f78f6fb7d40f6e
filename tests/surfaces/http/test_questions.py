"""Questions about what happened, over HTTP: who held what, who did what when, who collided with whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.commands import RecordFileChange
from holdlog.domain.message import NOBODY
from tests.support.clock import Clock
from tests.support.curl import Curl


async def stage(curl: Curl, clock: Clock) -> None:
    """1: ann claims src/; 2: ann writes g/k; 3: ann releases; 4: ben claims src/a.py."""
    store, claims = curl.store, curl.store.requests.claims
    store.claim(claims.claim("src/", "ann"), NOBODY)
    clock.pass_by(1)
    await curl.put("/kv/g/k", content=b"one", headers={"x-agent": "ann"})
    clock.pass_by(1)
    store.write(claims.release("src/", "ann", outcome="modified", note="done"), NOBODY)
    clock.pass_by(1)
    store.claim(claims.claim("src/a.py", "ben"), NOBODY)


async def test_history_lists_holds_of_whatever_overlaps(curl: Curl, clock: Clock) -> None:
    await stage(curl, clock)
    found = (await curl.get("/history/src/a.py")).json()
    assert [(it["resource"], it["held_by"], it.get("outcome")) for it in found["holds"]] == [
        ("src/a.py", "ben", None),
        ("src/", "ann", "modified"),
    ]
    assert [it["held_by"] for it in (await curl.get("/history/src%2F?until=3")).json()["holds"]] == ["ann"]
    assert [it["held_by"] for it in (await curl.get("/history/src%2F?limit=1")).json()["holds"]] == ["ben"]
    when = found["holds"][0]["claimed_at"]
    for since in (when, when.replace("+", "%2B")):
        assert [it["held_by"] for it in (await curl.get(f"/history/src%2F?since={since}")).json()["holds"]] == ["ben"]


async def test_changes_of_a_file_are_listed_newest_first(curl: Curl, clock: Clock) -> None:
    for sha256 in ("ab" * 32, None):
        command = RecordFileChange(resource="src/a.py", agent="ann", sha256=sha256)
        curl.store.writer.run(command, NOBODY)
        clock.pass_by(1)
    found = (await curl.get("/file-changes/src/a.py")).json()
    assert [(it["agent"], it["position"], it.get("sha256")) for it in found["changes"]] == [
        ("ann", 2, None),
        ("ann", 1, "ab" * 32),
    ]
    page = (await curl.get("/file-changes/src/a.py?limit=1")).json()
    assert (len(page["changes"]), page["more"]) == (1, True)
    missing = await curl.get("/file-changes/src/b.py")
    assert (missing.status_code, missing.json()["status"]) == (404, "not_found")


async def test_timelines_have_lanes_of_agents_or_of_what_an_agent_did(curl: Curl, clock: Clock) -> None:
    await stage(curl, clock)
    lanes = (await curl.get("/timeline/claims/src%2F")).json()["lanes"]
    assert [(it["agent"], len(it["holds"])) for it in lanes] == [("ann", 1), ("ben", 1)]
    lanes = (await curl.get("/timeline/kv/g/k")).json()["lanes"]
    assert [(it["agent"], it["changes"][0]["change"]) for it in lanes] == [("ann", "write")]
    lanes = (await curl.get("/timeline/agents/ann")).json()["lanes"]
    assert [it.get("resource") or it["key"] for it in lanes] == ["src/", "k"]
    assert (await curl.get("/timeline/agents/ann%2Fsub")).json()["lanes"] == []


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/history/none.py", 404, "Nobody has claimed this resource yet."),
        ("/timeline/claims/none.py", 404, "Nobody has claimed this resource yet."),
        ("/timeline/kv/g/none", 404, None),
        ("/history/src%2F?since=4&until=1", 400, "until: is earlier than since; swap the two"),
        ("/history/src%2F?since=9", 400, "since: is 9, but the log ends at position 4"),
        ("/history/src%2F?since=soon", 400, "since: must be a position such as 1234, or a time"),
        ("/history/..%2Fx", 400, None),
        ("/file-changes/..%2Fx", 400, None),
        ("/timeline/agents/ann?limit=0", 400, None),
        ("/activity?since=9", 400, "since: is 9, but the log ends at position 4"),
        ("/conflicts?hours=2", 400, None),
    ],
)
async def test_bad_question_is_refused(curl: Curl, clock: Clock, path: str, status: int, message: str | None) -> None:
    await stage(curl, clock)
    found = await curl.get(path, headers={"accept": "application/json"})
    assert found.status_code == status
    if message is not None:
        assert message in found.text


async def test_store_in_memory_has_no_read_models(curl: Curl) -> None:
    found = await curl.get("/activity")
    assert found.status_code >= 400
    assert "a store in memory has no read models" in found.text


@pytest.fixture
async def filed(tmp_path: Path) -> AsyncIterator[Curl]:
    """Of a store in a file."""
    with closing(open_holdlog(tmp_path / "state.db")) as store:
        async with Curl(store) as curl:
            yield curl


async def test_conflicts_and_activity_are_counted_up_to_the_last_event(filed: Curl) -> None:
    await filed.put("/kv/g/k", content=b"one", headers={"x-agent": "ann"})
    refused = await filed.put("/kv/g/k", content=b"x", headers={"x-agent": "ben", "if-match": '"7"'})
    assert refused.status_code == 412
    await filed.put("/kv/g/k", content=b"two", headers={"x-agent": "ben"})  # refusals are written with the next events
    activity, conflicts = await asyncio.gather(filed.get("/activity"), filed.get("/conflicts"))
    assert [(it["agent"], it["kinds"]) for it in activity.json()["activity"]] == [
        ("ann", {"ValueWritten": 1}),
        ("ben", {"ValueWritten": 1}),
    ]
    assert [(it["agent"], it["codes"]) for it in conflicts.json()["refused"]] == [("ben", {"conflict": 1})]
    assert (conflicts.json()["position"], conflicts.json()["collisions"]) == (2, [])
    assert [it["agent"] for it in (await filed.get("/activity?agent=ann&since=1")).json()["activity"]] == ["ann"]
    assert (await filed.get("/conflicts?resource=src%2F")).json()["refused"] == []
