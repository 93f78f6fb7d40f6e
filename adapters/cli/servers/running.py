"""Starts the servers and stops them."""

import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.servers import ServersError
from holdlog.adapters.cli.servers.folder import Folder
from holdlog.adapters.cli.servers.group import Group, last_words
from holdlog.adapters.cli.servers.programs import LOOPBACK, Nats, Postgres, free_port, is_free

STARTS_WITHIN: Final = 60.0
"""Seconds for a server to start; after a crash PostgreSQL first recovers from its log."""
POLL_EVERY: Final = 0.01
WATCH_EVERY: Final = 0.1
MOST_ATTEMPTS: Final = 5
"""Attempts to find a port, because another process may take it after our check."""

_PROGRAMS: Final[Mapping[str, type[Postgres] | type[Nats]]] = {"nats": Nats, "postgres": Postgres}
"""In the order of their start: that of PostgreSQL takes longer."""


class Running:
    """A running server."""

    def __init__(self, kind: str, program: Postgres | Nats, fixed: int | None, last: int | None) -> None:
        """Start it and wait until it is ready. `fixed`: the only port to use; `last`: the one to try first. Raises
        ServersError."""
        self.kind = kind
        self.program = program
        if fixed is not None and not is_free(fixed):
            raise self._taken(fixed)
        program.prepare()
        for attempt in range(MOST_ATTEMPTS):
            self.port = fixed or (last if attempt == 0 and last is not None and is_free(last) else free_port())
            self.process = program.start(self.port)
            if self._answers(self.process):
                self.url = program.url(self.port)
                return
            if is_free(self.port):
                raise ServersError(f"{program.name} did not start: {last_words(program.log)}")
            if fixed is not None:
                raise self._taken(fixed)
        raise ServersError(f"{program.name} found no free port on {LOOPBACK}")

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the server is ready. Returns False if it exited; raises ServersError if it does not respond in
        time."""
        deadline = time.monotonic() + STARTS_WITHIN
        while process.poll() is None:
            if self.program.is_ready(process, self.port):
                return True
            if time.monotonic() > deadline:
                raise ServersError(f"{self.program.name} does not answer: {last_words(self.program.log)}")
            time.sleep(POLL_EVERY)
        return False

    def _taken(self, port: int) -> ServersError:
        option = f"--{self.kind}-port"
        return ServersError(
            f"port {port} of {LOOPBACK} is in use: name another one with {option}, or omit {option} to use a free port"
        )


def require_installed(kinds: Collection[str]) -> None:
    """Raise ServersError if a server is not installed."""
    for kind in kinds:
        _PROGRAMS[kind].program()


def wait_for_exit(running: Mapping[str, Running]) -> str:
    """Wait until a server exits unexpectedly; return one line that reports this."""
    while True:
        for each in running.values():
            if each.process.poll() is not None:
                return f"{each.program.name} exited unexpectedly: {last_words(each.program.log)}"
        time.sleep(WATCH_EVERY)


@contextmanager
def servers(data: Path | None, ports: Mapping[str, int | None]) -> Iterator[dict[str, Running]]:
    """Run the servers while the block runs. They are ready when it begins and have ended when this returns.

    `data`: their folder; None: a temporary one. `ports`: of the servers to start, by kind; None: the port of the
    previous run if it is free, else any free port. Raises ServersError.
    """
    folder = Folder(data)
    try:
        known = folder.known()
        folder.remember(known)  # before the database exists: otherwise a crash could lose its password
        group = Group(folder)
        try:
            started: dict[str, Running] = {}
            for kind in (kind for kind in _PROGRAMS if kind in ports):
                program = _PROGRAMS[kind](folder, group, known[_PROGRAMS[kind].secret_name])
                started[kind] = Running(kind, program, ports[kind], known.get(f"{kind}_port"))
                known[f"{kind}_port"] = started[kind].port
            folder.remember(known)
            yield {kind: started[kind] for kind in ports}
        finally:
            group.end()
    finally:
        if folder.is_temporary:
            shutil.rmtree(folder.path, ignore_errors=True)
