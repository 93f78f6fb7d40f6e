"""Whether the git commands of a call concern the uncommitted work of other sessions: git.py decides, for what git and
the store say.

Standard library only and quick to import: the hook's fast path uses it. There, the names of files are found without the
store's settings, and may be those of another worktree, too: whether something is denied is decided with the open store.
"""

import os
import sys
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.hooks.binding import folders_of_servers
from holdlog.adapters.hooks.calls import MAX_PATHS, SHARED_SERVER, HookCall
from holdlog.adapters.hooks.dirty import (
    DirtyFile,
    DirtyWorktree,
    GitFailedError,
    ask_git,
    dirty_worktree,
    repository_at,
    worktree_at,
)
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.git import (
    GitAction,
    Judgement,
    Kind,
    OthersWork,
    concerns,
    judge,
    parse_config,
    read_git,
    stash_entries,
)
from holdlog.adapters.hooks.guard_files import guard_files, without_guards
from holdlog.adapters.hooks.inner import inner_actions, with_foreach
from holdlog.adapters.hooks.notes import HookFiles, Notes
from holdlog.adapters.hooks.session import main_of, name_of, own_session
from holdlog.adapters.hooks.works import (
    LIVE_SECONDS,
    FileWork,
    Ledger,
    Party,
    Sessions,
    held_work,
    party_of,
    works,
)
from holdlog.adapters.operating_system.location import (
    STORE_FILE,
    LocationError,
    avoided_folders,
    pointer_in,
    project_root,
    start_folder,
)
from holdlog.adapters.operating_system.worktrees import find_repository
from holdlog.adapters.stores.sqlite.held import LeaseFile, lease_file

_ALL: Final[frozenset[Kind]] = frozenset({"staged", "changed", "untracked"})
INDEXING: Final = ("git add", "git apply", "git read-tree", "git rm", "git stage", "git update-index")
"""Commands that put files into the index."""
_NAMED_COMMIT: Final = "git add FILES && git commit --only -m … -- FILES"
UNTRACKED: Final = frozenset({"untracked", "ignored"})
MAX_NAMED: Final = 1_000
"""Files that remain for a command: no text names so many."""
MAX_PLAIN: Final = 200
"""Characters of a path that is certainly named as it is called."""
_ODD: Final = frozenset('%*?\\:"')
"""What a resource must not contain (domain/claims/file_name.py), and more that is rare."""


class _LazyConfig(Mapping[str, str]):
    """The configuration of git in a folder, read when it is needed. `given`: what comes on top."""

    def __init__(self, folder: str, given: Mapping[str, str]) -> None:
        self._folder = folder
        self._given = given
        self._settings: dict[str, str] | None = None

    def _read(self) -> dict[str, str]:
        if self._settings is None:
            self._settings = parse_config(ask_git(self._folder, (), "config", "--list", "-z") or b"")
        return {**self._settings, **self._given}

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def actions_of(commands: Sequence[GitCommand]) -> list[GitAction]:
    """What the git commands of a call do. Raises GitFailedError."""
    found, given = list[GitAction](), dict[str, str]()
    for command in commands:
        found += read_git(command, _LazyConfig(command.folder, given))
        words = [it for it in command.words if it]
        if "config" in words[:-2]:  # for the commands behind it
            given[words[-2].lower()] = words[-1]
    return found


def _with_all_taken(actions: Sequence[GitAction]) -> Iterator[GitAction]:
    """The actions, with a commit as one of all that is dirty if only a shell knows what it takes in: a former command
    of the call may have put anything into the index."""
    is_open = False
    for action in actions:
        if action.name.startswith("git commit") and (action.is_unknown or (is_open and not action.pathspecs)):
            action = action._replace(effect="includes", kinds=_ALL, names=(), narrower=_NAMED_COMMIT)
        is_open |= action.is_unknown and action.name in INDEXING
        yield action


def _readable_actions(commands: Sequence[GitCommand]) -> tuple[list[GitAction], GitFailedError | None]:
    """What those of the commands do for which git can be asked, and why others are not among them."""
    try:
        return actions_of(commands), None
    except GitFailedError as error:
        each = [_readable_actions([it])[0] for it in commands] if len(commands) > 1 else []
        return [action for actions in each for action in actions], error


def with_named(call: HookCall) -> HookCall:
    """The call with the paths that its git commands name, which are guarded like those of any other write."""
    call = with_foreach(call)
    call = call._replace(git=tuple(_as_typed(it, call.folder) for it in call.git))
    actions, _ = _readable_actions(call.git)  # who judges the commands learns of others, too
    names = [name for action in actions for name in action.names] if call.event == "pre-edit" else []
    paths = tuple(dict.fromkeys([*call.paths, *names]))
    reports = call.reports or any(action.is_unknown for action in actions)
    if len(paths) > MAX_PATHS:
        return call._replace(problem=f"a git command names more than {MAX_PATHS:,} files", reports=reports)
    return call._replace(paths=paths, reports=reports)


def _as_typed(command: GitCommand, folder: str) -> GitCommand:
    """The command as the agent would type it in its own folder: behind `cd`, texts name it with -C."""
    if command.folder == folder or not os.path.isdir(folder):
        return command
    path = os.path.relpath(command.folder, folder)
    return GitCommand(("-C", command.folder if path.startswith("..") else path, *command.words), folder)


class Source(NamedTuple):
    """Where the works of others are looked up. `store`: its file, None for another kind; `files`: of the hooks there.
    `names`: the resources that an absolute path may be; of a folder, they end with a slash."""

    store: Path | None
    files: HookFiles
    ledger: Ledger
    names: Callable[[str], Sequence[str]]
    sessions: Sessions
    party: Party


class GitFinding(NamedTuple):
    """What a git command means for others. `root`: of the worktree that it concerns."""

    judgement: Judgement
    root: str


def findings(call: HookCall, source: Source) -> list[GitFinding]:
    """What the git commands of a call mean for others: nothing is empty. Raises GitFailedError, unless a command is
    denied for which git could be asked, and sqlite3.Error."""
    found, pushed = list[GitFinding](), 0
    readable, failed = _readable_actions(call.git)
    due = [*_with_all_taken(readable)]
    at = cache(worktree_at)
    while due:
        action = due.pop(0)
        try:
            worktree = at(action.folder, action.options)
            if worktree is None and (action.stash or action.worktree or action.branch):
                worktree = repository_at(action.folder, action.options)
            if worktree is None:
                continue  # git refuses
            due = [*inner_actions(action, worktree), *due]
            with _source_at(worktree, source, call) as local:
                examined = _Examined(action, worktree, local, pushed, call.folder)
                judgement = examined.judge()
        except GitFailedError as error:
            failed = error
            continue
        pushed += examined.pushes
        if judgement is not None:
            found.append(GitFinding(judgement, worktree.root))
    if failed is not None and not any(it.judgement.denies for it in found):
        raise failed
    return found


def quick_source(call: HookCall, store: Path, files: HookFiles, ledger: LeaseFile, held_by: str) -> Source:
    """The source for a call, without the open store. `held_by`: the session that holds the agent's claims."""
    own, sessions = own_session(call, Identity(ledger.salt)), Sessions(files)
    former = {*sessions.notes(own).sessions} - {held_by}
    mine = {held_by, own, *(former - files.sessions_with_server() if former else ())}
    party = party_of_call(call, sessions.notes(held_by), mine)
    return Source(
        store, files, ledger, quick_names(ledger, start_folder(os.environ, Path(call.folder))), sessions, party
    )


class _Examined:
    """A git command in a worktree. `pushed`: entries that earlier commands of the call make in the stash. `folder`:
    where the agent works."""

    def __init__(self, action: GitAction, worktree: DirtyWorktree, source: Source, pushed: int, folder: str) -> None:
        self._action = action
        self._folder = folder
        self._worktree = worktree
        self._source = source
        self._pushed = pushed
        self.pushes = 0

    def judge(self) -> Judgement | None:
        """What the agent is shown; None: the command runs, silently."""
        action = self._action
        if action.stash:
            return judge(action, self._stashed(action.stash), (), self._folder)
        if action.worktree:
            root = self._root_of(action.worktree)
            return None if root is None else judge(action, self._works_in(root, root), (), self._folder)
        if action.branch:
            root = self._root_with(action.branch)
            return None if root is None else judge(action, self._works_in(root, action.branch), (), self._folder)
        if not action.kinds:
            return None
        others, own = self._dirty()
        if others and not others[0].agent:
            action = without_guards(action, others, self._worktree.root)
        self.pushes = int(action.name.startswith("git stash") and own != [])
        return judge(action, others, own, self._folder)

    def _dirty(self) -> tuple[list[OthersWork], list[str]]:
        """The dirty files of others that the command concerns, and those that remain."""
        action = self._action
        is_wide = bool(action.kinds & UNTRACKED or action.tree)
        untracked = "no" if not is_wide else "all" if action.pathspecs else "normal"
        is_ignored = "ignored" in action.kinds or bool(action.tree)
        limits = action.options, action.pathspecs
        found = dirty_worktree(action.folder, *limits, is_ignored, untracked, self._worktree)
        dirty = [] if found is None else list(found.files)
        if action.shallow:
            dirty = [it for it in dirty if not it.path.endswith("/")]
        files = [it for it in dirty if concerns(action, it.status)]
        works = self._works(files)
        if action.tree:
            works += self._overwritten(self._works([it for it in dirty if it not in files]))
        guards = guard_files(self._worktree, files) if action.effect == "discards" else []
        paths = {it.path for it in works} | {it.path for it in guards}
        own = list[str]()
        for file in files:
            if file.path in paths:
                continue
            if file.path.endswith("/") and any(it.startswith(file.path) for it in paths):
                folders = tuple(it for it in paths if it.endswith("/"))
                own += [it for it in self._below(file.path) if it not in paths and not it.startswith(folders)]
            else:
                own.append(file.path)
        spared = [OthersWork(*it, "", 0, is_live=True) for it in guards]
        return [*(self._shown(it, it.path, it.status) for it in works), *spared], own[:MAX_NAMED]

    def _works(self, files: Sequence[DirtyFile]) -> list[FileWork]:
        source = self._source
        worktree = self._worktree._replace(files=tuple(files))
        return works(source.ledger, source.names, source.sessions, source.party, worktree)

    def _overwritten(self, works_of_others: Sequence[FileWork]) -> list[FileWork]:
        """Those of files that git does not track, and that the commit contains which it writes by force."""
        if not works_of_others:
            return []
        root = self._worktree.root
        paths = [os.path.relpath(it.path, root) for it in works_of_others]
        words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", self._action.tree, "--", *paths)
        listed = {os.path.join(root, os.fsdecode(it)) for it in (ask_git(root, (), *words) or b"").split(b"\0") if it}
        return [it for it in works_of_others if it.path in listed]

    def _below(self, folder: str) -> list[str]:
        """The files below an untracked folder."""
        found = dirty_worktree(self._worktree.root, ("--literal-pathspecs",), (folder,), untracked="all")
        return [] if found is None else [it.path for it in found.files]

    def _shown(self, work: FileWork, path: str, status: str = "") -> OthersWork:
        agent = work.agent if work.agent != self._source.party.agent else f"another session of {work.agent}"
        return OthersWork(path, status, agent, work.seconds, work.is_live)

    def _stashed(self, entry: str) -> list[OthersWork]:
        """The entries of the stash that other sessions made, and that the command takes away."""
        log, found = read_stash(self._worktree.common), list[OthersWork]()
        owners = {
            commit: (session, agent)
            for session in self._source.files.all_sessions()
            for commit, agent in self._source.sessions.notes(session).stashes
        }
        for at, commit in enumerate(stash_entries(log)):
            name = f"stash@{{{at + self._pushed}}}"
            session, agent = owners.get(commit, (None, ""))
            if session is None or entry not in (name, "*"):
                continue
            if not self._source.party.is_own(session, agent):
                is_live = self._source.sessions.is_live(session, agent, LIVE_SECONDS)
                seconds = time.time() - _time_of(log, commit)
                work = FileWork(name, "", "", agent, session, seconds, False, is_live)
                found.append(self._shown(work, name))
        return found

    def _roots(self) -> dict[str, str]:
        """The roots of the repository's worktrees, by their git folders."""
        common = self._worktree.common
        main = self._worktree.root if self._worktree.git_folder == common else os.path.dirname(common)
        roots = {common: main}
        with suppress(OSError):
            for name in os.listdir(os.path.join(common, "worktrees")):
                folder = os.path.join(common, "worktrees", name)
                with suppress(LocationError):
                    pointer = pointer_in(Path(folder, "gitdir"))
                    roots[folder] = os.path.realpath(os.path.dirname(os.path.join(folder, pointer)))
        return roots

    def _root_of(self, given: str) -> str | None:
        """The root of the worktree that a command names by its path, or by the end of it."""
        real = os.path.realpath(os.path.join(self._action.folder, given))
        roots = [*self._roots().values()]
        ends = [it for it in roots if f"{it}/".endswith(f"/{given.strip('/')}/")]
        return real if real in roots else next(iter(ends), None)

    def _root_with(self, branch: str) -> str | None:
        """The root of the worktree in which a branch is checked out."""
        for folder, root in self._roots().items():
            with suppress(LocationError):
                if pointer_in(Path(folder, "HEAD")) == f"ref: refs/heads/{branch}":
                    return root
        return None

    def _works_in(self, root: str, shown: str) -> list[OthersWork]:
        """The live sessions of others that work in a worktree: by what they hold or changed there, or by the folder of
        their host or of their server."""
        source = self._source
        found = dirty_worktree(root)
        others = [] if found is None else works(source.ledger, source.names, source.sessions, source.party, found)
        starts = tuple(filter(None, (it.removesuffix("_") for it in source.names(f"{root}/_"))))
        for held in source.ledger.all_held():
            if held.resource.startswith(starts) and not source.party.holds(held):
                others.append(held_work(source.sessions, root, "", held.resource, held))
        folders = [] if source.store is None else folders_of_servers(source.store)
        folders += [(it, source.sessions.notes(it).folder) for it in source.files.all_sessions()]
        for session, folder in folders:
            names_there = source.sessions.notes(session).names
            agent = names_there.get("") or next(iter(names_there.values()), "an agent")
            if f"{os.path.realpath(folder)}/".startswith(f"{root}/") and not source.party.is_own(session, agent):
                is_live = source.sessions.is_live(session, agent, LIVE_SECONDS)
                others.append(FileWork(root, "", "", agent, session, 0, False, is_live))
        by_agent = {it.agent: self._shown(it, shown) for it in reversed(others) if it.is_live}
        return list(by_agent.values())


def read_stash(common: str) -> str:
    """The log of git's stash; empty if there is none. `common`: the common folder of the repository."""
    try:
        with open(os.path.join(common, "logs", "refs", "stash"), "rb") as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""


def _time_of(log: str, commit: str) -> float:
    """When an entry of the stash was made, in seconds UTC; now if that is not known."""
    for line in log.splitlines():
        head = line.partition("\t")[0].split(" ")
        if len(head) > 4 and head[1] == commit and head[-2].isdecimal():
            return float(head[-2])
    return time.time()


def party_of_call(call: HookCall, notes: Notes, sessions: Collection[str]) -> Party:
    """The party of the agent that makes a call. `notes`: of the session that holds its claims."""
    return party_of(notes, sessions, name_of(call, notes), call.agent, main_of(call), call.client in SHARED_SERVER)


@contextmanager
def _source_at(worktree: DirtyWorktree, source: Source, call: HookCall) -> Iterator[Source]:
    """The source for a worktree: another store if that is in another repository. Raises sqlite3.Error."""
    other = Path(worktree.common, "holdlog", STORE_FILE)
    is_usual = source.store is not None and source.store.name == STORE_FILE
    if not is_usual or source.store == other or os.environ.get("HOLDLOG_DB") or not other.exists():
        yield source
        return
    files = HookFiles(other)
    with lease_file(other) as ledger:
        session = own_session(call, Identity(ledger.salt))
        notes = files.read(session)
        names = quick_names(ledger, Path(worktree.root))
        yield Source(other, files, ledger, names, Sessions(files), party_of_call(call, notes, {session}))


def quick_names(ledger: LeaseFile, folder: Path) -> Callable[[str], list[str]]:
    """Finds the resources that an absolute path may be in the store of the project around a folder, without the store's
    settings: its own name, and those that workspaces with other names would give it."""
    repository = find_repository(folder, avoided_folders(os.environ))
    roots = {} if repository is None else {str(root): name for name, root in repository.linked().roots.items()}
    main = repository.main if repository is not None else project_root(os.environ, folder)
    called = {root: quote(os.fsencode(name), safe="!$&'()*+,;=@") for root, name in roots.items()}
    known = {*called.values()}
    known |= {f"worktrees%2F{name}" for name in known}
    more = [f"file://{name}/" for name in ledger.workspaces() if name not in known]
    starts = {f"{main}/": ["", *more]} if main is not None else {}
    for root, name in called.items():
        starts[f"{root}/"] = [f"file://{name}/", f"file://worktrees%2F{name}/", "", *more]

    def names(path: str) -> list[str]:
        return [
            _named(path[len(root) :], start)
            for root, all_starts in starts.items()
            if path.startswith(root)
            for start in all_starts
        ]

    return names


def _named(path: str, start: str) -> str:
    """As `Workspace.file` in paths.py, which takes long to import."""
    is_plain = path.isascii() and path.isprintable() and len(path) <= MAX_PLAIN and not _ODD & set(path)
    if not is_plain or " " in path:
        from holdlog.domain.claims.file_name import encode_path
        from holdlog.domain.names import MAX_NAME

        with suppress(ValueError):
            path = encode_path(unicodedata.normalize("NFC", path), MAX_NAME - len(start)) if path else ""
    return start + (path.casefold() if sys.platform in ("darwin", "win32") else path)
