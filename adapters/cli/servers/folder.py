"""The folder of one `holdlog up`: its permissions, and the passwords and ports stored in it."""

import fcntl
import json
import os
import pwd
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.cli.servers import ServersError

ACCOUNTS: Final = ("pgserver", "postgres")
"""Users that the servers run as if holdlog runs as root; the first one that exists is used."""

_LOCK: Final = "up.lock"
_KNOWN: Final = "known.json"


class Folder:
    """A folder that this process has locked until it ends. Raises ServersError if that is impossible.

    `data` None: create a temporary folder. Other users of this machine can read nothing in it. `account`: the user that
    the servers run as if holdlog runs as root; it can traverse the folder to reach the files that it owns.
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
            message = f"{where} cannot be used: {error.strerror}; name a folder that you can write to"
            raise ServersError(message) from None

    def _require_passage(self, account: str) -> None:
        """Raise ServersError if the account cannot reach the folder. The mode of its parents is not ours to change."""
        for parent in self.path.parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                if self.is_temporary:
                    self.path.rmdir()
                raise ServersError(
                    f"PostgreSQL refuses to run as root, so it runs as user {account}, who cannot access {parent}: "
                    "name a folder elsewhere, or start holdlog up as another user"
                )

    def given(self, name: str) -> Path:
        """Return a subfolder that the servers own; create it if it is missing."""
        made = self.path / name
        if not made.exists():
            made.mkdir(mode=0o700)
            self._give(made)
        return made

    def write(self, name: str, text: str, to_servers: bool = True) -> Path:
        """Write a file that only this user, and the servers if so, can read. Readers never see a partial file."""
        handle, draft = tempfile.mkstemp(dir=self.path)  # mode 0600
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        if to_servers:
            self._give(Path(draft))
        return Path(draft).rename(self.path / name)

    def known(self) -> dict[str, Any]:
        """Load the stored secrets and ports, or generate new secrets. Raises ServersError."""
        path = self.path / _KNOWN
        try:
            known = json.loads(path.read_text())
            if isinstance(known, dict) and {"postgres_password", "nats_token"} <= known.keys():
                return known
        except FileNotFoundError:
            if not (self.path / "postgres").exists():
                return {"postgres_password": secrets.token_hex(16), "nats_token": secrets.token_hex(16)}
        except ValueError:
            pass
        raise ServersError(
            f"{path} is missing or cannot be read: it contains the passwords of this folder; repair it or name another"
            " folder"
        )

    def remember(self, known: dict[str, Any]) -> None:
        self.write(_KNOWN, json.dumps(known, indent=1) + "\n", to_servers=False)

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
        "PostgreSQL refuses to run as root: start holdlog up as another user, or create one for PostgreSQL: "
        f"useradd --system {ACCOUNTS[0]}"
    )


def _made(data: Path) -> Path:
    """Create the folder, or check that it belongs to this user and to holdlog. Raises ServersError, OSError."""
    try:
        path = data.expanduser().resolve()
    except RuntimeError:  # ~ of an unknown user
        raise ServersError(f"--data {data}: unknown user after ~; write the path without ~") from None
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise ServersError(f"--data {data} belongs to another user; name a folder that you own")
    names = os.listdir(path)
    if names and _LOCK not in names:
        raise ServersError(f"--data {data} contains other files; name a new or empty folder")
    return path


def _locked(path: Path) -> int:
    handle = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
        os.close(handle)
        message = f"{path} is in use by another holdlog up (process {holder}), which printed its URLs"
        raise ServersError(message) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, b"%d\n" % os.getpid(), 0)
    return handle
