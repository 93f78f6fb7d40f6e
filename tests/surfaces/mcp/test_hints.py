"""Hints and errors: each says what happened and names one call that exists, with arguments that are right."""

import re
from itertools import permutations
from typing import Any

import pytest
from pydantic import TypeAdapter

from holdlog import ConflictError, StateStore
from holdlog.adapters.api.claims import presenter as claims
from holdlog.adapters.api.values import presenter as values
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.mcp.tools import TOOLS
from tests.support.agent import ALL, connected, engine, listing, served
from tests.support.curl import AS_JSON, JSON, Curl
from tests.support.hints import Hint, hints

AT = {"namespace": "n", "key": "k"}
DESTRUCTIVE = re.compile(r"\b(force|clear|delete|remove|erase|re-?create)\b", re.IGNORECASE)
DIALECT = re.compile(r"\b(told|tell|said|says? that|stands?|in line|anew|let go|whoever|asker|turn)\b", re.IGNORECASE)
TOOLS = {f"holdlog_{kind.name}" for group in TOOLS.values() for kind in group.kinds()}


@pytest.mark.parametrize("hint", hints(), ids=lambda hint: hint.name)
def test_a_hint_is_short_plain_and_names_only_tools_that_exist(hint: Hint) -> None:
    assert len(hint.shown) <= values.MAX_HINT
    assert set(re.findall(r"holdlog_\w+", hint.shown)) <= TOOLS
    assert "()" not in hint.shown
    assert hint.shown.endswith(".")
    assert not DESTRUCTIVE.search(hint.template)
    assert not DIALECT.search(hint.template)


def test_all_hints_are_listed_for_their_reviewers() -> None:
    found = {hint.name for hint in hints()}
    assert len(found) >= 50
    assert {"_BUSY", "_CONFLICT", "_NO_THREAD", "_NOTHING", "_PASTS[moved]", "NO_VALUE"} <= found


def test_joined_hints_stay_within_the_limit_with_the_default_prefix() -> None:
    parts = [claims._RESUMED, claims.MOVED, claims._NO_FILE, claims._FOLDER, claims._ELSEWHERE, claims._ALREADY]
    lengths = [values.hint_length(claims._joined(*some) or "") for some in permutations(parts, 3)]
    assert len(lengths) == 120
    assert 150 < max(lengths) <= values.MAX_HINT


# --- conflicts


async def test_a_conflict_names_the_version_to_pass_after_merging() -> None:
    async with served() as agent:
        await agent("set", **AT, value=1, updated_by="ann", expected_version=0)
        await agent("set", **AT, value=2, updated_by="ann", expected_version=1)
        conflict = await agent("set", **AT, value=3, updated_by="ben", expected_version=1)
        assert conflict["hint"] == (
            "Another agent wrote version 2. Merge your change into actual_value and call holdlog_set again with"
            " expected_version=2."
        )
        assert (await agent("set", **AT, value=3, updated_by="ben", expected_version=2))["status"] == "ok"


async def test_conflict_with_a_write_of_the_caller_names_the_caller() -> None:
    async with served() as agent:
        await agent("set", **AT, value=1, updated_by="ann", expected_version=0)
        again = await agent("set", **AT, value=1, updated_by="ann", expected_version=0)
        assert again["actual_updated_by"] == "ann"
        assert again["hint"].startswith(
            "An agent with your name wrote version 1. If actual_value contains your change,"
        )
        assert "nother agent" not in again["hint"]
        deleting = await agent("delete", **AT, deleted_by="ann", expected_version=7)
        assert deleting["hint"].startswith("Nothing changed: an agent with your name wrote version 1.")


async def test_a_conflict_of_a_deletion_does_not_call_set() -> None:
    async with served() as agent:
        await agent("set", **AT, value=1, updated_by="ann", expected_version=0)
        conflict = await agent("delete", **AT, deleted_by="ben", expected_version=7)
        assert conflict["hint"] == (
            "Nothing changed: another agent wrote version 1. Read actual_value; if your call still applies, repeat it"
            " with expected_version=1."
        )


async def test_a_conflict_without_a_value_leads_to_the_history_or_the_keys() -> None:
    async with served() as agent:
        never = await agent("set", **AT, value=1, updated_by="ann", expected_version=3)
        assert never["actual_version"] == 0
        assert "The key was never written" in never["hint"]
        assert "holdlog_list with this namespace" in never["hint"]
        await agent("set", **AT, value=1, updated_by="ann", expected_version=0)
        await agent("delete", **AT, deleted_by="ann", expected_version=1)
        gone = await agent("set", **AT, value=2, updated_by="ben", expected_version=1)
        assert (gone["actual_version"], "holdlog_history" in gone["hint"]) == (0, True)


def test_a_conflict_in_the_library_names_the_version_to_pass() -> None:
    with StateStore(":memory:") as store:
        store.set("n", "k", 1, updated_by="ann")
        with pytest.raises(ConflictError) as conflict:
            store.set("n", "k", 2, updated_by="ben", expected_version=5)
        assert str(conflict.value) == (
            "n/k: expected version 5, found 1; merge your change into detail.actual_value and retry with"
            " expected_version=1"
        )
        with pytest.raises(ConflictError, match=r"expected version 5, but there is no value now"):
            store.set("n", "none", 2, updated_by="ben", expected_version=5)


async def test_a_failed_condition_over_http_names_the_header_to_send(curl: Curl) -> None:
    await curl.put("/kv/g/k", content="1", headers=JSON)
    for headers in ({"if-match": '"7"'}, {"if-match": '"7", "8"'}, {"if-none-match": "*"}):
        failed = await curl.put("/kv/g/k", content="2", headers=JSON | headers)
        assert failed.status_code == 412
        assert failed.json()["hint"].endswith('repeat it with If-Match: "1".')
    missing = await curl.put("/kv/g/none", content="2", headers=JSON | {"if-match": '"7"'})
    assert (missing.status_code, "?history=1" in missing.json()["hint"]) == (412, True)
    unread = await curl.get("/kv/g/none", headers=AS_JSON)
    assert "GET /kv/<group>" in unread.json()["hint"]


# --- missing versions, unknown arguments


async def test_the_error_for_a_missing_version_offers_zero_to_set_only() -> None:
    async with served() as agent:
        setting = await agent.error("set", **AT, value=1, updated_by="ann")
        deleting = await agent.error("delete", **AT, deleted_by="ann")
    required = "expected_version: is required; pass the version that holdlog_get returned"
    assert (setting, deleting) == (f"{required}, or 0 if the key must not exist", required)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("get", {**AT, "keys": 1}, "keys: unknown argument; did you mean key? Known arguments: namespace, key"),
        ("get", {**AT, "colour": 1}, "colour: unknown argument; known arguments: namespace, key"),
        (
            "wait",
            {"resorce": "a.md"},
            "resorce: unknown argument; did you mean resource? Known arguments: resource, timeout_seconds",
        ),
    ],
)
async def test_an_unknown_argument_of_a_tool_names_the_known_ones(
    tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with served() as agent:
        assert await agent.error(tool, **arguments) == message


async def test_an_unknown_tool_leads_to_the_one_that_was_meant() -> None:
    async with served() as agent:
        assert await agent.error("claims") == "unknown tool; did you mean holdlog_claim?"
        for name in ("xyz", "holdlog_nope", "holdlog_"):
            result = await agent.client.call_tool_mcp(name, {})
            assert "unknown tool; tools/list lists all tools" in str(result.content[0])


async def test_a_tool_of_a_group_that_is_not_offered_leads_to_the_group() -> None:
    with engine() as store:
        async with connected(build_server(store, ("claims",))) as agent:
            message = (
                "holdlog_set is in the group state, which this server does not offer; ask the person you work for to"
                " add it (--tools claims,state)"
            )
            assert await agent.error("set") == message


@pytest.mark.parametrize("name", ["", "x" * 65, "agent\x1b[2J", "\u202eagent", "agent\n"])
async def test_an_unknown_argument_that_is_not_repeated_leads_to_no_other(name: str) -> None:
    async with served() as agent:
        message = await agent.error("claim", **{"resource": "a.md", "agent": "ann", name: 1})
        assert message.startswith("arguments: unknown argument; known arguments: resource, agent, also")


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("GET", "/kv/g?limits=1", None, "limits: unknown argument; did you mean limit? Known arguments: prefix, at"),
        ("GET", "/kv/g?colour=1", None, "colour: unknown argument; known arguments: prefix, at, after, limit"),
        ("GET", f"/kv/g?{'limit' * 9}=1", None, "query: unknown argument; known arguments: prefix, at, after, limit"),
        ("DELETE", "/kv/g/k?ttl=1", None, "ttl: unknown argument; this call takes none"),
        ("GET", "/events?resorce=1", None, "resorce: unknown argument; did you mean resource? Known arguments: after"),
        ("POST", "/threads", {"thread": "t"}, "body: thread: unknown argument; did you mean thread_id? Known argument"),
    ],
)
async def test_an_unknown_argument_over_http_names_the_known_ones(
    curl: Curl, method: str, path: str, body: Any, message: str
) -> None:
    refused = await curl.request(method, path, json=body)
    assert refused.status_code == 400
    assert refused.json()["message"].startswith(message)


# --- schemas


async def test_ambiguous_tool_arguments_have_descriptions_units_and_ranges() -> None:
    tools, _ = await listing(ALL)
    found = {tool["name"].removeprefix("holdlog_"): tool["inputSchema"]["properties"] for tool in tools}
    for tool, argument in (
        ("claim", "also"),
        ("claim", "alternatives"),
        ("release", "also"),
        ("get", "namespace"),
        ("get", "key"),
        ("set", "namespace"),
        ("set", "key"),
        ("set", "expected_version"),
        ("set", "guard"),
        ("set", "ttl_seconds"),
        ("delete", "expected_version"),
    ):
        assert len(found[tool][argument]["description"]) > 10, (tool, argument)
    assert (found["claim"]["lease_seconds"]["minimum"], found["claim"]["lease_seconds"]["maximum"]) == (1, 86_400)
    assert found["set"]["ttl_seconds"]["maximum"] == 315_360_000
    assert (found["set"]["expected_version"]["minimum"], found["delete"]["expected_version"]["minimum"]) == (0, 1)
    for tool in ("set", "delete"):
        claim = found[tool]["guard"]["items"]
        assert claim["required"] == ["resource", "version"]
        assert claim["properties"]["resource"] == {"type": "string"}
        assert claim["properties"]["version"] == {"type": "integer", "minimum": 1}


async def test_a_guard_of_another_form_is_refused_by_the_name_of_its_part() -> None:
    async with served() as agent:
        write = {**AT, "value": 1, "updated_by": "ann", "expected_version": 0}
        assert (await agent.error("set", **write, guard=[{"resource": "a.md"}])).startswith("guard[0]: must be an")
        wrong = await agent.error("set", **write, guard=[{"resource": "a.md", "version": "1"}])
        assert wrong.startswith("guard[0].version: must be a whole number")
        unknown = await agent.error("set", **write, guard=[{"resourse": "a.md", "version": 1}])
        assert unknown.startswith("guard[0]: resourse: unknown argument; did you mean resource? Known arguments: resou")
        unprintable = await agent.error("set", **write, guard=[{"\x1b[2J": "a.md", "version": 1}])
        assert unprintable.startswith("guard[0]: a field: unknown argument; known arguments: resource, version")


def test_an_unknown_field_of_a_model_is_reported_before_a_missing_one() -> None:
    from holdlog.adapters.api.validation import first_finding
    from holdlog.domain.agent import Register

    with pytest.raises(ValueError, match="agent") as error:
        TypeAdapter(Register).validate_python({"agnet": "ann"})
    assert first_finding(error.value, known=["agent", "name"]) == (  # type: ignore[arg-type]
        "agnet: unknown argument; did you mean agent? Known arguments: agent, name"
    )
