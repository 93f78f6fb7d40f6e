"""README.md and the pages that continue it are true: their Python, commands, configurations and responses are run."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import CallToolResult

from holdlog.adapters.cli.main import build_parser
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.mcp.server import build_server

ROOT = Path(__file__).parents[2]
README, LIBRARY, CLAIMS, HOSTS, COMMAND_LINE = (
    (ROOT / page).read_text()
    for page in ("README.md", "docs/library.md", "docs/claims.md", "docs/hosts.md", "docs/command-line.md")
)


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readme_can_be_read_in_three_minutes() -> None:
    assert len(README.splitlines()) <= 200


def test_the_readme_starts_with_the_two_commands() -> None:
    commands = ["git clone https://github.com/holdlog/holdlog && cd holdlog", "make demo", "make test"]
    assert blocks("console", README)[0].splitlines() == commands


@pytest.mark.check
@pytest.mark.parametrize(("page", "count"), [(README, 1), (LIBRARY, 6)], ids=["README.md", "library.md"])
def test_documented_python_runs_and_prints_what_its_comments_state(page: str, count: int, tmp_path: Path) -> None:
    examples = blocks("python", page)
    assert len(examples) == count
    for example in examples:
        expected = re.findall(r"print\(.*\)  # (.*)$", example, re.MULTILINE)
        assert expected
        done = subprocess.run(
            [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stderr == ""
        assert done.stdout.splitlines() == expected


def test_library_example_fits_the_promised_number_of_lines() -> None:
    (short,) = blocks("python", README)
    assert len(short.splitlines()) <= 15
    values, updates, past, undo, coroutines, threads = blocks("python", LIBRARY)
    assert len(values.splitlines()) <= 25
    assert len(updates.splitlines()) <= 40
    assert len(past.splitlines()) <= 20
    assert len(undo.splitlines()) <= 20
    assert len(coroutines.splitlines()) <= 15
    assert len(threads.splitlines()) <= 12


@pytest.mark.check
def test_documented_commands_run_in_their_order(tmp_path: Path) -> None:
    environment = os.environ | {"HOLDLOG_DB": str(tmp_path / "state.db"), "HOME": str(tmp_path)}
    blocks_to_run = [part.split("```")[1] for part in COMMAND_LINE.split("<!-- run -->")[1:]]
    lines = [line for block in blocks_to_run for line in block.splitlines()[1:]]
    assert len(lines) >= 20
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "holdlog"
        done = subprocess.run(
            [sys.executable, "-m", *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (words, done.stderr)


def configurations(page: str) -> list[dict[str, Any]]:
    return [*map(json.loads, blocks("json", page)), *map(tomllib.loads, blocks("toml", page))]


def servers(page: str) -> list[dict[str, Any]]:
    """The configured servers, whatever the host calls the table."""
    tables = ("mcpServers", "servers", "mcp_servers")
    return [found[table]["holdlog"] for found in configurations(page) for table in tables if table in found]


@pytest.mark.parametrize(("page", "count"), [(README, 1), (HOSTS, 5)], ids=["README.md", "hosts.md"])
def test_every_configuration_over_stdio_starts_holdlog(page: str, count: int) -> None:
    started = [server for server in servers(page) if "command" in server]
    assert [Path(server["command"]).name for server in started] == ["holdlog"] * count
    parser, _ = build_parser()
    for server in started:
        assert parser.parse_args([*server.get("args", []), "serve"]).command == "serve"


def test_every_http_configuration_uses_the_default_address_and_holds_no_secret() -> None:
    remote = [server for server in servers(HOSTS) if "command" not in server]
    assert len(remote) == 5
    default = HttpOptions()
    for server in remote:
        address = server.get("url") or server["serverUrl"]
        assert address == f"http://{default.host}:{default.port}{default.path}"
        secret = server.get("bearer_token_env_var") or server["headers"]["Authorization"]
        assert re.fullmatch(r"HOLDLOG_TOKEN|Bearer \$\{(env:)?HOLDLOG_TOKEN\}|Bearer \$\{input:holdlog-token\}", secret)
    assert "--header 'Authorization: Bearer ${HOLDLOG_TOKEN}'" in HOSTS  # single quotes: the shell must not expand it


def test_the_permissions_name_the_tools_of_the_server() -> None:
    assert {"permissions": {"allow": ["mcp__holdlog"]}} in configurations(HOSTS)


@pytest.mark.parametrize(
    ("page", "calls", "cut"), [(README, 5, True), (CLAIMS, 7, False)], ids=["README.md", "claims.md"]
)
async def test_documented_responses_are_real(page: str, calls: int, cut: bool) -> None:
    """A call whose response is not on the next line waits in the queue: its response follows that of the next call."""
    lines = page.split("<!-- transcript -->")[1].split("```")[1].splitlines()[1:]
    assert sum(line.startswith("holdlog_") for line in lines) == sum(line.startswith("{") for line in lines) == calls
    engine = open_holdlog(":memory:")
    try:
        async with Client(build_server(engine, ("claims", "state"))) as client:

            async def call(line: str) -> CallToolResult:
                tool, _, arguments = line.partition(" ")
                return await asyncio.wait_for(client.call_tool_mcp(tool, json.loads(arguments)), 20)

            pending: list[asyncio.Task[CallToolResult]] = []
            for line in lines:
                if line.startswith("holdlog_"):
                    if pending:
                        await asyncio.wait_for(queued(client), 20)
                    pending.append(asyncio.create_task(call(line)))
                elif line.startswith("{"):
                    response = await pending.pop()
                    assert not response.is_error
                    assert_alike(line, response.structured_content, cut=cut)
            assert not pending
    finally:
        engine.close()


async def queued(client: Client[Any]) -> None:
    while not (await client.call_tool_mcp("holdlog_status", {})).structured_content["queues"]:
        pass


def assert_alike(line: str, real: Any, *, cut: bool) -> None:
    """Equal except for times and durations. A hint may be cut; with `cut`, also fields, where the line shows `…`."""
    shown, gaps = re.subn(r",…(?=[,}])", "", line)
    printed = json.loads(shown)
    assert not gaps or cut
    assert [name for name in real if name in printed] == list(printed)
    assert gaps or list(printed) == list(real)
    for name, value in printed.items():
        if name.endswith("_at"):
            assert len(value) == len(real[name])
        elif name.endswith("_seconds"):
            assert isinstance(real[name], float)
        elif isinstance(value, str) and value.endswith("…"):
            assert real[name].startswith(value.removesuffix("…"))
        else:
            assert real[name] == value
