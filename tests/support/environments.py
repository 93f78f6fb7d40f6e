"""Virtual environments that uv makes, each for one test."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = os.environ.get("UV") or shutil.which("uv")


class Environment:
    """A virtual environment with what the requirements name, in `folder`, and an empty folder to run programs in."""

    def __init__(self, folder: Path, *requirements: str) -> None:
        self.folder = folder
        self.cwd = folder / "cwd"
        run(UV, "venv", "--quiet", folder / "venv")
        self.cwd.mkdir()
        run(UV, "pip", "install", "--quiet", "--python", folder / "venv", *requirements)

    def run(self, *words: str | Path, given: str = "", env: Mapping[str, str] | None = None) -> str:
        """The standard output of its Python with these arguments."""
        return run(self.folder / "venv/bin/python", *words, cwd=self.cwd, given=given, env=env)

    def packages(self) -> list[str]:
        return run(UV, "pip", "freeze", "--python", self.folder / "venv").splitlines()

    def megabytes(self) -> float:
        return sum(it.stat().st_size for it in (self.folder / "venv/lib").rglob("*") if it.is_file()) / 1e6


def run(*words: object, cwd: Path = ROOT, given: str = "", env: Mapping[str, str] | None = None) -> str:
    """The standard output of a program that succeeds; nothing of this environment's Python reaches it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env=kept | (env or {}), input=given, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder)
    (built,) = folder.glob("*.whl")
    return built
