"""Hooks ask the stdio server of their host to do their work: it has the store open, and imported what that needs.

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

PROTOCOL: Final = 1
"""Grows when requests or responses change: a server of another release is not asked."""
MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes of a request or a response."""
ASK_SECONDS: Final = 1.5
"""A server that does not respond by then is not asked: the hook has time left to do the work itself."""


class HookFailedError(Exception):
    """The server could not do it. The message is one line."""


def ask(store: Path, server: BoundServer, call: HookCall) -> dict[str, Any] | None:
    """The output for the host; None if the server cannot be asked, or leaves it to the hook. Raises HookFailedError."""
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
