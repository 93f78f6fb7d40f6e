"""What shell commands did that nobody could know beforehand: files that other sessions hold are compared before and
after, and so is git's stash.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.digests import digest_of, stamp_of
from holdlog.adapters.hooks.dirty import GitFailedError, committed, worktree_at
from holdlog.adapters.hooks.git import GitAction, stash_entries
from holdlog.adapters.hooks.guarding import INDEXING, Source, actions_of, read_stash
from holdlog.adapters.hooks.heads import head_of, taken_in, with_copy, worktrees_of
from holdlog.adapters.hooks.notes import BeforeCommand, HookFiles, Notes, WatchedFile, WorktreeHead
from holdlog.adapters.hooks.session import name_of
from holdlog.adapters.hooks.written import writes_files
from holdlog.adapters.operating_system.location import GitFolders, avoided_folders, project_root, start_folder
from holdlog.adapters.operating_system.worktrees import find_repository
from holdlog.adapters.stores.sqlite.held import ChangedResource

MAX_FILES: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of a file that is compared."""
MAX_EXAMINED: Final = 1_000
"""Files below a folder that is held."""
MAX_SECONDS: Final = 24 * 60 * 60
"""A command that has not ended by then was killed."""
MAX_STASHES: Final = 100


class Difference(NamedTuple):
    """What happened to a file of others while a command ran. `verb`: `changed`, `committed`, or `staged`."""

    path: str
    file: WatchedFile
    verb: str


def before_command(call: HookCall, source: Source, session: str) -> bool:
    """Note what the call's shell command finds. Returns whether there is something to compare afterwards. `session`:
    holds the agent's claims. Raises GitFailedError, sqlite3.Error, OSError."""
    if call.client == "cursor" and call.name == "preToolUse":
        return False  # its beforeShellExecution follows
    files = dict(_watched(call, source)) if call.reports else {}
    actions = actions_of(call.git)
    stashes = {it: stash_entries(read_stash(it)) for it in _stashing(actions)}
    is_commit = any(map(_commits, actions))
    stages, now = any(map(_stages, actions)), time.time_ns() // 1000
    is_compared = bool(files or stashes or is_commit or writes_files(call))
    if not (is_compared or stages):
        return False
    with source.files.change(session) as notes:
        notes.staged = now if stages else notes.staged
        if not is_compared:
            return False
        former = notes.before.get(call.agent)
        if former is None or former.at < now - MAX_SECONDS * 1_000_000:
            former = BeforeCommand(0, now, {}, {}, {})
        worktrees = worktrees_of({call.folder, *(it.folder for it in actions)} if files or is_commit else ())
        heads = {root: head_of(git) for root, git in worktrees.items() if root not in former.heads}
        if files:
            heads = {it: _copied(head, worktrees[it], source.files, session) for it, head in heads.items()}
        files, stashes = files | former.files, stashes | former.stashes  # what the first command found
        heads, lasts = heads | former.heads, (call.lasts and bool(files)) or former.lasts
        notes.before[call.agent] = BeforeCommand(former.open + 1, former.at, files, stashes, heads, lasts, now)
    return True


def _copied(head: WorktreeHead, git: GitFolders, files: HookFiles, session: str) -> WorktreeHead:
    return with_copy(head, git, files, f"{session}.{time.time_ns()}.index")


def after_unchanged(call: HookCall, files: HookFiles, session: str) -> bool:
    """As `after_command`, unless something happened to a file of others, or the command may have written files that
    are to be recorded. Returns whether neither is so. Raises OSError."""
    before = files.read(session).before.get(call.agent)
    if before is None:
        return True
    if writes_files(call) or _differences(before, files, session):
        return False
    with files.change(session) as notes:
        after_command(call, files, session, notes, is_unchanged=True)
    return True


def after_command(
    call: HookCall, files: HookFiles, session: str, notes: Notes, is_unchanged: bool = False
) -> list[Difference]:
    """Note what the call's shell command did to git's stash and history. Returns what happened to files of others
    meanwhile. `session`: holds the agent's claims. `is_unchanged`: nothing did. Raises OSError."""
    before = notes.before.pop(call.agent, None)
    if before is None:
        return []
    differences = [] if is_unchanged else _differences(before, files, session)
    now, name = _refreshed(before, files), name_of(call, notes)
    for common, commits in now.stashes.items():
        made = [(it, name) for it in commits if it not in before.stashes[common]]
        notes.stashes = [*made, *notes.stashes][:MAX_STASHES]
    if any(map(_commits, actions_of(call.git))):
        made_now = [it.commit for root, it in now.heads.items() if it.commit != before.heads[root].commit]
        notes.note_commits(made_now)
    if before.open > 1 or before.lasts:
        notes.before[call.agent] = now._replace(open=max(0, before.open - 1))
    else:
        _remove_copies(before, files)
    return differences


def has_lasting_differences(files: HookFiles, session: str) -> bool:
    """Whether a command that may still run in the background did something to files of others."""
    before = files.read(session).before.values()
    return any(it.lasts and _differences(it, files, session) for it in before)


def lasting_differences(files: HookFiles, session: str, notes: Notes, agent: str, ends: bool) -> list[Difference]:
    """What happened to files of others since the last comparison, if a command of the agent may still run. `ends`: it
    is not compared again. Raises OSError."""
    before = notes.before[agent]
    differences = _differences(before, files, session) if before.lasts else []
    if ends:
        _remove_copies(notes.before.pop(agent), files)
    elif before.lasts:
        notes.before[agent] = _refreshed(before, files)
    return differences


def _refreshed(before: BeforeCommand, files: HookFiles) -> BeforeCommand:
    """What a command finds that still runs. Raises OSError."""
    watched = {
        path: file if (stamp := stamp_of(path)) == file.stamp else file._replace(stamp=stamp, digest=digest_of(path))
        for path, file in before.files.items()
    }
    stashes = {common: stash_entries(read_stash(common)) for common in before.stashes}
    heads = {root: _kept(git, before.heads[root], files) for root, git in worktrees_of(before.heads).items()}
    return before._replace(files=watched, stashes=stashes, heads=heads)


def _remove_copies(before: BeforeCommand, files: HookFiles) -> None:
    for head in before.heads.values():
        if head.copy:
            files.remove(head.copy)


def _kept(git: GitFolders, former: WorktreeHead, files: HookFiles) -> WorktreeHead:
    """The head as it is, with a current copy of the index if there was one."""
    head = head_of(git)
    if head.stamp == former.stamp or not former.copy:
        return head._replace(copy=former.copy)
    return with_copy(head, git, files, former.copy)


def _differences(before: BeforeCommand, files: HookFiles, session: str) -> list[Difference]:
    """What happened to the watched files, but not to those whose last change was committed before."""
    found = [Difference(path, file, "changed") for path, file in before.files.items() if is_changed(path, file)]
    try:
        taken = taken_in(before, files, session)
        found += [Difference(path, before.files[path], verb) for path, verb in taken.items()]
        clean = _committed(before.heads, {it.path: it.file for it in found if it.file.changed})
    except GitFailedError as error:
        files.record_failure("post-edit", str(error))
        clean = set()
    return [it for it in found if it.path not in clean]


def _committed(heads: Mapping[str, WorktreeHead], files: Mapping[str, WatchedFile]) -> set[str]:
    """Those of the files whose last change was committed, with these heads of worktrees. Raises GitFailedError."""
    by_root = dict[str, dict[str, tuple[float, str | None]]]()
    for path, file in files.items():
        for root in worktrees_of([os.path.dirname(path)]):
            by_root.setdefault(root, {})[path] = file.changed / 1_000_000, file.sha256 or None
    clean = set[str]()
    for root, changes in by_root.items():
        head = heads.get(root)
        revision = head.commit if head is not None and head.commit else "HEAD"
        clean |= committed(root, changes, revision, lambda path: files[path].digest)
    return clean


def is_changed(path: str, file: WatchedFile) -> bool:
    """Whether a file differs from what it was before a command."""
    return stamp_of(path) != file.stamp and digest_of(path) != file.digest


def _stashing(actions: Sequence[GitAction]) -> list[str]:
    """The common folders of the repositories in whose stash a command may make an entry."""
    worktrees = (worktree_at(it.folder, it.options) for it in actions if _makes_entry(it))
    return sorted({it.common for it in worktrees if it is not None})


def _makes_entry(action: GitAction) -> bool:
    return action.name.startswith("git stash") and bool(action.kinds)


def _stages(action: GitAction) -> bool:
    return action.effect == "includes" or action.name in INDEXING


def _commits(action: GitAction) -> bool:
    return action.name.startswith("git commit") or action.name.endswith("--continue")


def _watched(call: HookCall, source: Source) -> Iterator[tuple[str, WatchedFile]]:
    """The files that other sessions hold, and then those that live ones changed last, as they are."""
    count, roots = 0, dict[str, str]()
    for resource, session, agent, change in _works_of_others(source):
        roots = roots or _roots(start_folder(os.environ, Path(call.folder)))
        facts = (0, "") if change is None else (change.at, change.sha256 or "")
        for path in _files_of(resource, roots):
            try:
                is_small = os.path.getsize(path) <= MAX_BYTES
            except OSError:
                is_small = True  # it is missing
            if is_small:
                count += 1
                yield path, WatchedFile(resource, session, agent, stamp_of(path), _digest_of(path, change), *facts)
            if count >= MAX_FILES:
                return


def _digest_of(path: str, change: ChangedResource | None) -> str:
    """The digest of a file: that of its last change, if nothing has written it since."""
    with suppress(OSError):
        if change is not None and change.sha256 and os.stat(path).st_mtime_ns // 1000 <= change.at:
            return change.sha256
    return digest_of(path)


def _works_of_others(source: Source) -> Iterator[tuple[str, str, str, ChangedResource | None]]:
    """What other sessions hold, and then what live ones changed last, the newest first: resource, session, agent, and
    the change of what is not held."""
    held = source.ledger.all_held()
    for it in held:
        if it.session is not None and not source.party.holds(it):
            yield it.resource, it.session, it.agent, None
    known = {it.resource for it in held}
    for resource, change in source.ledger.latest_changes().items():
        if resource not in known and _is_of_others(change, source):
            yield resource, change.session or "", change.agent, change


def _is_of_others(change: ChangedResource, source: Source) -> bool:
    """Whether another live session made a change."""
    if change.session is None or source.party.made(change):
        return False
    seconds = max(0, time.time_ns() // 1000 - change.at) / 1_000_000
    return source.sessions.is_live(change.session, change.agent, seconds)


def former_changes(source: Source, claimed: Mapping[str, str]) -> list[WatchedFile]:
    """The files whose last change another live session made and did not commit, among those that an agent has just
    claimed, and below such folders. `claimed`: absolute paths by resource. Raises GitFailedError."""
    found = dict[str, WatchedFile]()
    for claim, path in claimed.items():
        below = islice(source.ledger.changed_below(claim), MAX_EXAMINED) if claim.endswith("/") else [claim]
        for resource in below:
            change, real = source.ledger.last_change(resource), os.path.realpath(path)
            if change is not None and _is_of_others(change, source):
                name = os.path.join(real, _decoded(resource.removeprefix(claim))) if resource != claim else real
                facts = (change.session or "", change.agent, stamp_of(name), digest_of(name))
                found[name] = WatchedFile(resource, *facts, change.at, change.sha256 or "")
    clean = _committed({}, found)
    return [it for path, it in found.items() if path not in clean]


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
    path = os.path.join(roots[start], _decoded(resource.removeprefix(start)))
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


def _decoded(name: str) -> str:
    """The path that a name means, unless a digest replaces a part of it."""
    if "%" not in name:
        return name
    from holdlog.domain.claims.file_name import encode_path  # only few names need it

    path = os.fsdecode(unquote_to_bytes(os.fsencode(name)))
    with suppress(ValueError):
        return path if encode_path(path) == name else name
    return name
