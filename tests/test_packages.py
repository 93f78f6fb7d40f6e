"""Packages for hosts: what they start is a command of holdlog, and their texts name tools and arguments that exist."""

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from holdlog.adapters.hooks.calls import parse
from holdlog.adapters.operations.claims import Claim, Release
from tests.support.mcp import Stdio
from tests.support.programs import environment

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
SERVER = {"command": "holdlog", "args": []}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "packages"
    subprocess.run([sys.executable, ROOT / "deploy/packages.py", folder], check=True, capture_output=True)
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def list_commands(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        if isinstance(content.get("command"), str):
            yield shlex.join([*shlex.split(content["command"]), *content.get("args", ())])
        content = list(content.values())
    for part in content if isinstance(content, list) else ():
        yield from list_commands(part)


def test_packages_start_the_server_and_hooks_and_nothing_else(packages: Path) -> None:
    files = [path for path in packages.rglob("*.json") if path.name != "server.json"]
    assert {it for path in files for it in list_commands(read(path))} == {"holdlog", "holdlog hook"}


def test_server_of_a_package_has_the_tools_of_the_skill(packages: Path, tmp_path: Path) -> None:
    (skill, other) = sorted(packages.rglob("SKILL.md"))
    assert skill.read_text() == other.read_text()
    server = Stdio("--db", tmp_path / "state.db")
    try:
        tools = server.tools()
    finally:
        server.close()
    words = re.findall(r"`([a-z_]+)`", skill.read_text())
    assert {word.removeprefix("holdlog_") for word in words if word.startswith("holdlog_")} <= tools.keys()
    known = {*Claim.model_fields, *Release.model_fields}
    known |= {
        "busy",
        "deadlock",
        "previous_note",
        "previous_outcome",
        "lost",
        "created",
        "deleted",
        "modified",
        "moved",
    }
    assert {word for word in words if not word.startswith("holdlog_")} <= known
    head = dict(re.findall(r"^(\w+): (.+)$", skill.read_text().split("---\n")[1], re.MULTILINE))
    assert head["name"] == skill.parent.name
    assert len(head["description"]) <= 1024


def test_hooks_of_the_plugin_are_events_that_holdlog_uses_with_matchers_of_plugin_tools(packages: Path) -> None:
    hooks = read(packages / "claude-code/hooks/hooks.json")["hooks"]
    for event, groups in hooks.items():
        assert parse({"hook_event_name": event, "session_id": "s"}, None) is not None
        assert len(groups) == 1
    tool = "mcp__plugin_holdlog_holdlog__holdlog_claim"
    for event in ("PreToolUse", "PostToolUse"):
        matcher = hooks[event][0]["matcher"]
        assert all(re.fullmatch(matcher, name) for name in (tool, "mcp__holdlog__holdlog_claim", "Edit", "Bash"))
    call = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": tool, "tool_input": {"agent": "ann"}}
    parsed = parse(call, None)
    assert parsed is not None
    assert parsed.called_name == "ann"


def test_links_contain_the_server(packages: Path) -> None:
    page = (packages / "install.md").read_text()
    cursor, vs_code, web = re.findall(r"^\* .+: `(.+)`$", page, re.MULTILINE)
    (config,) = parse_qs(urlsplit(cursor).query)["config"]
    assert json.loads(base64.b64decode(config)) == SERVER
    assert json.loads(unquote(vs_code.partition("?")[2])) == {"name": "holdlog", "type": "stdio", **SERVER}
    assert json.loads(parse_qs(urlsplit(web).query)["config"][0]) == {"type": "stdio", **SERVER}


def test_all_manifests_have_one_version_and_the_registry_a_short_description(packages: Path) -> None:
    entry = read(packages / "server.json")
    (package,) = entry["packages"]
    version = package["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert package["runtimeArguments"][0]["value"] == f"holdlog[mcp]=={version}"
    manifests = [packages / "claude-code/.claude-plugin/plugin.json", packages / "agent-plugin/plugin.json"]
    assert {read(path)["version"] for path in manifests} == {version, entry["version"]}
    assert len(entry["description"]) <= 100


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("claude") is None, reason="Claude Code is not installed")
def test_claude_code_accepts_the_plugin(packages: Path) -> None:
    for manifest in (packages / "claude-code/.claude-plugin").iterdir():
        command = ["claude", "plugin", "validate", "--strict", str(manifest)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment())
        assert done.returncode == 0, done
