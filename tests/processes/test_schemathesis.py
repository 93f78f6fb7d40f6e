"""schemathesis asks a real server whatever its OpenAPI document allows, and much that it does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http import http_server

CONFIG = Path(__file__).parents[1] / "support" / "fixtures" / "schemathesis.toml"
TOKEN = "schemathesis-0123456789-0123456789-0123456789"
PROGRAM = shutil.which("st", path=str(Path(sys.executable).parent))


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="make schemathesis installs what this needs")
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """EXAMPLES: how many for each route."""
    options = ("--max-requests", "0", "--max-upload", "0", "--max-wait", "1", "--open-tokens")
    with http_server(tmp_path / "state.db", *options, env={"HOLDLOG_AUTH_TOKEN": TOKEN}) as server:
        words = [str(PROGRAM), "--config-file", str(CONFIG), "run", f"{server.url}/openapi.json"]
        words += [
            "--url",
            server.url,
            "--header",
            f"x-token: {TOKEN}",
            "--max-examples",
            os.environ.get("EXAMPLES", "30"),
        ]
        words += ["--no-color", "--workers", "1", "--request-timeout", "10"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
        assert server.process.poll() is None
        assert not [line for line in server.said if "Traceback" in line]
