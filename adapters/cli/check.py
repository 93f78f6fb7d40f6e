"""`holdlog check`: whether other sessions hold files, for git hooks and CI. Reads only; never creates a store."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.checked_policy import under_policy
from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, workspaces_of
from holdlog.adapters.operating_system.location import LocationError, without_password
from holdlog.domain.refusals import InvalidError, StoreError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.api.claims.checks import Checked, CheckedFile, Committer, HumanFile
    from holdlog.adapters.runtime.engine import Engine

_EXAMPLES: Final = """\
examples:
  holdlog check --staged                        as a pre-commit hook; docs/git.md shows how to install it
  HOLDLOG_AGENT=claude-7f3a git commit          the hook knows who commits, and blocks files that others hold
  holdlog check --staged --trailer "$1"         as a prepare-commit-msg hook: also name the claims in the message
  git diff --name-only --no-renames -z origin/main... | xargs -0 holdlog check --agent ci --strict
                                                in CI: the files of a branch

A file blocks only if the caller is known and another live session holds it, or if the caller is an agent and
holdlog.toml leaves the file to a person; all else is a warning. Exit codes: 0 nothing blocks; 1 a file blocks, or with
--strict nothing could be checked; 2 bad arguments, or no git repository.
"""


def add_check(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "check",
        parents=[store, locations],
        help="check that no other session holds the staged files: for git hooks and CI",
        description="Check whether other sessions hold files. Changes nothing, and creates no store.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file, a folder with / at its end, or custom://NAME")
    parser.add_argument(
        "--staged",
        action="store_true",
        help="check what the next git commit changes; of a rename, both names (default: check each PATH)",
    )
    parser.add_argument(
        "--agent",
        default=os.environ.get("HOLDLOG_AGENT") or None,
        metavar="NAME",
        help="who changes the files: its own claims do not block (default: HOLDLOG_AGENT, or else the agent that runs"
        " this, if it has hooks)",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        help="as for claim: claims of all other sessions are those of others, also under the same name (default: none)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="also block most of what is otherwise a warning, such as an unknown caller, a missing store or a holder"
        " whose session has ended; docs/git.md lists all (default: warn)",
    )
    parser.add_argument(
        "--trailer",
        metavar="FILE",
        help="add a trailer Holdlog-Claim to this commit message for each claim that the caller has on the files"
        " (default: none)",
    )
    parser.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from holdlog.adapters.cli import staged

    if options.staged == bool(options.paths):
        raise InvalidError("PATH: name files, or use --staged for those of the next git commit, not both")
    paths = staged.paths() if options.staged else [(staged.readable(os.fsencode(it)), it) for it in options.paths]
    result = under_policy(_checked(options, paths), paths, options)
    if options.trailer is not None and result.status == "ok":
        staged.add_trailers(options.trailer, result.positions)
    _show(result, options)
    return 1 if result.status in ("held", "human") or (options.strict and result.status == "not_checked") else 0


def _checked(options: argparse.Namespace, paths: Sequence[tuple[str, str]]) -> "Checked":
    """The response; with a warning, instead of an error, if there is no store that can be read."""
    from holdlog.adapters.api.claims.checks import Checked, check
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, store_exists

    try:
        location = location_of(options.db)
        if store_exists(location):
            settings = Settings(workspaces=workspaces_of(options))
            engine = open_holdlog(location, settings, what="holdlog check", report=print_note)
            try:
                return engine.read(check(engine.requests.rules, paths, _committer(engine, options)))
            finally:
                engine.close()
        problem = f"there is no store at {without_password(location)}"
    except InvalidError as error:
        raise InvalidError(as_option(str(error), {})) from None
    except (StoreError, UnavailableError, LocationError) as error:
        problem = str(error)
    warning = f"nothing was checked: {problem}"
    return Checked(status="not_checked", checked=0, files=[], positions=[], warnings=[warning])


def _committer(engine: "Engine", options: argparse.Namespace) -> "Committer":
    from holdlog.adapters.api.claims.checks import Committer
    from holdlog.adapters.api.validation import STORED_AGENT, text
    from holdlog.adapters.cli.commands import user
    from holdlog.adapters.compose import named_session
    from holdlog.adapters.hooks.session import HOST_SESSION, sessions_of_host

    agent = None if options.agent is None else text(options.agent, "agent", STORED_AGENT)
    named, hashed = named_session(options.session), engine.identity.session
    hosted = frozenset[str]()
    if isinstance(engine.location, Path):
        hosted = frozenset(it.held_by for it in sessions_of_host(engine.location, engine.identity, os.environ))
    own = hosted
    if process := os.environ.get(HOST_SESSION):
        own |= {hashed("process", process)}
    return Committer(agent, None if named is None else hashed(*named), own, bool(hosted), user(), options.strict)


def _show(result: "Checked", options: argparse.Namespace) -> None:
    """Print what was found. Holders and warnings go to standard error: git shows that of a hook."""
    from holdlog.adapters.cli.texts import print_json, print_note, printable

    if options.json:
        print_json(result.body())
        return
    for warning in result.warnings or ():
        print_note(warning if options.strict else f"warning: {warning}")
    if result.unchecked:
        print_note(f"warning: not checked, because they are in no workspace: {', '.join(result.unchecked)}")
    for human in result.human or ():
        print_note(printable(_human_line(human, options.staged), kept=""))
    for file in result.files:
        print(f"holdlog: {printable(_line(file, options), kept='')}", file=sys.stderr)
    if any(it.why_not == "unknown_caller" for it in result.files):
        print_note("nothing was blocked, because it is not known who you are: set HOLDLOG_AGENT, or pass --agent NAME")
    if not options.staged and not (result.files or result.human or result.warnings):
        print(f"ok: no other session holds {'this' if result.checked == 1 else f'any of these {result.checked}'}")


def _line(file: "CheckedFile", options: argparse.Namespace) -> str:
    """Format a file: who holds it, since when, and what to do."""
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.cli.texts import marked, since

    holder = author(marked(file.held_by), file.held_by_principal)
    covered = f", who claimed {marked(file.covered_by)}" if file.covered_by else ""
    held = f"{file.path}: held by {holder}{covered}, {since(file.claimed_at, file.held_for_seconds)}"
    if file.blocks:
        leave_out = f", or {_leave_out(file.path)}" if options.staged else ""
        agent = f" --agent {shlex.quote(options.agent)}" if options.agent is not None else ""
        return f"{held}; queue for it: holdlog claim {shlex.quote(file.resource)}{agent} --wait 50{leave_out}"
    why_not = {
        "unknown_caller": "",
        "session_ended": ", in a session that has ended",
        "sub_agent": ", a sub-agent of yours",
        "user_name": ", under your user name",
        "policy": ", and holdlog.toml only warns",
        "other_workspace": f", in workspace {file.workspace}; coordinate before you merge",
    }[file.why_not or "unknown_caller"]
    return f"warning: {held}{why_not}"


def _human_line(file: "HumanFile", staged: bool) -> str:
    """Format a file that only a person may change: where that is written, and what to do."""
    level = "" if file.blocks else "warning: "
    line = f"{level}{file.path}: only a person may change it ({file.rule})"
    if file.caller == "agent":
        leave_out = f", and {_leave_out(file.path)}" if staged else ""
        return f"{line}; describe the change that you need to your user{leave_out}"
    leave_out = f"; if not, {_leave_out(file.path)}" if staged else ""
    return f"{line}; if you are a person, set HOLDLOG_AGENT to your user name{leave_out}"


def _leave_out(path: str) -> str:
    return f"leave it out: git restore --staged {shlex.quote(path)}"
