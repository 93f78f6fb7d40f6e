"""`holdlog claims --dirty`: whose the changed files of a worktree are."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdlog.adapters.api.values.responses import Part, Result
from holdlog.adapters.cli.texts import duration, marked, table
from holdlog.adapters.compose import MEMORY
from holdlog.adapters.hooks.dirty import GitFailedError, dirty_worktree
from holdlog.adapters.hooks.ledger import works_in_store
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.works import NOBODY
from holdlog.domain.refusals import InvalidError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine


class WorktreeFile(Part):
    """A changed file. `path`: relative to the folder of the command; `git_status`: two letters of `git status`.
    `agent`: of the session that holds it (`held`), or that changed it last; missing if no hook recorded that. `live`:
    whether the session still works; `seconds`: since when."""

    path: str
    git_status: str
    agent: str | None = None
    held: bool | None = None
    live: bool | None = None
    seconds: float | None = None


class WorktreeFiles(Result):
    """The changed files of a worktree, by path."""

    status: Literal["ok"] = "ok"
    files: list[WorktreeFile]


def worktree_files(engine: "Engine") -> WorktreeFiles:
    """The changed files of the worktree in which the command runs. Raises InvalidError, UnavailableError."""
    folder = os.getcwd()
    try:
        worktree = dirty_worktree(folder, untracked="all")
        if worktree is None:
            raise InvalidError("--dirty: this folder is not in a worktree of git")
        works = {it.path: it for it in works_in_store(engine, _hook_files(engine), NOBODY, worktree)}
    except GitFailedError as error:
        raise UnavailableError(str(error)) from None
    files = []
    for file in worktree.files:
        name, status = os.path.relpath(file.path, os.path.realpath(folder)), file.status
        found = works.get(file.path)
        if found is None:
            files.append(WorktreeFile(path=name, git_status=status))
        else:
            files.append(
                WorktreeFile(
                    path=name,
                    git_status=status,
                    agent=found.agent,
                    held=found.holds,
                    live=found.is_live,
                    seconds=found.seconds,
                )
            )
    return WorktreeFiles(files=sorted(files, key=lambda it: it.path))


def _hook_files(engine: "Engine") -> HookFiles:
    """The files of the store's hooks; none in the place of a store that does not exist yet. Raises InvalidError."""
    if engine.location == MEMORY:
        return HookFiles(Path(os.devnull, "none"))
    if not isinstance(engine.location, Path):
        raise InvalidError("--dirty: needs a store in a file, in which hooks record whose files are whose")
    return HookFiles(engine.location)


def describe_files(found: WorktreeFiles) -> str:
    """A line for each file; empty if there are none."""
    return table([(marked(it.path), it.git_status, *_owner(it)) for it in found.files])


def _owner(file: WorktreeFile) -> tuple[str, str, str]:
    if file.agent is None:
        return "", "no hook recorded who changed it", ""
    since = duration(file.seconds or 0)
    how = f"held for {since}" if file.held else f"changed {since} ago"
    return marked(file.agent), how, "live" if file.live else "ended"
