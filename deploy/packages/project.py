"""What pyproject.toml says about the project, in the form that manifests of plugins use."""

import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME: Final[str] = PROJECT["name"]
VERSION: Final[str] = PROJECT["version"]
SOURCE: Final[str] = PROJECT["urls"]["Source"]
AUTHOR: Final[str] = PROJECT["authors"][0]["name"]
DESCRIPTION: Final = PROJECT["description"].partition(". ")[0] + "."
"""One sentence; the MCP registry allows 100 characters, without the full stop."""

MANIFEST: Final[dict[str, Any]] = {
    "name": NAME,
    "version": VERSION,
    "description": DESCRIPTION,
    "author": {"name": AUTHOR},
    "homepage": PROJECT["urls"]["Homepage"],
    "repository": SOURCE,
    "license": PROJECT["license"],
    "keywords": PROJECT["keywords"],
}
"""Fields that Claude Code and Agent Plugins have in common."""
