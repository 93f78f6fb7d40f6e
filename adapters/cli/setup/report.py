"""What is set up for a host, as far as it can be seen: for `holdlog init` and `holdlog doctor --client`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdlog.adapters.cli.setup.block import add_block
from holdlog.adapters.cli.setup.changes import is_tracked, read_text, toml_server
from holdlog.adapters.cli.setup.hosts import HOSTS, HostFile, Project
from holdlog.adapters.cli.setup.json_edit import Entry
from holdlog.adapters.cli.setup.json_tree import parse
from holdlog.adapters.cli.setup.probe import probe
from holdlog.adapters.cli.setup.remote import check_server


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
    """Start the server with the command that the host's file has, or ask the one over HTTP. Returns a line about it,
    and whether it starts."""
    if project.server is not None:
        return check_server(project.server, project)
    file = HOSTS[name].files(project)[0]
    try:
        server = _server(file)
    except (OSError, ValueError) as error:
        return f"{file.path}: {error}", False
    if isinstance(server, dict) and server and "command" not in server:
        return f"{file.path} has another configuration of holdlog, which stays", True
    command = _command(server)
    if command is None:
        return f"{file.path} does not start holdlog; run: {command_for(name, file.path)}", False
    found = probe(command, project.root)
    if found.problem is not None:
        return f"the server does not start: {found.problem}", False
    return f"the server starts in {found.seconds:.1f} s, with {found.tools} tools", True


def command_for(name: str, path: Path) -> str:
    """The command that writes what a file of a host lacks."""
    return f"holdlog init --client {name}{' --tracked' if is_tracked(path) else ''}"


def _configured(file: HostFile) -> Configured:
    try:
        text = read_text(file.path) or ""
        if file.block:
            return Configured(file.path, file.what, 0 if _has_block(file, text) else 1)
        found: Any = parse(text).plain() if text.strip() else {}
        return Configured(file.path, file.what, sum(not _has(found, it) for it in file.entries))
    except (OSError, ValueError) as error:
        return Configured(file.path, file.what, 0, str(error))


def _has_block(file: HostFile, text: str) -> bool:
    """Whether a file has its block as init writes it; in TOML, whether it has the server, which a person may have
    written."""
    if file.path.suffix == ".toml":
        return toml_server(text) is not None
    return add_block(text, file.block, file.comment) == text


def _has(found: Any, entry: Entry) -> bool:
    there = _at(found, entry.path)
    if entry.listed:
        return isinstance(there, list) and entry.value in there
    return there is not None


def _at(found: Any, path: Sequence[str]) -> Any:
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _server(file: HostFile) -> Any:
    """What a host's file has for our server. Raises OSError and ValueError."""
    text = read_text(file.path) or ""
    if file.block:
        return toml_server(text)
    return _at(parse(text).plain(), file.entries[0].path) if text.strip() else None


def _command(server: Any) -> list[str] | None:
    """The command of a server in a host's file."""
    if not isinstance(server, dict) or "command" not in server:
        return None
    command, arguments = server["command"], server.get("args")
    if isinstance(command, list):
        return [str(word) for word in command]
    return [str(command), *map(str, arguments if isinstance(arguments, list) else ())]
