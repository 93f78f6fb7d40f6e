"""Who acts in a hook: the session that holds its claims, and the agent's name.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.hooks.binding import BoundServer, newest_server
from holdlog.adapters.hooks.calls import SHARED_SERVER, Client, HookCall
from holdlog.adapters.hooks.notes import HookFiles, Notes, Terminal
from holdlog.adapters.operating_system.ancestry import ancestors, version_of_host

HOST_SESSION: Final = "CLAUDE_CODE_SESSION_ID"
"""What Claude Code names its session in the environment of the commands that it runs."""
HOST_THREAD: Final = "CODEX_THREAD_ID"
"""What Codex names its thread there, which is the session id of its hooks."""

_HOSTS: Final[Mapping[Client, str]] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "cursor": "Cursor",
    "opencode": "OpenCode",
    "vscode": "VS Code",
    "agent": "",
}
_CHARACTERS: Final = 6
"""Of a hash in a name: enough to tell the agents of one repository apart."""


class HookSession(NamedTuple):
    """The session of a hook. `held_by`: the hashed session that holds the claims: that of the host's server, or else
    `own_session`. `server`: keeps it alive; empty: its leases do."""

    held_by: str
    server: str


def session_of(call: HookCall, server: BoundServer | None, identity: Identity) -> HookSession:
    """The session of a hook call."""
    kept_by = server.server if server is not None else ""
    if call.client == "codex":  # it passes its thread with every MCP call (mcp/calling.py)
        return HookSession(_session_of_thread(call.session, identity), kept_by)
    return HookSession(server.session if server is not None else own_session(call, identity), kept_by)


def own_session(call: HookCall, identity: Identity) -> str:
    """The hashed session of the host's session id."""
    return identity.session("hook", call.session)


def _session_of_thread(thread: str, identity: Identity) -> str:
    return identity.session("meta", f"threadId {thread}")


def sessions_of_host(store: Path, identity: Identity, environ: Mapping[str, str]) -> list[HookSession]:
    """The sessions in which the host of this command claims, by hooks and MCP calls: that of its stdio server, and that
    of the id that Claude Code or Codex gives to its commands. Empty if hooks know no such host."""
    server = newest_server(store, ancestors(os.getpid()))
    found = [] if server is None else [HookSession(server.session, server.server)]
    if named := environ.get(HOST_SESSION):
        own = identity.session("hook", named)
        if found or HookFiles(store).read(own).names:
            found.append(HookSession(own, ""))
    if thread := environ.get(HOST_THREAD):
        own = _session_of_thread(thread, identity)
        if HookFiles(store).read(own).names:
            found.append(HookSession(own, "" if server is None else server.server))
    return found


def agent_of_host(
    store: Path, identity: Identity, environ: Mapping[str, str], named: str | None
) -> tuple[HookSession, str] | None:
    """The session and name under which hooks claim for the agent that runs this command; None if hooks know no such
    agent. `named`: its name, None for the main agent of the host."""
    for session in sessions_of_host(store, identity, environ):
        names = HookFiles(store).read(session.held_by).names
        name = names.get("") if named is None else named
        if name is not None and name in names.values():
            return session, name
    return None


def terminal_of(call: HookCall, notes: Notes, identity: Identity) -> Terminal | None:
    """Where the agent works, if the notes do not have it: as its session began, with the first prompt of it."""
    own, before = own_session(call, identity), notes.terminals.get(main_of(call))
    if before is None or before.session != own:
        host = f"{_HOSTS[call.client]} {call.version or version_of_host(os.getpid(), call.client)}".strip()
        return Terminal(own, call.folder, host, call.prompt)
    return None if before.prompt or not call.prompt else before._replace(prompt=call.prompt)


def main_of(call: HookCall) -> str:
    """The main agent, as in `HookCall.agent`."""
    return call.agent if call.client in SHARED_SERVER else ""


def name_of(call: HookCall, notes: Notes) -> str:
    """The name under which the agent claims: the one that it passed to our tools, or else one made of its ids."""
    if call.agent in notes.names:
        return notes.names[call.agent]
    if call.client in SHARED_SERVER and call.agent:
        return f"{call.client}-{_short(call.agent)}"
    main = notes.names.get("") or f"{call.client}-{_short(call.session)}"
    return f"{main}/{_short(call.agent)}" if call.agent else main


def list_name(call: HookCall, suffix: str) -> str:
    """The name of a list that hooks keep for the host's session, next to its notes."""
    return f"{_short(call.session, 16)}.{suffix}"


def _short(text: str, length: int = _CHARACTERS) -> str:
    import hashlib  # slow to import, and rarely needed (auth/identity.py)

    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]
