"""Whose the dirty files of a worktree are, for `holdlog commit` and `holdlog claims --dirty`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdlog.adapters.cli.commands import agent_with_hooks, user
from holdlog.adapters.compose import named_session
from holdlog.adapters.hooks.dirty import DirtyWorktree, committed
from holdlog.adapters.hooks.ledger import ReaderLedger
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.works import FileWork, Party, Sessions, party_of, works
from holdlog.domain.claims.resource import covering
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine


class SortedFiles(NamedTuple):
    """The dirty files of a worktree, absolute. `own`: that the party changed last, or that it holds; `inherited`: those
    of them that another session, which has ended, changed last. `others`: files of other sessions. `unknown`: that a
    person or a program changed."""

    own: list[str]
    inherited: list[FileWork]
    others: list[FileWork]
    unknown: list[str]


def sort_files(engine: "Engine", files: HookFiles, party: Party, worktree: DirtyWorktree) -> SortedFiles:
    """Sort the dirty files of a worktree. Raises GitFailedError."""
    ledger = ReaderLedger(engine)
    others = {it.path: it for it in works(ledger, ledger.names, Sessions(files), party, worktree)}
    held = {it.resource for it in ledger.all_held() if party.holds(it)}
    found, changes = SortedFiles([], [], [], []), dict[str, tuple[float, str | None]]()
    for file in worktree.files:
        work, names = others.get(file.path), ledger.names(file.path)
        is_held = any(cover in held for name in names for cover in covering(name))
        if work is not None and (work.is_live or not is_held):
            found.others.append(work)
        elif is_held:
            found.own.append(file.path)
            found.inherited.extend([work] if work is not None else [])
        elif (change := _own_change(ledger, party, names)) is None or file.path.endswith("/"):
            found.unknown.append(file.path)
        else:
            found.own.append(file.path)
            changes |= {} if file.status == "??" else {file.path: change}
    for path in committed(worktree.root, changes):  # a person or a program has changed it since
        found.own.remove(path)
        found.unknown.append(path)
    return found


def _own_change(ledger: ReaderLedger, party: Party, names: Sequence[str]) -> tuple[float, str | None] | None:
    """When the party changed a file last, in seconds UTC, and to what; None if it did not."""
    for name in names:
        change = ledger.last_change(name)
        if change is not None and party.made(change):
            return change.at / 1_000_000, change.sha256
    return None


def party_of_command(engine: "Engine", files: HookFiles, agent: str | None, session: str | None) -> Party:
    """The party for which a command runs: of the session that the user names, or else of the agent that runs it, or
    that is named. Raises InvalidError."""
    if session is not None:
        named = named_session(session)
        assert named is not None
        return Party(frozenset({engine.identity.session(*named)}), agent or user())
    found = agent_with_hooks(engine, agent)
    if found is not None:
        sessions, name = [found[0].held_by], found[1]
    else:
        sessions, name = _sessions_of(files, agent), agent or ""
    notes = files.read(sessions[0])
    is_shared = "" not in notes.names
    by = next((key for key, value in notes.names.items() if value == name), "")
    former = [it for session in sessions for it in files.read(session).sessions]
    return party_of(notes, {*sessions, *former}, name, by, by if is_shared else "", is_shared)


def _sessions_of(files: HookFiles, agent: str | None) -> list[str]:
    """The sessions in which hooks know an agent of this name; several if its host's server was restarted. Raises
    InvalidError."""
    if agent is None:
        raise InvalidError("it is not known which session runs this; pass --agent NAME (see holdlog agents)")
    named = {it: files.read(it) for it in files.all_sessions() if agent in files.read(it).names.values()}
    linked = {it for session, notes in named.items() for it in notes.sessions if it != session}
    found = [it for it in named if it not in linked]
    live = [it for it in found if Sessions(files).is_live(it, agent, float("inf"))] or found
    if not live:
        raise InvalidError(f"--agent: hooks know no agent {agent!r}; to list agents: holdlog agents")
    if len(live) > 1 and "" in named[live[0]].names:
        raise InvalidError(f"--agent: several sessions are named {agent!r}; run this in the shell of one of them")
    return live
