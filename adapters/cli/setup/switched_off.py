"""What the settings of a host switch off: hooks, the server, or its tools. Formats: docs/hosts.md."""

import fnmatch
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.cli.setup.changes import read_text
from holdlog.adapters.cli.setup.hosts import Project
from holdlog.adapters.cli.setup.json_tree import parse
from holdlog.adapters.stores.event_log.findings import Finding

SERVER: Final = "holdlog"
_TOOL: Final = "holdlog_claim"
"""One of our tools: a pattern that denies it denies the tools of the server."""
_EVENT: Final = "pre_tool_use"


def switched_off(name: str, project: Project) -> list[Finding]:
    """What the settings of a host switch off here, a line for each."""
    find = _FINDERS.get(name)
    return [] if find is None else [Finding("settings", "bad", line) for line in find(project)]


def _claude_code(project: Project) -> Iterator[str]:
    managed = _managed_folder() / "managed-settings.json"
    paths = [managed, *(project.root / ".claude" / it for it in ("settings.local.json", "settings.json"))]
    paths.append(project.home / ".claude" / "settings.json")
    layers = {path: _read(path) for path in paths}
    for path, found in layers.items():
        if "disableAllHooks" in found:
            if found["disableAllHooks"] is True:
                yield f"not guarded: {path} has disableAllHooks, so no hook runs"
            break  # the first one decides
    if layers[managed].get("allowManagedHooksOnly") is True:
        yield f"not guarded: {managed} has allowManagedHooksOnly, so hooks of projects do not run"
    servers = {path: _texts(found.get("disabledMcpjsonServers")) for path, found in layers.items()}
    state = project.home / ".claude.json"
    here = _object(_object(_read(state).get("projects")).get(str(project.root)))
    servers[state] = [*_texts(here.get("disabledMcpjsonServers")), *_texts(here.get("disabledMcpServers"))]
    for path, found in layers.items():
        denied = found.get("deniedMcpServers")
        servers[path] += [str(_object(it).get("serverName")) for it in denied] if isinstance(denied, list) else []
    yield from (f"{path} switches the server {SERVER} off" for path, names in servers.items() if SERVER in names)
    for path, found in layers.items():
        rules = _texts(_object(found.get("permissions")).get("deny"))
        tools = ("mcp__holdlog", f"mcp__holdlog__{_TOOL}")
        if rule := next((it for it in rules if any(fnmatch.fnmatchcase(tool, it) for tool in tools)), None):
            yield f"{path} denies the tools of {SERVER} (permissions.deny: {rule})"


def _codex(project: Project) -> Iterator[str]:
    user = project.home / ".codex" / "config.toml"
    layers = {path: _read(path) for path in (user, project.root / ".codex" / "config.toml")}
    for path, found in layers.items():
        features = _object(found.get("features"))
        if False in (features.get("hooks"), features.get("codex_hooks")):
            yield f"not guarded: {path} has hooks = false in [features], so no hook runs"
        server = _object(_object(found.get("mcp_servers")).get(SERVER))
        if server.get("enabled") is False or _TOOL in _texts(server.get("disabled_tools")):
            yield f"{path} switches the server {SERVER} or its tools off"
    hooks = project.root / ".codex" / "hooks.json"
    trust = _object(_object(layers[user].get("projects")).get(str(project.root))).get("trust_level")
    if hooks.exists() and trust == "untrusted":
        yield f"not guarded: {user} does not trust {project.root}, so its hooks do not run"
    states = _object(_object(layers[user].get("hooks")).get("state"))
    for key, state in states.items():
        if str(hooks) in key and f":{_EVENT}:" in key and _object(state).get("enabled") is False:
            yield f"not guarded: {user} has enabled = false for {key}"
    if hooks.exists() and states and not any(str(hooks) in key and f":{_EVENT}:" in key for key in states):
        yield f"not guarded: {user} trusts other hooks, but not those of {hooks}; trust them in Codex: /hooks"


def _cursor(project: Project) -> Iterator[str]:
    for folder in (project.root / ".cursor", project.home / ".cursor"):
        server = _object(_object(_read(folder / "mcp.json").get("mcpServers")).get(SERVER))
        if server.get("disabled") is True or server.get("enabled") is False:
            yield f"{folder / 'mcp.json'} switches the server {SERVER} off"
        if _read(folder / "hooks.json").get("disabled") is True:
            yield f"not guarded: {folder / 'hooks.json'} has disabled, so its hooks do not run"
        for path in (folder / "cli.json", folder / "cli-config.json"):
            rules = _texts(_object(_read(path).get("permissions")).get("deny"))
            if rule := next((it for it in rules if fnmatch.fnmatchcase(f"Mcp({SERVER}:{_TOOL})", it)), None):
                yield f"{path} denies the tools of {SERVER} (permissions.deny: {rule})"


def _opencode(project: Project) -> Iterator[str]:
    folders = (project.home / ".config" / "opencode", project.root, project.root / ".opencode")
    for path in (folder / f"opencode{suffix}" for folder in folders for suffix in (".json", ".jsonc")):
        found = _read(path)
        servers = _object(found.get("mcp"))
        server = _object(servers.get(SERVER)) | _object(_object(servers.get("servers")).get(SERVER))
        if server.get("enabled") is False or server.get("disabled") is True:
            yield f"{path} switches the server {SERVER} off"
        if rule := _denying(found):
            yield f"{path} switches the tools of {SERVER} off ({rule})"
        directives = [it for it in _texts(found.get("plugins")) if fnmatch.fnmatchcase(SERVER, it.removeprefix("-"))]
        if directives and directives[-1].startswith("-"):
            yield f"not guarded: {path} has {directives[-1]} in plugins, so the plugin does not run"
    if project.environ.get("OPENCODE_PURE", "").lower() in ("1", "true"):
        yield "not guarded: OPENCODE_PURE is set, so no plugin runs"


def _denying(found: Mapping[str, Any]) -> str:
    """The last rule about our tools in a configuration of OpenCode, if it is against them."""
    rules = [(str(name), is_on is not False) for name, is_on in _object(found.get("tools")).items()]
    permission = _object(found.get("permission"))
    rules += [(str(name), effect != "deny") for name, effect in permission.items() if isinstance(effect, str)]
    permissions = found.get("permissions")
    for rule in map(_object, permissions if isinstance(permissions, list) else ()):
        if rule.get("resource", "*") == "*":
            rules.append((str(rule.get("action")), rule.get("effect") != "deny"))
    ours = [(name, is_on) for name, is_on in rules if fnmatch.fnmatchcase(f"{SERVER}_{_TOOL}", name)]
    return ours[-1][0] if ours and not ours[-1][1] else ""


def _managed_folder() -> Path:
    """Where an administrator of the machine puts the settings of Claude Code."""
    if sys.platform == "darwin":
        return Path("/Library/Application Support/ClaudeCode")
    return Path("C:/Program Files/ClaudeCode" if sys.platform == "win32" else "/etc/claude-code")


def _read(path: Path) -> dict[str, Any]:
    """The settings in a file; empty if there are none that can be read."""
    try:
        text = read_text(path) or ""
        return _object(tomllib.loads(text) if path.suffix == ".toml" else parse(text).plain() if text.strip() else {})
    except (OSError, ValueError):
        return {}


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _texts(found: Any) -> list[str]:
    return [it for it in found if isinstance(it, str)] if isinstance(found, list) else []


_FINDERS: Final[Mapping[str, Callable[[Project], Iterator[str]]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "cursor": _cursor,
    "opencode": _opencode,
}
