"""The files of all packages: from the path below build/packages to the content."""

from pathlib import Path
from typing import Any, Final

from deploy.packages.hosts import AGENTS_MD, claude_code_hooks, init_files, server
from deploy.packages.links import install_page
from deploy.packages.project import AUTHOR, DESCRIPTION, MANIFEST, NAME, SOURCE, VERSION
from holdlog.adapters.cli.setup.plan import INSTRUCTIONS

Content = dict[str, Any] | str
"""An object, which becomes JSON, or a text."""

SKILL: Final = Path(__file__).with_name("skill.md").read_text(encoding="utf-8")

AGENT_PLUGINS: Final = "https://agent-plugins.org/schemas/1.0.0"
REGISTRY_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
REGISTRY_NAME: Final = f"io.github.{SOURCE.split('/')[-2]}/{NAME}"
"""The registry publishes it for the owner of that account, if README.md contains `mcp-name: …`."""


def contents() -> dict[str, Content]:
    return {
        **_below("claude-code", claude_code()),
        **_below("agent-plugin", agent_plugin()),
        **_below("codex", codex()),
        **_below("cursor", cursor()),
        "server.json": registry_entry(),
        "install.md": install_page(),
    }


def claude_code() -> dict[str, Content]:
    """A plugin, and next to its manifest the marketplace that contains it alone."""
    plugin = {"name": NAME, "source": "./", "description": DESCRIPTION, "version": VERSION}
    return {
        ".claude-plugin/plugin.json": MANIFEST,
        ".claude-plugin/marketplace.json": {
            "name": NAME,
            "owner": {"name": AUTHOR},
            "metadata": {"description": DESCRIPTION, "version": VERSION},
            "plugins": [plugin],
        },
        ".mcp.json": init_files("claude-code")[".mcp.json"],
        "hooks/hooks.json": {"description": "Claims files as agents edit them", **claude_code_hooks()},
        f"skills/{NAME}/SKILL.md": SKILL,
    }


def agent_plugin() -> dict[str, Content]:
    """Agent Plugins 1.0.0: the manifest is closed, components are found by their paths, and hooks are not portable."""
    return {
        "plugin.json": {"$schema": f"{AGENT_PLUGINS}/plugin.schema.json", **MANIFEST},
        "mcp.json": {
            "$schema": f"{AGENT_PLUGINS}/mcp.schema.json",
            "mcpServers": {NAME: {"type": "stdio", **server()}},
        },
        f"skills/{NAME}/SKILL.md": SKILL,
    }


def codex() -> dict[str, Content]:
    """For the root of a repository; AGENTS.md is a section to add to that of the repository."""
    return {**init_files("codex"), "AGENTS.md": AGENTS_MD}


def cursor() -> dict[str, Content]:
    """For the root of a repository."""
    head = "---\ndescription: Claims on shared files\nglobs:\nalwaysApply: true\n---\n\n"
    return {**init_files("cursor"), f".cursor/rules/{NAME}.mdc": head + INSTRUCTIONS}


def registry_entry() -> dict[str, Content | list[Any]]:
    """`server.json` for the MCP registry. Clients run `uvx <runtime arguments> holdlog==<version>`. The base package
    has no server, so the arguments add the extra; `--from` would not leave room for the package."""
    extra = {"type": "named", "name": "--with", "value": f"{NAME}[mcp]=={VERSION}"}
    database = {
        "name": "HOLDLOG_DB",
        "description": "The store: a file, or postgresql://user@host/database. By default that of the git repository.",
        "isRequired": False,
    }
    return {
        "$schema": REGISTRY_SCHEMA,
        "name": REGISTRY_NAME,
        "title": NAME,
        "description": DESCRIPTION.removesuffix("."),
        "repository": {"url": SOURCE, "source": "github"},
        "version": VERSION,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": NAME,
                "version": VERSION,
                "runtimeHint": "uvx",
                "runtimeArguments": [extra],
                "transport": {"type": "stdio"},
                "environmentVariables": [database],
            }
        ],
    }


def _below(folder: str, files: dict[str, Content]) -> dict[str, Content]:
    return {f"{folder}/{path}": content for path, content in files.items()}
