"""`holdlog commit`: commits the files that a session changed, and nothing else."""

import os
import shlex
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.store import find_names, open_to_read
from holdlog.adapters.cli.texts import print_json, print_note, print_text, show_table
from holdlog.adapters.engine.conversations import find_conversation
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.hooks.describe import list_names
from holdlog.adapters.hooks.dirty import GitFailedError, list_committed, list_dirty, locate, read_head, run_git
from holdlog.adapters.hooks.ownership import FileWork, Ownership
from holdlog.adapters.operating_system.files import escape, format_duration
from holdlog.adapters.operating_system.location import Repository
from holdlog.adapters.operating_system.processes import identify_host
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.stores.sql import NAMESAKES
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.refusals import InvalidError

INDEX_LOCK_SECONDS: Final = 10.0
"""How long another git process of the worktree is waited for: it keeps the index locked while its hooks run."""
_EXAMPLES: Final = (
    'commit -m "parser: rename parse()"          all that this session changed',
    'commit -m "parser: rename parse()" src/     only what is below src/',
)


class _Refusal(Exception):
    """Nothing was committed. The message is one line; `output`: of git and its hooks."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class DirtyFiles(NamedTuple):
    """The dirty files of a worktree, by absolute paths: those that the session changed last or holds, those of other
    sessions, and those that a person or a program changed. `statuses`: of all, two letters of `git status`."""

    own: list[str]
    others: dict[str, FileWork]
    unknown: list[str]
    statuses: dict[str, str]

    def is_new(self, path: str) -> bool:
        """Whether git does not know a file."""
        return self.statuses[path] == "??"


def run(words: list[str]) -> int:
    """0: committed; 1: nothing to commit, or refused; 2: bad arguments, no repository, or an unknown session."""
    options = _build_parser().parse_args(words)
    if not options.message:
        raise InvalidError("-m: is missing; describe the commit with -m TEXT")
    try:
        repository = _require_repository()
        with closing(open_to_read(options)) as engine:
            ownership = Ownership(engine.store, _find_session(engine.store, options), identify_host())
            files = sort_dirty(ownership, find_names(options), repository)
        paths = _choose(files, options.paths)
        os.environ["HOLDLOG_AGENT"] = ownership.who.agent  # for `holdlog check` in a hook of git
        commit = _commit(repository, files, paths, options.message)
    except (_Refusal, GitFailedError) as error:
        sys.stderr.write(escape(getattr(error, "output", "")))
        if options.json:
            print_json({"status": "refused", "message": f"nothing was committed: {error}"})
        else:
            print_note(f"nothing was committed: {error}")
        return 1
    _report(repository, files, paths, commit, options)
    return 0


def list_dirty_files(words: list[str]) -> int:
    """`holdlog claims --dirty`: the files that differ from the last commit, and whose they are."""
    parser = Parser("claims --dirty", "List the files that git has not committed, and whose they are.")
    options, repository = parser.parse_args(words), _require_repository()
    with closing(open_to_read(options)) as engine:
        ownership = Ownership(engine.store, HolderId("", ""), identify_host())
        files = sort_dirty(ownership, find_names(options), repository)
    rows = [
        {"path": os.path.relpath(path), "status": status}
        | ({"agent": files.others[path].who.agent} if path in files.others else {})
        for path, status in files.statuses.items()
    ]
    if options.json:
        print_json({"status": "ok", "files": rows})
        return 0
    owners = {os.path.relpath(path): _describe(work) for path, work in files.others.items()}
    cells = [(it["path"], it["status"].strip(), it.get("agent", ""), owners.get(it["path"], "")) for it in rows]
    print_text(show_table(cells) or "git has committed everything here")
    return 0


def sort_dirty(ownership: Ownership, workspaces: Workspaces, repository: Repository) -> DirtyFiles:
    """Sort the dirty files of a worktree by whose they are. Raises GitFailedError."""
    dirty = list_dirty(repository.folder, repository.folder)
    names = {file.path: workspaces.name_file(file.path) for file in dirty}
    resources = [name for name in names.values() if name is not None]
    others, own = ownership.find_others(resources), ownership.find_own(resources)
    files = DirtyFiles([], {}, [], {file.path: file.status for file in dirty})
    changes = dict[str, tuple[float, str | None]]()
    for path, name in names.items():
        work = next(iter(others.get(name or "", ())), None)
        is_held = name in own and own[name].holds
        if work is not None and (work.is_live or not is_held):
            files.others[path] = work
        elif name not in own:
            files.unknown.append(path)
        else:
            files.own.append(path)
            if not is_held and not files.is_new(path):
                changes[path] = own[name].at, own[name].sha256
    for path in list_committed(repository.folder, changes):  # a person or a program has changed it since
        files.own.remove(path)
        files.unknown.append(path)
    return files


def _require_repository() -> Repository:
    if (repository := locate(os.getcwd())) is None:
        raise InvalidError("this folder is not in a worktree of git")
    return repository


def _build_parser() -> Parser:
    text = "Commit to git the files that this session changed, and nothing else. Hooks of git run as usual."
    parser = Parser("commit", text, _EXAMPLES)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only this file, or what is below this folder")
    parser.add_argument("-m", "--message", action="append", default=[], metavar="TEXT", help="as for git commit")
    agent = os.environ.get("HOLDLOG_AGENT") or None
    parser.add_argument("--agent", "--by", metavar="NAME", default=agent, help="whose files (default: who runs this)")
    return parser


def _find_session(reader: Reader, options: Namespace) -> HolderId:
    """The agent whose files are committed. Raises InvalidError."""
    conversation = find_conversation(reader, identify_host())
    if conversation is not None and options.agent in (None, conversation.name):
        return HolderId(conversation.name, conversation.session)
    if options.agent is None:
        raise InvalidError("it is not known which session runs this; pass --agent NAME (holdlog claims lists agents)")
    sessions = [session for (session,) in reader.read(NAMESAKES, {"name": options.agent})]
    if not sessions:
        raise InvalidError(f"--agent: hooks know no agent {options.agent!r}; holdlog claims lists agents")
    if len(sessions) > 1:
        raise InvalidError(
            f"--agent: several sessions are named {options.agent!r}; run this in the shell of that agent"
        )
    return HolderId(options.agent, sessions[0])


def _choose(files: DirtyFiles, named: Sequence[str]) -> list[str]:
    """What is committed. Refuses a path under which the session has changed nothing, or that is of another session."""
    limits = [
        os.path.realpath(os.path.dirname(os.path.abspath(it))) + "/" + os.path.basename(it.rstrip("/")) for it in named
    ]
    for path, name in zip(limits, named, strict=True):
        if path in files.others:
            raise _Refusal(f"{name}: {_describe(files.others[path])}; leave it out")
        if path in files.unknown:
            command = f"git commit --only -- {shlex.quote(name)}"
            raise _Refusal(f"{name}: no hook of this session has recorded a change of it; to commit it, too: {command}")
        if not any(_is_below(own, path) for own in files.own):
            raise _Refusal(f"{name}: this session has changed nothing there that is not committed")
    paths = [own for own in files.own if not limits or any(_is_below(own, path) for path in limits)]
    if not paths:
        count = len(files.others) + len(files.unknown)
        rest = f"; {count} changed file{' is' if count == 1 else 's are'} not of this session: holdlog claims --dirty"
        raise _Refusal(f"this session has changed nothing that is not committed{rest if count else ''}")
    return paths


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _commit(repository: Repository, files: DirtyFiles, paths: Sequence[str], messages: Sequence[str]) -> str:
    """Commit these files as they are in the worktree, and return the commit. What is staged of others stays staged.
    Git builds the commit in a separate index, in which its hooks run. It must know new files for that: they are added
    without their content, and removed again if nothing is committed."""
    before, new = read_head(repository.folder), [it for it in paths if files.is_new(it)]
    if new:
        _run(repository, ["add", "--intent-to-add"], new)
    commit = before
    try:
        message = [word for text in messages for word in ("-m", text)]
        sys.stderr.write(escape(_run(repository, ["commit", "--quiet", "--only", *message], paths)))
    finally:
        commit = read_head(repository.folder)
        if new and commit == before:
            with suppress(_Refusal):
                _run(repository, ["rm", "--quiet", "--cached", "--force"], new)
    return commit


def _run(repository: Repository, words: Sequence[str], paths: Sequence[str]) -> str:
    """Run a git command that writes the index, for literal paths, when no other git process does. The option
    --literal-pathspecs would apply to the commands of hooks, too."""
    root, lock = repository.folder, f"{repository.git_folder}/index.lock"
    specs = b"\0".join(b":(top,literal)" + os.fsencode(os.path.relpath(path, root)) for path in paths)
    command = ["git", *words, "--pathspec-from-file=-", "--pathspec-file-nul"]
    until = time.monotonic() + INDEX_LOCK_SECONDS
    while True:
        done = subprocess.run(command, cwd=root, input=specs, capture_output=True, check=False)
        output = (done.stdout + done.stderr).decode(errors="backslashreplace")
        if done.returncode == 0:
            return output
        if "index.lock" not in output:
            lines = (line.partition(": ") for line in output.splitlines())
            problem = next(
                (text for kind, _, text in lines if kind in ("fatal", "error")), "a hook may have refused it"
            )
            raise _Refusal(problem, output)
        if time.monotonic() > until:
            raise _Refusal(f"another git process uses the index; if none runs, remove {lock}")
        time.sleep(0.05)


def _report(repository: Repository, files: DirtyFiles, paths: Sequence[str], commit: str, options: Namespace) -> None:
    folder = os.path.realpath(os.getcwd())
    branch = (run_git(repository.folder, (), "symbolic-ref", "--quiet", "--short", "HEAD") or b"").decode().strip()
    left = {path: _describe(work) for path, work in files.others.items()}
    left |= dict.fromkeys(files.unknown, "not of this session")
    left |= {path: "not named" for path in files.own if path not in paths}
    names = [os.path.relpath(path, folder) for path in paths]
    left_out = [f"{os.path.relpath(path, folder)} ({why})" for path, why in left.items()]
    if options.json:
        print_json({"status": "committed", "commit": commit, "branch": branch, "files": names, "left_out": left_out})
        return
    print_text(f"committed {commit[:10]}{f' on {branch}' if branch else ''}: {list_names(names)}")
    if left_out:
        print_text(f"left out: {list_names(left_out)}")


def _describe(work: FileWork) -> str:
    ended, agent = "" if work.is_live else ", whose session has ended", work.who.agent
    if work.holds:
        return f"held by {agent} for {format_duration(work.seconds)}{ended}"
    return f"changed {format_duration(work.seconds)} ago by {agent}{ended}"
