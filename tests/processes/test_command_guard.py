"""Git commands over the work of other sessions: real hosts, hook processes and stdio servers."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.hosts import EDIT, ENVIRONMENT, Host, store_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

PROGRAM = """
import sys
from holdlog.adapters.hooks.running import run
run([])
print(*sorted({"pydantic", "holdlog.adapters.hooks.works"} & sys.modules.keys()), file=sys.stderr)
"""


def bash(host: Host, session: str, command: str, event: str = EDIT) -> dict[str, Any]:
    return host.hook(session, event, tool_name="Bash", tool_input={"command": command})


def change(host: Host, session: str, path: str) -> None:
    """An edit of a file with both of its hooks."""
    assert host.edit(session, path) is None
    (host.folder / path).write_text("x = 2\n")
    host.edited(session, path)


@pytest.mark.check
def test_work_of_a_killed_host_is_that_of_an_ended_session(host: Callable[[], Host], repository: Path) -> None:
    one, other = host(), host()
    change(one, "s-1", "a.py")
    reason = bash(other, "s-2", "git stash")["permissionDecisionReason"]
    assert "a.py (claude-" in reason
    one.kill()
    assert bash(other, "s-2", "git stash") == {}
    assert "of an ended session: a.py" in bash(other, "s-2", "git commit -am x")["additionalContext"]


@pytest.mark.check
def test_server_of_a_host_guards_git_as_hooks_alone_do(host: Callable[[], Host], repository: Path) -> None:
    one, other = host(), host()
    one.serve()
    change(one, "s-1", "a.py")
    alone = bash(other, "s-2", "git reset --hard")["permissionDecisionReason"]
    other.serve()
    served = bash(other, "s-2", "git reset --hard")["permissionDecisionReason"]
    assert served.partition("(")[0] == alone.partition("(")[0]
    assert bash(one, "s-1", "git reset --hard") == {}
    assert bash(other, "s-2", "git status") == {}
    (repository / "Makefile").write_text("all:\n\techo > a.py\n")
    assert bash(other, "s-2", "make") == {}
    subprocess.run(["make"], cwd=repository, check=True, capture_output=True)
    assert "a.py (held by " in bash(other, "s-2", "make", "PostToolUse")["additionalContext"]
    assert "changed a.py" in bash(one, "s-1", "ls")["additionalContext"]


def test_git_command_that_runs_loads_the_standard_library_alone(repository: Path) -> None:
    assert store_of(repository).exists()
    (repository / "a.py").write_text("x = 2\n")
    given = {"session_id": "s-1", "hook_event_name": EDIT, "cwd": str(repository), "tool_name": "Bash"}
    text = json.dumps({**given, "tool_input": {"command": "git stash"}})
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, input=text, cwd=repository, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert done.stderr.split() == ["holdlog.adapters.hooks.works"]
