"""Lets the stdio server of the host do the work of a hook: it has the store open and everything imported.

The server listens on a Unix socket next to its presence file. One connection carries one request and one response, each
a line of JSON. Standard library only and quick to import: the hook's fast path uses it.
"""

import json
import socket
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.hooks.binding import BoundServer, sessions_folder
from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.operating_system.hook_socket import socket_path

PROTOCOL: Final = 2
"""Increased when requests or responses change. If the server uses another one, the hook does the work itself."""
MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes of a request or a response."""
ASK_SECONDS: Final = 1.5
"""Without a response by then, the hook does the work itself; enough of its time is left."""


class HookFailedError(Exception):
    """The server failed to do the work. The message is one line."""


def ask(store: Path, server: BoundServer, call: HookCall) -> dict[str, Any] | None:
    """The output for the host; None if the server does not respond or declines: then the hook does the work itself.
    Raises HookFailedError."""
    request = json.dumps({"protocol": PROTOCOL, "call": call._asdict()}) + "\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_SECONDS)
            with socket_path(sessions_folder(store), server.server) as path:
                connection.connect(path)
            connection.sendall(request.encode())
            with connection.makefile("rb") as file:
                response = json.loads(file.readline(MAX_LINE))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    if not isinstance(response, dict) or response.get("protocol") != PROTOCOL:
        return None
    if "error" in response:
        raise HookFailedError(str(response["error"]))
    return dict(response["output"])
