"""A store for hooks that run in this process."""

import os
from pathlib import Path

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.lease import BY_LEASE


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of a folder in which `ann` holds held.py."""
    for name in list(os.environ):
        if name.startswith("HOLDLOG_") or name == "CLAUDE_PROJECT_DIR":
            monkeypatch.delenv(name)
    project = tmp_path / "project"  # around it are no repositories of other tests
    project.mkdir()
    monkeypatch.chdir(project)
    folder = project / ".holdlog"
    folder.mkdir()
    with_claim(folder / "state.db", "held.py", "ann")
    return folder / "state.db"


def with_claim(path: Path, resource: str, agent: str) -> None:
    engine = open_holdlog(path, Settings(), SessionId("option", agent))
    engine.kept_by = BY_LEASE
    engine.claim(engine.requests.claims.claim(resource, agent), engine.caller)
    engine.close()
