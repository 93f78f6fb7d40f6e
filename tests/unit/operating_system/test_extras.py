"""The command that installs a missing extra, per installer."""

import json
import sys
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from holdlog.adapters.operating_system.extras import install_command, missing

GIT = {"url": "https://example.org/holdlog.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}


class Installed(Distribution):
    """A distribution with these metadata files."""

    def __init__(self, **files: str) -> None:
        self._files = files

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


def installed(origin: object = None, installer: str = "pip\n") -> Installed:
    files = {"INSTALLER": installer}
    return Installed(**files, **({} if origin is None else {"direct_url.json": json.dumps(origin)}))


@pytest.mark.parametrize(
    ("installer", "origin", "command"),
    [
        ("pip\n", None, "PYTHON -m pip install 'holdlog[nats]'"),
        ("uv", None, "uv pip install --python PYTHON 'holdlog[nats]'"),
        ("pip\n", GIT, "PYTHON -m pip install 'holdlog[nats] @ git+https://example.org/holdlog.git'"),
        ("pip\n", {"url": "file:///x/y.whl"}, "PYTHON -m pip install 'holdlog[nats] @ file:///x/y.whl'"),
        (
            "uv",
            {"url": "file:///a%20b", "dir_info": {"editable": True}},
            "uv pip install --python PYTHON -e '/a b[nats]'",
        ),
    ],
)
def test_pip_installs_the_extra_from_where_holdlog_came(
    tmp_path: Path, installer: str, origin: object, command: str
) -> None:
    assert install_command("nats", tmp_path, installed(origin, installer)) == command.replace("PYTHON", sys.executable)


def test_uv_tool_keeps_the_extras_that_are_installed(tmp_path: Path) -> None:
    receipt = '[tool]\nrequirements = [{ name = "other" }, { name = "holdlog", extras = ["mcp"] }]\n'
    (tmp_path / "uv-receipt.toml").write_text(receipt)
    command = "uv tool install 'holdlog[mcp,nats] @ git+https://example.org/holdlog.git'"
    assert install_command("nats", tmp_path, installed(GIT, "uv")) == command


@pytest.mark.parametrize(
    ("given", "extras"), [("holdlog", "nats"), ("holdlog[mcp, http] @ git+https://example.org/x", "http,mcp,nats")]
)
def test_pipx_keeps_the_extras_that_are_installed(tmp_path: Path, given: str, extras: str) -> None:
    (tmp_path / "pipx_metadata.json").write_text(json.dumps({"main_package": {"package_or_url": given}}))
    assert install_command("nats", tmp_path, installed()) == f"pipx install --force 'holdlog[{extras}]'"


@pytest.mark.parametrize("module", [None, "json", "holdlog.nothing"])
def test_a_module_of_no_extra_has_no_command(module: str | None) -> None:
    assert missing(module) is None


def test_a_submodule_names_its_package() -> None:
    line = missing("mcp.server")
    assert line is not None
    assert line.startswith("the MCP server needs mcp, which is not installed; run: ")
