"""Makes the root folders the package `holdlog`: in the wheel by their new paths, in a checkout by links.

An editable install puts `build/dev` on the import path. `build/dev/holdlog/` has the shape of the wheel: a link for
each folder, so that new files need no re-install, and a copy of each file of `adapters/package/`.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("domain", "projections", "adapters")
PACKAGE = Path("adapters", "package")


class Hook(BuildHookInterface):
    """`version` is "editable" or "standard"."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        files = sorted(path for path in (root / PACKAGE).iterdir() if path.is_file())
        if version == "editable":
            shape_of_the_wheel(root, files)
        else:
            # Not in pyproject.toml: there it would count for editable installs, too, and break them.
            build_data["force_include"].update({str(path): f"holdlog/{path.name}" for path in files})


def shape_of_the_wheel(root: Path, files: list[Path]) -> None:
    """Change only what differs: another process may be importing from here."""
    package = root / "build" / "dev" / "holdlog"
    package.mkdir(parents=True, exist_ok=True)
    (root / "build" / ".gitignore").write_text("*\n")
    wanted = {*FOLDERS, *(path.name for path in files), "__pycache__"}
    for entry in package.iterdir():
        if entry.name not in wanted:
            remove(entry)
    for folder in FOLDERS:
        link(package / folder, root / folder)
    for path in files:
        copy(path, package / path.name)


def link(at: Path, folder: Path) -> None:
    if at.exists() and at.samefile(folder):
        return
    if os.path.lexists(at):
        remove(at)
    at.symlink_to(os.path.relpath(folder, at.parent), target_is_directory=True)


def copy(source: Path, target: Path) -> None:
    """Replaces the target in one step."""
    content = source.read_bytes()
    if target.is_file() and target.read_bytes() == content:
        return
    beside = target.with_name(f"{target.name}.new")
    beside.write_bytes(content)
    beside.replace(target)


def remove(entry: Path) -> None:
    """Removes a file, a link or an empty folder; never what is behind a link."""
    if entry.is_symlink() or entry.is_file():
        entry.unlink()
    else:
        entry.rmdir()
