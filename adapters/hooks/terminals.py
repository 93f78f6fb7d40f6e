"""Where the agents of a store work, as their hooks noted it: for people, never for agents."""

from functools import cache

from holdlog.adapters.hooks.notes import HookFiles, Terminal


class Terminals:
    """Where the agents of a store work. `files`: of its hooks; without, nothing is known."""

    def __init__(self, files: HookFiles | None = None) -> None:
        self._notes = cache(files.read) if files is not None else None

    def of(self, session: str | None, agent: str) -> Terminal | None:
        """Where an agent of a session works; a sub-agent works where its main agent does."""
        if session is None or self._notes is None:
            return None
        notes = self._notes(session)
        key = next((key for key, name in notes.names.items() if name == agent), "")
        return notes.terminals.get(key) or notes.terminals.get("")


def describe_terminal(found: Terminal, folder: str | None = None) -> str:
    """The host and the folder. `folder`: is shown already."""
    where = f"in {found.folder}" if found.folder and found.folder != folder else ""
    return " ".join(filter(None, (found.host, where)))
