"""echoValue's snippet runs unchanged over HTTP: only its token and its address are ours."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from tests.support.programs import HttpServer, environment

SNIPPET = (Path(__file__).parent / "seeds" / "echovalue.txt").read_text()
SCRIPTED = Path(__file__).parents[1] / "support" / "scripted"
pytestmark = pytest.mark.xdist_group("echovalue")  # one server, in one worker
AT = {"group": "import", "key": "status"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = HttpServer(
        tmp_path_factory.mktemp("echovalue") / "state.db", "--open-tokens", "50", "--space-bytes", "1000000"
    )
    yield server
    server.close()


@pytest.fixture
def token(server):
    """As the snippet's comment says: `curl …/token -d 'token=new'`."""
    return new_token(server)


def new_token(server):
    response = requests.post(f"{server.url}/token", data={"token": "new"}, timeout=30)
    assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert "\n" not in response.text
    return response.text


def run(server, token, *calls):
    """What the snippet prints when its model makes these calls."""
    program = SNIPPET.replace('"your-echovalue-token"', repr(token))
    program = program.replace('"https://api.echovalue.dev/kv"', repr(f"{server.url}/kv"))
    assert program.count(server.url) == program.count(token) == 1
    env = environment({"PYTHONPATH": str(SCRIPTED), "SCRIPTED_CALLS": json.dumps(calls)})
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def ask(server, token, method, path, **options):
    return requests.request(method, f"{server.url}/kv{path}", headers={"x-token": token}, timeout=30, **options)


def test_snippet_prints_what_its_last_line_says(server, token):
    assert run(server, token, ("save_state", AT | {"value": "done"})) == ["save_stateOK"]


def test_agents_with_one_token_share_values_and_others_do_not(server, token):
    assert run(server, token, ("read_state", AT)) == ["read_stateKey Not Found"]
    saved = ("save_state", AT | {"value": "läuft …", "ttl": 60})
    assert run(server, token, saved, ("read_state", AT)) == ["save_stateOK", "read_stateläuft …"]
    assert run(server, new_token(server), ("read_state", AT)) == ["read_stateKey Not Found"]


def test_value_is_read_as_it_was_saved_until_it_is_deleted(server, token):
    for text in ("first", "ü €\n", "", '{"a": 1}'):
        assert ask(server, token, "POST", "/g/k?ttl=60", data=text.encode()).text == "OK"
        read = ask(server, token, "GET", "/g/k")
        assert (read.status_code, read.text) == (200, text)
        assert read.headers["content-type"] == "text/plain; charset=utf-8"
    assert ask(server, token, "DELETE", "/g/k").text == "OK"
    gone = ask(server, token, "GET", "/g/k")
    assert (gone.status_code, gone.text) == (404, "Key Not Found")


@pytest.mark.parametrize(("ttl", "lives"), [("?ttl=60", 60), ("?ttl=2592000", 2_592_000), ("", 2_592_000)])
def test_value_lives_for_its_ttl_or_thirty_days(server, token, ttl, lives):
    ask(server, token, "POST", f"/g/k{ttl}", data="x")
    headers = ask(server, token, "GET", "/g/k").headers
    updated, ends = (datetime.fromisoformat(headers[f"holdlog-{name}-at"]) for name in ("updated", "expires"))
    assert lives - 2 < (ends - updated).total_seconds() <= lives


@pytest.mark.parametrize("ttl", ["-1", "x"])
def test_ttl_out_of_range_is_refused_by_name(server, token, ttl):
    refused = ask(server, token, "POST", f"/g/k?ttl={ttl}", data="x")
    assert (refused.status_code, "ttl" in refused.text) == (400, True)
    assert ask(server, token, "GET", "/g/k").status_code == 404


@pytest.mark.parametrize("name", ["a/b", "%2F", "ü €", "a?b#c&d", "+ +", "a" * 512])
def test_name_may_be_percent_encoded(server, token, name):
    path = f"/{quote(name, safe='')}/{quote(name, safe='')}"
    assert ask(server, token, "POST", path, data="x").text == "OK"
    assert ask(server, token, "GET", path).text == "x"


@pytest.mark.parametrize("token", ["", "wrong"])
def test_call_without_a_valid_token_is_refused(server, token):
    assert ask(server, token, "GET", "/g/k").status_code == 401
