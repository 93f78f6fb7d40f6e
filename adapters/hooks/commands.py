"""What shell commands did that nobody could know beforehand: files that other sessions hold are compared before and
after, and so is git's stash.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.digests import digest_of, stamp_of
from holdlog.adapters.hooks.dirty import worktree_at
from holdlog.adapters.hooks.git import GitAction, stash_entries
from holdlog.adapters.hooks.guarding import Source, actions_of, read_stash
from holdlog.adapters.hooks.notes import BeforeCommand, HookFiles, Notes, WatchedFile
from holdlog.adapters.hooks.session import name_of
from holdlog.adapters.operating_system.location import avoided_folders, project_root, start_folder
from holdlog.adapters.operating_system.worktrees import find_repository

MAX_FILES: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of a file that is compared."""
MAX_EXAMINED: Final = 1_000
"""Files below a folder that is held."""
MAX_SECONDS: Final = 24 * 60 * 60
"""A command that has not ended by then was killed."""
MAX_STASHES: Final = 100


def before_command(call: HookCall, source: Source, session: str) -> bool:
    """Note what the call's shell command finds. Returns whether there is something to compare afterwards. `session`:
    holds the agent's claims. Raises GitFailedError, sqlite3.Error, OSError."""
    if call.client == "cursor" and call.name == "preToolUse":
        return False  # its beforeShellExecution follows
    files = dict(_watched(call, source)) if call.reports else {}
    stashes = {it: stash_entries(read_stash(it)) for it in _stashing(call)}
    if not (files or stashes):
        return False
    now = time.time_ns() // 1000
    with source.files.change(session) as notes:
        former = notes.before.get(call.agent)
        if former is None or former.at < now - MAX_SECONDS * 1_000_000:
            former = BeforeCommand(0, now, {}, {})
        files, stashes = files | former.files, stashes | former.stashes  # what the first command found
        notes.before[call.agent] = BeforeCommand(former.open + 1, former.at, files, stashes)
    return True


def after_unchanged(call: HookCall, files: HookFiles, session: str) -> bool:
    """As `after_command`, unless a file of others has changed. Returns whether none has. Raises OSError."""
    before = files.read(session).before.get(call.agent)
    if before is None:
        return True
    if any(is_changed(*it) for it in before.files.items()):
        return False
    with files.change(session) as notes:
        after_command(call, notes, name_of(call, notes))
    return True


def is_changed(path: str, file: WatchedFile) -> bool:
    """Whether a file differs from what it was before a command."""
    return stamp_of(path) != file.stamp and digest_of(path) != file.digest


def after_command(call: HookCall, notes: Notes, name: str) -> list[tuple[str, WatchedFile]]:
    """Note what the call's shell command did to git's stash. Returns the files of others that changed meanwhile."""
    before = notes.before.pop(call.agent, None)
    if before is None:
        return []
    stashes = {}
    for common, commits in before.stashes.items():
        stashes[common] = stash_entries(read_stash(common))
        made = [(it, name) for it in stashes[common] if it not in commits]
        notes.stashes = [*made, *notes.stashes][:MAX_STASHES]
    changed = [(path, file) for path, file in before.files.items() if is_changed(path, file)]
    if before.open > 1:
        files = {
            path: file._replace(stamp=stamp_of(path), digest=digest_of(path)) for path, file in before.files.items()
        }
        notes.before[call.agent] = before._replace(open=before.open - 1, files=files, stashes=stashes)
    return changed


def _stashing(call: HookCall) -> list[str]:
    """The common folders of the repositories in whose stash the call may make an entry."""
    worktrees = (worktree_at(it.folder, it.options) for it in actions_of(call.git) if _makes_entry(it))
    return sorted({it.common for it in worktrees if it is not None})


def _makes_entry(action: GitAction) -> bool:
    return action.name.startswith("git stash") and bool(action.kinds)


def _watched(call: HookCall, source: Source) -> Iterator[tuple[str, WatchedFile]]:
    """The files that other sessions hold, as they are."""
    held = [it for it in source.ledger.all_held() if it.session is not None and not source.party.holds(it)]
    count, roots = 0, _roots(start_folder(os.environ, Path(call.folder))) if held else {}
    for claim in held:
        for path in _files_of(claim.resource, roots):
            try:
                is_small = os.path.getsize(path) <= MAX_BYTES
            except OSError:
                is_small = True  # it is missing
            if is_small:
                count += 1
                facts = (claim.resource, claim.session or "", claim.agent, stamp_of(path), digest_of(path))
                yield path, WatchedFile(*facts)
            if count >= MAX_FILES:
                return


def _roots(folder: Path) -> dict[str, str]:
    """The roots of the workspaces around a folder, by the beginning of their resources."""
    repository = find_repository(folder, avoided_folders(os.environ))
    if repository is None:
        root = project_root(os.environ, folder)
        return {} if root is None else {"": str(root)}
    roots = {f"file://{name}/": str(root) for name, root in repository.linked().roots.items()}
    return roots | ({} if repository.main is None else {"": str(repository.main)})


def _files_of(resource: str, roots: dict[str, str]) -> Iterator[str]:
    """The file that a resource names, or the files below a folder."""
    start = f"{resource[: resource.find('/', 7)]}/" if resource.startswith("file://") else ""
    if start not in roots or "://" in resource.removeprefix(start):
        return
    path = os.path.join(roots[start], resource.removeprefix(start))
    if not resource.endswith("/"):
        yield path
        return
    examined = 0
    for folder, _, names in os.walk(path):
        for name in sorted(names):
            yield os.path.join(folder, name)
            examined += 1
            if examined >= MAX_EXAMINED:
                return
