"""What hooks remember of one session between two calls, and what failed: small private files next to the store.

Standard library only and quick to import: the hook's fast path uses it. The files are not synced: losing one costs a
slower call, or a claim that lasts until its lease ends.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdlog.adapters.hooks.binding import sessions_with_server
from holdlog.adapters.operating_system.ancestry import HostProcess
from holdlog.adapters.operating_system.pause import hooks_folder, pause_file

MAX_FAILURES: Final = 16 * 1024
"""Bytes of the log of failures; a line that exceeds it replaces the log."""
MAX_NOTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 5
MAX_COMMITS: Final = 20
LOCK_SECONDS: Final = 1.0
"""How long a hook waits for another one of the session."""
KEPT_SECONDS: Final = 7 * 24 * 60 * 60
"""Notes of sessions that did not end are removed this long after their last change."""

ALL: Final = "*"
"""In `Notes.ended`, all agents of the session."""

_FLAGS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""A pipe in place of a file must not block."""
_FAILURES: Final = "failures"
_NEWS: Final = ".news"
OBSERVED: Final = "clients.json"
"""See observed.py."""


class HookClaim(NamedTuple):
    """A claim of an agent that covers a file. `by`: the agent of the session, as in `HookCall.agent`; `path`: absolute;
    `agent`: the name under which it claims. `made`: a hook made it. `digest`: of the file at the grant."""

    by: str
    path: str
    resource: str
    version: int
    agent: str
    made: bool
    digest: str


class Denial(NamedTuple):
    """An edit that was denied. `agent`: of the session, as in `HookCall.agent`. `digest`: of the file then; `at`:
    microseconds UTC."""

    agent: str
    path: str
    digest: str
    at: int


class WatchedFile(NamedTuple):
    """A file that another session holds or changed last, as it was before a shell command. `session`, `agent`: whose.
    `stamp`, `digest`: as in digests.py. `changed`: when, if it is not held, in microseconds UTC; `sha256`: of its
    content then, empty if it was removed."""

    resource: str
    session: str
    agent: str
    stamp: str
    digest: str
    changed: int = 0
    sha256: str = ""


class WorktreeHead(NamedTuple):
    """HEAD and index of a worktree. `commit`: empty if there is none, or if only git knows. `stamp`: of the index;
    `copy`: the name of a copy of it among the files of hooks, empty if there is none."""

    commit: str
    stamp: str
    copy: str = ""


class BeforeCommand(NamedTuple):
    """What an agent's shell commands found that have not ended. `open`: how many these are; `at`, `latest`:
    microseconds UTC, of the first and the last one. `files`: by path. `stashes`: the commits of git's stash, by the
    common folder of the repository. `heads`: by the root of the worktree. `lasts`: one of the commands runs on in the
    background."""

    open: int
    at: int
    files: dict[str, WatchedFile]
    stashes: dict[str, list[str]]
    heads: dict[str, WorktreeHead]
    lasts: bool = False
    latest: int = 0


class News(NamedTuple):
    """That the agent `by` of another session did something to a file that is an agent's work. `verb`: what it did."""

    resource: str
    by: str
    verb: str = "changed"


class Terminal(NamedTuple):
    """Where an agent works, for people: texts of agents and users, which no other agent reads. `session`: the hashed id
    of the host's session; `host`: the host and its version; `prompt`: the first words of the session's first prompt."""

    session: str
    folder: str
    host: str
    prompt: str


class Notes:
    """Notes of one session. `names`: the name of each of its agents. `claims`: by `by` and `path`, because an agent and
    its sub-agent may hold the same file. `denied`: the edits that were denied, until it is known whether the host ran
    the tool nevertheless. `sessions`: in the notes of a host's session, those that have held its claims; in those of a
    server's session, the sessions of its host; the newest first. `reported`: tickets of others that an agent knows to
    wait for what it holds: the agent, as in `HookCall.agent`, the resource and the version.

    `host`: the process that runs the session, as far as it is known. `folder`: where it works. `ended`: the names of
    agents that have ended, `ALL` if all have. `stashes`: the commits of the stash entries that the session has made,
    with the name of the agent; `commits`: the newest commits that it has made; `staged`: when it last staged files, in
    microseconds UTC. `before`: by agent, as in `HookCall.agent`. `terminals`: where the agents work that are no
    sub-agents, by agent, too."""

    def __init__(
        self,
        names: dict[str, str],
        claims: dict[tuple[str, str], HookClaim],
        denied: list[Denial] | None = None,
        sessions: list[str] | None = None,
        reported: list[tuple[str, str, int]] | None = None,
    ) -> None:
        self.names = names
        self.claims = claims
        self.denied = denied or []
        self.sessions = sessions or []
        self.reported = reported or []
        self.host: HostProcess | None = None
        self.folder = ""
        self.ended: list[str] = []
        self.stashes: list[tuple[str, str]] = []
        self.commits: list[str] = []
        self.staged = 0
        self.before: dict[str, BeforeCommand] = {}
        self.terminals: dict[str, Terminal] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember."""
        lists = (self.names, self.claims, self.denied, self.ended, self.stashes, self.before, self.terminals)
        return not any((*lists, self.commits))

    def note_commits(self, commits: Sequence[str]) -> None:
        """Note commits that the session has made."""
        self.commits = [*commits, *self.commits][:MAX_COMMITS]

    def note(self, claim: HookClaim) -> None:
        """Note a claim, in place of an earlier one of the same file and agent."""
        self.claims[claim.by, claim.path] = claim


class HookFiles:
    """The folder of the hooks' files next to the store `path`. `owner`: names a separate folder in it, for a caller
    with a token."""

    def __init__(self, path: Path, owner: str = "") -> None:
        self.folder = hooks_folder(path) / owner
        self._store = path

    def is_of_store(self, path: str) -> bool:
        """Whether a path is the store or a file next to it. Hooks open none of those: SQLite loses its locks when its
        process closes such a file (sqlite.org/howtocorrupt.html, 2.2)."""
        return os.path.realpath(path).startswith(os.path.realpath(self._store))

    def read(self, session: str) -> Notes:
        """The notes of a session; empty if there are none that can be read."""
        try:
            given = json.loads(self._read(self.folder / f"{session}.json", MAX_NOTES))
            claims = {(it.by, it.path): it for it in (_claim_of(*claim) for claim in given["claims"])}
            names = {key: str(name) for key, name in given["names"].items()}
            denied = [_denial_of(*denial) for denial in given.get("denied", [])]
            reported = [_ticket_of(*ticket) for ticket in given.get("reported", [])]
            notes = Notes(names, claims, denied, list(map(str, given.get("sessions", []))), reported)
            notes.host = _host_of(*given["host"]) if given.get("host") else None
            notes.folder = str(given.get("folder", ""))
            notes.ended = list(map(str, given.get("ended", [])))
            notes.stashes = [(str(commit), str(agent)) for commit, agent in given.get("stashes", [])]
            notes.commits = list(map(str, given.get("commits", [])))
            notes.staged = int(given.get("staged", 0))
            notes.before = {str(agent): _before_of(*before) for agent, before in given.get("before", {}).items()}
            notes.terminals = {key: _terminal_of(*it) for key, it in given.get("terminals", {}).items()}
            return notes
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return Notes({}, {})

    @contextmanager
    def change(self, session: str) -> Iterator[Notes]:
        """Change the notes of a session, while no other hook does. Raises OSError."""
        self._prepare()
        with self._locked(session):
            notes = self.read(session)
            before = _encoded(notes)
            path = self.folder / f"{session}.json"
            try:
                yield notes
            finally:  # also what was claimed before something failed
                if notes.is_empty:
                    path.unlink(missing_ok=True)
                elif (after := _encoded(notes)) != before:
                    self._replace(path, after)

    def set_paused(self, session: str, is_paused: bool) -> None:
        """Record whether the turn of a session has ended: its server then does not renew its claims (pause.py). Raises
        OSError."""
        path = pause_file(self._store, session)
        if is_paused:
            self._prepare()
            os.close(self._open(path, os.O_WRONLY | os.O_CREAT))
        else:
            path.unlink(missing_ok=True)

    def age_of(self, session: str) -> float:
        """Seconds since the notes of a session were changed; infinite if there are none."""
        try:
            return max(0.0, time.time() - os.stat(self.folder / f"{session}.json").st_mtime)
        except OSError:
            return float("inf")

    def all_sessions(self) -> list[str]:
        """The sessions that have notes."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return [it.removesuffix(".json") for it in names if it.endswith(".json") and it != OBSERVED]

    def sessions_with_server(self) -> set[str]:
        """The sessions of live stdio servers on the store."""
        return sessions_with_server(self._store)

    def remove_old(self) -> None:
        """Remove the notes of sessions that nothing has used for long."""
        before = time.time() - KEPT_SECONDS
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                status = entry.stat(follow_symlinks=False)
                if (
                    entry.name not in (_FAILURES, OBSERVED)
                    and not stat.S_ISDIR(status.st_mode)
                    and status.st_mtime < before
                ):
                    os.unlink(entry.path)

    def record_failure(self, event: str, problem: str) -> None:
        """Log one line about what failed. Never raises."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {event}: {problem}"
        text = "".join(it if it.isprintable() else "?" for it in line)[:300] + "\n"
        with suppress(OSError):
            if self.append(_FAILURES, text) > MAX_FAILURES:
                self.replace_text(_FAILURES, text)

    def append(self, name: str, line: str) -> int:
        """Append a line to a file. Returns the size of the file in bytes. Raises OSError."""
        self._prepare()
        descriptor = self._open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, line.encode(errors="replace"))
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def note_news(self, session: str, agent: str, news: News) -> None:
        """Note for an agent what another one did to its work. Raises OSError."""
        self._prepare()
        with self._locked(f"{session}{_NEWS}"):
            self.append(f"{session}{_NEWS}", json.dumps([agent, *news]) + "\n")

    def has_news(self, session: str) -> bool:
        """Whether there are such notes for a session."""
        return os.path.exists(self.folder / f"{session}{_NEWS}")

    def take_news(self, session: str, is_read: Callable[[str], bool]) -> list[News]:
        """Return and remove these notes for the agents with the names that are read."""
        name, news, rest = f"{session}{_NEWS}", list[News](), ""
        with self._locked(name):  # nothing is noted between reading and removing
            for line in self.text_of(name, MAX_NOTES).splitlines(keepends=True):
                with suppress(ValueError, TypeError):
                    agent, *facts = map(str, json.loads(line))
                    if is_read(agent):
                        news.append(News(*facts))
                    else:
                        rest += line
            if news and rest:
                self.replace_text(name, rest)
            elif news:
                (self.folder / name).unlink(missing_ok=True)
        return list(dict.fromkeys(news))

    def text_of(self, name: str, most: int) -> str:
        """The text of a file; empty if it cannot be read."""
        try:
            return self._read(self.folder / name, most).decode(errors="replace")
        except OSError:
            return ""

    def replace_text(self, name: str, text: str) -> None:
        """Replace the text of a file at once. Raises OSError."""
        self.replace_bytes(name, text.encode(errors="replace"))

    def replace_bytes(self, name: str, content: bytes) -> None:
        """Replace the content of a file at once. Raises OSError."""
        self._prepare()
        self._replace(self.folder / name, content)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(OSError):
            os.unlink(self.folder / name)

    def take_failures(self) -> list[str]:
        """Return and remove the logged lines."""
        lines = self.text_of(_FAILURES, 2 * MAX_FAILURES).splitlines()
        with suppress(OSError):
            os.unlink(self.folder / _FAILURES)
        return lines

    def _prepare(self) -> None:
        for folder in (hooks_folder(self._store), self.folder):
            with suppress(FileExistsError):
                folder.mkdir(0o700)

    @contextmanager
    def _locked(self, session: str) -> Iterator[None]:
        descriptor = self._open(self.folder / f"{session}.lock", os.O_RDWR | os.O_CREAT)
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, path: Path, content: bytes) -> None:
        import threading  # only a hook that writes needs it

        unready = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_native_id()}")
        try:
            descriptor = self._open(unready, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(unready, path)
        except OSError:
            with suppress(OSError):
                os.unlink(unready)
            raise

    def _read(self, path: Path, most: int) -> bytes:
        with os.fdopen(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read(most)

    def _open(self, path: Path, flags: int) -> int:
        """Open a regular file that belongs to this user. Raises OSError."""
        descriptor = os.open(path, flags | os.O_CLOEXEC | _FLAGS, 0o600)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid()):
            return descriptor
        os.close(descriptor)
        raise PermissionError(f"{path.name} is not a file of this user")


def _claim_of(by: str, path: str, resource: str, version: int, agent: str, made: bool, digest: str) -> HookClaim:
    """A claim as it was noted. Raises ValueError, TypeError, OverflowError."""
    return HookClaim(str(by), str(path), str(resource), int(version), str(agent), bool(made), str(digest))


def _denial_of(agent: str, path: str, digest: str, at: int) -> Denial:
    """A denial as it was noted. Raises ValueError, TypeError, OverflowError."""
    return Denial(str(agent), str(path), str(digest), int(at))


def _host_of(pid: int, started: str, boot: str, visible: str) -> HostProcess:
    """A process as it was noted. Raises ValueError, TypeError, OverflowError."""
    return HostProcess(int(pid), str(started), str(boot), str(visible))


def _before_of(
    running: int,
    at: int,
    files: dict[str, Any],
    stashes: dict[str, Any],
    heads: dict[str, Any],
    lasts: bool,
    latest: int,
) -> BeforeCommand:
    """What was found before a command, as it was noted. Raises ValueError, TypeError, AttributeError."""
    watched = {path: _watched_of(*file) for path, file in files.items()}
    commits = {folder: list(map(str, it)) for folder, it in stashes.items()}
    found = {root: WorktreeHead(*map(str, head)) for root, head in heads.items()}
    return BeforeCommand(int(running), int(at), watched, commits, found, bool(lasts), int(latest))


def _watched_of(
    resource: str, session: str, agent: str, stamp: str, digest: str, changed: int, sha256: str
) -> WatchedFile:
    """A file as it was noted. Raises ValueError, TypeError."""
    return WatchedFile(str(resource), str(session), str(agent), str(stamp), str(digest), int(changed), str(sha256))


def _ticket_of(agent: str, resource: str, version: int) -> tuple[str, str, int]:
    """A ticket as it was noted. Raises ValueError, TypeError, OverflowError."""
    return str(agent), str(resource), int(version)


def _terminal_of(session: str, folder: str, host: str, prompt: str) -> Terminal:
    """A terminal as it was noted. Raises TypeError."""
    return Terminal(str(session), str(folder), str(host), str(prompt))


def _encoded(notes: Notes) -> bytes:
    return json.dumps({**vars(notes), "claims": list(notes.claims.values())}).encode()


def _lock(descriptor: int) -> None:
    """Wait for the lock. A hook that cannot get it continues without: notes may then lose a line, never a claim."""
    try:
        import fcntl
    except ImportError:
        return
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005)
        else:
            return
