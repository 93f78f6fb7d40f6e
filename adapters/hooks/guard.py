"""Whether the git commands of a call concern the uncommitted work of other sessions, and what the agent is shown:
git.py says what they do, git and the store whose the files are, and the policy what follows."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from holdlog.adapters.hooks.describe import list_names, shorten
from holdlog.adapters.hooks.dirty import (
    DirtyFile,
    GitFailedError,
    list_committed,
    list_dirty,
    locate,
    parse_config,
    read_stash,
    run_git,
)
from holdlog.adapters.hooks.git import GitAction, concerns, read_git
from holdlog.adapters.hooks.ownership import FileWork, Ownership
from holdlog.adapters.hooks.tools import Targets
from holdlog.adapters.operating_system.files import format_duration
from holdlog.adapters.operating_system.location import Repository, find_main, list_linked
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.policy.in_force import FILE, read_policy
from holdlog.domain.claims.holder import HolderId

MAX_OWN: Final = 1_000
"""At most this many files that remain for a command: a text cannot name more."""
MAX_SETTINGS: Final = 1024 * 1024
"""Bytes of a file of a host."""
GUARDS: Final = (
    *(".claude/settings.local.json", ".claude/settings.json", ".cursor/hooks.json", ".codex/hooks.json"),
    *(".opencode/plugins/holdlog.js", ".mcp.json", ".cursor/mcp.json", "opencode.json"),
)
"""Files that guard the agents of a worktree."""
_UNKNOWN: Final = ("??", "!!")
"""Files that git does not know."""
MAX_TEXT: Final = 400  # characters of a text, unless its names are very long
_SEPARATE: Final = "Work in a folder of your own: git worktree add."
_LIMITABLE: Final = tuple(
    f"git {verb}"
    for verb in ["add", "checkout", "clean", "commit", "reset", "restore", "rm", "stage", "stash", "switch"]
)
"""Commands that take the names of files, or can be replaced by one that does."""


class Reading(NamedTuple):
    """What a call of a shell does. `targets`: with the paths that its git commands name. `actions`: of those commands
    for which git ran; `problem`: why others are missing."""

    targets: Targets
    actions: tuple[GitAction, ...] = ()
    problem: str = ""


class Source(NamedTuple):
    """What is known about a repository. `stashed`: who made the entries of its stash, by commit."""

    ownership: Ownership
    workspaces: Workspaces
    stashed: dict[str, HolderId]


class Verdict(NamedTuple):
    """The decision about a call: why it is denied, or what its agent is warned about."""

    denial: str = ""
    warnings: tuple[str, ...] = ()


class OthersWork(NamedTuple):
    """A dirty file that another session holds or changed last. `path`: as the agent knows it. `agent`: of that session;
    empty for a file that guards all agents. `seconds`: since when. `is_live`: whether that session still works, or
    still holds the file after its host was killed."""

    path: str
    agent: str
    seconds: float
    is_live: bool


class Judgement(NamedTuple):
    """What the agent is shown. `denies`: the command must not run."""

    denies: bool
    text: str


FindSource = Callable[[Repository], Source | None]
"""Finds the source for a repository; None if that does not use holdlog."""


def read_call(targets: Targets) -> Reading:
    """Read the git commands of a call of a shell. What they name is guarded like the targets of any other write."""
    settings = cache(lambda folder: parse_config(run_git(folder, (), "config", "--list", "-z") or b""))
    actions, problem = list[GitAction](), ""
    for command in targets.git:
        try:
            actions += read_git(command, lambda name: settings(command.folder).get(name, ""))  # noqa: B023
        except GitFailedError as error:
            problem = str(error)
    names = [name for action in actions for name in action.names]
    removed = [path for path in targets.paths if os.path.isdir(path) and not os.path.islink(path)]
    actions += [GitAction("this command", "discards", frozenset(), path, worktree=path) for path in removed]
    paths = tuple(dict.fromkeys([*targets.paths, *names]))
    reports = targets.reports or any(it.is_unknown or it.name.startswith("git commit") for it in actions)  # runs hooks
    return Reading(targets._replace(paths=paths, reports=reports), tuple(actions), problem)


def guard_command(reading: Reading, folder: str, find_source: FindSource) -> Verdict:
    """Judge the git commands of a call. `folder`: where its agent works. If git cannot run, the call is not
    guarded, and a warning says so, unless something else denies it."""
    warnings, problem, pushed = list[str](), reading.problem, 0
    find = cache(locate)
    for action in reading.actions:
        try:
            repository = find(action.folder, action.options)
            if repository is None:
                continue  # git refuses
            source = find_source(repository)
            if source is None:
                continue
            examination = _Examination(action, repository, source, pushed, folder)
            judgement = examination.judge()
        except GitFailedError as error:
            problem = str(error)
            continue
        pushed += examination.pushes
        mode = "off" if judgement is None else read_policy(repository.folder).git
        if judgement is None or mode == "off":
            continue
        if judgement.denies and mode == "deny":
            return Verdict(judgement.text)
        warnings.append(judgement.text + (f" {FILE} only warns." if judgement.denies else ""))
    if problem:
        warnings.append(f"holdlog: {problem}; this git command is not guarded.")
    return Verdict("", tuple(dict.fromkeys(warnings)))


class _Examination:
    """A git command in a repository. `pushed`: entries that earlier commands of the call make in the stash; `pushes`:
    those that this one makes. `folder`: where the agent works."""

    def __init__(self, action: GitAction, repository: Repository, source: Source, pushed: int, folder: str) -> None:
        self._action = action
        self._repository = repository
        self._source = source
        self._pushed = pushed
        self._folder = folder
        self.pushes = 0

    def judge(self) -> Judgement | None:
        """What the agent is shown; None: the command runs, silently."""
        action = self._action
        if action.stash:
            return judge(action, self._list_stashed(action.stash), (), self._folder)
        if action.worktree:
            roots = self._find_roots(action.worktree)
            return judge(action, [it for root in roots for it in self._list_others_work_in(root)], (), self._folder)
        if not action.kinds:
            return None
        others, own = self._sort_dirty()
        self.pushes = int(action.name.startswith("git stash") and own != [])
        return judge(action, others, own, self._folder)

    def _sort_dirty(self) -> tuple[list[OthersWork], list[str]]:
        """The dirty files of others that the command concerns, and those that remain."""
        action, root = self._action, self._repository.folder
        is_wide = not action.kinds.isdisjoint(("untracked", "ignored")) or action.tree != ""
        kind = "ignored" if "ignored" in action.kinds or action.tree else "all" if is_wide else "no"
        kind = "normal" if kind == "all" and action.shallow else kind
        dirty = list_dirty(action.folder, root, action.options, action.pathspecs, kind)
        if action.shallow:
            dirty = [file for file in dirty if not file.path.endswith("/")]
        files = [file for file in dirty if concerns(action, file.status)]
        works = self._find_others_work(files)
        if action.tree:
            works |= self._select_overwritten(self._find_others_work([file for file in dirty if file not in files]))
        guards = _find_guards(root, files) if action.effect == "discards" else []
        own = [file.path for file in files if file.path not in works and file.path not in guards]
        others = [self._show(work, path) for path, work in sorted(works.items())]
        if action.name == "git clean -ff":  # which removes the worktrees in these folders, too
            removed = tuple(file.path for file in files if file.path.endswith("/"))
            roots = [it for it in self._list_roots() if f"{it}/".startswith(removed)]
            others += [work for root in roots for work in self._list_others_work_in(root)]
        return [*others, *(OthersWork(path, "", 0, is_live=True) for path in guards)], own[:MAX_OWN]

    def _find_others_work(self, files: Sequence[DirtyFile]) -> dict[str, FileWork]:
        """The work of others in these files, by path, except what is committed."""
        workspaces, statuses = self._source.workspaces, {file.path: file.status for file in files}
        paths = sorted(statuses, key=os.path.islink, reverse=True)  # a file wins over a link to it
        names = {name: path for path in paths if (name := workspaces.name_file(path)) is not None}
        works = dict[str, FileWork]()
        for name, others in self._source.ownership.find_others(names).items():
            for work in others:
                path = names[name] if work.resource == name else workspaces.find_file(work.resource)
                works |= {} if path is None else {path: work}
        changes = {
            path: (work.at, work.sha256)
            for path, work in works.items()
            if not work.holds and statuses.get(path, "??") not in _UNKNOWN
        }
        for path in list_committed(self._repository.folder, changes):
            del works[path]
        return works

    def _select_overwritten(self, works: dict[str, FileWork]) -> dict[str, FileWork]:
        """Those of files that git does not track, and that the commit contains which it writes by force."""
        root = self._repository.folder
        paths = [os.path.relpath(path, root) for path in works]
        words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", self._action.tree, "--", *paths)
        listed = (run_git(root, (), *words) or b"").split(b"\0") if works else ()
        return {
            path: works[path] for name in listed if name and (path := os.path.join(root, os.fsdecode(name))) in works
        }

    def _show(self, work: FileWork, path: str) -> OthersWork:
        agent, own = work.who.agent, self._source.ownership.who.agent
        shown = f"another session of {agent}" if agent == own else agent
        return OthersWork(path, shown, work.seconds, work.is_live or work.holds)

    def _list_stashed(self, entry: str) -> list[OthersWork]:
        """The entries of the stash that other sessions made, and that the command takes away."""
        ownership, shown = self._source.ownership, list[OthersWork]()
        for at, (commit, made) in enumerate(read_stash(self._repository.common)):
            name, who = f"stash@{{{at + self._pushed}}}", self._source.stashed.get(commit)
            if who is not None and entry in (name, "*") and not ownership.is_own(who):
                seconds = max(0.0, ownership.now / 1_000_000 - made)
                shown.append(self._show(FileWork(name, who, seconds, False, ownership.is_live(who.session)), name))
        return shown

    def _list_roots(self) -> list[str]:
        main = find_main(self._repository)
        return [*([] if main is None else [main]), *list_linked(self._repository).values()]

    def _find_roots(self, named: str) -> list[str]:
        """The roots of the worktrees in a folder, or of the one that a command names by the end of its path."""
        real, roots = os.path.realpath(os.path.join(self._action.folder, named)), self._list_roots()
        inside = [root for root in roots if f"{root}/".startswith(f"{real}/")]
        return inside or [root for root in roots if f"{root}/".endswith(f"/{named.strip('/')}/")][:1]

    def _list_others_work_in(self, root: str) -> list[OthersWork]:
        """The sessions of others that hold files in a worktree, and live ones that have changed dirty ones there."""
        works = list(self._find_others_work(list_dirty(root, root)).values())
        for work in self._source.ownership.list_held():
            path = self._source.workspaces.find_file(work.resource)
            works += [work] if path is not None and path.startswith(f"{root}/") else []
        return list({work.who.agent: self._show(work, root) for work in works if work.is_live or work.holds}.values())


def _find_guards(root: str, files: Sequence[DirtyFile]) -> list[str]:
    """Those of the files that git does not know, and folders, in which hosts find the hooks of holdlog."""
    guards = []
    for file in files:
        for name in GUARDS if file.status in _UNKNOWN else ():
            path = f"{root}/{name}"
            if file.path == path or (file.path.endswith("/") and path.startswith(file.path)):
                with suppress(OSError), open(path, "rb") as settings:
                    guards += [file.path] if b"holdlog" in settings.read(MAX_SETTINGS) else []
    return guards


def judge(action: GitAction, works: Sequence[OthersWork], own: Sequence[str], folder: str = "") -> Judgement | None:
    """What the agent is shown about a command that affects the work of other sessions; None: it runs. `own`: the
    files that remain for it, among those that the action concerns. Absolute paths are shown relative to `folder`, in
    which the agent works."""
    live, folder = [work for work in works if work.is_live], folder or action.folder
    start, listed = f"holdlog: {shorten(action.name)}", _list(live or works, folder)
    if not live:
        text = f"{start} takes in changes of an ended session: {listed}."
        return Judgement(False, text) if works and action.effect == "includes" else None
    if action.effect == "moves":
        remedy = f" {_SEPARATE}" * action.name.startswith(("git checkout", "git switch"))
        return Judgement(False, f"{start} runs below uncommitted work of another session: {listed}.{remedy}")
    what = "work of another session" if live[0].agent else "files that guard the agents"
    start += f" would take {'away' if action.effect == 'discards' else 'in'} {what}: {listed}."
    names = list_names([shorten(_relative(path, folder)) for path in own])
    texts = [f"{start} {it} A person can run this in a terminal." for it in _list_remedies(action, names)]
    return Judgement(True, next((text for text in texts if len(text) <= MAX_TEXT), texts[-1]))


def _list_remedies(action: GitAction, own: str) -> list[str]:
    """What the agent can do instead, the best first; the last one is short. `own`: its files, listed."""
    if not action.name.startswith(_LIMITABLE) or action.stash:
        return ["Leave it to that session." if action.stash else "Wait until it is committed."]
    if action.tree and not action.pathspecs:
        return [_SEPARATE]
    if not own:
        return ["It concerns no change of yours."]
    if action.name.startswith("git commit"):
        return ["Run `holdlog commit -m …` instead, which commits your files only."]
    way = "Restore only your own files" if action.name.startswith("git reset") else "Name only your own files"
    return [f"{way}: {own} (holdlog claims --dirty lists all).", f"{way}; holdlog claims --dirty lists them."]


def _list(works: Sequence[OthersWork], folder: str) -> str:
    return list_names(
        [
            shorten(_relative(work.path, folder))
            + (f" ({shorten(work.agent)}, for {format_duration(work.seconds)})" if work.agent else "")
            for work in works
        ]
    )


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) + "/" * path.endswith("/") if os.path.isabs(path) else path
