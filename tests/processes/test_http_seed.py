"""The Python of echoValue's documents runs as it stands: only its token and its address are ours."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.http import serving

SCRIPTED = Path(__file__).parents[1] / "scripted"
DOCUMENT = (Path(__file__).parents[1] / "fixtures" / "echovalue.txt").read_text()
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


def test_the_program_of_the_document_prints_what_it_says(url: str) -> None:
    assert run(url, new_token(url), ("save_state", AT | {"value": "done"})) == ["save_stateOK"]


def test_any_agent_with_the_same_token_can_read_and_write(url: str) -> None:
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


def test_another_token_has_a_space_of_its_own(url: str) -> None:
    run(url, new_token(url), ("save_state", AT | {"value": "mine"}))
    assert run(url, new_token(url), ("read_state", AT)) == ["read_stateKey Not Found"]


def test_a_value_lives_for_a_day_as_the_program_says_unless_told(url: str) -> None:
    token = new_token(url)
    for ttl, least, most in (({}, 86_300, 86_400), ({"ttl": 60}, 0, 60)):
        run(url, token, ("save_state", AT | {"value": "done"} | ttl))
        answer = requests.get(f"{url}/kv/import/status", headers={"x-token": token}, timeout=10)
        updated, ends = (answer.headers[f"holdlog-{name}-at"] for name in ("updated", "expires"))
        lives = (datetime.fromisoformat(ends) - datetime.fromisoformat(updated)).total_seconds()
        assert least < lives <= most
