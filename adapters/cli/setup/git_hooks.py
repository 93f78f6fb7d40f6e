"""Git's own hooks: one checks claims before a commit, one sets up worktrees that are created later."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.setup.changes import FileEdit, Skipped, edit_of, git_output, is_tracked, read_text
from holdlog.adapters.cli.setup.hosts import Project
from holdlog.adapters.cli.setup.records import Records
from holdlog.adapters.hooks.worktrees import (
    GUARD_FILES,
    NEW_WORKTREE,
    checkout_line,
    commit_line,
    without_own_lines,
)

EXECUTABLE: Final = 0o755
_CHECKS: Final = re.compile(r"holdlog['\"]? check\b")
_SHELLS: Final = re.compile(r"#!.*\b(?:sh|bash|dash|zsh|ksh)\b")
_MANAGERS: Final = {
    ".husky": f"add to .husky/pre-commit: {commit_line('holdlog')}",
    "lefthook.yml": "add holdlog check --staged to pre-commit in lefthook.yml (docs/git.md)",
    ".pre-commit-config.yaml": "add the hook holdlog to .pre-commit-config.yaml (docs/git.md)",
}
_LEFTHOOK: Final = tuple(f"{dot}lefthook.{end}" for dot in ("", ".") for end in ("yml", "yaml", "toml", "json"))


def is_own(script: str | None) -> bool:
    """Whether a git hook has a line that init wrote."""
    return script is not None and without_own_lines(script) != script


def commit_hook(project: Project, records: Records, tracked: bool, undo: bool) -> FileEdit | Skipped | None:
    """What to do with the pre-commit hook, which checks claims; None if nothing."""
    path = _hook(project, "pre-commit")
    if path is None:
        return None
    try:
        before = read_text(path)
    except (OSError, ValueError):
        return Skipped(path, "cannot be read; docs/git.md shows how to install the git hook")
    is_shared = before is not None and is_tracked(path)
    if is_shared and not tracked:
        todo = f"use --tracked, or {'remove from' if undo else 'run in'} it: holdlog check --staged"
        is_done = bool(_CHECKS.search(before or "")) != undo
        return None if is_done else Skipped(path, f"is tracked by git, so it is left as it is: {todo}")
    what, without = "checks claims before a commit", without_own_lines(before or "")
    if undo:
        return edit_of(records, path, what, before, without, None)
    if _CHECKS.search(without):
        return None  # a person wrote it
    for name, advice in () if without != (before or "") else _MANAGERS.items():
        if (project.root / name).exists():
            return Skipped(project.root / name, f"manages the git hooks, so they are left as they are; {advice}")
    first, _, rest = (without or "#!/bin/sh\n").partition("\n")
    if not _SHELLS.match(first):
        return Skipped(path, "is not a shell script, so it is left as it is; run in it: holdlog check --staged")
    line = commit_line("holdlog" if is_shared else project.own_path)
    return edit_of(records, path, what, before, without, f"{first}\n{line}\n{rest}", EXECUTABLE)


def checkout_hook(project: Project, records: Records, undo: bool) -> FileEdit | Skipped | None:
    """What to do with the post-checkout hook, which sets up new worktrees; None if nothing. Where another program or
    a person owns it: the line to add."""
    path = _hook(project, "post-checkout")
    if path is None:
        return None
    try:
        before = read_text(path)
    except (OSError, ValueError):
        return Skipped(path, "cannot be read, so worktrees that are created later are not set up")
    what, without = "sets up worktrees that are created later", without_own_lines(before or "")
    if undo:
        return None if before is not None and is_tracked(path) else edit_of(records, path, what, before, without, None)
    foreign = _foreign(project, path, without)
    if foreign is None:
        script = f"#!/bin/sh\n{checkout_line(project.own_path)}\n"
        return edit_of(records, path, what, before, without, script, EXECUTABLE)
    if any(NEW_WORKTREE in text for text in _texts(foreign, path)):
        return None
    is_shared = foreign.is_relative_to(project.root) and ".git" not in foreign.relative_to(project.root).parts
    command = "holdlog" if is_shared else project.own_path
    line = _lefthook_line(command) if foreign.name in _LEFTHOOK else checkout_line(command)
    wide = ", ".join(f"~/{it[2:]}" for files in GUARD_FILES.values() for it in files[1:] if it.startswith("~/"))
    why = "belongs to a person or another program, so worktrees that are created later are not set up"
    return Skipped(foreign, f"{why}: add to it: {line} -- or put the hooks into a user-wide file: {wide}")


def _lefthook_line(command: str) -> str:
    """The same for lefthook, which replaces `{1}` and reads it from YAML."""
    return f"post-checkout: case {{1}} in *[!0]*) ;; *) {shlex.quote(command)} {NEW_WORKTREE} || true ;; esac"


def _hook(project: Project, name: str) -> Path | None:
    """The path of a git hook; None outside of git."""
    folder = git_output(project.root, "rev-parse", "--git-path", "hooks")
    return None if folder is None else project.root / folder / name


def _foreign(project: Project, path: Path, without: str) -> Path | None:
    """The file to which another program or a person adds lines for git's post-checkout; None if it is free for us.
    `without`: the hook without our lines."""
    if (project.root / ".husky").is_dir():
        return project.root / ".husky" / "post-checkout"
    for name in _LEFTHOOK:
        if (project.root / name).exists():
            return project.root / name
    is_configured = git_output(project.root, "config", "--get", "core.hooksPath")
    return path if is_configured or without.strip() not in ("", "#!/bin/sh") else None


def _texts(*paths: Path) -> Iterator[str]:
    for path in paths:
        try:
            yield read_text(path) or ""
        except (OSError, ValueError):
            continue
