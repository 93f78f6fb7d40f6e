"""Container files: their commands start real servers, their variables are settings, their images have all files."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from holdlog.adapters.cli.settings import RULES
from tests.support.programs import HttpServer, environment, run
from tests.support.servers import Nats, free_port
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
UV = os.environ.get("UV") or shutil.which("uv")
VARIABLES = {f"HOLDLOG_{name.upper()}" for name in (*RULES, "db")}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()))
(POD,) = [it["spec"]["template"]["spec"] for it in KUBERNETES if it["kind"] == "Deployment"]
(CONTAINER,) = POD["containers"]
COMMANDS = {"compose.yaml": COMPOSE["services"]["server"]["command"], "kubernetes.yaml": CONTAINER["args"]}


@pytest.mark.parametrize("file", COMMANDS)
def test_server_starts_with_the_options_of_the_file_once_it_has_the_token(file: str, db: Path) -> None:
    command: list[str] = COMMANDS[file]
    text = next(path for path in (ROOT / file, ROOT / "deploy" / file) if path.exists()).read_text()
    (create,) = re.findall(r"(token create --name \S+ --allow '\S+')", text)
    assert command[0] == "serve"
    options = [word for word in command[1:] if not word.startswith("--transport") and word != "http"]
    assert "run holdlog token create" in run(*command, "--port", "0", "--db", db).err
    token = run(*create.replace("'", "").split(), "--db", db).out.strip()
    server = HttpServer(db, *[word for word in options if not word.startswith("--port=")])
    try:
        port = server.url.rpartition(":")[2]
        name = next(words for words in re.findall(r"--allowed-host[= ](\S+)", " ".join(options)))
        url = f"http://127.0.0.1:{port}"
        for path in ("/readyz", "/healthz"):
            assert requests.get(url + path, headers={"host": "10.0.0.7"}, timeout=PATIENCE).status_code == 200
        headers = {"host": name, "authorization": f"Bearer {token}"}
        assert requests.get(f"{url}/v1/claims", headers=headers, timeout=PATIENCE).status_code == 200
        headers["host"] = "elsewhere.example"
        assert requests.get(f"{url}/v1/claims", headers=headers, timeout=PATIENCE).status_code in (403, 421)
    finally:
        server.close()


def test_variables_of_containers_are_settings() -> None:
    services: list[dict[str, Any]] = [it.get("environment", {}) for it in COMPOSE["services"].values()]
    names = {name for it in services for name in it} | {it["name"] for it in CONTAINER["env"]}
    assert {it for it in names if it.startswith("HOLDLOG_")} == {"HOLDLOG_DB", "HOLDLOG_NATS"}
    assert set(re.findall(r"HOLDLOG_[A-Z_]+", (ROOT / "Dockerfile").read_text())) <= VARIABLES


class ConfiguredNats(Nats):
    """With the configuration of the container, but for its ports and its folder."""

    def prepare(self) -> list[str]:
        program, *listen = super().prepare()[:5]
        configuration = self.folder / "nats.conf"
        configuration.write_text((ROOT / "deploy/nats.conf").read_text().replace('"/data"', f'"{self.folder}/data"'))
        return [program, *listen, "-c", str(configuration), "-m", str(free_port())]


def test_relay_publishes_to_a_server_with_the_configuration_and_token_of_the_file(db: Path, tmp_path: Path) -> None:
    assert COMPOSE["services"]["relay"]["command"] == ["relay"]
    server = ConfiguredNats(tmp_path / "nats")
    given = COMPOSE["services"]["nats"]["environment"]["NATS_TOKEN"]
    server.env = {"NATS_TOKEN": re.sub(r"\$\{.*\}", "0123", given)}
    url = re.sub(r"\$\{.*\}", "0123", COMPOSE["services"]["relay"]["environment"]["HOLDLOG_NATS"])
    try:
        server.start()
        env = {"HOLDLOG_DB": str(db), "HOLDLOG_NATS": url.replace("nats:4222", f"127.0.0.1:{server.port}")}
        assert run("set", "n", "k", "1", "--force", "--updated-by", "ann", env=env).code == 0
        done = run("relay", "--once", env=env)
        assert done.code == 0, done
        wrong = run("relay", "--once", env=env | {"HOLDLOG_NATS": env["HOLDLOG_NATS"].replace("0123", "0124")})
        assert (wrong.code, "0124" in wrong.err) == (2, False), wrong
    finally:
        server.stop()


def test_probes_and_health_checks_ask_routes_that_servers_have() -> None:
    probes = [CONTAINER[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert probes == ["/readyz", "/readyz", "/healthz"]
    assert 'urlopen("http://127.0.0.1:8420/readyz"' in COMPOSE["services"]["server"]["healthcheck"]["test"][-1]
    assert RULES["port"].parse("8420") == CONTAINER["ports"][0]["containerPort"]
    assert POD["terminationGracePeriodSeconds"] > CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"] + 5


def test_images_are_built_from_files_that_exist_and_are_not_ignored() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert [it for it in allowed if not (ROOT / it).exists()] == []
    for file in ("Dockerfile", "deploy/nats.Dockerfile"):
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / file).read_text(), re.MULTILINE)
        names = [name for words in copied for name in words.split() if name != "."]
        assert [name for name in names if name not in allowed] == []


@pytest.mark.slow
@pytest.mark.skipif(UV is None, reason="the image installs with uv")
def test_files_of_the_image_are_all_that_an_installation_needs(tmp_path: Path) -> None:
    """The RUN lines of the Dockerfile, in a folder with what .dockerignore lets through."""
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        source, target = ROOT / line[1:], tmp_path / "src" / line[1:]
        if line.startswith("!") and source.is_dir():
            shutil.copytree(source, target)
        elif line.startswith("!"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    env = environment({"UV_PROJECT_ENVIRONMENT": str(tmp_path / "env")})
    for words in re.findall(r"^RUN uv (sync .+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
        subprocess.run([str(UV), *words.split()], cwd=tmp_path / "src", env=env, check=True, timeout=300)
    done = subprocess.run(
        [tmp_path / "env/bin/holdlog", "--version"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("holdlog 0.2")
