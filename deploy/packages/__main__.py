"""Build the packages into build/packages and check them: `make packages`. Exits with 1 if a check fails.

Usage: python -m deploy.packages [--out FOLDER] [--no-start]
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from deploy.packages.checks import findings, read
from deploy.packages.contents import Content, contents
from deploy.packages.project import NAME, ROOT, VERSION
from deploy.packages.start import start


def build(folder: Path) -> list[Path]:
    """Write all packages into a folder, which is emptied first; the files."""
    shutil.rmtree(folder, ignore_errors=True)
    written = []
    for path, content in contents().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text_of(content), encoding="utf-8")
        written.append(target)
    return written


def text_of(content: Content) -> str:
    return content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def unstarted(folder: Path) -> list[str]:
    """Why the server of the registry entry does not start as the entry says."""
    (package,) = read(folder / "server.json")["packages"]
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        return ["server.json: uv is not installed, so the server was not started (--no-start)"]
    try:
        info = start(package, uv)
    except RuntimeError as error:
        return [f"server.json: {error}"]
    return [] if (info["name"], info["version"]) == (NAME, VERSION) else [f"server.json: starts {info}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make packages", description="Build and check the packages for hosts.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/packages", help="the folder (default: build/packages)"
    )
    parser.add_argument("--no-start", action="store_true", help="do not start the server of server.json (needs uv)")
    options = parser.parse_args()
    written = build(options.out)
    found = findings(options.out)
    if not found and not options.no_start:
        found = unstarted(options.out)
    for finding in found:
        print(finding, file=sys.stderr)
    print(f"{len(written)} files in {options.out}" if not found else f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
