"""The wheel in fresh environments: without extras it fits next to an old MCP SDK, and each extra alone does its job."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import environment
from tests.support.servers import Nats

UV = os.environ.get("UV") or shutil.which("uv")
ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.rest,
    pytest.mark.xdist_group("wheel"),
    pytest.mark.skipif(UV is None, reason="environments are made with uv"),
]

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
LIBRARY = """
from importlib.metadata import version
from holdlog import StateStore, create_state
assert version("mcp").startswith("1.")
with StateStore("state.db") as store:
    assert store.claim("custom://tea", agent="ann")
    create_state({"n": 1}, store=store)
    print(store.set("n", "k", 1, updated_by="ann").version)
"""
SERVED = """
import re, subprocess, sys, urllib.request
command = [sys.executable, "-m", "holdlog", "serve", "--transport", "http", "--port", "0", "--db", "state.db"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
    try:
        url = re.search(r"http://[^,\\s]+", server.stderr.readline())[0]
        print(urllib.request.urlopen(url + "/readyz", timeout=20).status)
    finally:
        server.terminate()
"""
LANGGRAPH = """
from holdlog.langgraph import HoldlogStore
store = HoldlogStore("state.db")
store.put(("a",), "k", {"n": 1})
print(store.get(("a",), "k").value)
"""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def install(tmp_path: Path, wheel: Path) -> Callable[..., Run]:
    """Makes an environment with holdlog, an extra and other packages; what runs its Python, and returns its output."""

    def make(extra: str = "", *others: str) -> Run:
        python = tmp_path / "venv/bin/python"
        _run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
        holdlog = f"holdlog[{extra}] @ {wheel.as_uri()}" if extra else f"holdlog @ {wheel.as_uri()}"
        _run(UV, "pip", "install", "--quiet", "--python", python, holdlog, *others, cwd=tmp_path)
        return lambda *words, stdin="": _run(python, *words, cwd=tmp_path, stdin=stdin)

    return make


def _run(*words: object, cwd: Path, stdin: str = "") -> str:
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env=environment(), input=stdin, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


def test_base_has_at_most_15_packages(install: Callable[..., Run]) -> None:
    count = "from importlib.metadata import distributions; print(len(list(distributions())))"
    assert int(install()("-c", count)) <= 15


def test_base_runs_the_library_and_commands_next_to_an_old_mcp_sdk(install: Callable[..., Run]) -> None:
    run = install("", "mcp<2")
    assert run("-c", LIBRARY) == "1\n"
    assert "custom://tea" in run("-m", "holdlog", "claims", "--db", "state.db")


def test_extra_mcp_serves_over_stdio(install: Callable[..., Run]) -> None:
    response = install("mcp")("-m", "holdlog", "--db", "state.db", stdin=json.dumps(INITIALIZE) + "\n")
    assert json.loads(response)["result"]["serverInfo"]["name"] == "holdlog"


def test_extra_http_serves_over_http(install: Callable[..., Run]) -> None:
    assert install("http")("-c", SERVED) == "200\n"


def test_extra_langgraph_stores_items(install: Callable[..., Run]) -> None:
    assert install("langgraph")("-c", LANGGRAPH) == "{'n': 1}\n"


def test_extra_postgres_opens_a_store_in_postgres(install: Callable[..., Run], postgres: str) -> None:
    run = install("postgres")
    run("-m", "holdlog", "set", "n", "k", "1", "--force", "--db", postgres)
    assert run("-m", "holdlog", "get", "n", "k", "--db", postgres).startswith("1")


def test_extra_nats_publishes_events(install: Callable[..., Run], nats_server: Nats) -> None:
    run = install("nats")
    run("-m", "holdlog", "set", "n", "k", "1", "--force", "--db", "state.db")
    run("-m", "holdlog", "relay", "--once", "--nats", nats_server.url, "--db", "state.db")
    words = ("subscribe", "--after", "0", "--limit", "1", "--nats", nats_server.url, "--db", "state.db")
    assert json.loads(run("-m", "holdlog", *words))["type"] == "holdlog.ValueWritten"
