"""Whose work the dirty files of a worktree are: of the session that holds a file, or else that changed it last.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Final, NamedTuple, Protocol

from holdlog.adapters.hooks.dirty import DirtyFile, DirtyWorktree, committed
from holdlog.adapters.hooks.notes import ALL, HookFiles, Notes
from holdlog.adapters.operating_system.ancestry import is_running
from holdlog.adapters.stores.sqlite.held import ChangedResource, HeldResource

LIVE_SECONDS: Final = 300
"""A session whose host is not known is live for this long after its last call."""
MAX_WALKED: Final = 10_000
"""Files below a folder, to find those whose names are encoded."""
MANY: Final = 500
"""Files of which most are looked up by their folders."""
_UNKNOWN: Final = ("??", "!!")
"""Files that git does not know."""
_OF_COMMANDS: Final = ("shell-", "option-")
"""How the sessions of commands begin: no process of holdlog keeps them alive."""


def is_over_http(session: str | None) -> bool:
    """Whether a session may be that of an agent whose tools are reached over HTTP: it has one of that server, or none,
    and another one for its hooks."""
    return session is None or session.startswith(("mcp-", "meta-"))


class Ledger(Protocol):
    """What a store knows about files: `LeaseFile`, or `ReaderLedger` for an open store."""

    def all_held(self) -> list[HeldResource]: ...
    def last_change(self, resource: str) -> ChangedResource | None: ...
    def latest_changes(self) -> dict[str, ChangedResource]: ...
    def changed_below(self, folder: str) -> list[str]: ...


class Party(NamedTuple):
    """Those whose work counts as the caller's. `sessions`: of the caller, hashed. `agent`: its name; `others`: the
    names of the other agents of the session, without the main one. `is_shared`: each agent of the session is a session
    of the host."""

    sessions: frozenset[str]
    agent: str
    others: frozenset[str] = frozenset()
    is_shared: bool = False
    principal: str | None = None

    def holds(self, held: HeldResource) -> bool:
        """Whether a claim is the party's own. A sub-agent's is not."""
        if held.principal != self.principal:
            return False
        if held.session in self.sessions:
            return held.agent == self.agent if self.is_shared else held.agent not in self.others
        is_named = held.agent == self.agent and any(it.startswith("hook-") for it in self.sessions)
        return is_named and is_over_http(held.session)

    def is_own(self, session: str, agent: str) -> bool:
        """Whether the agent of a session belongs to the party."""
        return session in self.sessions and (not self.is_shared or agent == self.agent)

    def made(self, change: ChangedResource) -> bool:
        """Whether a change is the party's own, sub-agents included."""
        is_own = change.session is not None and self.is_own(change.session, change.agent)
        return is_own and change.principal == self.principal


NOBODY: Final = Party(frozenset(), "")
"""A party without work: all is that of others."""


def party_of(
    notes: Notes, sessions: Collection[str], agent: str, by: str = "", main: str = "", is_shared: bool = False
) -> Party:
    """The party of an agent. `notes`: of the session that holds its claims; `by`, `main`: the keys of the agent and of
    the main agent in `Notes.names`."""
    names = {name for key, name in notes.names.items() if key not in (by, main)}
    names |= {it.agent for it in notes.claims.values() if it.by not in (by, main)}
    return Party(frozenset(sessions), agent, frozenset(names - {agent, notes.names.get(main)}), is_shared)


class FileWork(NamedTuple):
    """A dirty file, and the session that holds it or changed it last. `path`: absolute. `status`: as in DirtyFile.
    `resource`: its name. `seconds`: since when it is held, or since it was changed. `holds`: whether the session holds
    it. `is_live`: whether the session still works."""

    path: str
    status: str
    resource: str
    agent: str
    session: str | None
    seconds: float
    holds: bool
    is_live: bool


class Sessions:
    """Which sessions of a store are live. Reads each session's notes once."""

    def __init__(self, files: HookFiles, with_server: Callable[[], set[str]] | None = None) -> None:
        self._files = files
        self._heirs = cache(self._find_heirs)
        self.notes = cache(files.read)
        self._age = cache(files.age_of)
        self._with_server = cache(with_server or files.sessions_with_server)

    def has_ended(self, session: str, agent: str) -> bool:
        """Whether an agent is known to have ended, by its last hook or because its host's process does not run."""
        notes = self.notes(session)
        if {agent, ALL} & {*notes.ended}:
            return True
        return notes.host is not None and is_running(notes.host) is False and session not in self._with_server()

    def is_live(self, session: str | None, agent: str, seconds: float, has_ended: bool = False) -> bool:
        """Whether a session still works: its host's process exists, or, where that is not known, it called within
        `LIVE_SECONDS`. So does one that another session continues. `seconds`: since its last known call. `has_ended`:
        the store knows that it ended."""
        if session is None:
            return seconds < LIVE_SECONDS
        known, due = {session}, [session]
        if self._runs(session, agent, LIVE_SECONDS if has_ended else seconds):
            return True
        while due:
            heirs = [it for it in self._heirs().get(due.pop(), ()) if it not in known]
            if any(self._runs(it, agent, LIVE_SECONDS) for it in heirs):
                return True
            known |= {*heirs}
            due += heirs
        return False

    def _runs(self, session: str, agent: str, seconds: float) -> bool:
        notes = self.notes(session)
        if {agent, ALL} & {*notes.ended}:
            return False
        if session in self._with_server():
            return True
        runs = None if notes.host is None else is_running(notes.host)
        return min(seconds, self._age(session)) < LIVE_SECONDS if runs is None else runs

    def _find_heirs(self) -> dict[str, list[str]]:
        """The sessions that continue each former one: after a restart of its server, or resumed in another process."""
        heirs: dict[str, list[str]] = {}
        for session in self._files.all_sessions():
            for former in self.notes(session).sessions:
                if former != session:
                    heirs.setdefault(former, []).append(session)
        return heirs


def works(
    ledger: Ledger, names: Callable[[str], Sequence[str]], sessions: Sessions, party: Party, worktree: DirtyWorktree
) -> list[FileWork]:
    """The dirty files that another session holds or changed last, by path: neither those of `party`, nor those of a
    person, nor those whose last recorded change is committed. `names`: the resources that a path may be, a folder
    ending with a slash. Raises GitFailedError."""
    found = _Works(ledger, names, sessions, party)
    files = worktree.files if len(worktree.files) < MANY else [it for it in worktree.files if found.may_know(it.path)]
    by_path = {work.path: work for file in files for work in found.of(file)}
    changes = {path: found.changes[path] for path, it in by_path.items() if not it.holds and it.status not in _UNKNOWN}
    for path in committed(worktree.root, changes):
        del by_path[path]
    return [by_path[path] for path in sorted(by_path)]


def held_work(sessions: Sessions, path: str, status: str, resource: str, held: HeldResource) -> FileWork:
    """The work of the session that holds a file."""
    seconds = max(0, time.time_ns() // 1000 - held.since) / 1_000_000
    has_ended = held.server == "" and not (held.session or "").startswith(_OF_COMMANDS)
    is_live = sessions.is_live(held.session, held.agent, held.idle, has_ended)
    return FileWork(path, status, resource, held.agent, held.session, seconds, True, is_live)


class _Works:
    def __init__(self, ledger: Ledger, names: Callable[[str], Sequence[str]], sessions: Sessions, party: Party) -> None:
        self._ledger = ledger
        self._names = names
        self._sessions = sessions
        self._party = party
        self._now = time.time_ns() // 1000
        self._files: dict[str, HeldResource] = {}
        self._folders: dict[str, HeldResource] = {}
        for held in ledger.all_held():
            known = self._folders if held.resource.endswith("/") else self._files
            if held.resource not in known or party.holds(known[held.resource]):  # shared: another's counts
                known[held.resource] = held
        self.changes: dict[str, tuple[float, str | None]] = {}
        self._knows = cache(self._find_below)

    def may_know(self, path: str) -> bool:
        """Whether a file may be held or have a recorded change: not if nothing in a folder around it was."""
        return self._knows(os.path.dirname(path.rstrip("/")))

    def _find_below(self, folder: str) -> bool:
        above = os.path.dirname(folder)
        if above == folder or not self._knows(above):
            return above == folder
        names = self._names(f"{folder}/")
        return not names or any(
            name in ("", "/")
            or any(it.startswith(name) for it in (*self._files, *self._folders))
            or self._cover(f"{name}_") is not None
            or self._ledger.changed_below(name) != []
            for name in names
        )

    def of(self, file: DirtyFile) -> Iterator[FileWork]:
        """The works of others in a dirty file, or in an untracked folder."""
        if not file.path.endswith("/"):
            work = next(filter(None, (self._of_resource(file, it) for it in self._names(file.path))), None)
            if work is not None:
                yield work
            return
        for folder in self._names(file.path):
            below = {it for it in self._files if it.startswith(folder)} | {*self._ledger.changed_below(folder)}
            covered = self._cover(folder)
            for path, resource in self._existing(file.path, folder, below):
                work = self._of_resource(DirtyFile(path, file.status), resource)
                if work is not None:
                    yield work
            if covered is not None and not self._party.holds(covered):
                yield held_work(self._sessions, file.path, file.status, folder, covered)
            for resource, held in self._folders.items():
                path = file.path + resource.removeprefix(folder)
                is_inside = resource.startswith(folder) and path != file.path and os.path.isdir(path)
                if is_inside and not self._party.holds(held):
                    yield held_work(self._sessions, path, file.status, resource, held)

    def _existing(self, path: str, folder: str, resources: Collection[str]) -> Iterator[tuple[str, str]]:
        """The files below a folder that have these names, as far as they exist. `path`: of the folder; `folder`: its
        name."""
        for resource in sorted(resources):
            below = path + resource.removeprefix(folder)
            if not resource.endswith("/") and os.path.lexists(below):
                yield below, resource
        encoded = {it for it in resources if "%" in it}
        walk = ((root, name) for root, _, names in os.walk(path) for name in names) if encoded else ()
        for root, name in islice(walk, MAX_WALKED):
            below = os.path.join(root, name)
            yield from ((below, it) for it in self._names(below) if it in encoded)

    def _of_resource(self, file: DirtyFile, resource: str) -> FileWork | None:
        held = self._files.get(resource) or self._cover(resource)
        if held is not None and not self._party.holds(held):
            return held_work(self._sessions, file.path, file.status, resource, held)
        change = self._ledger.last_change(resource)
        if change is None or change.session is None or self._party.made(change):
            return None
        seconds = max(0, self._now - change.at) / 1_000_000
        is_live = self._sessions.is_live(change.session, change.agent, seconds)
        self.changes[file.path] = (change.at / 1_000_000, change.sha256)
        return FileWork(file.path, file.status, resource, change.agent, change.session, seconds, False, is_live)

    def _cover(self, resource: str) -> HeldResource | None:
        """The claim of a folder that contains a resource."""
        if not self._folders:
            return None
        at = len(resource)
        while (at := resource.rfind("/", 0, at)) > 0:
            if (held := self._folders.get(resource[: at + 1])) is not None:
                return held
        return None
