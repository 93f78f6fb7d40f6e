"""`holdlog init`: sets up hosts and their hooks for this project, and undoes that."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.parsers import Commands
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.cli.setup.changes import FileEdit, Skipped
    from holdlog.adapters.cli.setup.hosts import Project, RemoteServer
    from holdlog.adapters.cli.setup.plan import Plan

CLIENTS: Final = ("claude-code", "cursor", "codex", "vscode", "windsurf", "claude-desktop", "opencode")
"""Names of hosts (hosts.py)."""

_EXAMPLES: Final = """\
examples:
  holdlog init                                 show what would change, and ask
  holdlog init --yes                           set up the hosts that are found here
  holdlog init --client claude-code --print    show only
  holdlog init --yes --agents-md --git-hook    also instructions for agents, and a check before each commit
  holdlog init --yes --url http://127.0.0.1:8420 --token-file ~/ci-token
                                               use a server over HTTP, in place of a process for each agent
  holdlog init --undo                          remove what init added, and nothing else
"""


def add_init(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "init",
        help="set up the hosts of this project: the server, permissions and hooks",
        description="Set up hosts for this project, so that agents claim what they edit without being asked to. Shows\n"
        "what would change, and asks first. Files that git tracks are left as they are.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--client",
        action="append",
        choices=CLIENTS,
        metavar="NAME",
        help=f"a host: {', '.join(CLIENTS)}; repeatable (default: those that are found)",
    )
    parser.add_argument("--yes", action="store_true", help="write without asking (default: ask)")
    parser.add_argument(
        "--print", action="store_true", help="show what would change, and write nothing (default: write)"
    )
    parser.add_argument("--undo", action="store_true", help="remove what init added (default: add)")
    parser.add_argument(
        "--agents-md",
        action="store_true",
        help="with --yes: also add ten lines for agents to AGENTS.md, or CLAUDE.md for Claude Code, tracked or not "
        "(default: no)",
    )
    parser.add_argument(
        "--git-hook", action="store_true", help="with --yes: also check claims before each git commit (default: no)"
    )
    parser.add_argument(
        "--new-worktree",
        action="store_true",
        help="for git's post-checkout hook: set up this worktree as the others are, without a word (default: no)",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="use the server over HTTP at this address (default: the server of the last init,"
        " else hosts start one for each agent)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="with --url: the token is in this file, which only you can read (default: HOLDLOG_TOKEN, if it is set)",
    )
    parser.add_argument("--tracked", action="store_true", help="also change files that git tracks (default: name them)")
    parser.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    """Run `holdlog init`. Raises InvalidError, LocationError."""
    from holdlog.adapters.cli.setup.plan import Choices, plan, project_here
    from holdlog.adapters.cli.setup.store import prepare_store
    from holdlog.adapters.cli.setup.worktrees import worktrees_of

    project = project_here(project_folder(), own_command(), dict(os.environ))
    if options.new_worktree:
        from holdlog.adapters.cli.setup.new_worktree import set_up_new

        return 0 if set_up_new(project) else 1
    project = project._replace(server=_server_for(options) or project.server)
    [_, *worktrees], others = worktrees_of(project.root)
    hosts = chosen_hosts(options.client, project, options.undo, worktrees)
    found = plan(project, Choices(hosts, options.tracked, options.undo, bool(options.client), worktrees))
    for line in dict.fromkeys(
        _skipped_line(it, project, worktrees) for it in (*found.skipped, *others, *found.remarks)
    ):
        _note(line)
    shown, changes = _agreed(found, options, project, worktrees)
    if not shown and not found.skipped:
        print("nothing that init added is left here" if options.undo else "everything is set up already")
    if options.print:
        return 0
    if shown and not changes:
        print(f"nothing was written; to be asked again, run {_command(options)}; --yes writes without asking")
        return 0
    if options.undo:
        return _undo(changes, project)
    if project.server is None:
        prepare_store(project.root)
    sound = _write(changes, project)
    _note_server(hosts, project)
    has_declined = found.hosts and not any(it in changes for it in found.hosts)
    return 0 if sound and (has_declined or _finish(hosts, project)) else 1


def _server_for(options: argparse.Namespace) -> "RemoteServer | None":
    """The server that the options name. Without one, say what a store in a database means. Raises InvalidError."""
    from holdlog.adapters.cli.settings import named_location
    from holdlog.adapters.cli.setup.remote import named_server
    from holdlog.adapters.operating_system.location import is_url

    server = named_server(options.url, options.token_file, os.environ)
    if server is None and not options.undo and is_url(named_location(None) or ""):
        _note(
            "HOLDLOG_DB names a database, but the command holdlog hook needs a store in a file: where HOLDLOG_DB is"
            " set, hooks guard nothing; start holdlog serve --transport http and run holdlog init --url (docs/hosts.md)"
        )
    return server


def _note_server(hosts: list[str], project: "Project") -> None:
    """Note the server that the hosts use, and say what that means for each."""
    from holdlog.adapters.cli.setup.records import Records
    from holdlog.adapters.cli.setup.remote import remarks_on
    from holdlog.adapters.cli.setup.store import folder_of_copies

    if project.server is not None:
        Records(folder_of_copies(project.root)).use_server(project.server)
        for line in remarks_on(project.server, hosts):
            print(line)


def chosen_hosts(
    named: Sequence[str] | None, project: "Project", undo: bool, worktrees: Sequence[Path] = ()
) -> list[str]:
    """The hosts to set up: those that are used in one of the worktrees. Raises InvalidError if none is named and none
    found."""
    from holdlog.adapters.cli.setup.hosts import HOSTS

    if named:
        return list(dict.fromkeys(named))
    projects = [project, *(project._replace(root=root) for root in worktrees)]
    found = [name for name, host in HOSTS.items() if undo or any(map(host.is_used, projects))]
    if not found:
        example = f"holdlog init --client {CLIENTS[0]} (or {', '.join(CLIENTS[1:])})"
        raise InvalidError(f"--client: no host was found here; name one, for example: {example}")
    return found


def project_folder() -> Path:
    """The root of the git repository, or else the folder in which the command runs."""
    from holdlog.adapters.operating_system.location import find_git, start_folder

    start = start_folder({}, Path.cwd())
    git = find_git(start, set())
    return git.folder if git else start


def own_command() -> str:
    """What starts holdlog: its name, if PATH has it, else its path."""
    if shutil.which("holdlog"):
        return "holdlog"
    return str(Path(sys.argv[0]).resolve()) if Path(sys.argv[0]).name == "holdlog" else "holdlog"


def _agreed(
    found: "Plan", options: argparse.Namespace, project: "Project", worktrees: Sequence[Path]
) -> tuple[list["FileEdit"], list["FileEdit"]]:
    """Show changes. Returns them, and those that the person agrees to. Raises InvalidError without a terminal."""
    from holdlog.adapters.cli.setup.plan import worktree_of

    is_interactive = sys.stdin.isatty() and sys.stdout.isatty() and not options.yes and not options.print
    groups = [
        ("Write these files?", found.hosts, True, ""),
        ("Write instructions for agents?", found.instructions, options.agents_md or options.undo, "--agents-md"),
        ("Check claims before each git commit?", found.git_hook, options.git_hook or options.undo, "--git-hook"),
    ]
    shown: list[FileEdit] = []
    agreed: list[FileEdit] = []
    for question, changes, by_default, option in groups:
        if not changes or not (is_interactive or options.print or by_default):
            continue
        if changes is found.instructions and found.hosts and not agreed and not options.undo:
            continue  # the instructions explain hooks, which the person declined
        owners = [worktree_of(it.path, (project.root, *worktrees)) for it in changes]
        here = [it for it, owner in zip(changes, owners, strict=True) if owner not in worktrees]
        _show(here, project, options.yes, "" if is_interactive or by_default else option)
        for root in worktrees:
            _show_worktree(root, [it for it, owner in zip(changes, owners, strict=True) if owner == root])
        shown += changes
        if is_interactive and not is_agreed(question if not options.undo else "Change these files?", by_default):
            continue
        agreed += changes
    if agreed and not (is_interactive or options.yes or options.print):
        raise InvalidError(f"--yes: is missing; without a terminal, run: {_command(options)} --yes")
    return shown, agreed


def _command(options: argparse.Namespace) -> str:
    """The command that runs, as a person types it, without --yes and --print."""
    flags = [f"--{it.replace('_', '-')}" for it in ("undo", "agents_md", "git_hook", "tracked") if vars(options)[it]]
    return " ".join(["holdlog init", *(f"--client {it}" for it in options.client or ()), *flags])


def _show(changes: Sequence["FileEdit"], project: "Project", briefly: bool, option: str) -> None:
    """Print the changes. `option`: which `--yes` needs for them."""
    from holdlog.adapters.cli.texts import printable

    needs = f" (--yes writes it only with {option})" if option else ""
    for change in changes:
        print(f"{_verb(change)} {_relative(change.path, project)}: {change.what}{needs}")
        for line in () if briefly else change.diff().splitlines():
            print(f"    {printable(line)}")


def _show_worktree(root: Path, changes: Sequence["FileEdit"]) -> None:
    """Print the changes in another worktree in one line: they are like those in this one."""
    from holdlog.adapters.cli.texts import printable

    if changes:
        names = ", ".join(f"{_verb(it)} {it.path.relative_to(root)}" for it in changes)
        print(printable(f"in the worktree {root}: {names}"))


def _verb(change: "FileEdit") -> str:
    return "create" if change.before is None else "remove" if change.after is None else "change"


def is_agreed(question: str, by_default: bool) -> bool:
    """Ask the person at the terminal. The end of its input is a no."""
    try:
        answer = input(f"{question} [{'Y/n' if by_default else 'y/N'}] ").strip().lower()
    except EOFError:
        return False
    return by_default if not answer else answer in ("y", "yes")


def _undo(changes: Sequence["FileEdit"], project: "Project") -> int:
    """Undo those of the planned changes to which the person agreed, and remove the folders that init created for them.
    Returns the exit code."""
    from holdlog.adapters.cli.setup.records import Records
    from holdlog.adapters.cli.setup.store import folder_of_copies
    from holdlog.domain.refusals import StoreError

    sound = _write(changes, project)
    with suppress(OSError, StoreError):
        Records(folder_of_copies(project.root)).remove_empty_folders()
    if changes:
        print(f"removed from {_count(changes)}")
    return 0 if sound else 1


def _write(changes: Sequence["FileEdit"], project: "Project") -> bool:
    """Write the changes. Returns whether all were written."""
    from holdlog.adapters.cli.setup.changes import write
    from holdlog.adapters.cli.setup.records import Records
    from holdlog.adapters.cli.setup.store import prepare_copies
    from holdlog.domain.refusals import StoreError

    if not changes:
        return True
    sound = True
    copies = prepare_copies(project.root)
    records = Records(copies)
    for change in changes:
        try:
            if change.record is not None:  # before the file: without a record, --undo cannot restore it
                records.note(change.path, change.record)
            write(change, copies)
            if change.record is None:
                records.note(change.path, None)
        except (OSError, StoreError) as error:
            why = getattr(error, "strerror", None) or error
            _note(f"{_relative(change.path, project)} is left as it is: {why}")
            sound = False
    return sound


def _finish(hosts: Sequence[str], project: "Project") -> bool:
    """Start the servers as the hosts do, and say what comes next. Returns whether they start."""
    from holdlog.adapters.cli.setup.hosts import HOSTS
    from holdlog.adapters.cli.setup.report import started
    from holdlog.adapters.cli.setup.worktrees import why_not_in

    sound = True
    for name in hosts:
        line, starts = started(name, project)
        sound = sound and starts
        print(f"{HOSTS[name].title}: {line}")
        if name == "claude-code" and (why := why_not_in(Path.cwd(), project.root, project.home)):
            print(f"  {why}")
        if starts:
            print(f"  next: {HOSTS[name].next_step}")
    if sound:
        print("then: holdlog claims shows who edits what, and holdlog doctor --client NAME checks a host again")
    return sound


def _relative(path: Path, project: "Project") -> str:
    from holdlog.adapters.cli.texts import printable

    for base, shown in ((project.root, ""), (project.home, "~/")):
        if path.is_relative_to(base):
            return printable(f"{shown}{path.relative_to(base)}")
    return printable(str(path))


def _skipped_line(skipped: "Skipped", project: "Project", worktrees: Sequence[Path]) -> str:
    """A line about a file that is left as it is; the same for a file that several worktrees have."""
    from holdlog.adapters.cli.setup.plan import worktree_of
    from holdlog.adapters.cli.texts import printable

    root = worktree_of(skipped.path, (project.root, *worktrees))
    if root is not None and root in worktrees and skipped.path != root:
        return printable(f"{skipped.path.relative_to(root)} {skipped.why}")
    return f"{_relative(skipped.path, project)} {skipped.why}"


def _count(changes: Sequence["FileEdit"]) -> str:
    return f"{len(changes)} file{'s' if len(changes) > 1 else ''}"


def _note(line: str) -> None:
    from holdlog.adapters.cli.texts import print_note

    print_note(line)
