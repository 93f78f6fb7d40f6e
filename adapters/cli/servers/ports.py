"""Ports on the loopback address."""

import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    """A port that is free now. Another process may take it before the server does."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether this user can listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
