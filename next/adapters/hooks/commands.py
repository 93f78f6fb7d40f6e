"""What hooks do about a call of an agent's shell in one store: judge its git commands, and compare afterwards what
nobody could know beforehand. The table `files` keeps what a command found."""

import os
from collections.abc import Sequence
from typing import Any, Final

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.hooks import changes
from holdlog.adapters.hooks.describe import shorten
from holdlog.adapters.hooks.guard import Reading, Source, Verdict, guard_command
from holdlog.adapters.hooks.words import read_options
from holdlog.adapters.hooks.works import Works
from holdlog.adapters.operating_system.location import STORE_FILE, Repository
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.stores.sql import FORGET_MARKS, MARKS, PUT_FILE
from holdlog.domain.claims.commands import Call
from holdlog.domain.claims.holder import Who
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.names import is_of_agent

_CALLERS: Final = ("--agent", "--by", "--updated-by", "--deleted-by")
_VERBS: Final = ("claim", "release", "commit", "run", "set", "update", "delete", "clear", "transact", "thread")
"""Commands that act as an agent; others select by its name."""


class ShellCall:
    """A call of a shell in `folder`, with an id. `store`: the place of the store."""

    def __init__(self, engine: Engine, who: Who, caller: Caller, workspaces: Workspaces, store: str) -> None:
        self._engine = engine
        self._who = who
        self._caller = caller
        self._workspaces = workspaces
        self._store = store

    def judge_own(self, commands: Sequence[tuple[str | None, ...]]) -> str | None:
        """Why commands of holdlog, as of Targets, are denied: they do what only a person may, or act under the name of
        another agent, as far as their words show. Scripts and variables of the agent's environment are not read, so a
        host's permissions must do the rest."""
        name = self._who.agent
        for agent, *words in commands:
            options, operands = read_options(words, f"--db {' '.join(_CALLERS)}")
            verb = operands[0] if operands else None
            if verb == "init" and not {"--undo", "--url"}.isdisjoint(options):
                return "holdlog: only a person changes the guard. Ask your user to run this command."
            if verb == "release" and "--force" in options:
                remedy = "release your own without --force, or ask your user to run this command"
                return f"holdlog: only a person ends the claim of another: {remedy}."
            named = [agent, *(options.get(option) for option in _CALLERS)] if verb in _VERBS else []
            for other in filter(None, named):
                if not (is_of_agent(name, other) or is_of_agent(other, name)):
                    return f"holdlog: your name is {shorten(name)}, not {shorten(other)}: call holdlog without a name."
        return None

    def judge(self, reading: Reading, folder: str) -> Verdict:
        """Judge the git commands that run in the repositories of this store."""
        if not (reading.actions or reading.problem):
            return Verdict()
        source = Source(self._look(), self._workspaces, changes.read_stashed(self._engine.store))

        def find_source(repository: Repository) -> Source | None:
            own = os.path.realpath(f"{repository.common}/holdlog/{STORE_FILE}")
            return source if own == self._store or not os.path.exists(own) else None

        return guard_command(reading, folder, find_source)

    def note(self, reading: Reading, folder: str, call: str) -> None:
        """Note what a command finds that may do something to files of others, or make an entry of a stash."""
        stashes = any(action.name.startswith("git stash") for action in reading.actions)
        if reading.targets.reports or stashes:
            marks = changes.list_marks(reading, self._look(), self._workspaces, folder)
            if marks:
                self._put(self._who.session, f"before {call}", marks)

    def compare(self, call: str) -> str:
        """Record what happened to files of others while a command ran: they are warned before they edit these again.
        Returns what its agent is shown; empty if there is nothing."""
        rows = self._take(f"before {call}")
        if not rows:
            return ""
        marks, since = {name: mark for name, mark, _ in rows}, min(at for _, _, at in rows) / SECOND
        after = changes.compare(marks, since, self._look(), self._workspaces)
        for it in after.differences:
            if it.verb == "changed":
                self._engine.run(Call(self._who.agent, changes=((it.resource, it.sha256),)), self._caller)
        if after.stashed:
            self._put(self._who.session, self._who.agent, {f"{changes.STASH}{commit}": "" for commit in after.stashed})
        return changes.describe(after.differences, self._workspaces)

    def _look(self) -> Works:
        return Works(self._engine.store, self._who, self._caller.host)

    def _put(self, session: str, agent: str, marks: dict[str, str]) -> None:
        now = self._engine.store.now()
        with self._engine.write_alone():
            for name, mark in marks.items():
                row = {"session": session, "agent": agent, "resource": name, "path": "", "digest": mark}
                self._engine.store.execute(PUT_FILE, {**row, "at": now, "made": 0})

    def _take(self, agent: str) -> list[Any]:
        """What was put for an agent of this session, which is then forgotten."""
        key = {"session": self._who.session, "agent": agent}
        rows = self._engine.store.read(MARKS, key)
        if rows:
            with self._engine.write_alone():
                self._engine.store.execute(FORGET_MARKS, key)
        return rows
