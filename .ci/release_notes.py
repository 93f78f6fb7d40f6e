"""Print the changelog's section of a version, for the release on GitHub.

Usage: python .ci/release_notes.py v0.2.0

Fails if the tag is not "v" and the version of the package, or if CHANGELOG.md has no section for that version.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def release_notes(tag: str, root: Path = ROOT) -> str:
    """The section below `## [<version>]`. Its links to files become links to these files at the tag."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = (root / "adapters/package/__init__.py").read_text(encoding="utf-8")
    version = package.partition('__version__ = "')[2].partition('"')[0]
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, but the package has the version {version}: expected the tag v{version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise SystemExit(f"CHANGELOG.md has no section ## [{version}], or it is empty: write it before you tag")
    files = f"{project['urls']['Source']}/blob/{tag}/"
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({files}", section[1]).strip() + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python .ci/release_notes.py TAG")
    sys.stdout.write(release_notes(sys.argv[1]))
