"""`holdlog up`: real servers that keep what they confirmed and end with it, however it ends."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from holdlog import StateStore
from holdlog.adapters.cli.servers.programs import free_port
from tests.processes.conftest import StartUp
from tests.support.processes.ups import holdlog, is_open, processes_of
from tests.support.processes.workers import PATIENCE, until
from tests.support.slow import slow

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.mark.check
def test_urls_printed_by_up_serve_a_store_and_its_relay(up: StartUp) -> None:
    one = up().ready()
    assert one.told.keys() == {"postgres", "nats", "data"}
    holdlog(one, "set", "campaign", "budget", "10000", "--version", "0")
    holdlog(one, "relay", "--once")
    (event,) = holdlog(one, "subscribe", "--after", "0", "--limit", "1").splitlines()
    assert json.loads(event)["data"]["value"] == 10000


@pytest.mark.check
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_both_servers_and_removes_the_temporary_folder(
    how: signal.Signals, up: StartUp, base: Path
) -> None:
    one = up().ready()
    assert processes_of(base)
    assert one.end(how) == 0
    assert not processes_of(base)
    assert not is_open(one.postgres)
    assert not is_open(one.nats)
    assert os.listdir(base) == []


@pytest.mark.check
def test_killed_up_takes_its_servers_and_temporary_folder_with_it(up: StartUp, base: Path) -> None:
    one = up().ready()
    one.end(signal.SIGKILL)
    until(lambda: not processes_of(base) and os.listdir(base) == [])
    assert not is_open(one.postgres)
    assert not is_open(one.nats)


@pytest.mark.check
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_servers_end_when_their_folder_is_removed(how: signal.Signals, up: StartUp, base: Path) -> None:
    one = up("--only", "nats", "--data", base / "data").ready()
    shutil.rmtree(base / "data")
    one.end(how)
    until(lambda: not processes_of(base))
    assert not is_open(one.nats)


@pytest.mark.check
def test_up_killed_during_its_start_leaves_nothing(up: StartUp, base: Path) -> None:
    one = up()
    until(lambda: list(base.glob("holdlog-up-*/postgres.new")))
    one.end(signal.SIGKILL)
    until(lambda: not processes_of(base) and os.listdir(base) == [])


@pytest.mark.check
@pytest.mark.parametrize("killed", ["all", *slow("up", "up and its keeper")])
def test_next_up_on_a_folder_finds_all_earlier_writes(killed: str, up: StartUp, base: Path) -> None:
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


@pytest.mark.check
def test_server_that_ends_by_itself_is_reported_and_ends_the_other(up: StartUp, base: Path) -> None:
    one = up().ready()
    (folder,) = base.glob("holdlog-up-*")
    os.kill(int((folder / "postgres/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    assert re.fullmatch(r"holdlog: PostgreSQL exited unexpectedly: .*\n", one.complaint())
    assert one.process.returncode == 1
    assert not processes_of(base)


@pytest.mark.check
def test_up_flushes_writes_to_disk(up: StartUp, base: Path) -> None:
    one = up("--data", base / "kept").ready()
    with psycopg.connect(one.postgres) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute(f"SHOW {setting}").fetchone() == ("on",)
    assert "sync_interval: always" in (base / "kept/nats.conf").read_text()
    assert list((base / "kept/nats").glob("jetstream*"))


@pytest.mark.check
def test_up_uses_the_requested_ports(up: StartUp) -> None:
    first, second = free_port(), free_port()
    one = up("--postgres-port", first, "--nats-port", second).ready()
    assert (urlsplit(one.postgres).port, urlsplit(one.nats).port) == (first, second)


@pytest.mark.check
def test_up_prints_commands_to_paste_and_ends_with_a_key(base: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.chdir(base)
        os.environ.pop("NO_COLOR", None)
        os.execve(sys.executable, [sys.executable, "-m", "holdlog", "up"], os.environ | {"TMPDIR": str(base)})
    said = b""
    while b"stops both." not in said:
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
