"""A file belongs to the innermost repository around it that uses holdlog, wherever the agent works: a call that changes
files of several repositories is split, one part for each of their stores.

Standard library only and quick to import: the hook's fast path uses it.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.session import list_name
from holdlog.adapters.operating_system.location import (
    OUR_FOLDER,
    STORE_FILE,
    LocationError,
    avoided_folders,
    git_folders,
    is_there,
    resolved,
)

POLICY_FILE: Final = "holdlog.toml"
"""As in policy.py, which takes long to import."""
MAX_STORES: Final = 64 * 1024
"""Bytes of the list of stores of a session."""
MAX_FOLDERS: Final = 2_000
"""Folders below one that is changed in which worktrees are looked for."""
MAX_FOLDER: Final = 80
"""Characters of a folder in a text."""

_STORES: Final = "stores"
_FOLLOWED: Final = frozenset({"prompt", "turn-end", "subagent-end", "session-end"})
"""Events that concern what the session holds in any store."""
_TEXTS: Final = frozenset(
    {"permissionDecisionReason", "additionalContext", "additional_context", "systemMessage", "context", "warning"}
    | {"reason", "user_message", "agent_message"}
)
"""Fields of an output that an agent or a person reads."""


class UsedRepository(NamedTuple):
    """A repository that uses holdlog: its store, and the root of its worktree; empty: the agent works in it."""

    store: Path
    root: str = ""


class Repositories:
    """Finds the store of a file. `own`: that of the repository in which the agent works, if it uses holdlog. Looks at
    each folder once."""

    def __init__(self, own: UsedRepository | None, environ: Mapping[str, str]) -> None:
        self._own = own
        self._avoided = {str(it) for it in avoided_folders(environ)}
        self._known: dict[str, UsedRepository | None] = {}

    def find(self, path: str) -> UsedRepository | None:
        """The repository of the file at an absolute path; None: no repository around it uses holdlog."""
        return self.find_around(os.path.dirname(os.path.realpath(path)))

    def find_around(self, folder: str) -> UsedRepository | None:
        """The repository that contains a folder, or whose root it is."""
        passed = list[str]()
        while folder not in self._known:
            passed.append(folder)
            repository, above = self._at(folder), os.path.dirname(folder)
            if repository is not None or above == folder:
                self._known[folder] = repository or self._own
            else:
                folder = above
        self._known |= dict.fromkeys(passed, self._known[folder])
        return self._known[folder]

    def expand(self, path: str) -> Sequence[str]:
        """The path, and for a folder also what is in the roots of worktrees inside, which have no names themselves: who
        removes the folder removes their files."""
        if os.path.islink(path) or not os.path.isdir(path):
            return [path]
        is_own = self._own is not None and str(self._own.store.parent) == f"{path}/{OUR_FOLDER}"
        is_root = is_own or self._at(path) is not None
        return [*([] if is_root else [path]), *(it for root in self._roots(path, is_root) for it in _entries(root))]

    def _roots(self, folder: str, is_root: bool) -> Iterator[str]:
        """The folder itself if it is a root, and the roots of worktrees below it."""
        for examined, (path, folders, files) in enumerate(os.walk(folder)):
            if examined >= MAX_FOLDERS:
                return
            if path == folder:
                if is_root:
                    yield path
            elif (".git" in folders or ".git" in files) and self._at(path) is not None:
                yield path
            folders[:] = [it for it in folders if it != ".git"]

    def _at(self, folder: str) -> UsedRepository | None:
        """The repository with this root, if it uses holdlog. A broken one is part of the repository around it."""
        if not os.path.lexists(f"{folder}/.git") or folder in self._avoided or folder == os.path.dirname(folder):
            return None
        if self._own is not None and str(self._own.store) == f"{folder}/.git/holdlog/{STORE_FILE}":
            return self._own
        try:
            git = git_folders(Path(folder))
            store = None if git is None else resolved(git.common / "holdlog" / STORE_FILE)
        except LocationError:
            return None
        if store is None:
            return None
        if self._own is not None and store == self._own.store:
            return self._own
        is_used = is_there(store) or os.path.isfile(f"{folder}/{POLICY_FILE}")
        return UsedRepository(store, folder) if is_used else None


def split(
    call: HookCall, own: UsedRepository | None, environ: Mapping[str, str]
) -> list[tuple[UsedRepository, HookCall]]:
    """The parts of a call by the stores that they concern. `own`: of the repository in which the agent works, if it
    uses holdlog; its part comes first."""
    repositories = Repositories(own, environ)
    parts: dict[UsedRepository, HookCall] = {} if own is None else {own: call._replace(paths=(), git=())}
    other = call._replace(paths=(), git=(), reports=False, problem="", called_name=None, claiming=())
    for path in (it for given in call.paths for it in repositories.expand(given)):
        if (repository := repositories.find(path)) is not None:
            part = parts.get(repository, other)
            parts[repository] = part._replace(paths=(*part.paths, path))
    for command in call.git:
        if (repository := repositories.find_around(os.path.realpath(_folder_of(command)))) is not None:
            part = parts.get(repository, other)
            parts[repository] = part._replace(git=(*part.git, command))
    others = [it for it in parts if it != own]
    if own is not None and call.reports:
        for repository in filter(None, map(repositories.find_around, _submodules_around(call.folder))):
            parts[repository] = parts.get(repository, other)._replace(reports=True)
    if own is not None and call.event in _FOLLOWED:
        parts |= dict.fromkeys(_remembered(call, own), call)
    elif own is not None and others:
        rest = parts[own]
        if not (rest.paths or rest.git or rest.reports or rest.problem or rest.called_name is not None):
            del parts[own]
        if call.event == "pre-edit":
            _remember(call, own, others)
    return list(parts.items())


def _submodules_around(folder: str) -> list[str]:
    """The submodules of the worktree in which the agent works: most have none."""
    from holdlog.adapters.hooks.inner import submodules_of, worktree_around

    return submodules_of(worktree_around(folder))


def _entries(root: str) -> list[str]:
    try:
        return [f"{root}/{it}" for it in sorted(os.listdir(root)) if it not in (".git", OUR_FOLDER)]
    except OSError:
        return []


def _folder_of(command: GitCommand) -> str:
    """Where a git command works."""
    from holdlog.adapters.hooks.git import read_git

    return next((action.folder for action in read_git(command, {})), command.folder)


@contextmanager
def working_in(repository: UsedRepository) -> Iterator[None]:
    """Let the agent work in a repository while the block runs: its paths are named from there."""
    before = os.environ.get("CLAUDE_PROJECT_DIR")
    if repository.root:
        os.environ["CLAUDE_PROJECT_DIR"] = repository.root
    try:
        yield
    finally:
        if repository.root:
            os.environ.pop("CLAUDE_PROJECT_DIR")
            os.environ |= {} if before is None else {"CLAUDE_PROJECT_DIR": before}


def name_repository(output: dict[str, Any], call: HookCall, repository: UsedRepository) -> dict[str, Any]:
    """Name the repository in which commands of holdlog see what a text is about, if the agent works elsewhere."""
    if not repository.root or call.event != "pre-edit":
        return output
    folder = os.path.relpath(repository.root, call.folder)
    shown = "".join(it if it.isprintable() else "?" for it in folder[:MAX_FOLDER])
    return merge([output, _with_text(output, f"The repository in {shown} has its own store: run holdlog there.")])


def merge(outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One output with the texts of all."""
    merged: dict[str, Any] = {}
    for output in outputs:
        for field, value in output.items():
            if isinstance(value, dict):
                merged[field] = merge([merged.get(field, {}), value])
            elif field in _TEXTS and field in merged and value != merged[field]:
                merged[field] = f"{merged[field]} {value}"
            else:
                merged[field] = value
    return merged


def _with_text(output: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {
        field: _with_text(value, text) if isinstance(value, dict) else text if field in _TEXTS else value
        for field, value in output.items()
    }


def _remembered(call: HookCall, own: UsedRepository) -> list[UsedRepository]:
    """The other stores in which the session has claimed."""
    found = dict[UsedRepository, None]()
    for line in HookFiles(own.store).text_of(list_name(call, _STORES), MAX_STORES).splitlines():
        with suppress(ValueError, TypeError, RecursionError):  # cut off, or damaged
            store, root = map(str, json.loads(line))
            if os.path.lexists(store) and os.path.isdir(root):
                found[UsedRepository(Path(store), root)] = None
    return list(found)


def _remember(call: HookCall, own: UsedRepository, others: Sequence[UsedRepository]) -> None:
    before = _remembered(call, own)
    lines = "".join(json.dumps([str(it.store), it.root]) + "\n" for it in others if it not in before)
    if lines:
        with suppress(OSError):  # then the claims last until their leases end
            HookFiles(own.store).append(list_name(call, _STORES), lines)
