"""Starts the server as a host does, and times it."""

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

START_SECONDS: Final = 30.0
"""Hosts give a server 10 to 30 s to start."""


class Probe(NamedTuple):
    """`seconds` from the start of the server to its list of `tools`. `problem`: why there is none; one line."""

    seconds: float
    tools: int
    problem: str | None = None


def probe(command: Sequence[str], folder: Path) -> Probe:
    """Start a stdio server in a folder, ask for its tools, and end it."""
    started = time.monotonic()
    try:
        server = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        return Probe(0.0, 0, f"{command[0]} cannot be started ({error.strerror})")
    limit = threading.Timer(START_SECONDS, server.kill)
    limit.start()
    try:
        client = {"name": "holdlog init", "version": "1"}
        _ask(server, 1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        _send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = _ask(server, 2, "tools/list", {})["tools"]
        return Probe(time.monotonic() - started, len(tools))
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        return Probe(time.monotonic() - started, 0, _problem(server, error))
    finally:
        limit.cancel()
        with suppress(OSError):
            server.communicate(timeout=START_SECONDS)


def _ask(server: "subprocess.Popen[str]", number: int, method: str, given: dict[str, Any]) -> dict[str, Any]:
    _send(server, {"jsonrpc": "2.0", "id": number, "method": method, "params": given})
    assert server.stdout is not None
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            if "error" in message:
                raise ValueError(str(message["error"].get("message")))
            return dict(message["result"])
    raise EOFError


def _send(server: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def _problem(server: "subprocess.Popen[str]", error: Exception) -> str:
    if isinstance(error, ValueError) and str(error):
        return str(error).splitlines()[0]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        _, errors = server.communicate(timeout=2)
        if lines := errors.strip().splitlines():
            return lines[-1]
        if server.returncode >= 0:  # not killed after `START_SECONDS`
            return f"it ended with exit code {server.returncode}"
    return f"it did not answer within {START_SECONDS:.0f} s"
