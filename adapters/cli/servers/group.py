"""The server processes of one `holdlog up`. They end when it ends."""

import fcntl
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.servers import keeper
from holdlog.adapters.cli.servers.errors import ServersError

LOCK: Final = "servers.lock"
LONGEST_LINE: Final = 200
"""Maximum characters of a line of a server's log in a message."""


class Group:
    """Starts processes that end when `end` is called or when this process ends, whichever comes first.

    `account`: the user that they run as; None = the current user. First ends the processes that an earlier group left
    running in the folder.
    """

    def __init__(self, folder: Path, *, removed: bool, account: str | None = None) -> None:
        self.folder = folder
        self.account = account
        self._own_group = None if account is None else pwd.getpwnam(account).pw_gid
        self._lock = folder / LOCK
        end_what_is_left(self._lock)
        self._held = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._watched = self._lock.open("rb")
        watched = self._watched.fileno()
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, folder, str(watched), "remove" if removed else "keep"],
            pass_fds=(watched,),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            process_group=0,
        )
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, b"%d\n" % self._keeper.pid, 0)

    def start(self, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        """Start a process. Its output overwrites the file `log`. Raises ServersError."""
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            try:
                return subprocess.Popen(
                    list(map(str, command)),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=self.folder,
                    process_group=self._keeper.pid,
                    pass_fds=(self._held,),
                    umask=0o077,
                    user=self.account,
                    group=self._own_group,
                    extra_groups=None if self.account is None else (),
                )
            except PermissionError:
                raise ServersError(self._may_not(Path(command[0]))) from None

    def run(self, command: Sequence[str | Path], log: Path) -> None:
        """Start a process and wait until it exits. If it fails, raises ServersError with the last line of its log."""
        if self.start(command, log).wait():
            raise ServersError(f"{Path(command[0]).name} failed: {last_words(log)}")

    def end(self) -> None:
        """End all processes, and remove the folder if it is temporary. Raises ServersError if a process does not
        end."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.wait()
        with self._watched:
            ended = keeper.end_group(self._keeper.pid, self._watched)  # in case the keeper was killed
        if not ended:
            raise ServersError(f"a server does not end; run: kill -9 -- -{self._keeper.pid}")

    def _may_not(self, program: Path) -> str:
        if self.account is None:
            return f"you may not execute {program}; check its permissions"
        return (
            f"PostgreSQL refuses to run as root, so it runs as user {self.account}, who cannot execute {program}: "
            "start holdlog up as a user other than root"
        )


def end_what_is_left(lock: Path) -> None:
    """End the processes of a group whose `holdlog up` was killed; they still hold the lock. Raises ServersError if they
    do not end."""
    try:
        with lock.open("rb") as file:
            if keeper.is_free(file):
                return
            text = file.read().strip()
            group = int(text) if text.isdigit() else 0
            ended = group > 1 and keeper.end_group(group, file)
    except FileNotFoundError:
        return
    if not ended:
        raise ServersError(f"servers of an earlier holdlog up still run in {lock.parent}; end them first")


def last_words(log: Path) -> str:
    """The last line of a server's log, for a message."""
    with suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:LONGEST_LINE] if lines else "its log is empty"
    return f"see {log}"
