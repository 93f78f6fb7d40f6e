"""`holdlog hook --url URL [--token-file FILE] [EVENT]`: passes the host's JSON to `POST /hook` of a server, and prints
its response. It fails open: whatever goes wrong, the edit is allowed and the exit code is 0.

Standard library only: a host waits for it before each edit.
"""

import http.client
import os
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

SECONDS: Final = 4.0
"""Hosts wait for the hook before each edit."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""Of the host's JSON, which contains the whole new file."""
MAX_TOKEN: Final = 64 * 1024


class PostError(Exception):
    """The server did not take the call. The message is one line, and has no text of the server."""


def run_posting(words: Sequence[str]) -> int:
    """Run the command with these arguments. Always returns 0."""
    body, event = b"", ""
    try:
        options, event = _options(words)
        body = sys.stdin.buffer.read(MAX_BYTES)
        output = post_hook(
            options.get("--url", ""), token_for(options.get("--token-file", ""), os.environ), body, event
        )
        if output.strip() not in (b"", b"{}"):
            sys.stdout.buffer.write(output + b"\n")
            sys.stdout.buffer.flush()
    except (Exception, KeyboardInterrupt) as error:
        text = str(error) if isinstance(error, PostError) else type(error).__name__
        with suppress(OSError, ValueError, AttributeError):  # None: closed before the start
            sys.stderr.write(f"holdlog hook: {text}; the edit is not guarded\n")
        _warn_at_start(body, event, text)
    return 0


def _warn_at_start(body: bytes, event: str, problem: str) -> None:
    from holdlog.adapters.hooks.calls import read_json
    from holdlog.adapters.hooks.running import warn_at_start, write_output

    if output := warn_at_start(read_json(body), event or None, problem):
        write_output(output)


def post_hook(url: str, token: str, body: bytes, event: str = "") -> bytes:
    """Pass a call to the server at `url`, and return what the host reads. Raises PostError."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    path = f"{parts.path.rstrip('/')}/hook" + (f"?event={urllib.parse.quote(event)}" if event else "")
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=SECONDS)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            output = response.read(MAX_BYTES)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise PostError(f"the server at {url} cannot be reached ({why})") from None
    if response.status == http.client.OK:
        return output
    unknown = ": is the token right?" if response.status == http.client.UNAUTHORIZED else ""
    raise PostError(f"the server at {url} responds with status {response.status}{unknown}")


def token_for(file: str, environ: Mapping[str, str]) -> str:
    """The token in a file, else in HOLDLOG_TOKEN; empty if there is none. Raises PostError."""
    if not file:
        return environ.get("HOLDLOG_TOKEN", "")
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read(MAX_TOKEN).strip()
    except (OSError, ValueError):
        raise PostError(f"the token file {file} cannot be read") from None


def _options(words: Sequence[str]) -> tuple[dict[str, str], str]:
    options, rest = {}, list(words)
    while rest[:1] and rest[0].startswith("--"):
        options[rest[0]] = rest[1] if len(rest) > 1 else ""
        del rest[:2]
    return options, rest[0] if rest else ""
