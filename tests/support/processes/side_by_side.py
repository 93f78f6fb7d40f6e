"""Agents and a person who work side by side: three sessions of Claude Code with sub-agents, one of Codex and a plain
editor change forty files in two worktrees, while hooks, servers and hosts are killed. The journal has what they did.

A file is a list of lines, one for each edit that it has seen, so that a lost change is a line that is missing."""

import random
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from tests.support.processes.hosts import EDIT, Host

FILES: Final = tuple(f"{number:02}.txt" for number in range(40))
HOT: Final = 6
"""So many files get most of the edits, because agents that never meet prove nothing."""
ACROSS: Final = frozenset(FILES[:2])
"""Files that have one claim in all worktrees."""
EDITOR: Final = "editor"
NAME: Final = re.compile(r"your agent name is (\S+);")


class Change(NamedTuple):
    """A write by an agent between `began`, when its hook allowed it, and `ended` (seconds, monotonic). `read`: the
    lines that the agent knew; `found`: those in the file when it wrote."""

    path: Path
    session: str
    agent: str
    began: float
    ended: float
    read: frozenset[str]
    found: frozenset[str]


class Denial(NamedTuple):
    """`session_name`: the name of the main agent of the session; `agent`: the sub-agent that was denied, or empty."""

    path: Path
    session_name: str
    agent: str
    reason: str


class Journal:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.denials: list[Denial] = []
        self.problems: list[str] = []
        self._lines = 0
        self._lock = threading.Lock()

    def line(self, session: str) -> str:
        """A line that no other edit adds."""
        with self._lock:
            self._lines += 1
            return f"{session}.{self._lines}"


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def author(line: str) -> str:
    return line.partition(".")[0]


class Actor(threading.Thread):
    """Somebody who works for some steps, chosen at random."""

    def __init__(self, session: str, folder: Path, journal: Journal, seed: int, steps: int) -> None:
        super().__init__(name=session)
        self.session = session
        self.folder = folder
        self.journal = journal
        self.random = random.Random(f"{seed} {session}")
        self.steps = steps

    def run(self) -> None:
        try:
            for _ in range(self.steps):
                self.step()
        except Exception as error:
            self.journal.problems.append(f"{self.session}: {error!r}")
            raise

    def step(self) -> None:
        raise NotImplementedError

    def any_path(self) -> Path:
        files = FILES[:HOT] if self.random.random() < 0.8 else FILES[:-3]
        return self.folder / self.random.choice(files)


class Editor(Actor):
    """A person with an editor that knows nothing of holdlog."""

    def step(self) -> None:
        with self.any_path().open("a") as file:
            file.write(f"{self.journal.line(EDITOR)}\n")
        threading.Event().wait(self.random.random())


class Session(Actor):
    """A session of an agent's host. `name`: that of the main agent."""

    facts: ClassVar[dict[str, Any]]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.host = Host(self.folder)
        self.name = ""
        self.sub_agents = 0
        self.known: dict[tuple[str, Path], list[str]] = {}

    def run(self) -> None:
        try:
            self.start_session("startup")
            super().run()
        finally:
            self.host.kill()

    def start_session(self, source: str) -> None:
        text = self.hook("SessionStart", source=source)["additionalContext"]
        found = NAME.search(text)
        assert found is not None, text
        self.name = self.name or found[1]
        assert self.name == found[1]

    def hook(self, event: str, **given: Any) -> dict[str, Any]:
        return self.host.hook(self.session, event, **self.facts, **given)

    def change(self, path: Path, read: list[str] | None, tool: dict[str, Any], agent: str = "") -> str | None:
        """Add a line to what the agent has read, if the hook allows it. Returns why it is denied. `read`: None: the
        line is added to the file as it is, by a patch."""
        given = tool | ({"agent_id": agent} if agent else {})
        reason = self.hook(EDIT, **given).get("permissionDecisionReason")
        if reason is not None:
            self.journal.denials.append(Denial(path, self.name, agent, reason))
            return str(reason)
        began, found = time.monotonic(), lines_of(path)
        read = found if read is None else read
        self.known[agent, path] = [*read, self.journal.line(self.session)]
        path.write_text("".join(f"{it}\n" for it in self.known[agent, path]))
        change = Change(path, self.session, agent, began, time.monotonic(), frozenset(read), frozenset(found))
        self.journal.changes.append(change)
        self.hook("PostToolUse", **given)
        return None

    def commit(self) -> None:
        """Commit what has changed in the worktree; another commit at the same time may prevent it."""
        subprocess.run(["git", "commit", "-qam", self.session], cwd=self.folder, capture_output=True, check=False)


class Codex(Session):
    facts: ClassVar[dict[str, Any]] = {"turn_id": "1", "model": "gpt", "permission_mode": "default"}

    def step(self) -> None:
        paths = {self.any_path() for _ in range(self.random.randint(1, 2))}
        for path in sorted(paths):
            patch = f"*** Begin Patch\n*** Update File: {path.name}\n@@\n+line\n*** End Patch"
            self.change(path, None, {"tool_name": "apply_patch", "tool_input": {"command": patch}})
        if self.random.random() < 0.5:
            self.commit()
            self.hook("Stop")
            self.hook("UserPromptSubmit", prompt="go on")


class Claude(Session):
    facts: ClassVar[dict[str, Any]] = {}

    def start_session(self, source: str) -> None:
        self.host.serve()
        super().start_session(source)
        if source == "startup":
            for name in FILES[:HOT]:
                self.read(self.folder / name)

    def step(self) -> None:
        work = self.random.choices(
            [
                self.edit,
                lambda: self.read(self.any_path()),
                self.claim,
                self.run_sub_agent,
                self.end_turn,
                self.crash_hook,
                self.crash_server,
                self.crash_host,
            ],
            [10, 5, 2, 3, 3, 1, 1, 1],
        )[0]
        work()

    def edit(self, agent: str = "") -> None:
        """Edit a file as the agent remembers it; if it is denied because that is stale, read it again and edit."""
        path = self.any_path()
        if (agent, path) not in self.known:
            self.read(path, agent)
        reason = self.change(path, self.known[agent, path], self.tool(path), agent)
        if reason is not None and "read it again" in reason:
            self.read(path, agent)
            self.change(path, self.known[agent, path], self.tool(path), agent)

    def claim(self) -> None:
        """Claim a file by the tool, as the instructions of the server say."""
        self.host.call("claim", self.session, resource=self.any_path().name, agent=self.name)

    def tool(self, path: Path) -> dict[str, Any]:
        return {"tool_name": "Write", "tool_input": {"file_path": str(path)}}

    def read(self, path: Path, agent: str = "") -> None:
        """Read a file. The host itself notices a change between its read and the hook after it."""
        given = {"agent_id": agent} if agent else {}
        while True:
            read = lines_of(path)
            self.hook("PostToolUse", tool_name="Read", tool_input={"file_path": str(path)}, **given)
            if lines_of(path) == read:
                self.known[agent, path] = read
                return

    def run_sub_agent(self) -> None:
        self.sub_agents += 1
        agent = f"sub-{self.sub_agents}"
        for _ in range(2):
            self.edit(agent)
        self.hook("SubagentStop", agent_id=agent)

    def end_turn(self) -> None:
        if self.random.random() < 0.5:
            self.commit()
        self.hook("Stop")
        self.hook("UserPromptSubmit", prompt="go on")

    def crash_hook(self) -> None:
        """Nothing is edited: the host that loses its hook is interrupted by its user."""
        facts = {"session_id": self.session, "cwd": str(self.folder), "hook_event_name": EDIT}
        self.host.crash_hook(facts | self.tool(self.any_path()), self.random.random() * 0.6)

    def crash_server(self) -> None:
        self.host.kill_server()
        if self.random.random() < 0.5:
            self.edit()
        self.host.serve()

    def crash_host(self) -> None:
        self.host.kill()
        self.host = Host(self.folder)
        self.start_session("resume")
