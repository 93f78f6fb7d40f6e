"""`holdlog commit`: commits the files that a session changed, and nothing else."""

import argparse
import os
import shlex
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdlog.adapters.cli.existing_store import open_engine, require_store
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import location_of
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.cli.own_files import SortedFiles
    from holdlog.adapters.hooks.dirty import DirtyWorktree
    from holdlog.adapters.hooks.notes import HookFiles
    from holdlog.adapters.hooks.works import FileWork

MAX_LISTED: Final = 10
"""Files that one line names."""
_EXAMPLES: Final = """\
examples:
  holdlog commit -m "parser: rename parse()"          all that this session changed
  holdlog commit -m "parser: rename parse()" src/     only what is below src/
  holdlog commit --dry-run                            list what it would commit, and what it would leave out
  holdlog commit -m "half done" --agent claude-447103 from a terminal: the files of that agent

A file belongs to the session that holds it, or else to the one whose hooks recorded its last change; sub-agents belong
to the session of their main agent. What others have staged stays staged. A file is committed as it is in the worktree,
also if only a part of it is staged. Exit codes: 0 committed; 1 nothing to commit,
or refused, by git or because PATH is not of this session; 2 bad arguments, no git repository, or an unknown session.
"""


def add_commit(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "commit",
        parents=[store, locations],
        help="commit to git the files that this session changed, and nothing else",
        description="Commit to git the files that this session changed, and nothing else. Hooks of git run as usual.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="commit only this file, or what is below this folder (default: all)"
    )
    parser.add_argument(
        "-m",
        "--message",
        action="append",
        default=[],
        metavar="TEXT",
        help="the message, needed unless with --dry-run; repeatable, as for git (default: none)",
    )
    parser.add_argument(
        "--agent",
        default=os.environ.get("HOLDLOG_AGENT") or None,
        metavar="NAME",
        help="whose files (default: HOLDLOG_AGENT, or else the agent with hooks that runs this)",
    )
    parser.add_argument("--session", metavar="ID", help="whose files: the ID of claim --session (default: none)")
    parser.add_argument("--dry-run", action="store_true", help="only list what it would commit (default: commit it)")
    parser.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
    parser.set_defaults(run=_run)


class _Refusal(Exception):
    """Nothing was committed, because of what the session has changed. The message is one line."""


def _run(options: argparse.Namespace) -> int:
    from holdlog.adapters.cli.partial_commit import CommitFailedError, GitCommit, commit_only, require_no_operation
    from holdlog.adapters.cli.texts import print_json, print_note
    from holdlog.adapters.hooks.dirty import GitFailedError

    if not options.message and not options.dry_run:
        raise InvalidError("-m: is missing; describe the commit with -m TEXT")
    try:
        worktree, chosen = _choose(options)
        require_no_operation(worktree)
        if not chosen.paths:
            raise _Refusal(_nothing(chosen))
        done = GitCommit("", "", "") if options.dry_run else commit_only(worktree, chosen.paths, options.message)
        if done.id:
            chosen.note(done.id)
    except (_Refusal, CommitFailedError, GitFailedError) as error:
        sys.stderr.write(getattr(error, "output", ""))
        if options.json:
            print_json({"status": "refused", "message": f"nothing was committed: {error}"})
        else:
            print_note(f"nothing was committed: {error}")
        return 1
    sys.stderr.write(done.output)
    if options.json:
        status = {"status": "dry_run"} if options.dry_run else {"status": "committed", "commit": done.id}
        branch = {"branch": done.branch} if done.branch else {}
        print_json({**status, **branch, **chosen.body()})
    else:
        verb = "would commit" if options.dry_run else f"committed {done.id[:10]}"
        _show(f"{verb}{f' on {done.branch}' if done.branch else ''}", chosen)
    return 0


class _Chosen(NamedTuple):
    """What is committed. `paths`: absolute; `found`: all dirty files of the worktree. `folder`: where the user is.
    `files`: of the hooks; `sessions`: whose files are committed."""

    paths: list[str]
    found: "SortedFiles"
    folder: str
    files: "HookFiles"
    sessions: Collection[str]

    def note(self, commit: str) -> None:
        """Note who made a commit, so that no command of others that runs now counts as its author."""
        for session in self.sessions:
            if self.files.age_of(session) < float("inf"):
                with suppress(OSError), self.files.change(session) as notes:
                    notes.note_commits([commit])

    def name(self, path: str) -> str:
        return os.path.relpath(path, self.folder)

    def body(self) -> dict[str, Any]:
        left = [path for path in self.found.own if path not in set(self.paths)]
        return {
            "files": [self.name(it) for it in self.paths],
            "inherited": [self._facts(it) for it in self.found.inherited if it.path in set(self.paths)],
            "left_out": [{"path": self.name(it), "why": "not_named"} for it in left]
            + [self._facts(it) | {"why": "of_another_session"} for it in self.found.others]
            + [{"path": self.name(it), "why": "not_of_this_session"} for it in self.found.unknown],
        }

    def _facts(self, work: "FileWork") -> dict[str, Any]:
        return {"path": self.name(work.path), "agent": work.agent, "holds": work.holds, "is_live": work.is_live}


def _choose(options: argparse.Namespace) -> "tuple[DirtyWorktree, _Chosen]":
    """The worktree, and what of it the session commits. Raises InvalidError, GitFailedError, _Refusal."""
    from holdlog.adapters.cli.own_files import party_of_command, sort_files
    from holdlog.adapters.hooks.dirty import dirty_worktree
    from holdlog.adapters.hooks.notes import HookFiles

    folder = os.getcwd()
    worktree = dirty_worktree(folder, untracked="all")
    if worktree is None:
        raise InvalidError("this folder is not in a worktree of git")
    location = location_of(options.db)
    if not isinstance(location, Path):
        raise InvalidError("--db: must be a store in a file, in which hooks record whose files are whose")
    require_store(location)
    with open_engine(options, location) as engine:
        files = HookFiles(location)
        party = party_of_command(engine, files, options.agent, options.session)
        found = sort_files(engine, files, party, worktree)
    folder = os.path.realpath(folder)
    chosen = _Chosen(found.own, found, folder, files, party.sessions)
    paths = map(os.path.abspath, options.paths)
    named = [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths]
    for path in named:
        _require_own(chosen, path)
    own = [path for path in found.own if not named or any(_is_below(path, folder) for folder in named)]
    return worktree, chosen._replace(paths=own)


def _require_own(chosen: _Chosen, path: str) -> None:
    """Refuse a path under which the session has changed nothing, or that is a file of another session."""
    found, name = chosen.found, chosen.name(path)
    work = next((it for it in found.others if it.path.rstrip("/") == path), None)
    if work is not None:
        raise _Refusal(f"{name}: {_whose(work)}; leave it out")
    if path in found.unknown:
        command = f"git commit --only -- {shlex.quote(name)}"
        raise _Refusal(f"{name}: no hook of this session has recorded a change of it; to commit it, too: {command}")
    if not any(_is_below(it, path) for it in found.own):
        raise _Refusal(f"{name}: this session has changed nothing there that is not committed")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _whose(work: "FileWork") -> str:
    from holdlog.adapters.cli.texts import duration, marked

    ended = "" if work.is_live else ", whose session has ended"
    if work.holds:
        return f"held by {marked(work.agent)} for {duration(work.seconds)}{ended}"
    return f"changed {duration(work.seconds)} ago by {marked(work.agent)}{ended}"


def _nothing(chosen: _Chosen) -> str:
    """Why there is nothing to commit."""
    count = len(chosen.found.others) + len(chosen.found.unknown)
    rest = f"; {count} changed file{' is' if count == 1 else 's are'} not of this session" if count else ""
    return f"this session has changed nothing that is not committed{rest}"


def _show(verb: str, chosen: _Chosen) -> None:
    from holdlog.adapters.cli.texts import printable

    lines = [f"{verb}: {_listed([chosen.name(it) for it in chosen.paths])}"]
    inherited = [it for it in chosen.found.inherited if it.path in chosen.paths]
    lines += [f"with changes by {it.agent}, whose session has ended: {chosen.name(it.path)}" for it in inherited]
    left = [f"{chosen.name(it.path)} ({_whose(it)})" for it in chosen.found.others]
    left += [f"{chosen.name(it)} (not of this session)" for it in chosen.found.unknown]
    if left:
        lines.append(f"left out: {_listed(left)}")
    print(printable("\n".join(lines)))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
