"""Hosts of agents as processes: each starts hooks and a stdio server, and passes what the host's documents say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdlog.adapters.compose import open_holdlog
from tests.support.processes import hook_host

EDIT = "PreToolUse"
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("HOLDLOG_")
    and name not in ("CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID")
}


def run_hook(folder: Path, given: object, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a hook without a host."""
    command = [sys.executable, "-m", "holdlog", "hook", *words]
    text = json.dumps(given)
    return subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=folder, env=ENVIRONMENT, check=False, timeout=30
    )


def store_of(repository: Path) -> Path:
    return repository / ".git" / "holdlog" / "state.db"


def commit_policy(repository: Path, content: str | bytes) -> None:
    """Commit a `holdlog.toml`."""
    (repository / "holdlog.toml").write_bytes(content.encode() if isinstance(content, str) else content)
    for words in (["add", "holdlog.toml"], ["commit", "-qm", "policy"]):
        subprocess.run(["git", *words], cwd=repository, check=True)


def held(repository: Path) -> dict[str, str]:
    """Who holds what."""
    engine = open_holdlog(store_of(repository))
    try:
        return {it.resource: it.held_by for it in engine.read(engine.requests.claims.board()).claims}
    finally:
        engine.close()


class Host:
    """A host process, in a process group with its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server_pid = 0
        self.process = subprocess.Popen(
            [sys.executable, hook_host.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=ENVIRONMENT,
            start_new_session=True,
        )

    def serve(self) -> None:
        self.server_pid = self._ask({"do": "serve"})["pid"]

    def call(self, tool: str, session: str, **given: Any) -> dict[str, Any]:
        """Call a tool of our server; the hook before it comes first, as in Claude Code."""
        self.hook(session, EDIT, tool_name=f"mcp__holdlog__holdlog_{tool}", tool_input=given)
        return self.call_alone(tool, **given)

    def call_alone(self, tool: str, **given: Any) -> dict[str, Any]:
        """Call a tool of our server, without a hook."""
        answer: dict[str, Any] = self._ask({"do": "call", "tool": tool, "given": given})
        return answer

    def hook(self, session: str, event: str, **given: Any) -> dict[str, Any]:
        facts = {"session_id": session, "hook_event_name": event, "cwd": str(self.folder), **given}
        done = self._ask({"do": "hook", "given": facts})
        assert done["code"] == 0
        assert done["err"] == ""
        found: dict[str, Any] = json.loads(done["out"]) if done["out"] else {}
        return found.get("hookSpecificOutput", {})

    def output(self, given: dict[str, Any], *words: str) -> dict[str, Any]:
        """What a hook prints for this input."""
        done = self._ask({"do": "hook", "given": given, "words": words})
        assert (done["code"], done["err"]) == (0, "")
        found: dict[str, Any] = json.loads(done["out"]) if done["out"] else {}
        return found

    def crash_hook(self, given: dict[str, Any], seconds: float) -> None:
        """Start a hook, and kill it after some seconds."""
        self._ask({"do": "hook", "given": given, "killed_after": seconds})

    def edit(self, session: str, path: str, **given: Any) -> str | None:
        """Why the edit is denied; None if it is allowed."""
        tool_input = {"file_path": str(self.folder / path)}
        output = self.hook(session, EDIT, tool_name="Edit", tool_input=tool_input, **given)
        assert output.get("permissionDecision") in (None, "deny")
        return output.get("permissionDecisionReason")

    def edited(self, session: str, path: str, **given: Any) -> None:
        """Report that the agent has edited a file."""
        tool_input = {"file_path": str(self.folder / path)}
        self.hook(session, "PostToolUse", tool_name="Edit", tool_input=tool_input, **given)

    def read(self, session: str, path: str) -> None:
        """Report that the agent has read a file."""
        tool_input = {"file_path": str(self.folder / path)}
        self.hook(session, "PostToolUse", tool_name="Read", tool_input=tool_input)

    def run(self, command: str) -> dict[str, Any]:
        """Run a shell command, as an agent does."""
        done: dict[str, Any] = self._ask({"do": "run", "given": command})
        return done

    def kill_server(self) -> None:
        os.kill(self.server_pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the host and everything that it started, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())
