"""Sets up a worktree that was just created, as the others are: for git's post-checkout hook."""

from contextlib import suppress

from holdlog.adapters.cli.setup.changes import FileEdit, write
from holdlog.adapters.cli.setup.hosts import HOSTS, Project
from holdlog.adapters.cli.setup.plan import Choices, files_below, plan, worktree_of
from holdlog.adapters.cli.setup.records import Records
from holdlog.adapters.cli.setup.store import folder_of_copies
from holdlog.adapters.cli.setup.worktrees import hosts_of, worktrees_of
from holdlog.domain.refusals import StoreError


def set_up_new(project: Project) -> bool:
    """Set up the hosts that init set up in another worktree of the repository, without a word. Returns whether all
    files were written. Raises LocationError."""
    [_, *others], _ = worktrees_of(project.root)
    copies = folder_of_copies(project.root)
    records = Records(copies)
    hosts = [
        it for it in HOSTS if any(file.path in records for root in others for file in files_below(root, project, [it]))
    ]
    programs = [program for found in hosts_of(others, project.home).values() for program in found.programs]
    project = project._replace(command=programs[0] if programs else project.command)
    edits = plan(project, Choices(hosts)).hosts if hosts else []
    written = [_is_written(it, records) for it in edits if worktree_of(it.path, [project.root]) is not None]
    return all(written)


def _is_written(edit: FileEdit, records: Records) -> bool:
    with suppress(OSError, StoreError):
        records.note(edit.path, edit.record)
        write(edit, records.folder)
        return True
    return False
