"""agenthold in an environment of its own: it needs `mcp<2`, and nothing of it may get into ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("agenthold==0.10.0", "mcp<2")


def environment(folder: Path) -> Path | None:
    """The peer's bin folder, made on first use; None, with a word on stderr, where that does not work."""
    binaries = folder / "peer" / "bin"
    if (binaries / "agenthold").exists():
        return binaries
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        print("no uv, so no agenthold to compare with (--no-peer says so quietly)", file=sys.stderr)
        return None
    try:
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(binaries.parent))
        _run(uv, "pip", "install", "--quiet", "--python", str(binaries / "python"), *PACKAGES)
    except subprocess.CalledProcessError as error:
        print(f"no agenthold to compare with: {error}", file=sys.stderr)
        shutil.rmtree(binaries.parent, ignore_errors=True)
        return None
    return binaries


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
