"""Servers as processes of their own, for checks from outside."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.conformance.node import ROOT

HOLDLOG: Final = ("-m", "holdlog", "serve", "--transport", "http", "--tools", "all")


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """A server of this Python on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, *command, str(port)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(20)
