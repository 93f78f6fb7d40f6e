"""Fixtures that tests of several commands share."""

import os
import sys
from pathlib import Path

import pytest

from tests.unit.operating_system.test_workspaces import repository


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository in which the commands run, with an empty home."""
    for name in [it for it in os.environ if it.startswith(("HOLDLOG_", "CLAUDE_", "GIT_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
    path = repository(tmp_path / "project")
    monkeypatch.chdir(path)
    return path
