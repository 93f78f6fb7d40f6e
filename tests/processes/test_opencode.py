"""The plugin for OpenCode, run by Node as OpenCode runs it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.setup.hosts import HOSTS, Project

NODE = shutil.which("node")
pytestmark = [pytest.mark.check, pytest.mark.skipif(NODE is None, reason="needs node")]

DRIVER = """
import { writeFileSync } from "node:fs"
import holdlog from "./holdlog.mjs"
const plugin = await holdlog.server({ directory: process.cwd() })
for (const [name, input, output] of JSON.parse(process.argv[2])) {
  let error = null
  if (name === "write") writeFileSync(input, output)
  else await plugin[name](input, output).catch((it) => (error = it.message))
  console.log(JSON.stringify({ output: output ?? null, error }))
}
"""
"""Plays steps: the name of a hook with its input and output, or `write` with a path and a text."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a store in which `rival` holds held.py, and the plugin as `holdlog init` writes it."""
    holdlog = str(Path(sys.executable).with_name("holdlog"))
    _, plugin = HOSTS["opencode"].files(Project(tmp_path, tmp_path, holdlog, {}))
    (tmp_path / "holdlog.mjs").write_text(plugin.block)
    (tmp_path / "driver.mjs").write_text(DRIVER)
    (tmp_path / ".holdlog").mkdir(0o700)
    with StateStore(tmp_path / ".holdlog" / "state.db") as store:
        store.claim("held.py", agent="rival", lease_seconds=600)
        (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


def play(project: Path, *steps: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What each step left in its output, and the message of its error."""
    assert NODE is not None
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDLOG_", "CLAUDE_"))}
    command = [NODE, "driver.mjs", json.dumps(steps)]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def before(session: str, tool: str, **arguments: str) -> tuple[Any, ...]:
    return "tool.execute.before", {"tool": tool, "sessionID": session, "callID": tool}, {"args": arguments}


def after(session: str, tool: str, **arguments: str) -> tuple[Any, ...]:
    return (
        "tool.execute.after",
        {"tool": tool, "sessionID": session, "callID": tool, "args": arguments},
        {"output": "done"},
    )


def test_edit_of_a_held_file_is_denied_and_another_is_claimed_for_the_session(project: Path) -> None:
    message = "chat.message", {"sessionID": "ses-1"}, {"message": {"id": "msg-1"}, "parts": []}
    prompted, denied, moved, allowed = play(
        project,
        message,
        before("ses-1", "edit", filePath=str(project / "held.py")),
        before("ses-1", "bash", command="mv held.py b.py"),
        before("ses-1", "write", filePath=str(project / "new.py")),
    )
    assert "your agent name is opencode-" in prompted["output"]["parts"][0]["text"]
    assert denied["error"].startswith("holdlog: held.py is held by rival since ")
    assert moved["error"].startswith("holdlog: held.py is held by rival since ")
    assert allowed["error"] is None
    with StateStore(project / ".holdlog" / "state.db") as store:
        holders = {it.resource: it.held_by for it in store.board().claims}
    assert holders["held.py"] == "rival"
    assert holders["new.py"].startswith("opencode-")


def test_agent_is_warned_about_a_file_that_another_session_changed_after_the_read(project: Path) -> None:
    path = str(project / "a.py")
    *_, edited = play(
        project,
        after("ses-1", "read", filePath=path),
        before("ses-2", "write", filePath=path),
        ("write", path, "x = 22\n"),
        after("ses-2", "write", filePath=path),
        ("event", {"event": {"type": "session.deleted", "properties": {"info": {"id": "ses-2"}}}}),
        before("ses-1", "edit", filePath=path),
        after("ses-1", "edit", filePath=path),
    )
    first, warning = edited["output"]["output"].splitlines()
    assert first == "done"
    assert warning.startswith("holdlog: opencode-")
    assert "after you read it" in warning


def test_command_that_is_missing_allows_the_edit(project: Path) -> None:
    plugin = project / "holdlog.mjs"
    plugin.write_text(plugin.read_text().replace(json.dumps(str(Path(sys.executable).with_name("holdlog"))), '"none"'))
    (allowed,) = play(project, before("ses-1", "edit", filePath=str(project / "held.py")))
    assert allowed["error"] is None
