"""Starts the server of `server.json` as clients of the MCP registry do, with the wheel of this checkout."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from deploy.packages.project import ROOT

SECONDS: Final = 120
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "packages", "version": "1"}},
}


def command_of(package: dict[str, Any]) -> list[str]:
    """`uvx` with the runtime arguments, then the package in the version of the entry."""
    arguments = [f"{it['name']}={it['value']}" for it in package["runtimeArguments"]]
    return [*arguments, f"{package['identifier']}=={package['version']}"]


def start(package: dict[str, Any], uv: str) -> dict[str, Any]:
    """Initialize the server, and return what it says about itself. Raises RuntimeError if it does not start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder / "wheel"), str(ROOT)], folder)
        # The package of this version may be in the cache, from an older checkout.
        uvx = [uv, "tool", "run", "--quiet", "--isolated", "--refresh-package", package["identifier"]]
        answer = _run([*uvx, "--find-links", str(folder / "wheel"), *command_of(package)], folder)
    info: dict[str, Any] = json.loads(answer)["result"]["serverInfo"]
    return info


def _run(command: list[str], folder: Path) -> str:
    environment = {name: it for name, it in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"HOLDLOG_DB": str(folder / "state.db")},
        input=json.dumps(_INITIALIZE) + "\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
