"""The tools of the group `power`: transactions, updates, events."""

import json

import pytest

from tests.support.agent import ERAS, served

ANN = {"updated_by": "ann"}
COUNTER = {"namespace": "n", "key": "counter"}


@pytest.mark.parametrize("era", ERAS)
async def test_transaction_of_an_agent_changes_everything_or_nothing(era: str) -> None:
    async with served(era) as agent:
        operations = [{"op": "increment", **COUNTER, "by": 2}, {"op": "set", **COUNTER, "key": "x", "value": None}]
        done = await agent("transact", operations=operations, **ANN)
        assert done == {
            "status": "ok",
            "results": [{**COUNTER, "version": 1, "value": 2}, {"namespace": "n", "key": "x", "version": 1}],
            "position": 2,
        }
        refused = [*operations, {"op": "check", **COUNTER, "expected_version": 1}]
        conflict = await agent("transact", operations=refused, **ANN)
        assert (conflict["status"], conflict["operation"], conflict["actual_value"]) == ("conflict", 2, 4)
        assert conflict["hint"].startswith("Nothing changed: the key of this operation has version 2.")
        missing = await agent("transact", operations=[{"op": "delete", **COUNTER, "key": "y"}], **ANN)
        assert (missing["status"], missing["operation"], missing["key"]) == ("not_found", 0, "y")
        message = await agent.error(
            "transact", operations=[operations[0], {"op": "append", **COUNTER, "value": 1}], **ANN
        )
        assert message.startswith("operations[1]: the value is not a list, so nothing can be appended to it; read the")
        assert (await agent("get", **COUNTER))["value"] == 2


@pytest.mark.parametrize("era", ERAS)
async def test_agent_updates_a_value_without_its_version(era: str) -> None:
    async with served(era) as agent:
        done = await agent("update", **COUNTER, **ANN, increment=1)
        assert done == {
            "status": "ok",
            **COUNTER,
            "version": 1,
            "previous_version": None,
            "position": 1,
            "value": 1,
        }
        assert (await agent("update", **COUNTER, **ANN, increment=0.5))["value"] == 1.5
        names = {"namespace": "n", "key": "names"}
        assert (await agent("update", **names, **ANN, append={"a": 1}))["value"] == [{"a": 1}]
        assert (await agent("update", **names, **ANN, append={"a": 1}, unique=True))["version"] == 1
        assert (await agent("update", **names, **ANN, patch=[{"op": "add", "path": "/0/b", "value": 2}]))["value"] == [
            {"a": 1, "b": 2}
        ]
        facts = {"namespace": "n", "key": "facts"}
        assert (await agent("update", **facts, **ANN, merge={"a": {"b": 1}}))["value"] == {"a": {"b": 1}}
        conflict = await agent("update", **facts, **ANN, merge={}, expected_version=7)
        assert (conflict["status"], "operation" in conflict) == ("conflict", False)
        assert "repeat it with expected_version=1" in conflict["hint"]
        missing = await agent("update", namespace="n", key="none", **ANN, patch=[])
        assert missing["status"] == "not_found"


async def test_refused_updates_and_transactions_are_one_line_and_change_nothing() -> None:
    async with served() as agent:
        await agent("set", **COUNTER, value="secret", expected_version=0, **ANN)
        one_of = "update: needs exactly one of merge, patch, increment, append"
        assert await agent.error("update", **COUNTER, **ANN) == one_of
        assert await agent.error("update", **COUNTER, **ANN, increment=1, append=1) == one_of
        assert (await agent.error("update", **COUNTER, **ANN, increment="1")).startswith("increment: must be a number")
        assert await agent.error("update", **COUNTER, **ANN, increment=1) == (
            "the value is not a number, so it cannot be incremented; read the value and write a new one with its"
            " version"
        )
        wrong = [{"op": "remove", "path": "/secret"}]
        assert (await agent.error("update", **COUNTER, **ANN, patch=wrong)).startswith("patch[0]: remove does not")
        for operations, start in (
            ([], "operations: must have 1 to 1000 entries"),
            ([{"op": "set"}] * 1001, "operations: must have 1 to 1000 entries"),
            ([{"op": "incr", **COUNTER}], "operations[0]: op: unknown operation; did you mean increment?"),
            ([{"op": "set", **COUNTER, "value": "x" * 200_000}] * 22, "operations[20]: operations up to this one: "),
            ([{"op": "set", **COUNTER, "val": 1}], "operations[0]: val: unknown argument; did you mean value?"),
            (["set"], "operations"),
        ):
            message = await agent.error("transact", operations=operations, **ANN)
            assert message.startswith(start), message
        assert (await agent("events"))["bookmark"] == 1
        assert "secret" not in json.dumps(agent.errors)


async def test_repeated_call_of_an_agent_counts_once() -> None:
    async with served() as agent:
        meta = {"holdlog/request_id": "r1"}
        first = [await agent("update", meta, **COUNTER, **ANN, increment=1) for _ in range(3)]
        assert first[0] == first[1] == first[2]
        operations = [{"op": "increment", **COUNTER, "by": 1}]
        again = [await agent("transact", {"holdlog/request_id": "r2"}, operations=operations, **ANN) for _ in range(3)]
        assert again[0] == again[1] == again[2]
        assert (await agent("get", **COUNTER))["value"] == 2
        assert "request_id" in await agent.error("update", meta, **COUNTER, **ANN, increment=2)


async def test_agent_reads_the_log() -> None:
    async with served() as agent:
        for number in range(3):
            await agent("update", **COUNTER, **ANN, increment=number)
        page = await agent("events", limit=2)
        assert [it["operation"] for it in page["events"]] == ["increment"] * 2
        page = await agent("events", after=page["next_position"], kinds=["ValueWritten"], namespace="n", prefix="c")
        assert [(it["position"], it["value"]) for it in page["events"]] == [(3, 3)]
        assert page["next_position"] == page["bookmark"] == 3
        assert (await agent("events", after=3, wait_seconds=0.01))["events"] == []
        assert (await agent.error("events", prefix="c")).startswith("prefix: requires namespace")


@pytest.mark.parametrize("era", ERAS)
async def test_agent_reads_values_claims_and_threads_of_an_earlier_position(era: str) -> None:
    async with served(era) as agent:
        await agent("update", **COUNTER, **ANN, increment=1)
        await agent("claim", resource="a.py", agent="ann")
        await agent("thread_start", thread_id="t", agent="ann")
        await agent("update", **COUNTER, **ANN, increment=1)
        await agent("release", resource="a.py", agent="ann", outcome="modified")
        await agent(
            "thread_append", thread_id="t", agent="ann", messages=[{"type": "text", "role": "user", "content": "hi"}]
        )
        first = await agent("past", what="value", at_position=1, **COUNTER)
        assert (first["value"], first["as_of"]["position"]) == (1, 1)
        now = await agent("get", **COUNTER)
        then = await agent("past", what="value", at_time=first["as_of"]["at"], **COUNTER)
        assert (now["value"], then["value"], then["as_of"]) == (2, 1, first["as_of"])
        values = await agent("past", what="values", at_position=1, namespace="n")
        assert [(it["key"], it["value"]) for it in values["records"]] == [("counter", 1)]
        assert (await agent("past", what="values", at_position=1))["namespaces"] == [{"namespace": "n", "count": 1}]
        held = await agent("past", what="claim", at_position=2, resource="a.py")
        assert (held["status"], held["held_by"], held["outcome"]) == ("claimed", "ann", "modified")
        assert "expires_at" in held["not_recorded"]
        assert (await agent("past", what="claim", at_position=1, resource="a.py"))["status"] == "available"
        claims = await agent("past", what="claims", at_position=4)
        assert [it["held_by"] for it in claims["claims"]] == ["ann"]
        assert (await agent("past", what="thread", at_position=3, thread_id="t"))["items"] == []
        missing = await agent("past", what="thread", at_position=2, thread_id="t")
        assert (missing["status"], missing["as_of"]["position"]) == ("not_found", 2)
        assert missing["hint"].startswith("There was no such thread at that moment.")
        missing = await agent("past", what="value", at_position=1, namespace="n", key="x")
        assert missing["hint"].startswith("There was no value under this key at that moment. Call holdlog_history")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"at_position": 9}, "at_position: is 9, but the log ends at position 1"),
        ({"at_position": 0}, "at_position: must be 1 or more, the position of an event"),
        ({"at_time": "2001-01-01T00:00:00Z"}, "at_time: is before the first event of the log"),
        ({"at_time": "2999-01-01T00:00:00Z"}, "at_time: is in the future; the last position is 1"),
        ({"at_time": "soon"}, "at_time: must be a time such as 2026-01-31T12:00:00Z"),
        ({}, "at_position: pass either at_position or at_time"),
        ({"at_position": 1, "at_time": "2026-01-01T00:00:00Z"}, "at_position: pass either at_position or at_time"),
        ({"at_position": 1, "resource": "a"}, "resource: is not used with what=value; leave it out"),
        ({"at_position": 1, "key": None}, "key: is required with what=value"),
        ({"at_position": 1, "after": "a"}, "after: is not used with what=value; leave it out"),
    ],
)
async def test_reads_of_the_past_refuse_bad_arguments_by_name(arguments: dict[str, object], message: str) -> None:
    async with served(ERAS[0]) as agent:
        await agent("set", **COUNTER, value=1, updated_by="ann", expected_version=0)
        given = {name: it for name, it in {**COUNTER, **arguments}.items() if it is not None}
        assert (await agent.error("past", what="value", **given)).startswith(message)
