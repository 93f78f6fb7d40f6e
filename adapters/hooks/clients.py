"""How each host is set up to start holdlog and to run its hooks: the files, and what init adds to them."""

import json
import os
import shlex
import shutil
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, NamedTuple

from holdlog.adapters.hooks.edits import SLASHES, Entry, Target
from holdlog.adapters.hooks.places import TOKEN, Server

HOOK_SECONDS: Final = 5
"""Hosts end a hook after this time; the hook itself ends earlier (entry.py)."""
_EDITS: Final = "Edit|MultiEdit|Write|NotebookEdit"
_MCP_EDITS: Final = "mcp__.*_(edit|write|create|move|copy|save|update|patch|delete|rename|append|insert|replace)_.*"
"""Tools of file system servers."""
_NAMES_SERVER: Final = "names the server"
_RUNS_HOOKS: Final = "runs hooks"
_CURSOR_EVENTS: Final = (
    *("sessionStart", "preToolUse", "afterFileEdit", "beforeReadFile", "beforeSubmitPrompt", "stop", "subagentStop"),
    *("beforeShellExecution", "afterShellExecution", "beforeMCPExecution", "afterMCPExecution", "sessionEnd"),
)


class Project(NamedTuple):
    """Where init runs. `root`: folder of the worktree; `home`: folder of the user; `command`: starts holdlog; `server`:
    replaces the process that each agent would start."""

    root: str
    home: str
    command: str = "holdlog"
    server: Server | None = None

    def has(self, *names: str) -> bool:
        """Whether one of these names is a program on PATH, or exists in the project or in the home folder (`~/…`)."""
        paths = (f"{self.home}{name[1:]}" if name[0] == "~" else f"{self.root}/{name}" for name in names)
        return any(os.path.exists(path) for path in paths) or any(map(shutil.which, names))


class Client(NamedTuple):
    """A host. `used`: programs and files that show that it is used here (see Project.has). `targets`: files to change;
    the first one names the server. `next_step`: what a person must do after init."""

    title: str
    used: tuple[str, ...]
    targets: Callable[[Project], list[Target]]
    next_step: str


def _make_hooks(project: Project, tools: str, readers: str = "") -> tuple[Entry, ...]:
    """The hooks of Claude Code and Codex. `tools`, `readers`: names of tools that change files or read them, with `|`
    between them."""
    command = shlex.join([project.command, "hook"])  # keep it stable: Codex asks for trust again if it changes
    handler = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    matchers = {"PreToolUse": f"{tools}|mcp__holdlog__.*", "PostToolUse": f"{readers}{tools}|mcp__holdlog__.*"}
    if readers:  # Claude Code reports a command with another exit code than 0 as a failure alone
        matchers["PostToolUseFailure"] = matchers["PreToolUse"]
    events = ("SessionStart", "UserPromptSubmit", *matchers, "Stop", "SubagentStop", "SessionEnd")
    groups = (({"matcher": matchers[it]} if it in matchers else {}) | {"hooks": [handler]} for it in events)
    return tuple(Entry(("hooks", event), group, True) for event, group in zip(events, groups, strict=True))


def _make_server_target(
    project: Project, path: str, remote: Any, token: str, key: str = "mcpServers", own: Any = None
) -> Target:
    """The file that says how a host starts its `own` server, or how it connects to the `remote` one. `token`: how the
    host's configuration refers to the variable with the token."""
    server, own = project.server, own or {"command": project.command, "args": []}
    if server is None:
        return Target(path, _NAMES_SERVER, (Entry((key, "holdlog"), own),))
    headers = {"headers": {"Authorization": f"Bearer {token}"}} if server.token else {}
    value = {**remote, "url": f"{server.url}/mcp", **headers}
    return Target(path, _NAMES_SERVER, (Entry((key, "holdlog"), value, former=own),))


def _claude_code(project: Project) -> list[Target]:
    allowed = Entry(("permissions", "allow"), "mcp__holdlog", True)
    hooks = _make_hooks(project, f"{_EDITS}|Bash|{_MCP_EDITS}", "Read|")
    settings = f"{project.root}/.claude/settings.local.json"
    return [
        _make_server_target(project, f"{project.root}/.mcp.json", {"type": "http"}, f"${{{TOKEN}}}"),
        Target(settings, f"allows its tools, {_RUNS_HOOKS}", (allowed, *hooks)),
    ]


def _codex(project: Project) -> list[Target]:
    place, server = f"command = {json.dumps(project.command)}\n", project.server  # also a string of TOML
    if server is not None:
        place = f'url = "{server.url}/mcp"\n' + f'bearer_token_env_var = "{TOKEN}"\n' * bool(server.token)
    block = f"[mcp_servers.holdlog]\n{place}startup_timeout_sec = 30\ntool_timeout_sec = 60\n"
    hooks = _make_hooks(project, f"Bash|apply_patch|{_MCP_EDITS}")
    return [
        Target(
            f"{project.home}/.codex/config.toml",
            f"{_NAMES_SERVER}; user-wide: it applies to all your repositories",
            block=block,
            is_user_wide=True,
        ),
        Target(f"{project.root}/.codex/hooks.json", _RUNS_HOOKS, hooks),
    ]


def _cursor(project: Project) -> list[Target]:
    handler = {"command": shlex.join([project.command, "hook"]), "timeout": HOOK_SECONDS}
    hooks = (Entry(("hooks", event), handler, True) for event in _CURSOR_EVENTS)
    return [
        _make_server_target(project, f"{project.root}/.cursor/mcp.json", {}, f"${{env:{TOKEN}}}"),
        Target(f"{project.root}/.cursor/hooks.json", _RUNS_HOOKS, (Entry(("version",), 1), *hooks)),
    ]


def _opencode(project: Project) -> list[Target]:
    value = {"type": "local", "command": [project.command], "enabled": True}
    remote = {"type": "remote", "enabled": True, "oauth": False}
    plugin = files("holdlog.adapters.hooks").joinpath("opencode.js").read_text()
    block = plugin.replace('"holdlog"', json.dumps(project.command), 1)
    path = f"{project.root}/opencode.json"
    path += "c" * (os.path.exists(f"{path}c") and not os.path.exists(path))  # it reads both names
    return [
        _make_server_target(project, path, remote, f"{{env:{TOKEN}}}", "mcp", value),
        Target(f"{project.root}/.opencode/plugins/holdlog.js", _RUNS_HOOKS, block=block, comment=SLASHES),
    ]


CLIENTS: Final = {
    "claude-code": Client(
        "Claude Code",
        ("claude", "~/.claude", ".claude"),
        _claude_code,
        "restart Claude Code in this folder, and approve the server holdlog when it asks",
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
    "opencode": Client(
        "OpenCode", ("opencode", "opencode.json", "opencode.jsonc", ".opencode"), _opencode, "restart OpenCode"
    ),
}
