"""Ends the servers of one `holdlog up` when that process ends, even by kill -9.

A separate script that needs only the standard library, so that it starts fast and cannot fail on an import. It leads
the process group of the servers, and each of them holds a lock on a file: when the lock is free, all have ended. The
file arrives open, because the folder may be removed. When `holdlog up` ends, for whatever reason, our standard input is
closed.
"""

import fcntl
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

PATIENCE: Final = 30.0
"""Seconds that servers have to end by themselves: PostgreSQL writes what it holds in memory."""
KILLED_WITHIN: Final = 5.0
POLL_EVERY: Final = 0.01


def end_group(group: int, lock: IO[bytes]) -> bool:
    """Ask all processes of the group to end, then kill them; True once nobody holds the lock.

    SIGINT: both servers end in order, without waiting for their clients.
    """
    for how, seconds in ((signal.SIGINT, PATIENCE), (signal.SIGKILL, KILLED_WITHIN)):
        if is_free(lock):
            return True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, how)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if is_free(lock):
                return True
            time.sleep(POLL_EVERY)
    return False


def is_free(lock: IO[bytes]) -> bool:
    """Whether nobody else holds the lock; it is ours then until the file is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(folder: Path, lock: IO[bytes], removed: bool) -> None:
    """Wait for the end of standard input, end the group, and remove the folder if it was a temporary one."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_group(os.getpgrp(), lock)
    if removed:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[2]), "rb") as handed:
        main(Path(sys.argv[1]), handed, sys.argv[3] == "remove")
