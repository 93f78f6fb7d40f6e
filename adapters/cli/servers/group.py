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

from holdlog.adapters.cli.servers import ServersError, keeper
from holdlog.adapters.cli.servers.folder import Folder

LOCK: Final = "servers.lock"
LONGEST_LINE: Final = 200
"""Maximum characters of a line of a server's log in a message."""


class Group:
    """Starts processes that end when `end` is called or when this process ends, whichever comes first. First ends the
    processes that an earlier group left running in the folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        lock = folder.path / LOCK
        end_what_is_left(lock)
        self._held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._watched = lock.open("rb")
        watched = self._watched.fileno()
        end = "remove" if folder.is_temporary else "keep"
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, folder.path, str(watched), end],
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
        account = self._folder.account
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            try:
                return subprocess.Popen(
                    list(map(str, command)),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=self._folder.path,
                    process_group=self._keeper.pid,
                    pass_fds=(self._held,),
                    umask=0o077,
                    user=account,
                    group=None if account is None else pwd.getpwnam(account).pw_gid,
                    extra_groups=None if account is None else (),
                )
            except PermissionError:
                who = "you" if account is None else f"user {account}, which runs PostgreSQL instead of root,"
                message = f"{who} may not execute {command[0]}; check its permissions, or start as another user"
                raise ServersError(message) from None

    def run(self, command: Sequence[str | Path], log: Path) -> None:
        """Start a process and wait until it exits. If it fails, raises ServersError with the last line of its log."""
        if self.start(command, log).wait():
            raise ServersError(f"{Path(command[0]).name} failed: {last_words(log)}")

    def end(self) -> None:
        """End all processes, and remove the folder if it is temporary. Raises ServersError if a process does not
        end."""
        os.close(self._held)
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.wait()
        with self._watched:
            ended = keeper.end_group(self._keeper.pid, self._watched)  # in case the keeper was killed
        if not ended:
            raise ServersError(f"a server does not end; run: kill -9 -- -{self._keeper.pid}")


def end_what_is_left(lock: Path) -> None:
    """End the processes of a group whose `holdlog up` was killed; they still hold the lock. Raises ServersError if they
    do not end."""
    if not lock.exists():
        return
    with lock.open("rb") as file:
        text = file.read().strip()
        group = int(text) if text.isdigit() else 0
        if not keeper.is_free(file) and not (group > 1 and keeper.end_group(group, file)):
            raise ServersError(f"servers of an earlier holdlog up still run in {lock.parent}; end them first")


def last_words(log: Path) -> str:
    """The last line of a server's log, for a message."""
    with suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:LONGEST_LINE] if lines else "its log is empty"
    return f"see {log}"
