"""The Python of echoValue's documents runs as it stands: only its token and its address are ours."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.support.http import serving

pytestmark = pytest.mark.xdist_group("echovalue")  # one server, in one worker
SCRIPTED = Path(__file__).parents[1] / "support" / "scripted"
DOCUMENT = (Path(__file__).parents[1] / "support" / "fixtures" / "echovalue.txt").read_text()
"""Word by word, with the indentation that was lost on its way restored."""
AT = {"group": "import", "key": "status"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("seed"), "--open-tokens") as url:
        yield url


def new_token(url: str) -> str:
    given = requests.post(f"{url}/token", data={"token": "new"}, timeout=10)
    assert given.status_code == 200, given.text
    return given.text


def run(url: str, token: str, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """What the document's program prints when its model makes these calls."""
    program = DOCUMENT.replace('"your-echovalue-token"', repr(token))
    program = program.replace('"https://api.echovalue.dev/kv"', repr(f"{url}/kv"))
    assert program.count(url) == program.count(token) == 1
    environment = os.environ | {"PYTHONPATH": str(SCRIPTED), "SCRIPTED_CALLS": json.dumps(calls)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.check
def test_program_of_the_document_prints_what_the_document_states(url: str) -> None:
    assert run(url, new_token(url), ("save_state", AT | {"value": "done"})) == ["save_stateOK"]


@pytest.mark.check
def test_agents_with_the_same_token_share_values(url: str) -> None:
    token = new_token(url)
    assert run(url, token, ("read_state", AT)) == ["read_stateKey Not Found"]
    assert run(url, token, ("save_state", AT | {"value": "läuft …", "ttl": 60})) == ["save_stateOK"]
    assert run(url, token, ("read_state", AT), ("save_state", AT | {"value": "done"})) == [
        "read_stateläuft …",
        "save_stateOK",
    ]
    assert run(url, token, ("read_state", AT)) == ["read_statedone"]
    record = requests.get(f"{url}/kv/import", headers={"x-token": token}, timeout=10).json()["records"][0]
    assert record["updated_by"].startswith("token:open-")


@pytest.mark.check
def test_second_token_has_a_separate_space(url: str) -> None:
    run(url, new_token(url), ("save_state", AT | {"value": "mine"}))
    assert run(url, new_token(url), ("read_state", AT)) == ["read_stateKey Not Found"]


@pytest.mark.check
def test_value_lives_for_a_day_by_default_in_the_documents_program(url: str) -> None:
    token = new_token(url)
    for ttl, least, most in (({}, 86_300, 86_400), ({"ttl": 60}, 0, 60)):
        run(url, token, ("save_state", AT | {"value": "done"} | ttl))
        answer = requests.get(f"{url}/kv/import/status", headers={"x-token": token}, timeout=10)
        updated, ends = (answer.headers[f"holdlog-{name}-at"] for name in ("updated", "expires"))
        lives = (datetime.fromisoformat(ends) - datetime.fromisoformat(updated)).total_seconds()
        assert least < lives <= most


@pytest.mark.check
@pytest.mark.parametrize("name", ["a/b", "%2F", "%", "ü €", "a?b#c&d=e;f", "+ +", "日本", "\\", '"', "a" * 512])
def test_name_reaches_a_real_server_unchanged(url: str, name: str) -> None:
    headers = {"x-token": new_token(url)}
    place = f"{url}/kv/{quote(name, safe='')}/{quote(name, safe='')}"
    assert requests.put(place, data=name.encode(), headers=headers, timeout=10).status_code == 201
    read = requests.get(place, headers=headers, timeout=10)
    assert (read.text, read.headers["content-type"]) == (name, "text/plain; charset=utf-8")
    listed = requests.get(f"{url}/kv", headers=headers, timeout=10).json()
    assert listed["namespaces"] == [{"namespace": name, "count": 1}]


def test_responses_without_a_body_leave_the_connection_in_step(url: str) -> None:
    headers = {"x-token": new_token(url)}
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)

    def ask(method: str, path: str, body: str | None = None, **more: str) -> tuple[int, str]:
        connection.request(method, path, body, headers | {name.replace("_", "-"): told for name, told in more.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    assert ask("PUT", "/kv/g/k", "done") == (201, "OK")
    for _ in range(3):
        assert ask("HEAD", "/kv/g/k") == (200, "")
        assert ask("GET", "/kv/g/k", if_none_match='"1"') == (304, "")
        assert ask("HEAD", "/kv/g/none") == (404, "")
        assert ask("GET", "/kv/g/k") == (200, "done")
    connection.close()
