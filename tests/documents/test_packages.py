"""`make packages`: what it builds has the documented forms, and broken packages are found."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pydantic import BaseModel

from deploy.packages import checks, links
from deploy.packages.__main__ import build
from deploy.packages.contents import REGISTRY_NAME, SKILL
from deploy.packages.hosts import server
from deploy.packages.project import DESCRIPTION, NAME, PROJECT, VERSION
from holdlog.adapters.api.claims import responses
from holdlog.adapters.cli.setup.plan import INSTRUCTIONS
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.mcp.server import build_server
from tests.support.environments import ROOT, UV

PAGE = (ROOT / "docs/packages.md").read_text()
CLAUDE = "claude-code/.claude-plugin/plugin.json"
CLAUDE_HOOKS = "claude-code/hooks/hooks.json"
Change = Callable[[Any], object]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    build(tmp_path / "packages")
    return tmp_path / "packages"


def test_built_packages_have_no_findings(built: Path) -> None:
    assert checks.findings(built) == []
    assert {it.name for it in built.iterdir()} == set(re.findall(r"^\| `([\w.-]+)/?` \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize(
    ("path", "change", "finding"),
    [
        (CLAUDE, lambda it: it.pop("version"), f"{CLAUDE}: version: Field required"),
        (
            CLAUDE,
            lambda it: it.update(version="0.0.9"),
            f"{CLAUDE}: the version is 0.0.9, but that of pyproject.toml is",
        ),
        (CLAUDE, lambda it: it.update(skill="skills"), f"{CLAUDE}: skill: Extra inputs are not permitted"),
        (
            "server.json",
            lambda it: it.update(description="x" * 101),
            "server.json: description: String should have at most",
        ),
        (
            "server.json",
            lambda it: it["packages"][0].pop("identifier"),
            "server.json: packages.0.identifier: Field required",
        ),
        (
            "agent-plugin/mcp.json",
            lambda it: it["mcpServers"][NAME].update(args=["--no-such-option"]),
            "agent-plugin/mcp.json: holdlog: the command line refuses it",
        ),
        (
            CLAUDE_HOOKS,
            lambda it: it["hooks"]["Stop"][0]["hooks"][0].update(command="holdlog hooks"),
            f"{CLAUDE_HOOKS}: holdlog hooks: the command line refuses it",
        ),
        (
            CLAUDE_HOOKS,
            lambda it: it["hooks"]["Stop"][0]["hooks"][0].update(command="holdlock hook"),
            f"{CLAUDE_HOOKS}: holdlock hook: must start holdlog",
        ),
        (
            "cursor/.cursor/hooks.json",
            lambda it: it["hooks"].update(preTooluse=it["hooks"].pop("preToolUse")),
            "cursor/.cursor/hooks.json: hooks.preTooluse.[key]: Input should be",
        ),
    ],
)
def test_broken_package_is_reported(built: Path, path: str, change: Change, finding: str) -> None:
    content = json.loads((built / path).read_text())
    change(content)
    (built / path).write_text(json.dumps(content))
    (found,) = checks.findings(built)
    assert found.startswith(finding)


def test_missing_and_unknown_files_of_packages_are_reported(built: Path) -> None:
    (built / "server.json").rename(built / "servers.json")
    assert checks.findings(built) == [
        "servers.json: there is no format for it in deploy/packages/formats.py",
        "server.json: is missing",
    ]


def test_skill_with_another_name_than_its_folder_is_reported(built: Path) -> None:
    (built / "agent-plugin/skills/holdlog").rename(built / "agent-plugin/skills/locks")
    assert checks.findings(built) == ["agent-plugin/skills/locks/SKILL.md: the name must be that of its folder, locks"]


@pytest.mark.check
def test_folders_of_hosts_are_what_init_writes(built: Path, tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    clients = [word for name in ("codex", "cursor", "claude-code") for word in ("--client", name)]
    command = ["holdlog", "init", "--yes", "--agents-md", *clients]
    env = os.environ | {"PATH": path, "HOME": str(home)}
    subprocess.run(command, cwd=project, env=env, check=True, capture_output=True, timeout=100)
    written = {"codex/.codex/config.toml": home / ".codex/config.toml", "codex/AGENTS.md": project / "AGENTS.md"}
    for file in ("codex/.codex/hooks.json", "cursor/.cursor/hooks.json", "cursor/.cursor/mcp.json"):
        written[file] = project / file.partition("/")[2]
    assert {file: (built / file).read_text() for file in written} == {it: written[it].read_text() for it in written}
    settings = json.loads((project / ".claude/settings.local.json").read_text())
    hooks = (built / CLAUDE_HOOKS).read_text().replace("(plugin_holdlog_)?", "")
    assert json.loads(hooks)["hooks"] == settings["hooks"]


def test_hooks_of_the_plugin_match_the_names_of_its_tools(built: Path) -> None:
    (matcher,) = [it["matcher"] for it in checks.read(built / CLAUDE_HOOKS)["hooks"]["PreToolUse"]]
    names = ["Edit", "Bash", "mcp__holdlog__holdlog_release", "mcp__plugin_holdlog_holdlog__holdlog_claim"]
    assert [it for it in names if not re.fullmatch(matcher, it)] == []
    assert not re.fullmatch(matcher, "mcp__plugin_other_holdlog__holdlog_claim")


@pytest.mark.parametrize("text", [SKILL, INSTRUCTIONS], ids=["skill", "instructions"])
async def test_skill_and_instructions_name_tools_arguments_and_fields_that_exist(text: str) -> None:
    engine = open_holdlog(":memory:")
    tools = await build_server(engine, ("claims",)).list_tools()
    engine.close()
    known = {name for tool in tools for name in (tool.name, tool.name.removeprefix("holdlog_"))}
    known |= {*re.findall(r'"(\w+)"', json.dumps([tool.parameters for tool in tools]))}
    models = [it for it in vars(responses).values() if isinstance(it, type) and issubclass(it, BaseModel)]
    known |= {field for model in models for field in model.model_fields}
    known |= {str(model.model_fields["status"].default) for model in models if "status" in model.model_fields}
    named = set(re.findall(r"`(\w+)(?:: \w+)?`", text))
    assert len(named) >= 3
    assert named - known == set()


def test_install_links_carry_the_server_and_are_on_the_page() -> None:
    shown = [links.cursor_link(), links.vscode_link(), links.vscode_web_link(), *links.COMMANDS]
    assert [it for it in shown if it not in PAGE] == []
    cursor = parse_qs(urlsplit(links.cursor_link()).query)
    assert (cursor["name"], json.loads(base64.b64decode(cursor["config"][0]))) == ([NAME], server())
    assert json.loads(unquote(links.vscode_link().partition("?")[2])) == {"name": NAME, "type": "stdio", **server()}
    web = parse_qs(urlsplit(links.vscode_web_link()).query)
    assert json.loads(web["config"][0]) == {"type": "stdio", **server()}
    (added,) = re.findall(r"^code --add-mcp '(.*)'$", PAGE, re.MULTILINE)
    assert json.loads(added) == {"name": NAME, "type": "stdio", **server()}


def test_registry_entry_names_this_project(built: Path) -> None:
    entry = checks.read(built / "server.json")
    assert (entry["name"], entry["version"]) == (REGISTRY_NAME, VERSION)
    assert entry["name"] == "io.github." + PROJECT["urls"]["Source"].removeprefix("https://github.com/")
    assert PROJECT["description"].startswith(DESCRIPTION)


@pytest.mark.check
@pytest.mark.skipif(UV is None, reason="the server is started with uv")
def test_packages_are_built_and_their_server_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.packages", "--out", str(tmp_path / "packages")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"16 files in {tmp_path / 'packages'}\n"
