"""One sentence through each door, in both eras of MCP: what must work before anything else is worth testing."""

import pytest

from tests.support.mcp import LEGACY, MODERN, OverHttp


def test_library_returns_the_value_that_was_set(store):
    assert store.set("n", "k", {"a": [1, None]}, updated_by="ann").version == 1
    assert store.get("n", "k").value == {"a": [1, None]}


def test_command_prints_the_value_that_was_set(command):
    assert command("set", "n", "k", "[1]", "--expected-version", "0", "--updated-by", "ann").code == 0
    assert command("get", "n", "k", "--json").json["value"] == [1]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_stdio_server_returns_the_value_that_was_set(stdio, era):
    agent = stdio("--tools", "state", era=era)
    written = agent.call("set", namespace="n", key="k", value=None, updated_by="ann", expected_version=0)
    assert written | {"status": "ok", "version": 1, "previous_version": None} == written
    assert agent.call("get", namespace="n", key="k")["value"] is None


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_http_server_returns_the_value_that_was_set(http, era):
    agent = OverHttp(http("--tools", "state").url + "/mcp", era)
    agent.call("set", namespace="n", key="k", value=1, updated_by="ann", expected_version=0)
    assert agent.call("get", namespace="n", key="k")["value"] == 1
