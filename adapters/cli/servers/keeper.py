"""Ends the servers of one `holdlog up` when that process ends, even by kill -9.

This is a separate script that imports only the standard library, so that it starts fast and no import can fail. It
leads the process group of the servers. Each server holds a lock on a file: when the lock is free, all servers have
ended. The file is passed as an open descriptor, because the folder may be removed. When `holdlog up` ends for any
reason, the standard input of this script is closed.
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
"""Seconds that the servers have to shut down cleanly: PostgreSQL writes its buffers to the disk."""
KILLED_WITHIN: Final = 5.0
POLL_EVERY: Final = 0.01


def end_group(group: int, lock: IO[bytes]) -> bool:
    """Ask all processes of the group to end, then kill the remaining ones. Returns True once the lock is free.

    SIGINT makes both servers shut down cleanly, without waiting for their clients.
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
    """Try to acquire the lock; returns whether it was free. If so, this process holds it until the file is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(folder: Path, lock: IO[bytes], removed: bool) -> None:
    """Wait until standard input is closed, end the group, and remove the folder if it is temporary."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_group(os.getpgrp(), lock)
    if removed:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[2]), "rb") as handed:
        main(Path(sys.argv[1]), handed, sys.argv[3] == "remove")
