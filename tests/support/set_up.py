"""What `holdlog init` writes and `--undo` removes, without the start of a server, which takes a second."""

import os
from pathlib import Path

from holdlog.adapters.cli.init import project_folder
from holdlog.adapters.cli.setup.changes import FileEdit, write
from holdlog.adapters.cli.setup.hosts import Project, RemoteServer
from holdlog.adapters.cli.setup.plan import Choices, plan, project_here
from holdlog.adapters.cli.setup.records import Records
from holdlog.adapters.cli.setup.store import prepare_copies
from holdlog.adapters.cli.setup.worktrees import worktrees_of


def here(server: RemoteServer | None = None) -> Project:
    """The project in the working folder."""
    project = project_here(project_folder(), "holdlog", dict(os.environ))
    return project._replace(server=server or project.server)


def set_up(*clients: str, undo: bool = False, server: RemoteServer | None = None) -> list[FileEdit]:
    """Write what init, or `--undo`, changes for hosts in all worktrees of the working folder's repository."""
    project = here(server)
    [_, *others], _ = worktrees_of(project.root)
    changes = plan(project, Choices(clients, undo=undo, worktrees=others)).hosts
    records = Records(prepare_copies(project.root))
    for edit in changes:
        records.note(edit.path, edit.record)
        write(edit, records.folder)
    if undo:
        records.remove_empty_folders()
    else:
        records.use_server(project.server)
    return changes


def names(folder: Path) -> list[str]:
    """The files in a worktree, without those of git."""
    return sorted(str(it.relative_to(folder)) for it in folder.rglob("*") if ".git" not in it.parts and it.is_file())
