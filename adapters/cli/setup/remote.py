"""A server over HTTP that hosts use: the options that name it, and whether it guards this project."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdlog.adapters.cli.setup.changes import is_tracked
from holdlog.adapters.cli.setup.hosts import HOSTS, TOKEN, Project, RemoteServer
from holdlog.adapters.hooks.posting import PostError, post_hook, token_for
from holdlog.adapters.operating_system.secrets import secret_in
from holdlog.domain.refusals import InvalidError

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def named_server(url: str | None, token_file: str | None, environ: Mapping[str, str]) -> RemoteServer | None:
    """The server that the options of init name; None without --url. Raises InvalidError."""
    if url is None:
        if token_file is not None:
            raise InvalidError("--token-file: only works with --url")
        return None
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or "@" in url or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise InvalidError("--url: must be the address of a server, such as http://127.0.0.1:8420")
    base = url.rstrip("/").removesuffix("/mcp").removesuffix("/hook").rstrip("/")
    if token_file is None:
        return RemoteServer(base, bool(environ.get(TOKEN)))
    path = Path(os.path.abspath(os.path.expanduser(token_file)))
    _require_private(path)
    return RemoteServer(base, True, str(path))


def remarks_on(server: RemoteServer, hosts: list[str]) -> list[str]:
    """What a person must know about hosts that use this server, in one line each."""
    lines = []
    if server.has_token:
        value = f'"$(cat {server.token_file})"' if server.token_file else "..."
        lines.append(
            f"start the hosts with the token in {TOKEN} (export {TOKEN}={value}); without it nothing is guarded"
        )
        if server.url.startswith("http:") and urlsplit(server.url).hostname not in _LOOPBACK:
            lines.append(f"{server.url} is not encrypted, so others in the network can read the token: use https")
    for name in hosts:
        title = HOSTS[name].title
        if name == "claude-desktop":
            lines.append(f"{title}: its file knows no servers over HTTP, so nothing is set up")
        elif not HOSTS[name].has_hooks:
            lines.append(
                f"{title}: not guarded, because it has no hooks that init can set up; its agents must call claim"
            )
        elif name != "claude-code":
            lines.append(
                f"{title}: has no hooks of type http, so each call starts holdlog hook --url, which asks the server"
            )
    return lines


def check_server(server: RemoteServer, project: Project) -> tuple[str, bool]:
    """Ask the server whether it guards this project. Returns a line about it, and whether it does."""
    call = {"hook_event_name": "SessionStart", "session_id": "holdlog-init", "cwd": str(project.root)}
    try:
        token = token_for(server.token_file, project.environ) if server.has_token else ""
        output = json.loads(post_hook(server.url, token, json.dumps(call).encode()))
        post_hook(server.url, token, json.dumps({**call, "hook_event_name": "SessionEnd"}).encode())
    except PostError as error:
        return str(error), False
    except ValueError:
        return f"{server.url} is not a server of holdlog", False
    if not output:
        return f"the server at {server.url} does not guard {project.root}: start it there, or see its log", False
    return f"the server at {server.url} guards {project.root}", True


def _require_private(path: Path) -> None:
    """Require a token file that only this user can read, and that git does not track. Raises InvalidError."""
    secret_in(str(path), "--token-file")
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InvalidError(f"--token-file: {path} can be read by other users; run: chmod 600 {path}")
    if is_tracked(path):
        raise InvalidError(f"--token-file: git tracks {path}; keep the token out of the repository")
