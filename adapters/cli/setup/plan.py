"""What `holdlog init` would change: for the hosts, the instructions for agents, and git."""

import os
import re
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
    is_tracked,
    read_text,
)
from holdlog.adapters.cli.setup.hosts import HOSTS, Project
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
CHECK: Final = "holdlog check --staged || exit 1  # holdlog: files that other sessions hold"
_SHELLS: Final = re.compile(r"#!.*\b(?:sh|bash|dash|zsh|ksh)\b")
_MANAGERS: Final = {
    ".husky": "add to .husky/pre-commit: holdlog check --staged",
    "lefthook.yml": "add holdlog check --staged to pre-commit in lefthook.yml (docs/git.md)",
    ".pre-commit-config.yaml": "add the hook holdlog to .pre-commit-config.yaml (docs/git.md)",
}
EXECUTABLE: Final = 0o755


class Choices(NamedTuple):
    """What to set up. `tracked`: also change files that git tracks. `undo`: remove what init added. `is_named`: whether
    the person named the hosts."""

    hosts: Sequence[str]
    tracked: bool = False
    undo: bool = False
    is_named: bool = True


class Plan(NamedTuple):
    """`hosts`: changes of the hosts' files; `instructions` and `git_hook`: changes that need separate consent."""

    hosts: list[FileEdit]
    instructions: list[FileEdit]
    git_hook: list[FileEdit]
    skipped: list[Skipped]


def plan(project: Project, choices: Choices) -> Plan:
    """Plan the changes. Reads only."""
    records = Records(folder_of_copies(project.root))
    files = [file for name in choices.hosts for file in HOSTS[name].files(project)]
    if choices.undo and not choices.is_named:
        files = [it for it in files if _is_of_project(it.path, project, records)]
    hosts = [change_of(it, records, choices.undo, choices.tracked) for it in files]
    hosts.append(_excluded(project, records, _edits(hosts), choices))
    hook = [_git_hook(project, records, choices)]
    skipped = [it for it in (*hosts, *hook) if isinstance(it, Skipped)]
    return Plan(_edits(hosts), _instructions(project, records, choices), _edits(hook), skipped)


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
        files = [file.path for name in choices.hosts for file in HOSTS[name].files(project)]
        own = {f"/{it.relative_to(project.root).as_posix()}" for it in files if it.is_relative_to(project.root)}
        lines = [it for it in lines if it not in own]
    else:
        created = [it.path for it in changes if it.before is None]
        lines += [it for it in exclude_lines(project.root, created) if it not in lines]
    without = remove_block(before or "", original=records.before(path))
    after = add_block(before or "", "\n".join(lines)) if lines else None
    return edit_of(records, path, "keeps these files out of git status", before, without, after)


def _instructions(project: Project, records: Records, choices: Choices) -> list[FileEdit]:
    """The block for agents, in each file that their hosts read."""
    hosts = HOSTS if choices.undo else choices.hosts
    names = sorted({HOSTS[name].instructions for name in hosts} - {""}, reverse=True)
    if not choices.undo and _imports_agents_md(project):
        names = ["AGENTS.md" if name == "CLAUDE.md" else name for name in names]
    changes = []
    # One may be a link to the other: then the last one, AGENTS.md, is shown.
    unique = {os.path.realpath(project.root / it): project.root / it for it in names}
    for path in unique.values():
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


def _git_hook(project: Project, records: Records, choices: Choices) -> FileEdit | Skipped | None:
    folder = git_output(project.root, "rev-parse", "--git-path", "hooks")
    if folder is None:
        return None
    path = project.root / folder / "pre-commit"
    try:
        before = read_text(path)
    except (OSError, ValueError):
        return Skipped(path, "cannot be read; docs/git.md shows how to install the git hook")
    if before is not None and is_tracked(path) and not choices.tracked:
        todo = f"use --tracked, or {'remove from' if choices.undo else 'run in'} it: {CHECK.partition(' ||')[0]}"
        is_done = ("holdlog check" in before) != choices.undo
        return None if is_done else Skipped(path, f"is tracked by git, so it is left as it is: {todo}")
    what, without = "checks claims before a commit", (before or "").replace(f"{CHECK}\n", "")
    if choices.undo:
        return edit_of(records, path, what, before, without, None)
    if before is not None and "holdlog check" in before:
        return None
    for name, advice in _MANAGERS.items():
        if (project.root / name).exists():
            return Skipped(project.root / name, f"manages the git hooks, so they are left as they are; {advice}")
    first, _, rest = (before or "#!/bin/sh\n").partition("\n")
    if not _SHELLS.match(first):
        return Skipped(path, f"is not a shell script, so it is left as it is; run in it: {CHECK.partition(' ||')[0]}")
    return edit_of(records, path, what, before, without, f"{first}\n{CHECK}\n{rest}", EXECUTABLE)


def project_here(root: Path, command: str, environ: dict[str, str]) -> Project:
    """Where init runs. `environ`: HOME and PATH of the user."""
    return Project(root, Path(environ.get("HOME") or os.path.expanduser("~")), command, environ)
