"""Without the packages of an extra: what needs none of them works, and the rest says what to install."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.operating_system.extras import missing
from tests.support.slow import slow

HIDING = """
import importlib.machinery, os, sys

class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        hidden = fullname.partition(".")[0] in os.environ["HIDDEN"].split(",")
        return None if hidden else super().find_spec(fullname, path, target)

sys.meta_path[:] = [Hiding if it is importlib.machinery.PathFinder else it for it in sys.meta_path]
"""
"""A `sitecustomize` for a Python that does not find some packages, as if they were not installed."""

POSTGRES = ("--db", "postgresql://ann:s3cret@127.0.0.1:1/x")
NATS = ("--nats", "nats://ann:s3cret@127.0.0.1:1")
Without = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def without(tmp_path: Path) -> Without:
    """Run `holdlog` with these words, or a program after `-c`, without some packages."""
    (tmp_path / "sitecustomize.py").write_text(HIDING)

    def run(hidden: str, *words: str | Path, given: str = "", **environ: str) -> "subprocess.CompletedProcess[str]":
        paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = os.environ | {"HIDDEN": hidden, "PYTHONPATH": paths} | environ
        program = () if words[0] == "-c" else ("-m", "holdlog")
        command = [sys.executable, *program, *map(str, words)]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, env=env, check=False)

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StateStore(tmp_path / "state.db") as store:
        store.set("n", "k", 1, updated_by="ann")
    return tmp_path / "state.db"


@pytest.mark.check
@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        ("psycopg", ("claims",)),
        ("psycopg", ("serve",)),
        *slow(("psycopg", ("relay", *NATS)), ("psycopg", ("subscribe", *NATS))),
    ],
)
def test_store_in_postgres_without_its_extra_names_what_to_install(
    without: Without, hidden: str, words: tuple[str, ...]
) -> None:
    done = without(hidden, *words, *POSTGRES)
    said = f"holdlog: {missing(hidden)}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_missing_libpq_below_psycopg_names_what_to_install(without: Without) -> None:
    done = without("psycopg_c,psycopg_binary", "claims", *POSTGRES, PSYCOPG_IMPL="binary")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"holdlog: {missing('libpq')}\n"


@pytest.mark.check
@pytest.mark.parametrize("command", ["serve", "relay", "subscribe"])
def test_nats_without_its_extra_names_what_to_install(without: Without, store: Path, command: str) -> None:
    done = without("nats", command, *NATS, "--db", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"holdlog: {missing('nats')}\n"


@pytest.mark.check
@pytest.mark.parametrize(("command", "option"), [("serve", "--nats-nkey"), ("relay", "--nats-creds")])
def test_nats_keys_without_their_extra_name_what_to_install(
    without: Without, store: Path, command: str, option: str
) -> None:
    done = without("nkeys", command, *NATS, "--db", store, option, store)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert str(missing("nkeys")) in done.stderr


@pytest.mark.parametrize(("hidden", "named"), [("langgraph", "langgraph"), ("langchain_core", "langchain_core")])
def test_langgraph_store_without_its_extra_names_what_to_install(without: Without, hidden: str, named: str) -> None:
    done = without(hidden, "-c", "from holdlog.langgraph import HoldlogStore")
    assert done.returncode == 1
    said = f"ImportError: {missing(named)}"
    assert done.stderr.splitlines()[-1] == said
    assert "During handling" not in done.stderr


@pytest.mark.check
def test_server_needs_only_the_extra_mcp(without: Without, store: Path) -> None:
    assert (
        without("psycopg,psycopg_pool,nats,nkeys,langgraph,prometheus_client", "serve", "--db", store).returncode == 0
    )


@pytest.mark.check
@pytest.mark.parametrize("hidden", ["fastmcp,mcp,mcp_types", "mcp,starlette"])  # the latter as in fastmcp-slim
def test_server_without_the_extra_mcp_names_it_to_its_host(without: Without, store: Path, hidden: str) -> None:
    initialize = {"jsonrpc": "2.0", "id": "é1", "method": "initialize", "params": {}}
    done = without(hidden, "serve", "--db", store, given=json.dumps(initialize) + "\n")
    said = f"holdlog: {missing('fastmcp')}"
    assert (done.returncode, done.stderr) == (2, f"{said}\n")
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": "é1", "error": {"code": -32603, "message": said}}


@pytest.mark.parametrize("given", ["", "not json\n", "[]\n", '{"jsonrpc": "2.0", "method": "initialized"}\n'])
def test_server_without_the_extra_mcp_answers_only_requests(without: Without, store: Path, given: str) -> None:
    done = without("fastmcp", "serve", "--db", store, given=given)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.check
@pytest.mark.parametrize("hidden", ["prometheus_client", "httptools"])
def test_server_over_http_without_its_extra_names_what_to_install(without: Without, store: Path, hidden: str) -> None:
    done = without(hidden, "serve", "--transport", "http", "--port", "0", "--db", store)
    said = f"holdlog: {missing(hidden)}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.check
def test_server_over_http_in_a_base_installation_names_its_extra_at_once(without: Without, store: Path) -> None:
    done = without("fastmcp,uvicorn", "serve", "--transport", "http", "--port", "0", "--db", store)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"holdlog: {missing('uvicorn')}\n")


def test_name_of_the_package_without_its_extra_names_what_to_install(without: Without) -> None:
    done = without("nats", "-c", "from holdlog import subscribe")
    assert done.stderr.splitlines()[-1] == f"ImportError: {missing('nats')}"


@pytest.mark.parametrize("command", [("checkpoint",), ("evidence", "-o", "case.zip")], ids=lambda words: words[0])
def test_signature_without_its_extra_names_what_to_install(
    without: Without, store: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = sorted(tmp_path.iterdir())
    words = (word.replace("case.zip", str(tmp_path / "case.zip")) for word in command)
    done = without("cryptography", *words, "--sign", "key.pem", "--db", store)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"holdlog: {missing('cryptography')}\n")
    assert not {path.suffix for path in {*tmp_path.iterdir()} - {*before}} & {".zip", ".partial"}


@pytest.mark.check
def test_command_line_needs_no_extra(without: Without, store: Path) -> None:
    hidden = (
        "anyio,fastmcp,mcp,mcp_types,starlette,uvicorn,psycopg,psycopg_pool,nats,nkeys,langgraph,psutil,cryptography"
    )
    for words in (
        ("set", "n", "k", "1", "--force"),
        ("get", "n", "k"),
        ("claim", "custom://tea"),
        ("claims",),
        ("log",),
        ("activity",),
        ("conflicts",),
        ("history", "custom://tea"),
        ("timeline", "custom://tea"),
        ("doctor",),
        ("token", "list"),
        ("verify",),
        ("checkpoint",),
        ("evidence", "-o", store.with_name("case.zip")),
        ("copy", store, store.with_name("copy.db")),
    ):
        at = () if words[0] == "copy" else ("--db", store)
        assert without(hidden, *words, *at).returncode == 0, words
