"""What each host needs to start holdlog and to run its hooks: its files and their entries. Formats: docs/hosts.md."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdlog.adapters.cli.setup.block import HASH, SLASHES
from holdlog.adapters.cli.setup.json_edit import Entry

HOOK_SECONDS: Final = 5
"""Hosts end a hook after this time; it ends by itself before (running.py)."""
EDITS: Final = "Edit|MultiEdit|Write|NotebookEdit"
MCP_EDITS: Final = "mcp__.*_(edit|write|create|move|delete|rename|append|insert|replace)_.*"
"""Tools of file system servers (hooks/files.py)."""
OWN_TOOLS: Final = "mcp__holdlog__.*"
USER_WIDE: Final = "; user-wide: it applies to all your repositories"

_VSCODE_TOKEN: Final = {"type": "promptString", "id": "holdlog-token", "description": "holdlog token", "password": True}
_OWN_HOOK: Final = re.compile(r"(?:\S*/|'.*/)?holdlog'? hook(?: --url .*)?")
TOKEN: Final = "HOLDLOG_TOKEN"
"""The environment variable from which hosts read the token of a server. No file of a host contains a token."""

_OWN_HEADERS: Final = re.compile(rf'{{"Authorization": "Bearer \$?{{[\w:-]*(?:{TOKEN}|holdlog-token)}}"}}')


class RemoteServer(NamedTuple):
    """A server over HTTP that the hosts use. `url`: without a path; `has_token`: whether it requires one; `token_file`:
    absolute path of the file from which hooks read it, empty if they read the variable."""

    url: str
    has_token: bool = False
    token_file: str = ""


class Project(NamedTuple):
    """Where init runs. `root`: the folder of the project; `home`: of the user; `command`: starts holdlog; `server`: the
    one that hosts use in place of a process for each agent."""

    root: Path
    home: Path
    command: str
    environ: Mapping[str, str]
    server: RemoteServer | None = None

    @property
    def own_path(self) -> str:
        """The full path of holdlog, for programs with another PATH than the user's; its name if it is not known."""
        found = shutil.which(self.command, path=self.environ.get("PATH", os.defpath))
        return os.path.abspath(found) if found else self.command

    def has(self, *names: str) -> bool:
        """Whether one of these programs is on PATH."""
        return any(shutil.which(name, path=self.environ.get("PATH", os.defpath)) for name in names)


class HostFile(NamedTuple):
    """A file of a host. `entries`: of a JSON file. `block`: of a file with comments of the form `comment`, added at its
    end."""

    path: Path
    what: str
    entries: tuple[Entry, ...] = ()
    block: str = ""
    comment: tuple[str, str] = HASH


class Host(NamedTuple):
    """A host. `is_used`: whether it seems to be used here. `files`: the first one configures the server. `next_step`:
    what a person does after init. `has_hooks`: whether init sets up hooks there. `instructions`: the file at the root
    that its agents read; empty if none."""

    title: str
    is_used: Callable[[Project], bool]
    files: Callable[[Project], list[HostFile]]
    next_step: str
    has_hooks: bool = True
    instructions: str = "AGENTS.md"


def hook_command(project: Project) -> str:
    """What hosts pass to a shell. Codex asks for trust again whenever it changes."""
    return shlex.join([project.command, "hook", *_hook_options(project)])


def _hook_options(project: Project) -> list[str]:
    if project.server is None:
        return []
    file = project.server.token_file
    return ["--url", project.server.url, *(("--token-file", file) if file else ())]


def _server_entry(
    project: Project, key: str, value: dict[str, Any], remote: dict[str, Any], token: str = f"${{env:{TOKEN}}}"
) -> Entry:
    """The entry of the server: `value` starts it, `remote` is for one over HTTP. `token`: how the host's file refers to
    the token."""
    former = [_without_paths(value)]
    if project.server is not None:
        address: dict[str, Any] = {name: f"{project.server.url}/mcp" for name in ("url", "serverUrl") if name in remote}
        headers = {"headers": {"Authorization": f"Bearer {token}"}} if project.server.has_token else {}
        value = {**remote, **address, **headers}
        former.append(_without_paths(value))
    return Entry((key, "holdlog"), value, is_former=lambda item: _without_paths(item) in former)


def _without_paths(server: Any) -> Any:
    """A server's entry without the paths of holdlog and of the store, the address, and the name of the variable; a
    person may have changed the rest."""
    if not isinstance(server, dict):
        return None
    if "command" not in server:
        named = {name: "…" for name in ("url", "serverUrl") if name in server}
        is_ours = _OWN_HEADERS.fullmatch(json.dumps(server.get("headers")))
        left_out = {*(("headers",) if is_ours else ()), *(("oauth",) if server.get("oauth") is False else ())}
        return {**{name: it for name, it in server.items() if name not in left_out}, **named}
    command, arguments = server["command"], server.get("args", [])
    words = command if isinstance(command, list) else [command]
    words = [*words, *arguments] if isinstance(arguments, list) else []
    words[:1] = [str(word).rpartition("/")[2] for word in words[:1]]
    if words[1:-1] == ["--db"]:
        words[2] = "…"
    return {**server, "command": words, "args": []}


def _is_hook(item: Any) -> bool:
    """Whether this is a hook that init wrote, maybe with another path of holdlog."""
    item = _only_handler(item)
    return isinstance(item, dict) and _OWN_HOOK.fullmatch(str(item.get("command"))) is not None


def _is_remote_hook(item: Any) -> bool:
    """Whether this is a hook that init wrote, also one that calls a server, maybe another one."""
    found = _only_handler(item)
    is_http = isinstance(found, dict) and found.get("type") == "http" and found.get("timeout") == HOOK_SECONDS
    return _is_hook(item) or (is_http and str(found.get("url")).endswith("/hook"))


def _only_handler(item: Any) -> Any:
    if isinstance(item, dict) and isinstance(item.get("hooks"), list) and len(item["hooks"]) == 1:
        return item["hooks"][0]
    return item


def _http_handler(server: RemoteServer) -> dict[str, Any]:
    """A hook of Claude Code that calls the server without starting a process."""
    token = {"headers": {"Authorization": f"Bearer ${TOKEN}"}, "allowedEnvVars": [TOKEN]} if server.has_token else {}
    return {"type": "http", "url": f"{server.url}/hook", **token, "timeout": HOOK_SECONDS}


def _hooks(project: Project, before: str, after: str, by_http: bool = False) -> tuple[Entry, ...]:
    """The hooks of Claude Code and Codex. `before`, `after`: the tools whose calls concern files. `by_http`: whether
    the host calls URLs itself."""
    command = {"type": "command", "command": hook_command(project), "timeout": HOOK_SECONDS}
    handler = _http_handler(project.server) if by_http and project.server is not None else command
    is_former = _is_hook if project.server is None else _is_remote_hook
    matchers = {
        "SessionStart": None,
        "UserPromptSubmit": None,
        "PreToolUse": f"{before}|{OWN_TOOLS}",
        "PostToolUse": after,
        "Stop": None,
        "SubagentStop": None,
        "SessionEnd": None,
    }
    return tuple(
        Entry(
            ("hooks", event),
            # Claude Code skips hooks of type http at the start of a session, without a word.
            ({"matcher": matcher} if matcher else {}) | {"hooks": [command if event == "SessionStart" else handler]},
            True,
            is_former,
        )
        for event, matcher in matchers.items()
    )


def _claude_code(project: Project) -> list[HostFile]:
    allowed = Entry(("permissions", "allow"), "mcp__holdlog", listed=True)
    hooks = _hooks(project, f"{EDITS}|Bash|{MCP_EDITS}", f"Read|{EDITS}|Bash|{MCP_EDITS}", by_http=True)
    value, remote = {"command": project.command, "args": []}, {"type": "http", "url": ""}
    entry = _server_entry(project, "mcpServers", value, remote, f"${{{TOKEN}}}")
    return [
        HostFile(project.root / ".mcp.json", _what(project), (entry,)),
        HostFile(project.root / ".claude" / "settings.local.json", "allows its tools, runs hooks", (allowed, *hooks)),
    ]


def _what(project: Project) -> str:
    return "starts the server" if project.server is None else f"names the server {project.server.url}"


def _codex(project: Project) -> list[HostFile]:
    command = json.dumps(project.command)  # also a string of TOML
    block = f"[mcp_servers.holdlog]\ncommand = {command}\nstartup_timeout_sec = 30\ntool_timeout_sec = 60\n"
    if project.server is not None:
        token = f'bearer_token_env_var = "{TOKEN}"\n' if project.server.has_token else ""
        block = f"[mcp_servers.holdlog]\nurl = {json.dumps(f'{project.server.url}/mcp')}\n{token}"
    hooks = _hooks(project, f"Bash|apply_patch|{MCP_EDITS}", f"Bash|apply_patch|{MCP_EDITS}")
    return [
        HostFile(project.home / ".codex" / "config.toml", f"{_what(project)}{USER_WIDE}", block=block),
        HostFile(project.root / ".codex" / "hooks.json", "runs hooks", hooks),
    ]


def _cursor(project: Project) -> list[HostFile]:
    events = (
        *("sessionStart", "preToolUse", "afterFileEdit", "beforeReadFile", "beforeSubmitPrompt"),
        *("beforeShellExecution", "afterShellExecution", "beforeMCPExecution", "stop", "subagentStop", "sessionEnd"),
    )
    handler = {"command": hook_command(project), "timeout": HOOK_SECONDS}
    hooks = tuple(Entry(("hooks", event), handler, True, _is_hook) for event in events)
    entry = _server_entry(project, "mcpServers", {"command": project.command, "args": []}, {"url": ""})
    return [
        HostFile(project.root / ".cursor" / "mcp.json", _what(project), (entry,)),
        HostFile(project.root / ".cursor" / "hooks.json", "runs hooks", (Entry(("version",), 1, shared=True), *hooks)),
    ]


def _vscode(project: Project) -> list[HostFile]:
    value = {"type": "stdio", "command": project.command, "args": []}
    entry = _server_entry(project, "servers", value, {"type": "http", "url": ""}, "${input:holdlog-token}")
    token = Entry(("inputs",), _VSCODE_TOKEN, listed=True)
    entries = (token, entry) if project.server is not None and project.server.has_token else (entry,)
    return [HostFile(project.root / ".vscode" / "mcp.json", _what(project), entries)]


def _windsurf(project: Project) -> list[HostFile]:
    path = project.home / ".codeium" / "windsurf" / "mcp_config.json"
    entry = _server_entry(project, "mcpServers", {"command": project.command, "args": []}, {"serverUrl": ""})
    return [HostFile(path, f"{_what(project)}{USER_WIDE}", (entry,))]


def _claude_desktop(project: Project) -> list[HostFile]:
    if project.server is not None:
        return []  # its file knows no servers over HTTP
    value = {"command": shutil.which(project.command) or project.command, "args": ["--db", _store(project)]}
    path = _desktop_folder(project) / "claude_desktop_config.json"
    entry = _server_entry(project, "mcpServers", value, {})
    return [HostFile(path, f"starts the server with the store of this project{USER_WIDE}", (entry,))]


def _opencode(project: Project) -> list[HostFile]:
    value = {"type": "local", "command": [project.command], "enabled": True}
    remote = {"type": "remote", "url": "", "enabled": True}
    if project.server is not None and project.server.has_token:
        remote["oauth"] = False
    entry = _server_entry(project, "mcp", value, remote, f"{{env:{TOKEN}}}")
    plugin = files("holdlog.adapters.hooks").joinpath("opencode.js").read_text()
    block = plugin.replace('"holdlog"', json.dumps(project.command), 1)
    words = json.dumps(["hook", *_hook_options(project)])
    block = block.replace('["hook"', words.removesuffix("]"))
    return [
        HostFile(_opencode_config(project), _what(project), (entry,)),
        HostFile(project.root / ".opencode" / "plugins" / "holdlog.js", "runs hooks", block=block, comment=SLASHES),
    ]


def _opencode_config(project: Project) -> Path:
    """OpenCode reads both names."""
    path = project.root / "opencode.json"
    with_comments = path.with_suffix(".jsonc")
    return with_comments if with_comments.exists() and not path.exists() else path


def _store(project: Project) -> str:
    from holdlog.adapters.operating_system.location import find_store

    return str(find_store(None, {}, project.root))


def _desktop_folder(project: Project) -> Path:
    if sys.platform == "darwin":
        return project.home / "Library" / "Application Support" / "Claude"
    return Path(project.environ.get("APPDATA") or project.home / ".config") / "Claude"


HOSTS: Final[Mapping[str, Host]] = {
    "claude-code": Host(
        "Claude Code",
        lambda it: it.has("claude") or (it.home / ".claude").is_dir() or (it.root / ".claude").is_dir(),
        _claude_code,
        "restart Claude Code in this folder, and approve the server holdlog when it asks",
        instructions="CLAUDE.md",
    ),
    "cursor": Host(
        "Cursor",
        lambda it: it.has("cursor", "cursor-agent") or (it.home / ".cursor").is_dir() or (it.root / ".cursor").is_dir(),
        _cursor,
        "restart Cursor, and switch holdlog on in its settings, under MCP",
    ),
    "codex": Host(
        "Codex",
        lambda it: it.has("codex") or (it.home / ".codex").is_dir() or (it.root / ".codex").is_dir(),
        _codex,
        "restart Codex in this folder, and trust the hooks: /hooks",
    ),
    "vscode": Host(
        "VS Code",
        lambda it: it.has("code") or (it.root / ".vscode").is_dir(),
        _vscode,
        "open .vscode/mcp.json in VS Code, and start the server there",
        has_hooks=False,
    ),
    "windsurf": Host(
        "Windsurf",
        lambda it: (it.home / ".codeium" / "windsurf").is_dir(),
        _windsurf,
        "restart Windsurf",
        has_hooks=False,
    ),
    "claude-desktop": Host(
        "Claude Desktop",
        lambda it: _desktop_folder(it).is_dir(),
        _claude_desktop,
        "restart Claude Desktop",
        has_hooks=False,
        instructions="",
    ),
    "opencode": Host(
        "OpenCode",
        lambda it: it.has("opencode") or _opencode_config(it).exists() or (it.root / ".opencode").is_dir(),
        _opencode,
        "restart OpenCode",
    ),
}
