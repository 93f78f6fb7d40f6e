"""What is set up for a host, as far as it can be seen: for `holdlog init` and `holdlog doctor --client`."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from holdlog.adapters.cli.setup.block import add_block
from holdlog.adapters.cli.setup.changes import read_text
from holdlog.adapters.cli.setup.hosts import HOSTS, HostFile, Project
from holdlog.adapters.cli.setup.json_tree import parse
from holdlog.adapters.cli.setup.probe import probe


class Configured(NamedTuple):
    """A file of a host. `missing`: entries of ours that it lacks; `problem`: why it cannot be read."""

    path: Path
    what: str
    missing: int
    problem: str | None = None


def configured(name: str, project: Project) -> list[Configured]:
    """The files of a host."""
    return [_configured(file) for file in HOSTS[name].files(project)]


def started(name: str, project: Project) -> tuple[str, bool]:
    """Start the server with the command that the host's file has. Returns a line about it, and whether it starts."""
    file = HOSTS[name].files(project)[0]
    try:
        command = _command(file)
    except (OSError, ValueError) as error:
        return f"{file.path}: {error}", False
    if command is None:
        return f"{file.path} does not start holdlog; run: holdlog init --client {name}", False
    found = probe(command, project.root)
    if found.problem is not None:
        return f"the server does not start: {found.problem}", False
    return f"the server starts in {found.seconds:.1f} s, with {found.tools} tools", True


def _configured(file: HostFile) -> Configured:
    try:
        text = read_text(file.path) or ""
        if file.block:
            return Configured(file.path, file.what, 0 if _has_block(file, text) else 1)
        found: Any = parse(text).plain() if text.strip() else {}
        return Configured(
            file.path, file.what, sum(not _has(found, it.path, it.value, it.listed) for it in file.entries)
        )
    except (OSError, ValueError) as error:
        return Configured(file.path, file.what, 0, str(error))


def _has_block(file: HostFile, text: str) -> bool:
    """Whether a file has its block as init writes it; in TOML, whether it has the server, which a person may have
    written."""
    if file.path.suffix == ".toml":
        return "holdlog" in tomllib.loads(text).get("mcp_servers", {})
    return add_block(text, file.block, file.comment) == text


def _has(found: Any, path: tuple[str, ...], value: Any, listed: bool) -> bool:
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    if listed:
        return isinstance(found, list) and value in found
    return found is not None


def _command(file: HostFile) -> list[str] | None:
    """The command that a host's file starts as holdlog."""
    text = read_text(file.path) or ""
    if file.block:
        server: Any = tomllib.loads(text).get("mcp_servers", {}).get("holdlog")
    else:
        server = parse(text).plain() if text.strip() else {}
        for key in file.entries[0].path:
            server = server.get(key) if isinstance(server, dict) else None
    if not isinstance(server, dict) or "command" not in server:
        return None
    command = server["command"]
    words = list(command) if isinstance(command, list) else [command, *server.get("args", [])]
    return [str(word) for word in words]
