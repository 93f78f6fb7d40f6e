"""What README.md prints is what happens: its Python, its commands, its configurations and its answers."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import CallToolResult

from holdlog.adapters.cli.main import build_parser
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.mcp.server import build_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]) if path.name != "answers.md"]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> Iterator[list[str]]:
    for block in blocks("console", text):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["holdlog"]:
                yield words


def test_readme_python_runs_and_prints_what_its_comments_state(tmp_path: Path) -> None:
    for block in blocks("python"):
        told = re.findall(r"print\(.*\)  # (.*)$", block, re.MULTILINE)
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stderr == ""
        assert done.stdout.splitlines() == told


def test_library_example_fits_the_promised_number_of_lines() -> None:
    first, second, threads = blocks("python")
    assert len(first.splitlines()) <= 25
    assert len(second.splitlines()) <= 15
    assert len(threads.splitlines()) <= 12


def test_readme_commands_run_in_their_order(tmp_path: Path) -> None:
    environment = os.environ | {"HOLDLOG_DB": str(tmp_path / "state.db"), "HOME": str(tmp_path)}
    block = README.split("<!-- run -->")[1].split("```")[1]
    lines = list(commands(f"```{block}```\n"))
    assert len(lines) == 11
    for words in lines:
        done = subprocess.run(
            [sys.executable, "-m", *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (words, done.stderr)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_a_document_shows_exists(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser, names = build_parser()
    text = document.read_text()
    inline = [shlex.split(found) for found in re.findall(r"`(holdlog [^`\n]+)`", text)]
    for words in [*commands(text), *inline]:
        given = words[1:]
        if not names.intersection(given):
            given.insert(0, "serve")
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([*given[: _command_at(given, names) + 1], "--help"])
        assert ended.value.code == 0, words
        shown = capsys.readouterr().out
        assert all(option in shown for option in given if option.startswith("--")), words


def _command_at(given: list[str], names: frozenset[str]) -> int:
    return next(index for index, word in enumerate(given) if word in names)


def test_every_documented_configuration_starts_holdlog() -> None:
    configurations: list[dict[str, Any]] = [json.loads(block) for block in blocks("json")]
    configurations += [tomllib.loads(block) for block in blocks("toml")]
    keys = ("mcpServers", "servers", "mcp_servers")
    started = []
    for configuration in configurations:
        servers: dict[str, Any] = next((configuration[key] for key in keys if key in configuration), {})
        started += [Path(server["command"]).name for server in servers.values()]
    assert started == ["holdlog"] * 5
    assert {"permissions": {"allow": ["mcp__holdlog__*"]}} in configurations


async def test_readme_answers_are_real() -> None:
    """A call that is not answered in the next line stands in line: its answer comes after those of the next call."""
    lines = README.split("<!-- transcript -->")[1].split("```")[1].splitlines()[1:]
    assert sum(line.startswith("holdlog_") for line in lines) == sum(line.startswith("{") for line in lines) == 7
    engine = open_holdlog(":memory:")
    try:
        async with Client(build_server(engine, ("claims", "state"))) as client:

            async def ask(question: str) -> CallToolResult:
                tool, _, arguments = question.partition(" ")
                return await asyncio.wait_for(client.call_tool_mcp(tool, json.loads(arguments)), 20)

            asked: list[asyncio.Task[CallToolResult]] = []
            for line in lines:
                if line.startswith("holdlog_"):
                    if asked:
                        await asyncio.wait_for(stands_in_line(client), 20)
                    asked.append(asyncio.create_task(ask(line)))
                elif line.startswith("{"):
                    answer = await asked.pop()
                    assert not answer.is_error
                    assert_alike(json.loads(line), answer.structured_content)
            assert not asked
    finally:
        engine.close()


async def stands_in_line(client: Client[Any]) -> None:
    while not (await client.call_tool_mcp("holdlog_status", {})).structured_content["queues"]:
        pass


def assert_alike(told: Any, real: Any) -> None:
    """Equal but for times and durations; a hint may be cut."""
    assert list(told) == list(real)
    for name, value in told.items():
        if name.endswith("_at"):
            assert len(value) == len(real[name])
        elif name.endswith("_seconds"):
            assert isinstance(real[name], float)
        elif isinstance(value, str) and value.endswith("…"):
            assert real[name].startswith(value.removesuffix("…"))
        else:
            assert real[name] == value


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_within_the_repository_resolves(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", document.read_text()):
        assert (document.parent / target).exists(), target
