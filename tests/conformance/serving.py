"""Servers as processes of their own, for checks from outside."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench import clients

HOLDLOG: Final = ("-m", "holdlog", "serve", "--transport", "http", "--tools", "all")


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """A server of this Python on a free port."""
    with clients.serving([sys.executable, *command]) as server:
        yield f"http://127.0.0.1:{server.port}/mcp"
