"""Starts both servers and stops them."""

import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.cli.servers import nats, postgres
from holdlog.adapters.cli.servers.errors import ServersError
from holdlog.adapters.cli.servers.folder import Folder
from holdlog.adapters.cli.servers.group import Group, last_words
from holdlog.adapters.cli.servers.ports import LOOPBACK, free_port, is_free

POSTGRES: Final = "postgres"
NATS: Final = "nats"
STARTS_WITHIN: Final = 60.0
"""Seconds for a server to start; after a crash PostgreSQL first recovers from its log."""
POLL_EVERY: Final = 0.01
MOST_ATTEMPTS: Final = 5
"""Attempts to find a port, because another process may take it after our check."""

ServerProgram = postgres.Postgres | nats.Nats


class Wanted(NamedTuple):
    """Options of `holdlog up`. `data` None: use a temporary folder. A port of None: use the port of the previous run if
    it is free, else any free port."""

    data: Path | None = None
    kinds: tuple[str, ...] = (POSTGRES, NATS)
    postgres_port: int | None = None
    nats_port: int | None = None


class Running:
    """The running servers. `urls` contain their passwords."""

    def __init__(self, folder: Folder, started: dict[str, tuple[ServerProgram, int, subprocess.Popen[bytes]]]) -> None:
        self.folder = folder.path
        self.is_temporary = folder.is_temporary
        self.urls = {kind: server.url(port) for kind, (server, port, _) in started.items()}
        self.names = [server.name for server, _, _ in started.values()]
        self._ended = queue.SimpleQueue[ServerProgram]()
        for server, _, process in started.values():
            threading.Thread(target=self._watch, args=(server, process), daemon=True).start()

    def wait(self) -> str:
        """Wait until a server exits unexpectedly; return one line that reports this."""
        server = self._ended.get()
        return f"{server.name} exited unexpectedly: {last_words(server.log)}"

    def _watch(self, server: ServerProgram, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended.put(server)


def require_installed(kinds: Collection[str]) -> None:
    """Raise ServersError if a server is not installed."""
    if POSTGRES in kinds:
        postgres.programs()
    if NATS in kinds:
        nats.program()


@contextmanager
def servers(wanted: Wanted) -> Iterator[Running]:
    """Run the servers while the block runs. They are ready when it begins and have ended when this returns. Raises
    ServersError."""
    folder = Folder(wanted.data)
    try:
        known = folder.known()
        group = Group(folder.path, removed=folder.is_temporary, account=folder.account)
        try:
            started: dict[str, tuple[ServerProgram, int, subprocess.Popen[bytes]]] = {}
            if NATS in wanted.kinds:
                nats_server = nats.Nats(folder, group, known.nats_token)
                started[NATS] = _started(nats_server, wanted.nats_port, known.nats_port)
                known = known._replace(nats_port=started[NATS][1])
            if POSTGRES in wanted.kinds:
                folder.remember(known)  # before the database exists: otherwise a crash could lose its password
                database = postgres.Postgres(folder, group, known.postgres_password)
                started[POSTGRES] = _started(database, wanted.postgres_port, known.postgres_port)
                known = known._replace(postgres_port=started[POSTGRES][1])
            folder.remember(known)
            yield Running(folder, {kind: started[kind] for kind in (POSTGRES, NATS) if kind in started})
        finally:
            group.end()
    finally:
        if folder.is_temporary:
            shutil.rmtree(folder.path, ignore_errors=True)


def _started(
    server: ServerProgram, fixed: int | None, last: int | None
) -> tuple[ServerProgram, int, subprocess.Popen[bytes]]:
    """Start the server and wait until it is ready; return it with its port and process. Raises ServersError."""
    if fixed is not None and not is_free(fixed):
        raise _taken(server, fixed)
    server.prepare()
    for attempt in range(MOST_ATTEMPTS):
        port = fixed or (last if attempt == 0 and last is not None and is_free(last) else free_port())
        process = server.start(port)
        if _answers(server, port, process):
            return server, port, process
        if is_free(port):
            raise ServersError(f"{server.name} did not start: {last_words(server.log)}")
        if fixed is not None:
            raise _taken(server, fixed)
    raise ServersError(f"{server.name} found no free port on {LOOPBACK}")


def _answers(server: ServerProgram, port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server is ready. Returns False if it exited; raises ServersError if it does not respond in
    time."""
    deadline = time.monotonic() + STARTS_WITHIN
    while process.poll() is None:
        if server.is_ready(process, port):
            return True
        if time.monotonic() > deadline:
            raise ServersError(f"{server.name} does not answer: {last_words(server.log)}")
        time.sleep(POLL_EVERY)
    return False


def _taken(server: ServerProgram, port: int) -> ServersError:
    option = f"--{server.name.lower().replace('postgresql', POSTGRES)}-port"
    return ServersError(
        f"port {port} of {LOOPBACK} is in use: name another one with {option}, or omit {option} to use a free port"
    )
