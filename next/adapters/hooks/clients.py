"""What each host needs to start holdlog and to run its hooks: its files, and what init adds to them."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, NamedTuple

from holdlog.adapters.hooks.edits import SLASHES, Entry, Target
from holdlog.adapters.operating_system.location import find_store

HOOK_SECONDS: Final = 5
"""Hosts end a hook after this time; it ends by itself before."""
_EDITS: Final = "Edit|MultiEdit|Write|NotebookEdit"
_MCP_EDITS: Final = "mcp__.*_(edit|write|create|move|delete|rename|append|insert|replace)_.*"
"""Tools of file system servers."""
_WIDE: Final = "; user-wide: it applies to all your repositories"
_STARTS: Final = "starts the server"
_HOOKS: Final = "runs hooks"
_CURSOR_EVENTS: Final = (
    *("sessionStart", "preToolUse", "afterFileEdit", "beforeReadFile", "beforeSubmitPrompt", "stop", "subagentStop"),
    *("beforeShellExecution", "afterShellExecution", "beforeMCPExecution", "afterMCPExecution", "sessionEnd"),
)


class Project(NamedTuple):
    """Where init runs. `root`: of the worktree; `home`: of the user; `command`: starts holdlog."""

    root: str
    home: str
    command: str = "holdlog"

    def has(self, *names: str) -> bool:
        """Whether one of these is a program, or a file or folder in the project or at home (`~/…`)."""
        paths = (f"{self.home}{name[1:]}" if name[0] == "~" else f"{self.root}/{name}" for name in names)
        return any(os.path.exists(path) for path in paths) or any(map(shutil.which, names))


class Client(NamedTuple):
    """A host. `used`: what shows that it is used here, as of Project.has. `targets`: the first one starts the server.
    `next_step`: what a person does after init. `instructions`: the file at the root that its agents read."""

    title: str
    used: tuple[str, ...]
    targets: Callable[[Project], list[Target]]
    next_step: str
    instructions: str = "AGENTS.md"


def _make_hooks(project: Project, tools: str, readers: str = "") -> tuple[Entry, ...]:
    """Those of Claude Code and Codex. `tools`: whose calls may change files; `readers`: which read them, with `|`."""
    command = shlex.join([project.command, "hook"])  # Codex asks for trust again whenever it changes
    handler = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    matchers = {"PreToolUse": f"{tools}|mcp__holdlog__.*", "PostToolUse": f"{readers}{tools}|mcp__holdlog__.*"}
    events = ("SessionStart", "UserPromptSubmit", *matchers, "Stop", "SubagentStop", "SessionEnd")
    groups = (({"matcher": matchers[it]} if it in matchers else {}) | {"hooks": [handler]} for it in events)
    return tuple(Entry(("hooks", event), group, True) for event, group in zip(events, groups, strict=True))


def _start(project: Project, path: str, key: str, what: str = _STARTS, **more: Any) -> Target:
    value = {"command": project.command, "args": []} | more
    return Target(path, what, (Entry((key, "holdlog"), value),))


def _claude_code(project: Project) -> list[Target]:
    allowed = Entry(("permissions", "allow"), "mcp__holdlog", True)
    hooks = _make_hooks(project, f"{_EDITS}|Bash|{_MCP_EDITS}", "Read|")
    settings = f"{project.root}/.claude/settings.local.json"
    return [
        _start(project, f"{project.root}/.mcp.json", "mcpServers"),
        Target(settings, f"allows its tools, {_HOOKS}", (allowed, *hooks)),
    ]


def _codex(project: Project) -> list[Target]:
    command = json.dumps(project.command)  # also a string of TOML
    block = f"[mcp_servers.holdlog]\ncommand = {command}\nstartup_timeout_sec = 30\ntool_timeout_sec = 60\n"
    hooks = _make_hooks(project, f"Bash|apply_patch|{_MCP_EDITS}")
    return [
        Target(f"{project.home}/.codex/config.toml", _STARTS + _WIDE, block=block),
        Target(f"{project.root}/.codex/hooks.json", _HOOKS, hooks),
    ]


def _cursor(project: Project) -> list[Target]:
    handler = {"command": shlex.join([project.command, "hook"]), "timeout": HOOK_SECONDS}
    hooks = (Entry(("hooks", event), handler, True) for event in _CURSOR_EVENTS)
    return [
        _start(project, f"{project.root}/.cursor/mcp.json", "mcpServers"),
        Target(f"{project.root}/.cursor/hooks.json", _HOOKS, (Entry(("version",), 1), *hooks)),
    ]


def _vscode(project: Project) -> list[Target]:
    return [_start(project, f"{project.root}/.vscode/mcp.json", "servers", type="stdio")]


def _windsurf(project: Project) -> list[Target]:
    return [_start(project, f"{project.home}/.codeium/windsurf/mcp_config.json", "mcpServers", _STARTS + _WIDE)]


def _claude_desktop(project: Project) -> list[Target]:
    """It has no project, so its server gets the store of this one."""
    command, store = shutil.which(project.command) or project.command, find_store(None, {}, project.root)
    folder = "Library/Application Support" if sys.platform == "darwin" else ".config"
    path, what = f"{project.home}/{folder}/Claude/claude_desktop_config.json", f"{_STARTS} with this store{_WIDE}"
    return [_start(project, path, "mcpServers", what, command=command, args=["--db", store])]


def _opencode(project: Project) -> list[Target]:
    value = {"type": "local", "command": [project.command], "enabled": True}
    plugin = files("holdlog.adapters.hooks").joinpath("opencode.js").read_text()
    block = plugin.replace('"holdlog"', json.dumps(project.command), 1)
    path = f"{project.root}/opencode.json"
    path += "c" * (os.path.exists(f"{path}c") and not os.path.exists(path))  # it reads both names
    return [
        Target(path, _STARTS, (Entry(("mcp", "holdlog"), value),)),
        Target(f"{project.root}/.opencode/plugins/holdlog.js", _HOOKS, block=block, comment=SLASHES),
    ]


CLIENTS: Final = {
    "claude-code": Client(
        "Claude Code",
        ("claude", "~/.claude", ".claude"),
        _claude_code,
        "restart Claude Code in this folder, and approve the server holdlog when it asks",
        "CLAUDE.md",
    ),
    "cursor": Client(
        "Cursor",
        ("cursor", "cursor-agent", "~/.cursor", ".cursor"),
        _cursor,
        "restart Cursor, and switch holdlog on in its settings, under MCP",
    ),
    "codex": Client(
        "Codex", ("codex", "~/.codex", ".codex"), _codex, "restart Codex in this folder, and trust the hooks: /hooks"
    ),
    "vscode": Client(
        "VS Code", ("code", ".vscode"), _vscode, "open .vscode/mcp.json in VS Code, and start the server there"
    ),
    "windsurf": Client("Windsurf", ("~/.codeium/windsurf",), _windsurf, "restart Windsurf"),
    "claude-desktop": Client(
        "Claude Desktop",
        ("~/.config/Claude", "~/Library/Application Support/Claude"),
        _claude_desktop,
        "restart Claude Desktop",
        "",
    ),
    "opencode": Client(
        "OpenCode", ("opencode", "opencode.json", "opencode.jsonc", ".opencode"), _opencode, "restart OpenCode"
    ),
}
