"""The examples of the document that holdlog replaces, one by one: its fields, with its meaning."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from tests.support.agent import ERAS, Agent, served


@pytest.fixture(params=ERAS)
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    async with served(request.param) as agent:
        yield agent


async def test_seed_examples_about_claims_get_their_answers(agent: Agent) -> None:
    ann, ben = {"resource": "intro.md", "agent": "writer-1"}, {"resource": "intro.md", "agent": "writer-2"}
    assert await agent("status", resource="intro.md") == {"status": "available", "resource": "intro.md"}

    claimed = await agent("claim", **ann)
    assert claimed | {"status": "claimed", "resource": "intro.md", "version": 1} == claimed
    again = await agent("claim", **ann)
    assert again | {"status": "already_claimed", "resource": "intro.md", "version": 1} == again

    busy = await agent("claim", **ben)
    assert busy | {"status": "busy", "resource": "intro.md", "held_by": "writer-1"} == busy
    assert busy["claimed_at"] == claimed["claimed_at"]
    assert "holdlog_wait" in busy["hint"]

    held = await agent("status", resource="intro.md")
    assert held | {"status": "claimed", "resource": "intro.md", "held_by": "writer-1", "version": 1} == held
    assert held["claimed_at"] == claimed["claimed_at"]

    timeout = await agent("wait", resource="intro.md", timeout_seconds=0.01)
    assert timeout | {"status": "timeout", "resource": "intro.md", "held_by": "writer-1"} == timeout
    assert timeout["elapsed_seconds"] >= 0.01
    assert "holdlog_claim" in timeout["hint"]

    waiting = asyncio.create_task(agent("wait", resource="intro.md", timeout_seconds=30))
    released = await agent("release", **ann)
    assert released == {"status": "released", "resource": "intro.md", "version": 2}
    available = await waiting
    assert available["status"] == "available"
    assert available["resource"] == "intro.md"
    assert available["elapsed_seconds"] < 30
    assert (await agent("claim", **ben))["version"] == 3


async def test_seed_examples_about_values_get_their_answers(agent: Agent) -> None:
    at = {"namespace": "order-1234", "key": "status"}
    assert (await agent("get", **at))["status"] == "not_found"
    for known, (value, by) in enumerate([("received", "intake"), ("validated", "checks"), ("processing", "packing")]):
        assert (await agent("set", **at, value=value, updated_by=by, expected_version=known))["status"] == "ok"

    read = await agent("get", **at)
    assert read | {"status": "ok", **at, "value": "processing", "version": 3, "updated_by": "packing"} == read

    written = await agent("set", **at, value="shipped", updated_by="logistics", expected_version=3)
    assert written | {"status": "ok", **at, "version": 4, "previous_version": 3} == written

    conflict = await agent("set", **at, value="returned", updated_by="returns", expected_version=3)
    assert conflict["status"] == "conflict"
    assert (conflict["expected_version"], conflict["actual_version"]) == (3, 4)
    assert (conflict["actual_value"], conflict["actual_updated_by"]) == ("shipped", "logistics")
    assert _time(conflict["actual_updated_at"]) >= _time(read["updated_at"])
    assert "holdlog_set again with expected_version=4" in conflict["hint"]
    assert (await agent("set", **at, value=0, updated_by="returns", expected_version=0))["status"] == "conflict"

    history = await agent("history", **at, limit=2)
    assert history["status"] == "ok"
    assert [(it["version"], it["value"], it["event_type"]) for it in history["history"]] == [
        (4, "shipped", "write"),
        (3, "processing", "write"),
    ]
    assert {"updated_by", "updated_at"} <= history["history"][0].keys()
    assert (await agent("history", namespace="order-1234", key="never"))["history"] == []

    deleted = await agent("delete", **at, deleted_by="cleanup", expected_version=4)
    assert deleted | {"status": "ok", **at, "deleted_by": "cleanup", "deleted_version": 4} == deleted
    tombstone = (await agent("history", **at))["history"][0]
    assert (tombstone["event_type"], tombstone["value"]) == ("delete", None)
    assert (await agent("get", **at))["status"] == "not_found"


async def test_seed_examples_about_namespaces_get_their_answers(agent: Agent) -> None:
    for key, value in (("total", 80.99), ("items", [1, 2]), ("status", "new")):
        await agent("set", namespace="order-1234", key=key, value=value, updated_by="intake", expected_version=0)
    await agent("set", namespace="order-1234", key="status", value="old", updated_by="intake", expected_version=1)

    listed = await agent("list", namespace="order-1234")
    assert (listed["status"], listed["namespace"], listed["count"]) == ("ok", "order-1234", 3)
    assert [(it["key"], it["value"], it["version"]) for it in listed["records"]] == [
        ("items", [1, 2], 1),
        ("status", "old", 2),
        ("total", 80.99, 1),
    ]
    assert {"updated_by", "updated_at"} <= listed["records"][0].keys()
    assert (await agent("list", namespace="empty"))["count"] == 0

    exported = await agent("export", namespace="order-1234")
    assert exported["status"] == "ok"
    assert (exported["record_count"], exported["history_count"]) == (3, 4)
    assert _time(exported["exported_at"])
    assert [it["key"] for it in exported["records"]] == ["items", "status", "total"]
    status = exported["records"][1]
    assert (status["value"], status["version"], status["updated_by"]) == ("old", 2, "intake")
    assert [(it["version"], it["value"], it["event_type"]) for it in status["history"]] == [
        (2, "old", "write"),
        (1, "new", "write"),
    ]

    cleared = await agent("clear_namespace", namespace="order-1234", deleted_by="cleanup")
    assert cleared["status"] == "ok"
    assert (cleared["deleted_count"], cleared["deleted_keys"]) == (3, ["items", "status", "total"])
    assert (cleared["namespace"], cleared["deleted_by"]) == ("order-1234", "cleanup")
    assert (await agent("history", namespace="order-1234", key="total"))["history"][0]["event_type"] == "delete"
    assert (await agent("clear_namespace", namespace="order-1234", deleted_by="cleanup"))["deleted_count"] == 0


async def test_seed_examples_about_watching_get_their_answers(agent: Agent) -> None:
    at = {"namespace": "pipeline", "key": "step_1_result"}
    watching = asyncio.create_task(agent("watch", **at, since_version=0, timeout_seconds=30))
    await agent("set", **at, value={"score": 0.92}, updated_by="agent-a", expected_version=0)
    changed = await watching
    assert changed | {"status": "ok", **at, "value": {"score": 0.92}, "version": 1, "updated_by": "agent-a"} == changed
    assert _time(changed["updated_at"])

    timeout = await agent("watch", **at, since_version=1, timeout_seconds=0.01)
    assert timeout | {"status": "timeout", **at, "since_version": 1} == timeout
    assert timeout["elapsed_seconds"] >= 0.01
    assert "holdlog_watch again with since_version=1" in timeout["hint"]


def _time(text: str) -> datetime:
    """RFC 3339 UTC with microseconds."""
    time = datetime.fromisoformat(text)
    assert time.utcoffset() == timedelta(0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", text)
    return time
