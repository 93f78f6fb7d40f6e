"""`holdlog init`: sets up hosts in a project. It shows its changes and asks first; `--undo` removes them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import unified_diff
from typing import Any, Final, NamedTuple

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.texts import print_note, print_text
from holdlog.adapters.compose import open_engine
from holdlog.adapters.hooks.clients import CLIENTS, Project
from holdlog.adapters.hooks.edits import (
    CommentedError,
    Edit,
    Originals,
    Target,
    list_block,
    plan_edit,
    read_text,
    write,
)
from holdlog.adapters.hooks.places import SERVER_FILE, TOKEN, Server, read_server
from holdlog.adapters.hooks.remote import post
from holdlog.adapters.operating_system import location
from holdlog.adapters.operating_system.files import escape
from holdlog.adapters.policy.in_force import Policy, read_policy, read_uncommitted
from holdlog.domain.refusals import HoldlogError, InvalidError, StoreError

NEW_WORKTREE: Final = "init --new-worktree"
"""The command that git's post-checkout hook runs."""
START_SECONDS: Final = 30.0
"""Hosts give a server 10 to 30 s to start."""
_EXAMPLES: Final = (
    "init                                     the hosts that are used here, after a question",
    "init --client claude-code --yes          Claude Code, without one",
    "init --url https://holdlog.example       agents on several hosts, with one server",
    "init --print                             show what it would write, and write nothing",
    "init --undo                              remove what init added",
)
_MANAGERS: Final = (".husky", "lefthook.yml", ".lefthook.yml", ".pre-commit-config.yaml")
"""Files of programs that manage git hooks: where one exists, init does not change the hooks."""
_HELLO: Final = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "init", "version": "1"}}
_REQUESTS: Final[tuple[dict[str, Any], ...]] = (
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
)


class Plan(NamedTuple):
    """What init would do. `problems`: the files that it does not change, and why. `remarks`: what a person must do."""

    edits: list[Edit]
    problems: list[str]
    remarks: list[str]


def run(words: list[str]) -> int:
    """Returns 0 if all is done, 1 if a file was not changed or a server does not start. Raises InvalidError."""
    options = _build_parser().parse_args(words)
    project, store = find_project()
    if options.url is not None:
        project = project._replace(server=_read_server_option(options))
    originals = Originals(os.path.dirname(store))
    if options.new_worktree:
        return _set_up_worktree(project, originals)
    names = list(dict.fromkeys(options.client or _find_clients(project, options)))
    planned = _plan_all(project, names, originals, options)
    for problem in planned.problems:
        print_note(problem)
    for remark in planned.remarks:
        print_text(remark)
    if not (planned.edits or planned.problems or planned.remarks):
        print_text("nothing that init added is left here" if options.undo else "everything is set up already")
    if planned.edits and os.path.basename(os.path.dirname(store)) == location.OUR_FOLDER and not options.undo:
        print_text(f"without a git repository, all that is below {project.root} shares one store, {store}")
    if (planned.edits and not _confirm(planned.edits, project, options)) or options.print:
        print_text("nothing was written")
        return 0
    if not options.undo:
        _prepare_store(store)
    is_sound = not planned.problems and _write(planned.edits, project, originals)
    for name in () if options.undo else names:
        line, starts = start_server(project)
        is_sound &= starts
        print_text(f"{CLIENTS[name].title}: {line}" + (f"\n  next: {CLIENTS[name].next_step}" if starts else ""))
    return 0 if is_sound else 1


def find_project() -> tuple[Project, str]:
    """The project around the working folder, and the place of its store."""
    folder = os.path.realpath(os.getcwd())
    repository = location.find_repository(folder, None)
    root = folder if repository is None else repository.folder
    command = sys.argv[0] if not shutil.which("holdlog") and os.path.basename(sys.argv[0]) == "holdlog" else "holdlog"
    store = location.find_store(None, {"HOME": os.path.expanduser("~"), **os.environ, "CLAUDE_PROJECT_DIR": ""}, root)
    if os.path.dirname(store) == os.path.realpath(location.find_state_folder(os.environ)):
        store = os.path.join(root, location.OUR_FOLDER, os.path.basename(store))
    return Project(root, os.path.expanduser("~"), command, read_server(store)), store


Finding = tuple[str, str, str]
"""Name, level (ok, warning, bad) and text."""


def examine(name: str) -> Iterator[Finding]:
    """Findings for `holdlog doctor --client`: how a host is set up in this project."""
    project, _ = find_project()
    for target in CLIENTS[name].targets(project):
        problem = _find_problem(target)
        if problem is None:
            yield "file", "ok", f"{target.path}: {target.what}"
        else:
            yield "file", "bad", f"{target.path}: {problem}; run: holdlog init --client {name}"
    yield _examine_server(project)


def examine_all() -> Iterator[Finding]:
    """Findings for `holdlog doctor`: the server that hooks ask, problems of the policy, and worktrees in which a host
    is not set up, although it is in another worktree."""
    project, _ = find_project()
    if project.server is not None:
        yield _examine_server(project)
    roots = _list_roots(project)
    for problem in (read_policy(project.root).problem, (read_uncommitted(project.root) or Policy()).problem):
        if problem is not None:
            yield "policy", "warning", problem
    for name, client in CLIENTS.items():
        targets = [(root, it) for root in roots for it in client.targets(project._replace(root=root))]
        for root, target in targets if any(_is_used(it) for _, it in targets) else ():
            if (problem := _find_problem(target)) is not None:
                text = f"{client.title} is not guarded: {target.path}: {problem}; run in {root}"
                yield "guard", "warning", f"{text}: holdlog init --client {name}"


def _examine_server(project: Project) -> Finding:
    line, works = start_server(project)
    return "server", "ok" if works else "bad", line


def _is_used(target: Target) -> bool:
    """Whether a host is set up in a worktree, by this file."""
    return not target.is_user_wide and "holdlog" in (_read_or_none(target.path) or "")


def _find_problem(target: Target) -> str | None:
    """Why a file does not set up its host; None if it does."""
    text = ""
    try:
        text = read_text(target.path) or ""
        return None if target.has_all(text) else "entries are missing"
    except CommentedError:
        return None if "holdlog" in text else "entries are missing"
    except (OSError, ValueError) as error:
        return f"it cannot be read: {error}"


def start_server(project: Project) -> tuple[str, bool]:
    """Start the server as hosts do, list its tools, and stop it; or call the server that hooks use over HTTP. Returns a
    line for the user, and whether it worked."""
    if project.server is not None:
        try:
            post(project.server, "prompt", "holdlog-init", "init")
        except HoldlogError as error:
            return str(error), False
        return f"the server at {project.server.url} responds", True
    program = shutil.which(project.command)
    if program is None:
        return f"the server does not start: hosts look for {project.command} on PATH, and it is not there", False
    text = "".join(f"{json.dumps(call)}\n" for call in _REQUESTS)
    try:
        done = subprocess.run(
            [program, "serve"], cwd=project.root, input=text, capture_output=True, text=True,
            timeout=START_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the server did not respond within {START_SECONDS:.0f} s", False
    except OSError as error:
        return f"the server does not start: {program} cannot be run ({error.strerror})", False
    for line in done.stdout.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            return f"the server starts, with {len(json.loads(line)['result']['tools'])} tools ({program})", True
    return f"the server does not start ({program}): {(done.stderr.strip() or 'it ended').splitlines()[-1]}", False


def _read_server_option(options: Namespace) -> Server:
    """The server of --url. Raises InvalidError."""
    if not re.fullmatch(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d+)?(/[\w./~-]*)?", options.url, re.ASCII):
        raise InvalidError("--url: must be the address of a server, such as http://127.0.0.1:8420")
    url = re.sub(r"/*(?:mcp|hook)?/*$", "", options.url)
    if options.token_file is None:
        return Server(url, TOKEN * bool(location.read_variable("token")))
    path = os.path.realpath(os.path.expanduser(options.token_file))
    if os.stat(path).st_mode & 0o077:
        raise InvalidError(f"--token-file: other users can read it; run: chmod 600 {shlex.quote(path)}")
    return Server(url, path)


# --- plan


def _build_parser() -> Parser:
    parser = Parser("init", "Set up hosts to use holdlog in this project.", _EXAMPLES, has_json=False)
    parser.add_argument(
        "--client", action="append", choices=list(CLIENTS), metavar="NAME", help=f"{', '.join(CLIENTS)}"
    )
    parser.add_argument("--print", action="store_true", help="show what would be written, and write nothing")
    parser.add_argument("--yes", action="store_true", help="write without asking")
    parser.add_argument("--undo", action="store_true", help="remove what init added")
    parser.add_argument("--url", help=f"use this server over HTTP, with the token in {TOKEN}, for agents on many hosts")
    parser.add_argument("--token-file", metavar="FILE", help="with --url: hooks read the token from this file")
    parser.add_argument("--git-hook", action="store_true", help="also check claims before each git commit")
    parser.add_argument("--tracked", action="store_true", help="also change files that git tracks")
    parser.add_argument("--new-worktree", action="store_true", help="for git's post-checkout hook")
    return parser


def _find_clients(project: Project, options: Namespace) -> list[str]:
    """The hosts that are used here. Raises InvalidError."""
    names = [name for name, client in CLIENTS.items() if options.undo or project.has(*client.used)]
    if not names:
        example = f"holdlog init --client {next(iter(CLIENTS))} (or {', '.join([*CLIENTS][1:])})"
        server = f"{options.url.rstrip('/').removesuffix('/mcp')}/mcp" if options.url else f"{project.command} serve"
        other = f"for another host, name this server of MCP in its configuration: {server}"
        raise InvalidError(f"--client: no host was found here; name one, for example: {example}; {other}")
    return names


def _list_roots(project: Project) -> list[str]:
    """The worktrees of the repository, this one first."""
    repository = location.find_repository(project.root, None)
    if repository is None:
        return [project.root]
    roots = [project.root, location.find_main(repository) or project.root, *location.list_linked(repository).values()]
    return list(dict.fromkeys(roots))


def _plan_all(project: Project, names: Sequence[str], originals: Originals, options: Namespace) -> Plan:
    planned, roots = Plan([], [], []), _list_roots(project)
    projects = [project._replace(root=root) for root in roots]
    targets = [it for each in projects for name in names for it in CLIENTS[name].targets(each)]
    for target in {it.path: it for it in targets}.values():  # one that is user-wide is listed for each worktree
        if not (target.is_user_wide and options.undo) or options.client:
            _add(target, planned, originals, options)
    created = [it.path for it in planned.edits if it.before is None]
    if (exclude := _find_exclude(roots, created, [it.path for it in targets], options)) is not None:
        _add(exclude, planned, originals, options, undo=not exclude.block)
    others = (it for name, client in CLIENTS.items() if name not in names for it in client.targets(project))
    if options.undo and any(map(_is_used, others)):
        return planned  # they need the server and the hooks of git
    if project.server is not None:
        target = Target(f"{originals.folder}/{SERVER_FILE}", "names the server", block="\n".join(project.server))
        _add(target, planned, originals, options)
    for target in _list_git_hooks(project, planned, options):
        _add(target, planned, originals, options)
    return planned


def _add(target: Target, planned: Plan, originals: Originals, options: Namespace, undo: bool | None = None) -> None:
    name = os.path.relpath(target.path) if not target.path.startswith(os.path.expanduser("~/.")) else target.path
    try:
        edit = plan_edit(target, options.undo if undo is None else undo, originals.texts.get(target.path))
    except CommentedError as error:
        planned.remarks.append(f"{name} has comments, so it is left as it is; add to it by hand: {error}")
        return
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        planned.problems.append(f"{name} is left as it is: {why}")
        return
    if edit is not None and not options.tracked and _git_confirms(target.path, "ls-files", "--error-unmatch"):
        planned.problems.append(f"{name} is tracked by git, so it is left as it is: use --tracked, or edit it by hand")
    elif edit is not None:
        planned.edits.append(edit)


def _git_confirms(path: str, *words: str) -> bool:
    """Whether a command of git about a file, or about the target of a link, exits with 0."""
    folder, name = os.path.split(os.path.realpath(path))
    while not os.path.isdir(folder):
        folder, name = os.path.dirname(folder), f"{os.path.basename(folder)}/{name}"
    with suppress(OSError):
        command = ["git", *words, "--", name]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
    return False


def _find_exclude(
    roots: Sequence[str], created: Sequence[str], targets: Sequence[str], options: Namespace
) -> Target | None:
    """Git's local exclude file, with the files that init creates: so `git status` does not list them."""
    repository = location.find_repository(roots[0], None)
    if repository is None:
        return None

    def name(path: str) -> str:
        root = max((it for it in roots if path.startswith(f"{it}/")), key=len, default="")
        return path.removeprefix(root) if root else ""

    path = f"{repository.common}/info/exclude"
    with suppress(OSError, ValueError):
        lines = list_block(read_text(path) or "")
        if options.undo:
            lines = [line for line in lines if line not in map(name, targets)]
        else:
            new = (name(it) for it in created if name(it) and not _git_confirms(it, "check-ignore", "--quiet"))
            lines = list(dict.fromkeys([*lines, *new]))
        return Target(path, "keeps these files out of git status", block="\n".join(lines))
    return None


def _list_git_hooks(project: Project, planned: Plan, options: Namespace) -> Iterator[Target]:
    """The hooks of git: one sets up each new worktree, one checks claims before a commit."""
    repository = location.find_repository(project.root, None)
    if repository is None:
        return
    done = subprocess.run(
        ["git", "rev-parse", "--git-path", "hooks"], cwd=project.root, capture_output=True, text=True, check=False
    )
    folder = os.path.normpath(os.path.join(project.root, done.stdout.removesuffix("\n")))
    command = shlex.quote(shutil.which(project.command) or project.command)
    check = f"{command} check --staged || ! {command} --version >/dev/null 2>&1 || exit 1"
    set_up = f'case "$1" in *[!0]*) ;; *) {command} {NEW_WORKTREE} </dev/null >/dev/null 2>&1 || true ;; esac'
    manager = next((it for it in _MANAGERS if os.path.exists(f"{project.root}/{it}")), None)
    git_hooks = [("post-checkout", "sets up worktrees that are created later", set_up)]
    git_hooks += [("pre-commit", "checks claims before a commit", check)] if options.git_hook or options.undo else []
    for name, what, line in git_hooks:
        path = f"{folder}/{name}"
        first = (_read_or_none(path) or "#!/bin/sh").partition("\n")[0]
        if not options.undo and (manager or not first.startswith("#!") or "sh" not in first):
            why = f"{manager} manages the hooks of git" if manager else f"{path} is not a shell script"
            if options.git_hook or name != "pre-commit":
                planned.remarks.append(f"{why}; add to {name}: {line}")
        else:
            yield Target(path, what, line=line)


def _read_or_none(path: str) -> str | None:
    with suppress(OSError, ValueError):
        return read_text(path)
    return None


# --- write


def _confirm(edits: Sequence[Edit], project: Project, options: Namespace) -> bool:
    """Show the changes, and ask the user unless --yes or --print is given. Raises InvalidError without a terminal."""
    for edit in edits:
        verb = "create" if edit.before is None else "remove" if edit.after is None else "change"
        print_text(f"{verb} {escape(_shorten(edit.path, project))}: {edit.what}")
        if options.print:
            before, after = ((text or "").splitlines() for text in (edit.before, edit.after))
            print_text("\n".join([*unified_diff(before, after, lineterm="")][2:]))
    if options.yes or options.print:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        clients = "".join(f" --client {name}" for name in options.client or ())
        command = f"holdlog init{clients}{' --undo' * options.undo} --yes"
        raise InvalidError(f"--yes: is missing; without a terminal, run: {command}")
    try:
        question = "Undo this? [Y/n] " if options.undo else "Write these files? [Y/n] "
        return input(question).strip().lower() in ("", "y", "yes")
    except EOFError:
        return False


def _shorten(path: str, project: Project) -> str:
    for folder, shown in ((project.root, ""), (project.home, "~/")):
        if path.startswith(f"{folder}/"):
            return shown + path[len(folder) + 1 :]
    return path


def _prepare_store(store: str) -> None:
    """Create the store, if it is missing: without one, hooks do nothing. Raises StoreError."""
    location.prepare_folder(store, os.environ)
    if not os.path.lexists(store):
        open_engine(store).close()


def _write(edits: Sequence[Edit], project: Project, originals: Originals) -> bool:
    """Write the changes. Returns whether all were written."""
    is_sound = True
    for edit in edits:
        try:
            originals.note(edit)
            write(edit)
        except (OSError, StoreError) as error:
            print_note(f"{_shorten(edit.path, project)} is left as it is: {getattr(error, 'strerror', None) or error}")
            is_sound = False
    return is_sound


def _set_up_worktree(project: Project, originals: Originals) -> int:
    """Set up the hosts that init set up in another worktree of the repository. Prints only problems."""
    options: Any = Namespace(undo=False, client=None, tracked=False, git_hook=False)
    planned, others = Plan([], [], []), _list_roots(project)[1:]
    for client in CLIENTS.values():
        if any(_is_used(it) for root in others for it in client.targets(project._replace(root=root))):
            for target in client.targets(project):
                if not target.is_user_wide:
                    _add(target, planned, originals, options)
    return 0 if _write(planned.edits, project, originals) and not planned.problems else 1
