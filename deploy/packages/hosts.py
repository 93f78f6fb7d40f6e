"""Servers and hooks of each host, as docs/hosts.md shows them."""

import json
import re
from typing import Any, Final

from deploy.packages.project import NAME, ROOT

_PAGE: Final = (ROOT / "docs/hosts.md").read_text(encoding="utf-8")
_CLAUDE: Final = "Claude Code: `.claude/settings.json`"
_CODEX: Final = "Codex: `.codex/hooks.json`"

SERVER: Final[dict[str, Any]] = {"command": NAME, "args": []}
"""The server over stdio; its defaults are right for a host."""


def codex_config() -> str:
    return _block("Codex: `~/.codex/config.toml`")


def claude_hooks() -> dict[str, Any]:
    """In a plugin, where Claude Code puts a prefix before the names of the server's tools."""
    tools = f"mcp__{NAME}__"
    return _with_tools(lambda matcher: matcher.replace(tools, f"mcp__(plugin_{NAME}_)?{NAME}__"))


def codex_hooks() -> dict[str, Any]:
    """Those of Claude Code, but for the names of the tools."""
    (matcher,) = re.findall(r"matcher `(.*?)`", _PAGE.split(f"\n### {_CODEX}", 1)[1].partition("\n### ")[0])
    return _with_tools(lambda _: matcher)


def cursor_hooks() -> dict[str, Any]:
    hooks: dict[str, Any] = json.loads(_block("Cursor: `.cursor/hooks.json`"))
    return hooks


def _with_tools(replaced: Any) -> dict[str, Any]:
    hooks: dict[str, Any] = json.loads(_block(_CLAUDE))
    for entry in (it for entries in hooks["hooks"].values() for it in entries if "matcher" in it):
        entry["matcher"] = replaced(entry["matcher"])
    return hooks


def _block(heading: str) -> str:
    """The first code block below a heading."""
    return re.split(r"```\w+\n", _PAGE.split(f"\n### {heading}", 1)[1], maxsplit=1)[1].partition("```")[0]
