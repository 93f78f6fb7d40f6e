"""The Unix socket on which the stdio server of a host serves its hooks.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def socket_name(server: str) -> str:
    """The name of a server's socket, in the folder of its presence file (`Presence.server`)."""
    return f"{server.rpartition('.')[2]}.sock"


@contextmanager
def socket_path(folder: Path, server: str) -> Iterator[str]:
    """The path of a server's socket, to be used within the block: a path with more than 107 bytes cannot be bound
    (unix(7)), so it goes through a descriptor of the folder where it can. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{descriptor}"
        yield os.path.join(short if os.path.isdir(short) else folder, socket_name(server))
    finally:
        os.close(descriptor)
