"""Where agents work, for people who look for a terminal: folder, host, and the first words of the first prompt.

The words are a user's. Other agents never read them: the command shows them to people only, and never as JSON.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.texts import short
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.session import HOST_SESSION, HOST_THREAD, sessions_of_host
from holdlog.adapters.hooks.terminals import Terminals, describe_terminal

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine

_AGENT_SHELLS: Final = ("CURSOR_AGENT", "OPENCODE")
"""What hosts without an id of the session set in the environment of commands that their agents run."""


class ShownTerminals(Terminals):
    """Where agents work, as columns of a table. `shows_prompts`: a person reads it."""

    def __init__(self, files: HookFiles | None = None, shows_prompts: bool = False) -> None:
        super().__init__(files)
        self._shows_prompts = shows_prompts

    def describe(self, session: str | None, agent: str, folder: str | None = None) -> tuple[str, str]:
        """Host and folder, and the prompt. `folder`: is shown already."""
        found = self.of(session, agent)
        if found is None:
            return "", ""
        prompt = short(found.prompt) if found.prompt and self._shows_prompts else ""
        return describe_terminal(found, folder), prompt


def terminals_of(engine: "Engine") -> ShownTerminals:
    """Where the agents of an open store work, for the user of this command."""
    if not isinstance(engine.location, Path):
        return ShownTerminals()
    return ShownTerminals(HookFiles(engine.location), not _is_run_by_an_agent(engine))


def _is_run_by_an_agent(engine: "Engine") -> bool:
    """Whether an agent runs this command in its shell."""
    if any(os.environ.get(name) for name in _AGENT_SHELLS):
        return True
    assert isinstance(engine.location, Path)
    is_named = bool(os.environ.get(HOST_SESSION) or os.environ.get(HOST_THREAD))
    known = sessions_of_host(engine.location, engine.identity, os.environ)
    return bool(known) and (is_named or not sys.stdout.isatty())
