"""Servers, hooks and instructions of hosts: those that `holdlog init` writes."""

import json
from pathlib import Path
from typing import Any, Final

from deploy.packages.project import NAME
from holdlog.adapters.cli.setup.block import HTML, add_block
from holdlog.adapters.cli.setup.hosts import HOSTS, OWN_TOOLS, HostFile, Project
from holdlog.adapters.cli.setup.json_edit import add
from holdlog.adapters.cli.setup.plan import INSTRUCTIONS

HERE: Final = Path()
AGENTS_MD: Final = add_block("", INSTRUCTIONS, HTML)
"""With the marks by which `holdlog init --undo` finds it again."""


def init_files(host: str) -> dict[str, str]:
    """The files of a host with nothing but what `holdlog init` adds, by their paths below the project."""
    return {file.path.as_posix(): _text(file) for file in HOSTS[host].files(Project(HERE, HERE, NAME, {}))}


def claude_code_hooks() -> dict[str, Any]:
    """For a plugin, where Claude Code puts a prefix before the names of the server's tools."""
    hooks: dict[str, Any] = json.loads(init_files("claude-code")[".claude/settings.local.json"])["hooks"]
    for entry in (it for entries in hooks.values() for it in entries if "matcher" in it):
        entry["matcher"] = entry["matcher"].replace(OWN_TOOLS, OWN_TOOLS.replace("mcp__", f"mcp__(plugin_{NAME}_)?"))
    return {"hooks": hooks}


def server() -> dict[str, Any]:
    """The server over stdio."""
    found: dict[str, Any] = json.loads(init_files("cursor")[".cursor/mcp.json"])["mcpServers"][NAME]
    return found


def _text(file: HostFile) -> str:
    return add_block("", file.block, file.comment) if file.block else add("", file.entries)
