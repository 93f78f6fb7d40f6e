"""Forwards hook calls to a server, whose agents on other hosts may hold a file. The local store does everything else:
git commands, reads and policies concern the worktrees of this host alone."""

import http.client
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from holdlog.adapters.hooks.calls import Output
from holdlog.adapters.hooks.places import TOKEN, Server
from holdlog.adapters.operating_system.files import show
from holdlog.adapters.operating_system.location import read_variable
from holdlog.domain.refusals import StoreError

SECONDS: Final = 1.5
"""Timeout for the connection, and again for the response: a hook ends after 4 s."""
MAX_BYTES: Final = 65_536  # of a response; a denial may contain a long name twice, escaped


def forward(server: Server, work: Any) -> Output:
    """Forward a call (a Work) to the server, in the plain form of a hook. Files are claimed by their paths below the
    root of the main worktree, which are the same in each clone. Those of a linked worktree, which is another copy, are
    not forwarded. Raises StoreError."""
    event, session = work.call.event, work.caller.session
    if work.former_name:
        post(server, "subagent-end", session, work.former_name)
    blocked = [file.resource for file in work.files if file.mode == "block"]
    resources = blocked if event == "pre-edit" else work.released
    paths = [f"/{it}" for it in resources if "://" not in it and it[0] != "/"]
    if event == "subagent-end" and work.name in work.others:
        return Output()  # another agent of the conversation still uses this name
    is_news = event in ("start", "session-end") or (event == "subagent-end" and work.call.agent)
    if is_news or (event != "read" and (paths or work.held)):
        return post(server, event, session, work.name, paths, work.call.id)
    return Output()


def post(server: Server, event: str, session: str, agent: str, paths: Sequence[str] = (), call: str = "") -> Output:
    """Call `POST /hook`. Raises StoreError, whose message contains no text of the server."""
    body = {"session_id": session, "cwd": "/", "paths": paths, "tool_use_id": call}
    response = _request(server, urlencode({"event": event, "root": "/", "agent": agent}), json.dumps(body).encode())
    try:
        output = json.loads(response)
        if not output.keys() <= {"decision", "reason", "context", "warning"}:  # else any program would allow the edit
            raise ValueError
        text = show(str(output.get("reason") or output.get("context") or output.get("warning") or ""))
        return Output(text, "deny" if output.get("decision") == "deny" else "")
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise StoreError(f"{server.url} is not a server of holdlog") from None


def _request(server: Server, query: str, body: bytes) -> bytes:
    token = read_variable("token", server.token if server.token != TOKEN else None)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    parts = urlsplit(server.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(parts.hostname or "", parts.port, timeout=SECONDS)) as connection:
            connection.request("POST", f"{quote(parts.path)}/hook?{query}", body, headers)
            response = connection.getresponse()
            output = response.read(MAX_BYTES)
    except (OSError, ValueError, OverflowError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or type(error).__name__  # the text of an error may contain the token
        raise StoreError(f"the server at {server.url} cannot be reached ({why})") from None
    if response.status == http.client.OK:
        return output
    place = server.token or TOKEN
    hints = {401: f"; {place} has no valid token", 403: f"; the token in {place} needs claim:* and no space"}
    hint = hints.get(response.status, "")
    raise StoreError(f"the server at {server.url} responded with status {response.status}{hint}")
