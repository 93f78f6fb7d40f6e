"""Adapters of frameworks that start a stdio server for each call, as they are on the package index, each in an
environment of its own without holdlog."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import HOLDLOG, environment

UV = os.environ.get("UV") or shutil.which("uv")
PROGRAMS = Path(__file__).parent / "frameworks"
STATUSES = ["claimed", "busy", "ok", "already_claimed", "released", "fenced", "claimed"]


@pytest.mark.slow
@pytest.mark.skipif(UV is None, reason="environments are made with uv")
@pytest.mark.parametrize(
    ("program", "package"),
    [("with_langchain", "langchain-mcp-adapters"), ("with_llama_index", "llama-index-tools-mcp")],
)
def test_framework_with_a_server_for_each_call_claims_guards_and_releases(
    program: str, package: str, tmp_path: Path
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, tmp_path / "venv"], check=True)
    subprocess.run([UV, "pip", "install", "-q", "--python", python, package], check=True)
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    path = os.pathsep.join((str(Path(HOLDLOG).parent), os.environ["PATH"]))
    done = subprocess.run(
        [python, PROGRAMS / f"{program}.py"],
        cwd=tmp_path / "project",
        env=environment({"PATH": path}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    responses = [json.loads(line) for line in done.stdout.splitlines()]
    assert [it["status"] for it in responses] == STATUSES, done
    assert responses[-1]["previous_outcome"] == "modified"
