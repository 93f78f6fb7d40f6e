"""Where agents work, for people who look for a terminal: folder, host, and the first words of the first prompt.

The words are a user's. Other agents never read them: the command shows them to people only, and never as JSON.
"""

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.texts import short
from holdlog.adapters.hooks.notes import HookFiles, Terminal
from holdlog.adapters.hooks.session import HOST_SESSION, HOST_THREAD, sessions_of_host

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine

_AGENT_SHELLS: Final = ("CURSOR_AGENT", "OPENCODE")
"""What hosts without an id of the session set in the environment of commands that their agents run."""


class Terminals:
    """Where the agents of a store work. `files`: of its hooks; without, nothing is known. `shows_prompts`: a person
    reads it."""

    def __init__(self, files: HookFiles | None = None, shows_prompts: bool = False) -> None:
        self._notes = cache(files.read) if files is not None else None
        self._shows_prompts = shows_prompts

    def of(self, session: str | None, agent: str) -> Terminal | None:
        """Where an agent of a session works; a sub-agent works where its main agent does."""
        if session is None or self._notes is None:
            return None
        notes = self._notes(session)
        key = next((key for key, name in notes.names.items() if name == agent), "")
        return notes.terminals.get(key) or notes.terminals.get("")

    def describe(self, session: str | None, agent: str, folder: str | None = None) -> tuple[str, str]:
        """Two columns: host and folder, and the prompt. `folder`: is shown already."""
        found = self.of(session, agent)
        if found is None:
            return "", ""
        where = f"in {found.folder}" if found.folder and found.folder != folder else ""
        prompt = short(found.prompt) if found.prompt and self._shows_prompts else ""
        return " ".join(filter(None, (found.host, where))), prompt


def terminals_of(engine: "Engine") -> Terminals:
    """Where the agents of an open store work, for the user of this command."""
    if not isinstance(engine.location, Path):
        return Terminals()
    return Terminals(HookFiles(engine.location), not _is_run_by_an_agent(engine))


def _is_run_by_an_agent(engine: "Engine") -> bool:
    """Whether an agent runs this command in its shell."""
    if any(os.environ.get(name) for name in _AGENT_SHELLS):
        return True
    assert isinstance(engine.location, Path)
    is_named = bool(os.environ.get(HOST_SESSION) or os.environ.get(HOST_THREAD))
    known = sessions_of_host(engine.location, engine.identity, os.environ)
    return bool(known) and (is_named or not sys.stdout.isatty())
