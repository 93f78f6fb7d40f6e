"""Hosts of agents: repositories, what hosts pass to hooks, and host processes that start hooks, servers and shells."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import holdlog
from tests.support.mcp import INITIALIZE
from tests.support.programs import HOLDLOG, Done, environment
from tests.support.waiting import PATIENCE

Json = dict[str, Any]
FILES = ("src/a.py", "src/b.py", "own.py")


def git(folder: Path, *words: str) -> str:
    """What a git command prints; it must succeed."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path, *, has_store: bool = True) -> Path:
    """A git repository whose FILES are committed. Hooks guard one that has a store."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name in FILES:
        write(folder / name, "x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    if has_store:
        store_of(folder).parent.mkdir(mode=0o700)
        holdlog.StateStore(store_of(folder)).close()
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def store_of(root: Path) -> Path:
    return root / ".git" / "holdlog" / "state.db"


def commit_policy(root: Path, text: str) -> None:
    write(root / "holdlog.toml", text)
    git(root, "add", "holdlog.toml")
    git(root, "commit", "-qm", "policy")


def held(root: Path) -> dict[str, str]:
    """Who holds what."""
    with holdlog.StateStore(store_of(root)) as store:
        return {it.resource: it.held_by for it in store.status().claims}


def run_hook(given: Any, *words: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """One hook, until it ends."""
    done = subprocess.run(
        [HOLDLOG, "hook", *words],
        input=given if isinstance(given, str) else json.dumps(given),
        cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    return Done(done.returncode, done.stdout, done.stderr)


def is_denied(output: Json) -> bool:
    """In the form of any client."""
    decisions = (output.get("permission"), output.get("decision"), output.get("permissionDecision"))
    return "deny" in (*decisions, output.get("hookSpecificOutput", {}).get("permissionDecision"))


class Session:
    """A conversation of Claude Code in a folder; `facts` are passed with each call."""

    def __init__(self, folder: Path, name: str, **facts: Any) -> None:
        self.folder = folder
        self.facts = {"session_id": name, "cwd": str(folder), **facts}

    def agent(self, name: str) -> "Session":
        """A sub-agent of this conversation."""
        return Session(self.folder, self.facts["session_id"], agent_id=name)

    def run(self, event: str, **given: Any) -> Done:
        return run_hook({**self.facts, "hook_event_name": event, **given}, cwd=self.folder)

    def hook(self, event: str, **given: Any) -> Json:
        """What the host passes on of a hook that reports no problem."""
        done = self.run(event, **given)
        assert done.err == ""
        output: Json = json.loads(done.out) if done.out else {}
        return output.get("hookSpecificOutput", output)

    def pre(self, path: str, tool: str = "Edit") -> Json:
        return self.hook("PreToolUse", tool_name=tool, tool_input={"file_path": str(self.folder / path)})

    def edit(self, path: str) -> str:
        """Why the edit of a file is denied; empty if it is allowed."""
        return _reason(self.pre(path))

    def change(self, path: str, text: str) -> None:
        """An edit with both of its hooks."""
        assert self.edit(path) == ""
        write(self.folder / path, text)
        self.hook("PostToolUse", tool_name="Edit", tool_input={"file_path": str(self.folder / path)})

    def read(self, path: str) -> Json:
        return self.hook("PostToolUse", tool_name="Read", tool_input={"file_path": str(self.folder / path)})

    def bash(self, command: str, event: str = "PreToolUse") -> Json:
        return self.hook(event, tool_name="Bash", tool_input={"command": command})

    def denied(self, command: str) -> str:
        """Why a shell command is denied; empty if it is allowed."""
        return _reason(self.bash(command))

    def shell(self, command: str) -> Json:
        """Run a command with both of its hooks: the output of the second one."""
        assert self.denied(command) == ""
        subprocess.run(["sh", "-c", command], cwd=self.folder, env=environment(), check=True, capture_output=True)
        return self.bash(command, "PostToolUse")

    def end(self) -> None:
        self.hook("SessionEnd", reason="other")


def _reason(output: Json) -> str:
    return str(output["permissionDecisionReason"]) if output.get("permissionDecision") == "deny" else ""


class Host(Session):
    """A conversation whose hooks, server and shell commands are children of a process of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOST, HOLDLOG],
            stdin=pipe, stdout=pipe, text=True, cwd=folder, env=environment(), start_new_session=True,
        )  # fmt: skip

    def _ask(self, **command: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def run(self, event: str, **given: Any) -> Done:
        text = json.dumps({**self.facts, "hook_event_name": event, **given})
        return Done(*self._ask(run=[HOLDLOG, "hook"], stdin=text))

    def command(self, line: str) -> Done:
        """A shell command as the agent runs it, in which `holdlog` is the one under test."""
        return Done(*self._ask(run=["sh", "-c", f'holdlog() {{ {HOLDLOG} "$@"; }}; {line}'], stdin=""))

    def serve(self, *options: str) -> None:
        """Start a stdio server."""
        self._ask(serve=list(options), first=INITIALIZE)

    def call(self, tool: str, **arguments: Any) -> Json:
        """Call a tool of the server, after the hook that announces it."""
        self.hook("PreToolUse", tool_name=f"mcp__holdlog__holdlog_{tool}", tool_input=arguments)
        result = self._ask(call="tools/call", params={"name": f"holdlog_{tool}", "arguments": arguments})
        content: Json = result["structuredContent"]
        return content

    def kill(self) -> None:
        """The host and its children, as a closed terminal does."""
        if self.process.poll() is None:
            subprocess.run(["kill", "-9", "--", f"-{self.process.pid}"], check=False)
        self.process.communicate()


_HOST = """
import itertools, json, subprocess, sys
server, numbers = None, itertools.count(1)
def ask(method, params):
    number = next(numbers)
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(message) + "\\n")
    server.stdin.flush()
    while (found := json.loads(server.stdout.readline())).get("id") != number:
        pass
    return found["result"]
for line in sys.stdin:
    command = json.loads(line)
    if "run" in command:
        done = subprocess.run(command["run"], input=command["stdin"], capture_output=True, text=True)
        result = [done.returncode, done.stdout, done.stderr]
    elif "serve" in command:
        words = [sys.argv[1], "serve", *command["serve"]]
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        result = ask("initialize", command["first"])
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\\n")
    else:
        result = ask(command["call"], command["params"])
    print(json.dumps(result), flush=True)
"""
