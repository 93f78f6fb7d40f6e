"""Write what installs holdlog into hosts into build/packages: `make packages`. In a project, `holdlog init` is shorter.

claude-code/   a plugin of Claude Code and a marketplace with it alone: server, hooks, skill
               claude plugin marketplace add ./build/packages/claude-code
               claude plugin install holdlog@holdlog --scope project
agent-plugin/  a plugin in the portable form, Agent Plugins 1.0.0: server, skill. Its server starts in the plugin's
               folder: set HOLDLOG_DB where the host starts
server.json    the entry for the MCP registry (format 2025-12-11), which starts the package of this version with uvx
install.md     links and commands that add the server to Cursor, VS Code, Claude Code and Codex
"""

import json
import re
import shutil
import sys
import tomllib
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import holdlog
from holdlog.adapters.hooks.clients import CLIENTS, Project
from holdlog.adapters.hooks.edits import plan_edit

ROOT = Path(__file__).parents[1]
NAME = "holdlog"
OWNER = "holdlog"
SOURCE = f"https://github.com/{OWNER}/{NAME}"
REGISTRY_NAME = f"io.github.{OWNER}/{NAME}"
"""The registry publishes it for the owner of that account, if the page of the package contains `mcp-name: …`."""
AGENT_PLUGINS = "https://agent-plugins.org/schemas/1.0.0"
REGISTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
Json = dict[str, Any]


def build() -> dict[str, Json | str]:
    """The files by their paths: objects, which become JSON, and texts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.match(r"\d+\.\d+\.\d+", holdlog.__version__)[0]  # type: ignore[index]
    sentence = project["description"].partition(". ")[0]  # the registry allows 100 characters
    manifest = {
        "name": NAME,
        "version": version,
        "description": f"{sentence}.",
        "author": {"name": project["authors"][0]["name"]},
        "homepage": SOURCE,
        "repository": SOURCE,
        "license": project["license"],
        "keywords": ["agents", "claims", "coordination", "mcp"],
    }
    skill = (ROOT / "deploy/skill.md").read_text()
    return {
        "claude-code/.claude-plugin/plugin.json": manifest,
        "claude-code/.claude-plugin/marketplace.json": {
            "name": NAME,
            "owner": manifest["author"],
            "metadata": {"description": f"{sentence}.", "version": version},
            "plugins": [{"name": NAME, "source": "./", "description": f"{sentence}.", "version": version}],
        },
        "claude-code/.mcp.json": read_init_file(".mcp.json"),
        "claude-code/hooks/hooks.json": {"description": "Claims files as agents edit them", "hooks": build_hooks()},
        f"claude-code/skills/{NAME}/SKILL.md": skill,
        "agent-plugin/plugin.json": {"$schema": f"{AGENT_PLUGINS}/plugin.schema.json", **manifest},
        "agent-plugin/mcp.json": {
            "$schema": f"{AGENT_PLUGINS}/mcp.schema.json",
            "mcpServers": {NAME: {"type": "stdio", **find_server()}},
        },
        f"agent-plugin/skills/{NAME}/SKILL.md": skill,
        "server.json": describe_for_registry(sentence, version),
        "install.md": write_install_page(),
    }


def read_init_file(name: str) -> Json:
    """A file that `holdlog init` writes for Claude Code into a project without one."""
    (target,) = [it for it in CLIENTS["claude-code"].targets(Project("/nowhere", "/nowhere")) if it.path.endswith(name)]
    edit = plan_edit(target, undo=False)
    assert edit is not None
    content: Json = json.loads(edit.after or "")
    return content


def build_hooks() -> Json:
    """Claude Code puts a prefix before the names of tools in a plugin."""
    hooks: Json = read_init_file("settings.local.json")["hooks"]
    for group in (group for groups in hooks.values() for group in groups if "matcher" in group):
        group["matcher"] = group["matcher"].replace("mcp__holdlog__", f"mcp__(plugin_{NAME}_)?holdlog__")
    return hooks


def find_server() -> Json:
    server: Json = read_init_file(".mcp.json")["mcpServers"][NAME]
    return server


def describe_for_registry(sentence: str, version: str) -> Json:
    """Clients run `uvx <runtime arguments> holdlog==<version>`. The base package has no server, so the arguments add
    the extra; `--from` would leave no room for the package."""
    variable = {
        "name": "HOLDLOG_DB",
        "description": "The store: a file, or postgresql://user@host/database. By default that of the git repository.",
        "isRequired": False,
    }
    package = {
        "registryType": "pypi",
        "identifier": NAME,
        "version": version,
        "runtimeHint": "uvx",
        "runtimeArguments": [{"type": "named", "name": "--with", "value": f"{NAME}[mcp]=={version}"}],
        "transport": {"type": "stdio"},
        "environmentVariables": [variable],
    }
    return {
        "$schema": REGISTRY_SCHEMA,
        "name": REGISTRY_NAME,
        "title": NAME,
        "description": sentence,
        "repository": {"url": SOURCE, "source": "github"},
        "version": version,
        "packages": [package],
    }


def write_install_page() -> str:
    def encode(value: Json) -> str:
        return json.dumps(value, separators=(",", ":"))

    server = find_server()
    command = " ".join([server["command"], *server["args"]])
    config = urlencode({"name": NAME, "config": b64encode(encode(server).encode()).decode()})
    web = urlencode({"name": NAME, "config": encode({"type": "stdio", **server})}, quote_via=quote)
    vs_code = encode({"name": NAME, "type": "stdio", **server})
    return "\n".join(
        (
            f"# Install {NAME} in a host\n",
            f"* Cursor: `cursor://anysphere.cursor-deeplink/mcp/install?{config}`",
            f"* VS Code: `vscode:mcp/install?{quote(vs_code, safe='')}`",
            f"* VS Code, from a web page: `https://vscode.dev/redirect/mcp/install?{web}`\n",
            "```console",
            f"claude mcp add --scope project {NAME} -- {command}",
            f"codex mcp add {NAME} -- {command}",
            f"code --add-mcp '{vs_code}'",
            "```\n",
        )
    )


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in build().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        )
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build/packages")
