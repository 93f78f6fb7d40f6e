"""What `holdlog init` would change: for the hosts, the instructions for agents, and git."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.cli.setup.block import HTML, add_block, lines_of_block, remove_block
from holdlog.adapters.cli.setup.changes import (
    FileEdit,
    Skipped,
    change_of,
    edit_of,
    exclude_lines,
    git_output,
    read_text,
)
from holdlog.adapters.cli.setup.git_hooks import checkout_hook, commit_hook, is_own
from holdlog.adapters.cli.setup.hosts import HOSTS, HostFile, Project
from holdlog.adapters.cli.setup.records import Records
from holdlog.adapters.cli.setup.store import folder_of_copies

INSTRUCTIONS: Final = """\
## Other agents work here, too (holdlog)

* Hooks claim each file that you edit. If an edit is denied, another agent holds the file: do what the message says.
* Claim what hooks cannot see before you change it: a folder (`src/`), or a name (`custom://staging-db`).
* To wait for a claim, call `claim` with `wait_seconds: 50`, again until you have it; work on something else meanwhile.
* Release what you finished, with an outcome and a note for the next agent. Hooks release unchanged and committed files.
* `status` shows who holds what. Do not undo changes of other agents.
"""


class Choices(NamedTuple):
    """What to set up. `tracked`: also change files that git tracks. `undo`: remove what init added. `is_named`: whether
    the person named the hosts. `worktrees`: further worktrees of the repository, in which the same is set up."""

    hosts: Sequence[str]
    tracked: bool = False
    undo: bool = False
    is_named: bool = True
    worktrees: Sequence[Path] = ()


class Plan(NamedTuple):
    """`hosts`: changes of the hosts' files in all worktrees; `instructions` and `git_hook`: changes that need separate
    consent. `remarks`: what init never changes, and what a person may do."""

    hosts: list[FileEdit]
    instructions: list[FileEdit]
    git_hook: list[FileEdit]
    skipped: list[Skipped]
    remarks: Sequence[Skipped] = ()


def plan(project: Project, choices: Choices) -> Plan:
    """Plan the changes. Reads only."""
    records = Records(folder_of_copies(project.root))
    files = [file for name in choices.hosts for file in HOSTS[name].files(project)]
    if choices.undo and project.server is not None:  # what was there before it
        before = [file for name in choices.hosts for file in HOSTS[name].files(project._replace(server=None))]
        files += [it for it in before if it.path not in [file.path for file in files]]
    if choices.undo and not choices.is_named:
        files = [it for it in files if _is_of_project(it.path, project, records)]
    for root in choices.worktrees:
        files += files_below(root, project, choices.hosts)
    hosts = [change_of(it, records, choices.undo, choices.tracked) for it in files]
    hosts.append(_excluded(project, records, _edits(hosts), choices))
    later = checkout_hook(project, records, choices.undo) if _concerns_later(project, records, choices) else None
    hook = commit_hook(project, records, choices.tracked, choices.undo)
    if not choices.undo and isinstance(hook, FileEdit) and is_own(hook.before):
        hosts.append(hook)  # a person agreed to it before: its path has changed
        hook = None
    skipped = [it for it in (*hosts, hook) if isinstance(it, Skipped)]
    remarks = [later] if isinstance(later, Skipped) else []
    return Plan(_edits([*hosts, later]), _instructions(project, records, choices), _edits([hook]), skipped, remarks)


def files_below(root: Path, project: Project, hosts: Sequence[str]) -> list[HostFile]:
    """The files of hosts in a worktree, without user-wide ones."""
    there = project._replace(root=root)
    return [file for name in hosts for file in HOSTS[name].files(there) if file.path.is_relative_to(root)]


def worktree_of(path: Path, roots: Sequence[Path]) -> Path | None:
    """The innermost of the worktrees in which a file is; None for others, and for files of git."""
    found = [it for it in roots if path.is_relative_to(it) and ".git" not in path.relative_to(it).parts]
    return max(found, key=lambda root: len(root.parts), default=None)


def _concerns_later(project: Project, records: Records, choices: Choices) -> bool:
    """Whether the post-checkout hook is to be changed: hosts have files in each worktree, or none of them is left."""
    if not choices.undo:
        return bool(files_below(project.root, project, choices.hosts))
    roots, others = (project.root, *choices.worktrees), [it for it in HOSTS if it not in choices.hosts]
    return not any(file.path in records for root in roots for file in files_below(root, project, others))


def _edits(changes: Sequence[FileEdit | Skipped | None]) -> list[FileEdit]:
    return [it for it in changes if isinstance(it, FileEdit)]


def _is_of_project(path: Path, project: Project, records: Records) -> bool:
    """Whether a file is below the project's root, or init wrote it here: other files serve the user's other projects,
    too."""
    return path.is_relative_to(project.root) or path in records


def _excluded(
    project: Project, records: Records, changes: Sequence[FileEdit], choices: Choices
) -> FileEdit | Skipped | None:
    """Git's own list of files to ignore, with the files that init creates: each person chooses hosts, and git status
    stays as it was."""
    named = git_output(project.root, "rev-parse", "--git-path", "info/exclude")
    if named is None:
        return None
    path = project.root / named
    try:
        before = read_text(path)
    except (OSError, ValueError):
        return Skipped(path, "is left as it is: it is not UTF-8, or cannot be read; git status lists the new files")
    lines = lines_of_block(before or "")
    if choices.undo:
        files = files_below(project.root, project, choices.hosts)
        own = {f"/{it.path.relative_to(project.root).as_posix()}" for it in files}
        lines = [it for it in lines if it not in own]
    else:
        roots = (project.root, *choices.worktrees)
        created = [(worktree_of(it.path, roots), it.path) for it in changes if it.before is None]
        for root in roots:
            new = exclude_lines(root, [path for owner, path in created if owner == root])
            lines += [it for it in new if it not in lines]
    without = remove_block(before or "", original=records.before(path))
    after = add_block(before or "", "\n".join(lines)) if lines else None
    return edit_of(records, path, "keeps these files out of git status", before, without, after)


def _instructions(project: Project, records: Records, choices: Choices) -> list[FileEdit]:
    """The block for agents, in each file that their hosts read. Worktrees share it by commits."""
    hosts = HOSTS if choices.undo else choices.hosts
    names = sorted({HOSTS[name].instructions for name in hosts} - {""}, reverse=True)
    if not choices.undo and _imports_agents_md(project):
        names = ["AGENTS.md" if name == "CLAUDE.md" else name for name in names]
    changes = []
    # One may be a link to the other: then the last one, AGENTS.md, is shown.
    unique = {os.path.realpath(project.root / it): project.root / it for it in names}
    elsewhere = [root / it for root in (choices.worktrees if choices.undo else ()) for it in names]
    for path in (*unique.values(), *(it for it in elsewhere if it in records)):
        try:
            before = read_text(path)
        except (OSError, ValueError):
            continue
        without = remove_block(before or "", HTML, records.before(path))
        after = None if choices.undo else add_block(before or "", INSTRUCTIONS, HTML)
        changes.append(edit_of(records, path, "tells agents how to coordinate", before, without, after))
    return _edits(changes)


def _imports_agents_md(project: Project) -> bool:
    try:
        return "@AGENTS.md" in (read_text(project.root / "CLAUDE.md") or "")
    except (OSError, ValueError):
        return False


def project_here(root: Path, command: str, environ: dict[str, str]) -> Project:
    """Where init runs, with the server that it was given before. `environ`: HOME and PATH of the user."""
    server = Records(folder_of_copies(root)).server
    return Project(root, Path(environ.get("HOME") or os.path.expanduser("~")), command, environ, server)
