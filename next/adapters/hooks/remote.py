"""Asks a server whose agents on other hosts hold a file. The store of this host says everything else, as git commands,
reads and policies concern the worktrees of this host alone."""

import http.client
import json
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from holdlog.adapters.hooks.calls import Output
from holdlog.adapters.hooks.places import TOKEN, Server
from holdlog.adapters.operating_system.files import show
from holdlog.adapters.operating_system.location import read_variable
from holdlog.domain.refusals import HoldlogError

SECONDS: Final = 1.5
"""For the connection, and again for the response: a hook ends after 4 s."""
MAX_BYTES: Final = 64 * 1024
"""Of a response, or a token."""
MAX_TEXT: Final = 1_000
"""Characters of a response."""


class RemoteError(HoldlogError):
    """The server did not take the call. The message is one line, and has no text of the server."""


def ask(server: Server, work: Any) -> Output:
    """Pass on what a call does, as of Work, in the plain form of a hook. Claims files by their paths from the root of
    the main worktree, which are the same in each clone; those of a linked worktree, which is a copy of its own, belong
    to this host alone. Raises RemoteError."""
    event, session, resources = work.call.event, work.caller.session, list[str]()
    if work.former_name:
        post(server, "subagent-end", session, work.former_name)
    if event == "pre-edit":
        resources = [file.resource for file in work.files if file.mode == "block"]
    elif event == "turn-end":
        resources = work.released
    paths = [f"/{it}" for it in resources if "://" not in it and it[0] != "/"]
    is_news = event in ("start", "session-end") or (event == "subagent-end" and work.call.agent)
    if is_news or (event != "read" and (paths or work.is_holding)):
        return post(server, event, session, work.name, paths, work.call.id)
    return Output()


def post(
    server: Server, event: str, session: str, agent: str, paths: list[str] | None = None, call: str = ""
) -> Output:
    """Make a call of `POST /hook`. Raises RemoteError."""
    given = {"session_id": session, "cwd": "/", "paths": paths or [], "tool_use_id": call}
    response = _request(server, urlencode({"event": event, "root": "/", "agent": agent}), json.dumps(given).encode())
    try:
        output = json.loads(response)
        text = next((output[it] for it in ("reason", "warning", "context") if it in output), "")
        return Output(show(str(text)[:MAX_TEXT]), "deny" if output.get("decision") == "deny" else "")
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise RemoteError(f"{server.url} is no server of holdlog") from None


def _request(server: Server, query: str, body: bytes) -> bytes:
    token = _read_token(server)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    parts = urlsplit(server.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=SECONDS)
        try:
            connection.request("POST", f"{quote(parts.path)}/hook?{query}", body, headers)
            response = connection.getresponse()
            output = response.read(MAX_BYTES)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RemoteError(f"the server at {server.url} cannot be reached ({why})") from None
    if response.status == http.client.OK:
        return output
    hint = "; is the token right?" if response.status in (401, 403) else ""
    raise RemoteError(f"the server at {server.url} responded with status {response.status}{hint}")


def _read_token(server: Server) -> str | None:
    """Raises RemoteError, InvalidError."""
    if server.token in ("", TOKEN):
        token = read_variable("token") if server.token else None
        if server.token and not token:
            raise RemoteError(f"{TOKEN} is not set, the token of the server at {server.url}")
        return token
    try:
        with open(server.token, encoding="ascii") as file:
            return file.read(MAX_BYTES).strip()
    except (OSError, ValueError):
        raise RemoteError(f"the token file {show(server.token)} cannot be read") from None
