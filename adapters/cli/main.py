"""The command line. Commands import what they need when they run: `holdlog serve` must start fast."""

import argparse
import codecs
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from holdlog.adapters.cli.backup import add_backup, add_restore
from holdlog.adapters.cli.check import add_check
from holdlog.adapters.cli.claims import add_claims
from holdlog.adapters.cli.commands import add_values, adder
from holdlog.adapters.cli.commit import add_commit
from holdlog.adapters.cli.completion import add_completion
from holdlog.adapters.cli.copy import add_copy
from holdlog.adapters.cli.demo.command import add_demo
from holdlog.adapters.cli.evidence import add_evidence
from holdlog.adapters.cli.existing_store import NoStoreError
from holdlog.adapters.cli.export import add_export
from holdlog.adapters.cli.history import add_history
from holdlog.adapters.cli.hook import add_hook
from holdlog.adapters.cli.import_log import add_import
from holdlog.adapters.cli.init import add_init
from holdlog.adapters.cli.log import add_log
from holdlog.adapters.cli.nats import add_relay, add_subscribe
from holdlog.adapters.cli.parsers import BAD_ARGUMENTS, Commands, Parser, did_you_mean
from holdlog.adapters.cli.past import add_past
from holdlog.adapters.cli.proof import add_proof
from holdlog.adapters.cli.read_models import add_read_models
from holdlog.adapters.cli.redact import add_redact
from holdlog.adapters.cli.replay import add_replay
from holdlog.adapters.cli.retention import add_retention
from holdlog.adapters.cli.run import add_run
from holdlog.adapters.cli.serve import add_serve
from holdlog.adapters.cli.settings import StoreOptions, WorkspaceOptions, add_options
from holdlog.adapters.cli.store import add_doctor, add_rebuild
from holdlog.adapters.cli.thread import add_thread
from holdlog.adapters.cli.timeline import add_timeline
from holdlog.adapters.cli.token import add_token
from holdlog.adapters.cli.undo import add_undo
from holdlog.adapters.cli.up import add_up
from holdlog.adapters.cli.update import add_updates
from holdlog.adapters.operating_system.location import LocationError
from holdlog.domain.refusals import HoldlogError, UnavailableError

INTERRUPTED: Final = 130

_AS_JSON: Final = "holdlog.json"
_DEFAULT_HANDLERS: Final = frozenset({"strict", "surrogateescape"})
"""Python's default error handlers. Any other handler is the user's choice (PYTHONIOENCODING)."""

_ANSWERED_AT_ONCE: Final = frozenset({"-h", "--help", "--version"})
"""The only options before a command that take no value; the parser handles them immediately."""

_GROUPS: Final = {
    "begin here": ("init", "demo"),
    "work with claims": ("claims", "claim", "release", "status", "wait", "run", "check", "commit"),
    "work with values": ("get", "set", "update", "transact", "delete", "list", "history", "watch"),
    "work with threads": ("thread",),
    "see and undo changes": ("at", "diff", "blame", "revert"),
    "audit and administration": (
        *("log", "replay", "timeline", "conflicts", "activity", "agents", "token", "redact", "retention", "doctor"),
        *("verify", "checkpoint", "evidence"),
    ),
    "servers and stores": (
        *("serve", "up", "relay", "subscribe", "backup", "restore", "copy", "export", "import", "rebuild"),
        *("hook", "completion"),
    ),
}
_DESCRIPTION: Final = """\
holdlog is a coordination store for AI agents: versioned shared values, and claims (leases) on files or any named
resource. Every change is an event in one log.

{commands}
"""
_EXAMPLES: Final = """\
examples:
  holdlog init                                  set up the hosts of this project, with hooks
  holdlog                                       serve MCP over stdio, with the store of this git repository
  holdlog --tools claims,state                  the same, with the tools for shared values
  holdlog demo                                  see two agents share a budget, in ten seconds
  holdlog claims                                list claims and queues
  holdlog claim src/parser.py --note 'renaming parse()'
  holdlog run --claim custom://merge --wait 600 -- git push origin main
  holdlog commit -m 'parser: rename parse()'    commit the files that this session changed, and nothing else
  holdlog log --last 20                         the last 20 events
  holdlog set order-1 status '"paid"' --version 0
  holdlog update stats visits --increment 1     add to a number, without its version
  holdlog history order-1 status
  holdlog history src/parser.py                 who held it, and who waited
  holdlog timeline src/parser.py                the same in lanes over time
  holdlog conflicts                             who collided with whom, and who was refused
  holdlog at 14:03                              what was claimed at 14:03
  holdlog blame order-1 status                  who wrote it last, and on what basis
  holdlog revert --session build-7 --dry-run    what undoing that session would change
  holdlog thread read run-7                     messages and results of agents in one run
  holdlog doctor                                check the store, and list connected processes
  holdlog --db 'postgresql://ann@db.example/team?schema=project' claims
  holdlog copy state.db backup.db               also from and to PostgreSQL
  holdlog token create --name ci --allow 'write:build-*' --allow 'read:*' --expires 30d
  holdlog up                                    run PostgreSQL and NATS to try holdlog with
  holdlog subscribe --nats nats://127.0.0.1:4222 --subject 'claim.>'

holdlog COMMAND --help describes a command. Each option of serve is also an environment variable: HOLDLOG_DB,
HOLDLOG_TOOLS, HOLDLOG_TOOL_PREFIX …
Exit codes: 0 done; 1 refused, not found or timed out; 2 bad arguments or settings.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: it found a problem, was refused or timed out; 2: bad arguments or settings. Reports
    every error in one line."""
    make_every_character_writable()
    try:
        try:
            options = parsed(sys.argv[1:] if arguments is None else arguments)
            code: int = options.run(options)
        finally:
            print(end="", flush=True)  # report a full disk here, not when the interpreter ends
    except NoStoreError as error:
        _complain(error)
        return error.code
    except UnavailableError as error:
        _complain(error)
        return 1
    except (HoldlogError, LocationError) as error:
        _complain(error)
        return BAD_ARGUMENTS
    except ModuleNotFoundError as error:
        from holdlog.adapters.operating_system.extras import missing

        problem = missing(error.name)
        if problem is None:
            raise
        _complain(problem)
        return BAD_ARGUMENTS
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        where = "" if error.filename is None else f"{error.filename}: "
        _complain(f"{where}{error.strerror or error}")
        return 1
    return code


def _complain(error: Exception | str) -> None:
    from holdlog.adapters.cli.texts import print_note

    print_note(str(error))


def _discard_output() -> None:
    """Discard buffered output, which would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command, `serve` by default. Ends the process when there is nothing to run."""
    parser, commands = build_parser()
    given = list(arguments)
    first = given[0] if given and given[0].startswith("--") else ""
    guess = "" if first in _ANSWERED_AT_ONCE else did_you_mean(first, ("--help", "--version"))
    if guess:  # no option of serve is similar to these
        parser.error(f"unknown argument {first}{guess}")
    command = _command(given)
    if command == "help":
        given, command = ["--help"], None
    if command is not None and command not in commands:
        parser.error(f"unknown command {command!r}{did_you_mean(command, commands)}")
    misplaced = _options_before(command, given)
    if misplaced:
        parser.error(f"{misplaced[0]}: put it after {command}; only --db may come before a command")
    if command is None and not _ANSWERED_AT_ONCE.intersection(given):
        given.insert(0, "serve")
    return parser.parse_args(given)


def _command(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor the value of one; it need not be a command."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if "=" not in word and word not in _ANSWERED_AT_ONCE:
            next(rest, None)
    return None


def _options_before(command: str | None, words: Sequence[str]) -> list[str]:
    """The words before the command that are not options there."""
    before = words[: words.index(command)] if command is not None else ()
    named = [word.partition("=")[0] for word in before if word.startswith("-")]
    return [name for name in named if name != "--db" and name not in _ANSWERED_AT_ONCE]


def build_parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """Build the parser of all commands; also returns their names."""
    parser = Parser(
        prog="holdlog",
        usage="holdlog [--db PATH|URL] COMMAND …",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    add_options(parser, StoreOptions)
    store = argparse.ArgumentParser(add_help=False)
    add_options(store, StoreOptions, unset=argparse.SUPPRESS)
    locations = argparse.ArgumentParser(add_help=False)
    add_options(locations, WorkspaceOptions)
    commands = Commands(parser)
    add = adder(commands, store, locations)
    for add_calls in (add_values, add_history, add_claims, add_updates):
        add_calls(add)
    for add_command in (
        *(add_serve, add_log, add_replay, add_evidence, add_past, add_undo, add_read_models, add_timeline),
        *(add_retention, add_run, add_check, add_commit),
    ):
        add_command(commands, store, locations)
    for add_command_of_store in (
        *(add_thread, add_rebuild, add_doctor, add_proof, add_backup, add_restore, add_export, add_import),
        *(add_redact, add_token, add_relay, add_subscribe, add_hook),
    ):
        add_command_of_store(commands, store)
    for add_other in (add_init, add_copy, add_demo, add_up, add_completion):
        add_other(commands)
    parser.description = _DESCRIPTION.format(commands=commands.listed(_GROUPS))
    return parser, commands.choices


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"holdlog {version('holdlog')}")
        parser.exit()


def make_every_character_writable() -> None:
    """Escape what standard output cannot encode as in JSON: in text it is readable, in JSON it is equivalent.

    Standard error escapes by default (`backslashreplace`).
    """
    codecs.register_error(_AS_JSON, _as_json)
    if getattr(sys.stdout, "errors", None) in _DEFAULT_HANDLERS and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors=_AS_JSON)


def _as_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text: Any = error.object[error.start : error.end]
    return json.dumps(text)[1:-1], error.end
