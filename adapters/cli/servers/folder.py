"""The folder of one `holdlog up`: who may use it, and what it remembers."""

import fcntl
import json
import os
import pwd
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.cli.servers.errors import ServersError

ACCOUNTS: Final = ("pgserver", "postgres")
"""Whom servers run as where we are root; the first one there is."""

_LOCK: Final = "up.lock"
_KNOWN: Final = "known.json"


class Known(NamedTuple):
    """What the URLs are made of. Ports are None until they are known."""

    postgres_password: str
    nats_token: str
    postgres_port: int | None = None
    nats_port: int | None = None

    def __repr__(self) -> str:
        """Without secrets: it may end in a traceback."""
        return f"Known(postgres_port={self.postgres_port}, nats_port={self.nats_port})"


class Folder:
    """A folder that is ours until this process ends. Raises ServersError when it cannot be.

    `data` None: a temporary one. Others of this machine can read nothing in it. As root, the servers run as `account`,
    who may pass through the folder to what belongs to it.
    """

    def __init__(self, data: Path | None) -> None:
        self.account = _account()
        self.is_temporary = data is None
        try:
            self.path = Path(tempfile.mkdtemp(prefix="holdlog-up-")) if data is None else _made(data)
            if self.account is not None:
                self._require_passage(self.account)
            self._lock = _locked(self.path)
            self.path.chmod(0o700 if self.account is None else 0o711)
        except OSError as error:
            where = f"--data {data}" if data is not None else "a temporary folder"
            raise ServersError(f"{where} cannot be used: {error.strerror}; name a folder that you may write") from None

    def _require_passage(self, account: str) -> None:
        """Raises ServersError where the account could not reach the folder: its parents are not ours to open."""
        for parent in self.path.parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                if self.is_temporary:
                    self.path.rmdir()
                raise ServersError(
                    f"PostgreSQL refuses root, and user {account}, whom it runs as, may not pass through {parent}: "
                    "name a folder elsewhere, or start holdlog up as another user"
                )

    def given(self, name: str) -> Path:
        """A folder in it that belongs to the servers."""
        made = self.path / name
        if not made.exists():
            made.mkdir(mode=0o700)
            self._give(made)
        return made

    def write(self, name: str, text: str) -> Path:
        """A file in it that only the servers and we may read; there whole or not at all."""
        written = self._write(name, text)
        self._give(written)
        return written

    def known(self) -> Known:
        """What was remembered, or new secrets. Raises ServersError."""
        path = self.path / _KNOWN
        try:
            return Known(**json.loads(path.read_text()))
        except FileNotFoundError:
            if (self.path / "postgres").exists():
                raise ServersError(
                    f"{path} is missing: it held the password of this database; name another folder"
                ) from None
            return Known(secrets.token_hex(16), secrets.token_hex(16))
        except (ValueError, TypeError):
            raise ServersError(
                f"{path} cannot be read: it holds the passwords of this folder; repair it or name another folder"
            ) from None

    def remember(self, known: Known) -> None:
        self._write(_KNOWN, json.dumps(known._asdict(), indent=1) + "\n")

    def _write(self, name: str, text: str) -> Path:
        handle, draft = tempfile.mkstemp(dir=self.path)  # for our eyes only
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        return Path(draft).rename(self.path / name)

    def _give(self, path: Path) -> None:
        if self.account is not None:
            entry = pwd.getpwnam(self.account)
            os.chown(path, entry.pw_uid, entry.pw_gid)


def _account() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            return name
    raise ServersError(
        "PostgreSQL refuses root: start holdlog up as another user, or make one whom it can run as: "
        f"useradd --system {ACCOUNTS[0]}"
    )


def _made(data: Path) -> Path:
    """The folder, ours alone. Raises ServersError, OSError."""
    try:
        path = data.expanduser().resolve()
    except RuntimeError:  # ~ of a user whom nobody knows
        raise ServersError(f"--data {data} names no folder; write it out without ~") from None
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise ServersError(f"--data {data} belongs to another user; name a folder of yours")
    names = os.listdir(path)
    if names and _LOCK not in names:
        raise ServersError(f"--data {data} holds other files; name a new or an empty folder")
    return path


def _locked(path: Path) -> int:
    handle = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
        os.close(handle)
        raise ServersError(f"{path} is in use by another holdlog up (process {holder}); its URLs are there") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, b"%d\n" % os.getpid(), 0)
    return handle
