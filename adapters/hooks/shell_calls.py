"""What hooks do about a call of an agent's shell in one store: judge its commands, and compare afterwards what nobody
could know beforehand: files that other sessions hold, HEAD and git's stash. The table `files` keeps what a command
found until it has ended."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from holdlog.adapters.engine.conversations import name_session
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.hooks.describe import list_names, shorten
from holdlog.adapters.hooks.dirty import GitFailedError, locate, read_head, read_stash, run_git
from holdlog.adapters.hooks.files import MISSING, hash_content
from holdlog.adapters.hooks.guard import Reading, Source, Verdict, guard_command
from holdlog.adapters.hooks.ownership import FileWork, Ownership
from holdlog.adapters.hooks.words import read_options
from holdlog.adapters.operating_system.location import STORE_FILE, Repository, find_top
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.stores.sql import FORGET_MARKS, MARKS, PUT_FILE, STASHED
from holdlog.domain.claims.commands import Call
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.names import AUTHORS, is_of_agent

MAX_FILES: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of a file that is compared."""
MAX_EXAMINED: Final = 1_000
"""Files below a folder that is held."""
STASH: Final = "stash:"
"""Begins the mark of a repository's stash, and the name under which a store keeps whose an entry is."""
_HEAD: Final = "head:"
_TEXTS: Final = {
    "changed": ("changed", ""),
    "committed": ("got into a commit", ": unfinished work of others, so do not push it"),
}
_CALLERS: Final = ("--by", *(f"--{name.replace('_', '-')}" for name in AUTHORS))
_VERBS: Final = (
    *("claim", "release", "commit", "run", "set", "update", "delete", "clear", "transact", "thread"),
    *("revert", "redact", "token"),
)
"""Commands that act as an agent; others select by its name, as `revert --agent` does."""


class ShellCall:
    """A call of a shell in `folder`, with an id. `store`: the place of the store."""

    def __init__(self, engine: Engine, who: HolderId, caller: Caller, workspaces: Workspaces, store: str) -> None:
        self._engine = engine
        self._who = who
        self._caller = caller
        self._workspaces = workspaces
        self._store = store

    def judge(self, reading: Reading, folder: str) -> Verdict:
        """Judge the git commands that run in the repositories of this store."""
        if not (reading.actions or reading.problem):
            return Verdict()
        source = Source(self._read_ownership(), self._workspaces, read_stashed(self._engine.store))

        def find_source(repository: Repository) -> Source | None:
            own = os.path.realpath(f"{repository.common}/holdlog/{STORE_FILE}")
            return source if own == self._store or not os.path.exists(own) else None

        return guard_command(reading, folder, find_source)

    def judge_own(self, commands: Sequence[tuple[str | None, ...]]) -> str | None:
        """Why commands of holdlog, in Targets, are denied: they do what only a person may do, or act under the name
        of another agent. As far as words show it: scripts and variables of the agent's environment are not read, so a
        host's permissions must do the rest."""
        name = self._who.agent
        for agent, conversation, *words in commands:
            options, operands = read_options(words, f"--db {' '.join(_CALLERS)}")
            verb = operands[0] if operands else None
            if verb == "hook":
                return "holdlog: only hosts run hooks. Call holdlog claim, release or status instead."
            if verb in _VERBS and conversation and name_session(conversation) != self._who.session:
                return "holdlog: this names the conversation of another: call holdlog without it."
            if verb == "init" and not {"--undo", "--url"}.isdisjoint(options):
                return "holdlog: only a person changes the guard. Ask your user to run this command."
            if verb == "release" and "--force" in options:
                remedy = "release your own without --force, or ask your user to run this command"
                return f"holdlog: only a person ends the claim of another: {remedy}."
            callers = [option for option in _CALLERS if (verb, option) != ("revert", "--agent")]
            named = [agent, *map(options.get, callers)] if verb in _VERBS else []
            for other in filter(None, named):
                if not (is_of_agent(name, other) or is_of_agent(other, name)):
                    return f"holdlog: your name is {shorten(name)}, not {shorten(other)}: call holdlog without a name."
        return None

    def note(self, reading: Reading, folder: str, call: str) -> None:
        """Note what a command finds that may do something to files of others, or make an entry of a stash. What a
        command with the same id has found stays: some hosts pass no ids, and may run several at once."""
        if reading.targets.reports or reading.actions:
            marks = list_marks(reading, self._read_ownership(), self._workspaces, folder)
            key = {"session": self._who.session, "agent": f"before {call}"}
            noted = {name for name, _, _ in self._engine.store.read(MARKS, key)} if marks else ()
            if new := {name: mark for name, mark in marks.items() if name not in noted}:
                self._put(key["session"], key["agent"], new)

    def compare(self, call: str) -> str:
        """Record what happened to files of others while a command ran: they are warned before they edit these again.
        Returns what its agent is shown; empty if there is nothing."""
        rows = self._take(f"before {call}")
        if not rows:
            return ""
        marks, since = {name: mark for name, mark, _ in rows}, min(at for _, _, at in rows) / SECOND
        after = compare(marks, since, self._read_ownership(), self._workspaces)
        for resource, _, verb, sha256 in after.differences:
            if verb == "changed":
                self._engine.run(Call(self._who.agent, changes=((resource, sha256),)), self._caller)
        if after.stashed:
            self._put(self._who.session, self._who.agent, {f"{STASH}{commit}": "" for commit in after.stashed})
        return describe(after.differences, self._workspaces)

    def _read_ownership(self) -> Ownership:
        return Ownership(self._engine.store, self._who, self._caller.host)

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


class Difference(NamedTuple):
    """What happened to a file that another session holds. `verb`: changed or committed. `sha256`: of a changed one,
    None if it is missing."""

    resource: str
    who: HolderId
    verb: str
    sha256: str | None


class After(NamedTuple):
    """`stashed`: the commits of new entries of the stash."""

    differences: tuple[Difference, ...] = ()
    stashed: tuple[str, ...] = ()


def list_marks(reading: Reading, ownership: Ownership, workspaces: Workspaces, folder: str) -> dict[str, str]:
    """What a command finds that may change files of others or make an entry of a stash; empty: nothing is to be
    compared. `folder`: where the agent works."""
    marks, reports = dict[str, str](), reading.targets.reports
    if reports or any(action.effect != "includes" for action in reading.actions):
        paths = islice(_list_watched(ownership, workspaces), MAX_FILES)
        marks = {resource: hash_content(path) for resource, path, _ in paths}
    commits = [action.folder for action in reading.actions if action.name.startswith("git commit")]
    for root in {find_top(it) for it in (folder, *commits)} if reports and (marks or commits) else ():
        with suppress(GitFailedError):
            marks |= {} if root is None else {_HEAD + root: read_head(root)}
    for action in reading.actions:
        if action.name.startswith("git stash") and action.kinds:
            with suppress(GitFailedError):
                repository = locate(action.folder, action.options)
                if repository is not None:
                    marks[STASH + repository.common] = next((it for it, _ in read_stash(repository.common)), "")
    return marks


def compare(marks: Mapping[str, str], since: float, ownership: Ownership, workspaces: Workspaces) -> After:
    """What is different after a command. `since`: when the marks were made, in seconds since 1970. What hooks of
    others have recorded since does not count."""
    differences, stashed, heads = list[Difference](), list[str](), dict[str, str]()
    watched = {resource: (path, work) for resource, path, work in _list_watched(ownership, workspaces)}
    changes = ownership.read_changes([*watched])
    new = {name for name, change in changes.items() if change.at >= since and change.who != ownership.who}
    for name, mark in marks.items():
        if name.startswith(STASH):
            entries = [commit for commit, _ in read_stash(name.removeprefix(STASH))]
            stashed += entries[: entries.index(mark)] if mark in entries else entries if not mark else []
        elif name.startswith(_HEAD):
            heads[name.removeprefix(_HEAD)] = mark
        elif name in watched:
            path, work = watched[name]
            digest = hash_content(path)
            is_known = name in new and (changes[name].sha256 or MISSING) == digest
            if digest != mark and not is_known:
                differences.append(Difference(name, work.who, "changed", digest if len(digest) == 64 else None))
    unfinished = {*marks, *new} - {it.resource for it in differences}
    for root, commit in heads.items():
        committed = _list_committed_since(root, commit)
        for resource, (path, work) in watched.items():
            if path in committed and resource in unfinished:
                differences.append(Difference(resource, work.who, "committed", None))
    return After(tuple(differences), tuple(stashed))


def describe(differences: Sequence[Difference], workspaces: Workspaces) -> str:
    """What the agent is shown whose command ran; empty if there is nothing."""
    texts = []
    for verb, (change, remedy) in _TEXTS.items():
        names = [
            f"{shorten(workspaces.format_name(it.resource))} (held by {shorten(it.who.agent)})"
            for it in differences
            if it.verb == verb
        ]
        texts += [f"{list_names(names)} {change} while your command ran{remedy}"] if names else []
    advice = "Do not change held files again: their holders are working on them."
    return f"holdlog: {'; '.join(texts)}. {advice}" if texts else ""


def read_stashed(reader: Reader) -> dict[str, HolderId]:
    """Who made entries of stashes, by their commits."""
    return {name.removeprefix(STASH): HolderId(agent, session) for name, agent, session in reader.read(STASHED, {})}


def _list_watched(ownership: Ownership, workspaces: Workspaces) -> Iterator[tuple[str, str, FileWork]]:
    """The files that live sessions of others hold: resource, path and holder."""
    for work in ownership.list_held():
        path = workspaces.find_file(work.resource) if work.is_live else None
        if path is None:
            continue
        for below in [path] if not path.endswith("/") else islice(_walk(path), MAX_EXAMINED):
            resource = work.resource if below == path else workspaces.name_file(below)
            if resource is not None and _size(below) <= MAX_BYTES:
                yield resource, below, work


def _walk(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in sorted(names))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # it is missing, which is compared, too


def _list_committed_since(root: str, commit: str) -> set[str]:
    """The files that differ between a commit and HEAD."""
    with suppress(GitFailedError):
        if commit and read_head(root) != commit:
            listed = run_git(root, (), "diff", "--name-only", "-z", "--no-renames", commit, "HEAD") or b""
            return {os.path.join(root, os.fsdecode(name)) for name in listed.split(b"\0") if name}
    return set()
