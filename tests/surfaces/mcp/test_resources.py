"""Values and claims as MCP resources: read, listed and completed by real clients of both eras."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.mcp.resources.addresses import CLAIM, CLAIMS, NAMESPACES, STATE
from holdlog.adapters.mcp.server import build_server
from tests.support.agent import ALL, ERAS, Agent, connected, engine, served
from tests.support.clock import Clock
from tests.support.slow import check
from tests.support.uris import claim_uri, value_uri

NAMES = [
    "plain",
    "Order-1234",
    "a/b",
    "/a//b/",
    "a b",
    "100%",
    "%41",
    "a%2Fb",
    "?x=1&y=2",
    "#1",
    "a+b;c,d=e",
    "http://x.example/y?z#w",
    "naïve",
    "日本語/キー",
    "👩‍💻",
    "{key}",
    "a\\b",
    "x:y@z[1]",
    "a/../b",
    "…",
    "x" * 512,
    "é" * 512,
]


@pytest.fixture(params=ERAS)
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    async with served(request.param) as agent:
        yield agent


async def read(agent: Agent, uri: str) -> dict[str, Any]:
    """As a client sends it: FastMCP's passes it through an URL parser before."""
    result = await agent.client.session.read_resource(uri)
    (content,) = result.contents
    assert content.uri == uri
    assert content.mime_type == "application/json"
    answer: dict[str, Any] = json.loads(content.text)
    assert json.dumps(answer, ensure_ascii=False, separators=(",", ":")) == content.text
    return answer


async def refusal(agent: Agent, uri: str) -> MCPError:
    with pytest.raises(MCPError) as caught:
        await agent.client.session.read_resource(uri)
    assert "\n" not in str(caught.value)
    return caught.value


def without_time(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if not name.endswith("_seconds")}


@pytest.mark.check
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("agent", ["auto", *check("legacy")], indirect=True)
async def test_any_name_survives_a_resource_uri(agent: Agent, name: str) -> None:
    await agent("set", namespace=name, key=name, value={"of": name}, updated_by="ann", expected_version=0)
    uri = value_uri(name, name)
    assert await read(agent, uri) == await agent("get", namespace=name, key=name)
    (content,) = await agent.client.read_resource(uri)  # through pydantic's parser of URLs
    assert json.loads(content.text)["value"] == {"of": name}  # type: ignore[union-attr]


@pytest.mark.check
@pytest.mark.parametrize("resource", ["src/main.py", "src/", "custom://deploy", "custom://a/b?c#d", "a b/ü.md", "100%"])
async def test_claim_resource_reads_as_its_status(agent: Agent, resource: str) -> None:
    uri = claim_uri(resource)
    assert await read(agent, uri) == {"status": "available", "resource": resource}
    await agent("claim", resource=resource, agent="ann")
    (content,) = await agent.client.read_resource(uri)
    assert json.loads(content.text)["held_by"] == "ann"  # type: ignore[union-attr]
    assert without_time(await read(agent, uri)).keys() == without_time(await agent("status", resource=resource)).keys()
    await agent("release", resource=resource, agent="ann", outcome="modified")
    assert await read(agent, uri) == await agent("status", resource=resource)


async def test_name_in_a_resource_uri_may_be_spelled_as_people_write_it(agent: Agent) -> None:
    await agent("claim", resource="src/main.py", agent="ann")
    for uri in ("claim://src/main.py", "claim://src%2fmain.py", "CLAIM://src/./main.py", "claim://src%5Cmain.py"):
        assert (await read(agent, uri))["held_by"] == "ann"
    await agent("set", namespace="n", key="é/1", value=1, updated_by="ann", expected_version=0)
    for uri in ("state://n/é/1", "state://n/%C3%A9/1", "state://n/e%CC%81%2F1"):
        assert (await read(agent, uri))["value"] == 1


@pytest.mark.check
@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("state://n/what?", "%3F"),
        ("state://n/no#1", "%23"),
        ("state://n/100%", "%25"),
        ("state://n/%zz", "%25"),
        ("state://n/%FF", "UTF-8"),
        ("state://n/%ED%A0%80", "UTF-8"),
        ("state://n/", "key: must not be blank"),
        ("state:///k", "namespace: must not be blank"),
        ("state://n/%20k", "key: must not start or end with a blank"),
        ("state://n/a%00b", "key: must not contain control"),
        (f"state://n/{'x' * 513}", "key: must have at most 512 characters"),
        (f"state://n/{'x' * 20_000}", "uri: must have at most 16384 characters"),
        ("claim://", "resource: must not be blank"),
        ("claim://../secret", "resource: must not contain '..'"),
        ("claim://custom://deploy", "claim://custom%3A%2F%2Fdeploy"),
        ("claim://custom//deploy", "claim://custom%3A%2F%2Fdeploy"),  # what URL parsers make of the one before
    ],
)
@pytest.mark.parametrize("agent", ["auto", *check("legacy")], indirect=True)
async def test_ambiguous_resource_uri_is_refused_with_what_to_do(agent: Agent, uri: str, said: str) -> None:
    error = await refusal(agent, uri)
    assert error.code == -32602
    assert said in error.message
    assert error.data == {"uri": uri}


@pytest.mark.check
@pytest.mark.parametrize("uri", ["state://n", "state", "", "holdlog://secrets", "file:///etc/passwd", "claim:/a.md"])
async def test_unknown_resource_uri_is_not_found(uri: str) -> None:
    for mode, code in (("legacy", -32002), ("auto", -32602)):
        async with served(mode) as agent:
            error = await refusal(agent, uri)
            assert error.code == code
            assert STATE in error.message


async def test_resource_of_a_missing_value_returns_what_get_returns() -> None:
    for mode, code in (("legacy", -32002), ("auto", -32602)):
        async with served(mode) as agent:
            await agent("set", namespace="n", key="k", value="STORED", updated_by="ann", expected_version=0)
            await agent("delete", namespace="n", key="k", deleted_by="ben", expected_version=1)
            error = await refusal(agent, "state://n/k")
            assert error.code == code
            assert error.data == {"uri": "state://n/k"} | await agent("get", namespace="n", key="k")
            assert error.data["deleted_by"] == "ben"
            assert "STORED" not in str(error.data)


async def test_resource_of_an_expired_value_does_not_exist() -> None:
    clock = Clock()
    async with served(clock=clock) as agent:
        await agent("set", namespace="n", key="k", value=1, updated_by="ann", expected_version=0, ttl_seconds=5)
        assert (await read(agent, "state://n/k"))["expires_in_seconds"] == 5
        clock.pass_by(5)
        assert (await refusal(agent, "state://n/k")).data["status"] == "not_found"


async def test_overview_resources_read_as_the_board_and_the_namespaces(agent: Agent) -> None:
    assert await read(agent, CLAIMS) == {"status": "ok", "claims": [], "queues": [], "agents": []}
    await agent("claim", resource="a.md", agent="ann")
    await agent("set", namespace="n", key="k", value=1, updated_by="ann", expected_version=0)
    assert [row["resource"] for row in (await read(agent, CLAIMS))["claims"]] == ["a.md"]
    assert await read(agent, NAMESPACES) == await agent("list")


async def listed(agent: Agent) -> str:
    session = agent.client.session
    found = [await session.list_resources(), await session.list_resource_templates()]
    return json.dumps([it.model_dump(mode="json", by_alias=True, exclude_none=True) for it in found])


async def test_resource_list_is_the_same_whatever_is_stored(agent: Agent) -> None:
    before = await listed(agent)
    assert before.count("uri") == 4
    await agent("set", namespace="STORED", key="STORED", value="STORED", updated_by="STORED", expected_version=0)
    await agent("claim", resource="STORED", agent="STORED", note="STORED")
    assert await listed(agent) == before


@pytest.mark.parametrize(
    ("groups", "uris", "templates"),
    [
        (("claims",), [CLAIMS], [CLAIM]),
        (("state",), [NAMESPACES], [STATE]),
        (("admin",), [], []),
        (ALL, [NAMESPACES, CLAIMS], [STATE, CLAIM]),
    ],
)
async def test_resources_come_with_the_group_that_owns_them(
    groups: tuple[str, ...], uris: list[str], templates: list[str]
) -> None:
    with engine() as store:
        for mode in ERAS:
            async with Client(build_server(store, groups), mode=mode) as client:
                assert [it.uri for it in await client.list_resources()] == uris
                assert [it.uri_template for it in await client.list_resource_templates()] == templates
                for uri in {NAMESPACES, CLAIMS} - set(uris) if uris else ():
                    with pytest.raises(MCPError, match="must be one of"):
                        await client.read_resource(uri)


async def test_announced_capabilities_are_served() -> None:
    with engine() as store:
        for mode in ERAS:
            for groups, some in ((("claims",), True), (("admin",), False)):
                async with Client(build_server(store, groups), mode=mode) as client:
                    found = client.session.server_capabilities
                    assert found is not None
                    assert found.resources is not None
                    assert bool(found.resources.subscribe) is some
                    assert (found.completions is not None) is some
                    for part in (found.resources, found.tools, found.prompts):
                        assert part is None or not part.list_changed


# --- completions


async def complete(agent: Agent, uri: str, name: str, value: str = "", **given: str) -> tuple[list[str], Any, Any]:
    found = await agent.client.complete(
        ResourceTemplateReference(uri=uri), {"name": name, "value": value}, context_arguments=given or None
    )
    return found.values, found.total, found.has_more


async def test_existing_names_are_completed_by_their_prefix(agent: Agent) -> None:
    for namespace in ("build", "build-1", "build/é", "bravo", "zulu", "gone"):
        await agent("set", namespace=namespace, key="a/1", value="STORED", updated_by="ann", expected_version=0)
    await agent("set", namespace="build", key="b?", value=1, updated_by="ann", expected_version=0)
    await agent("delete", namespace="gone", key="a/1", deleted_by="ann", expected_version=1)
    await agent("claim", resource="src/a.py", agent="ann")
    await agent("claim", resource="src/b.py", agent="ann")
    await agent("claim", resource="custom://deploy", agent="ben")
    await agent("release", resource="src/b.py", agent="ann")
    assert await complete(agent, STATE, "namespace", "build") == (["build", "build-1", "build/é"], 3, False)
    assert await complete(agent, STATE, "namespace", "build/e\u0301") == (["build/é"], 1, False)
    assert (await complete(agent, STATE, "namespace"))[0] == ["bravo", "build", "build-1", "build/é", "zulu"]
    assert (await complete(agent, STATE, "namespace", "g"))[0] == []
    assert (await complete(agent, STATE, "key", namespace="build"))[0] == ["a/1", "b?"]
    assert (await complete(agent, STATE, "key", "a", namespace="build"))[0] == ["a/1"]
    assert await complete(agent, STATE, "key") == ([], 0, False)  # of which namespace?
    assert (await complete(agent, CLAIM, "resource"))[0] == ["custom://deploy", "src/a.py"]
    assert (await complete(agent, CLAIM, "resource", "src/"))[0] == ["src/a.py"]


async def test_unknown_argument_has_no_completions(agent: Agent) -> None:
    await agent("set", namespace="n", key="k", value=1, updated_by="ann", expected_version=0)
    assert await complete(agent, STATE, "value") == ([], 0, False)
    assert await complete(agent, CLAIM, "namespace") == ([], 0, False)
    assert await complete(agent, "other://{namespace}", "namespace") == ([], 0, False)
    prompt = await agent.client.complete(PromptReference(name="p"), {"name": "namespace", "value": ""})
    assert prompt.values == []


async def test_completion_returns_a_hundred_names_and_whether_there_are_more(agent: Agent) -> None:
    keys = [f"k{number:03}" for number in range(101)]
    for key in keys[:100]:
        await agent("set", namespace="n", key=key, value=1, updated_by="ann", expected_version=0)
    assert await complete(agent, STATE, "key", namespace="n") == (keys[:100], 100, False)
    await agent("set", namespace="n", key=keys[100], value=1, updated_by="ann", expected_version=0)
    assert await complete(agent, STATE, "key", namespace="n") == (keys[:100], None, True)


async def test_completions_of_claims_cover_all_pages() -> None:
    async with served(settings=Settings(max_claims=1000)) as agent:
        names = [f"f{number:03}.md" for number in range(130)]
        for start in range(0, 130, 10):
            await agent("claim", resource=names[start], agent="ann", also=names[start + 1 : start + 10])
        assert await complete(agent, CLAIM, "resource", "f12") == (names[120:130], 10, False)
        found = await complete(agent, CLAIM, "resource")
        assert (len(found[0]), *found[1:]) == (100, None, True)


async def test_impossible_prefix_of_a_name_is_refused(agent: Agent) -> None:
    with pytest.raises(MCPError, match="namespace: must not contain control"):
        await complete(agent, STATE, "namespace", "a\0")


async def test_reading_a_resource_does_not_consume_the_report_of_a_loss() -> None:
    clock = Clock()
    async with served(clock=clock) as agent:
        await agent("claim", resource="a.md", agent="ann", lease_seconds=1)
        clock.pass_by(1)
        await agent("claim", {"holdlog/session": "other"}, resource="a.md", agent="ben")
        assert "lost" not in await read(agent, "claim://a.md")
        assert "lost" in await agent("status", resource="a.md")


async def test_session_that_is_not_a_name_is_refused() -> None:
    with engine() as store:
        async with connected(build_server(store, ALL), mode="legacy") as agent:
            with pytest.raises(MCPError, match="session"):
                await agent.client.read_resource(CLAIMS, meta={"holdlog/session": "a\nb"})
