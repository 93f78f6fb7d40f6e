"""`holdlog diff`, `blame` and `revert`: what changed, who changed it, and how to undo it."""

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.commands import add_by
from holdlog.adapters.cli.existing_store import Call, run_call
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import one_or_more
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.changes.moments import NamedMoment
    from holdlog.adapters.api.changes.responses import Blame, Diff, RevertResult
    from holdlog.adapters.api.claims.files import FileBlame
    from holdlog.adapters.runtime.engine import Engine

_MOST_WORDS: Final = 3
_NAMES: Final = {
    "namespace": "NAMESPACE",
    "key": "KEY",
    "resource": "FILE",
    "reverted_by": "--by",
    "correlation_id": "--correlation",
    "from_version": "FROM",
    "from_position": "FROM",
    "from_time": "FROM",
    "to_version": "TO",
    "to_position": "TO",
    "to_time": "TO",
    "version": "--at",
    "position": "--at",
    "time": "--at",
}
_MOMENTS: Final = """\
A moment is a version of the key (v3), a time (14:03, "yesterday 9:00", 2026-11-23T14:03:00Z, "10 minutes ago", now) or
a position in the log (1234). 14:03 is 14:03:00, so it does not show a write of 14:03:25."""
_OF_DIFF: Final = """\
examples:
  holdlog diff campaign budget v1 v3
  holdlog diff campaign budget v3                  from then until now
  holdlog diff campaign budget "yesterday 9:00" now
  holdlog diff campaign 14:00 14:30
  holdlog diff campaign 1200 now --json
"""
_OF_BLAME: Final = """\
examples:
  holdlog blame campaign budget
  holdlog blame campaign plan --fields
  holdlog blame campaign budget --at 14:03
  holdlog blame campaign budget --at v2 --json
  holdlog blame src/parser.py --limit 10        which agents changed the file
"""
_OF_REVERT: Final = """\
examples:
  holdlog revert --session mcp-3f9a0b1c2d4e5f60 --dry-run
  holdlog revert --session mcp-3f9a0b1c2d4e5f60 --reason 'wrong currency'
  holdlog revert --session build-7 --agent claude/tests --since 14:00
  holdlog revert --correlation task-7 --namespace campaign
  holdlog revert --correlation revert-0a1b2c3d4e5f          undo a revert

The session is that of `holdlog blame`, or the text that its client named, such as --session build-7.
"""


def add_undo(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:

    def add(
        name: str, help_text: str, description: str, epilog: str, call: Call, describe: str
    ) -> argparse.ArgumentParser:
        parser = commands.add_parser(
            name, parents=[store, locations], help=help_text, description=description, epilog=epilog
        )
        parser.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
        parser.set_defaults(run=lambda options: _run(options, call, describe))
        return parser

    diff = add(
        "diff",
        "show what changed between two moments",
        f"Show what changed between two moments: of a key, or of all keys of a namespace.\n\n{_MOMENTS}",
        _OF_DIFF,
        _diff,
        "describe_diff",
    )
    diff.usage = "holdlog diff [options] NAMESPACE [KEY] FROM [TO]"
    diff.add_argument("namespace", metavar="NAMESPACE", help="the group of keys")
    diff.add_argument(
        "words", metavar="[KEY] FROM [TO]", nargs="+", help="the key, if only one; then one moment or two"
    )
    diff.add_argument("--limit", type=one_or_more, default=1000, metavar="N", help="at most N keys (default: 1000)")
    diff.add_argument("--after", metavar="KEY", help="continue after this key (default: from the first)")

    blame = add(
        "blame",
        "show who wrote a value last, and what that relied on, or who changed a file",
        "With NAMESPACE and KEY: who wrote a value last, in which session, on the basis of which version and claims,\n"
        "and why. With FILE: its changes by agents, newest first, as hooks of their hosts recorded them: time, agent,\n"
        f"position in the log, and the first characters of the SHA-256 of the new content.\n\n{_MOMENTS}",
        _OF_BLAME,
        _blame,
        "describe_blame",
    )
    blame.usage = "holdlog blame [options] NAMESPACE KEY | FILE"
    blame.add_argument("namespace", metavar="NAMESPACE|FILE", help="the group of keys, or a file")
    blame.add_argument("key", nargs="?", metavar="KEY", help="the name of the value (default: look up a file)")
    blame.add_argument(
        "--limit", type=one_or_more, metavar="N", help="with FILE: show the newest N changes (default: 100)"
    )
    blame.add_argument(
        "--fields", action="store_true", help="also who changed each field of an object last (default: only the value)"
    )
    blame.add_argument("--at", metavar="MOMENT", help="as it was then (default: now)")
    blame.add_argument(
        "--after", dest="after_field", metavar="FIELD", help="continue after this field (default: from the first)"
    )

    revert = add(
        "revert",
        "undo what a session or task wrote",
        "Undo what a run wrote: a session, or the writes under a correlation id. Each key gets the value that it had\n"
        "before the versions that the run wrote last without interruption, or is deleted if it had none. Keys that\n"
        "others changed or claimed since are listed and left as they are. Files, threads and claims are not changed.\n"
        "Exit code 1: nothing was reverted.",
        _OF_REVERT,
        _revert,
        "describe_revert",
    )
    which = revert.add_mutually_exclusive_group(required=True)
    which.add_argument("--session", metavar="ID", help="undo what this session wrote (default: --correlation)")
    which.add_argument("--correlation", metavar="ID", help="undo what was written under this id (default: --session)")
    revert.add_argument(
        "--agent", metavar="NAME", help="with --session: only of this agent and its sub-agents (default: all)"
    )
    revert.add_argument("--since", metavar="TIME", help="only what was written from then on (default: all)")
    revert.add_argument("--namespace", metavar="NAMESPACE", help="only keys of this namespace (default: all)")
    revert.add_argument(
        "--dry-run", action="store_true", help="change nothing; show what would be done (default: do it)"
    )
    add_by(revert)
    revert.add_argument("--reason", metavar="TEXT", help="why, for the history (default: none)")
    revert.add_argument(
        "--request-id", metavar="ID", help="repeat the command with the same ID within 24 hours: it is done once"
    )


def _run(options: argparse.Namespace, call: Call, describe: str) -> int:
    """Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli import undo_texts

    return run_call(options, _NAMES, call, lambda result: print(getattr(undo_texts, describe)(result, options)))


def _diff(engine: "Engine", options: argparse.Namespace) -> "Diff":
    options.key, first, second = _key_and_moments(options.words)
    call = engine.requests.changes.diff(options.namespace, options.key, first, second, options.limit, options.after)
    return engine.read(call)


def _key_and_moments(words: Sequence[str]) -> "tuple[str | None, NamedMoment, NamedMoment]":
    """The key, if one is given, and two moments; the second is now by default. Of two words, the first is a key unless
    it is a moment: a misspelled moment is a key that does not exist."""
    if len(words) > _MOST_WORDS:
        raise InvalidError("too many arguments: give NAMESPACE, at most one KEY, FROM and TO")
    if len(words) == _MOST_WORDS:
        return words[0], _moment(words[1], "from", "FROM"), _moment(words[2], "to", "TO")
    if len(words) == 1:
        return None, _moment(words[0], "from", "FROM"), _moment("now", "to", "TO")
    try:
        return None, _moment(words[0], "from", "FROM"), _moment(words[1], "to", "TO")
    except InvalidError:
        return words[0], _moment(words[1], "from", "FROM"), _moment("now", "to", "TO")


def _blame(engine: "Engine", options: argparse.Namespace) -> "Blame | FileBlame":
    if options.key is None:
        for name in ("fields", "at", "after_field"):
            if getattr(options, name):
                raise InvalidError(f"--{name.partition('_')[0]}: only works with NAMESPACE and KEY")
        return engine.read(engine.requests.questions.file_changes(options.namespace, options.limit or 100))
    if options.limit is not None:
        raise InvalidError("--limit: only works with a FILE")
    moment = _moment(options.at or "now", "", "--at")
    requests = engine.requests.changes
    return engine.read(
        requests.blame(options.namespace, options.key, moment, options.fields, after_field=options.after_field)
    )


def _revert(engine: "Engine", options: argparse.Namespace) -> "RevertResult":
    from holdlog.adapters.api.validation import caller
    from holdlog.adapters.cli.store import Bar

    who, requests = engine.caller, engine.requests.reverts
    who = caller(who, reason=options.reason, request_id=options.request_id)
    since = None if options.since is None else _since(options.since)
    with Bar("revert") as bar:
        writes = engine.read(
            requests.find(options.session, options.correlation, options.agent, since, options.namespace, bar.draw)
        )
    if options.dry_run:
        return engine.read(requests.preview(writes, options.by, who))
    return engine.write(requests.revert(writes, options.by), who)


def _moment(text: str, argument: str, shown: str) -> "NamedMoment":
    from holdlog.adapters.api.changes.moments import moment
    from holdlog.adapters.cli.moments import EXAMPLES, parse_moment

    if text[:1] == "v" and text[1:].isascii() and text[1:].isdigit() and len(text) < 20:
        return moment(argument, version=int(text[1:]))
    if text == "now":
        return moment(argument)
    found = parse_moment(text, shown, expected=f"v3 (a version), {EXAMPLES}")
    return moment(argument, time=found) if isinstance(found, datetime) else moment(argument, position=found)


def _since(text: str) -> datetime:
    """The beginning of the millisecond that a time names: commands print times cut to milliseconds, and the event that
    was printed with this time counts."""
    from holdlog.adapters.cli.moments import TIMES, beginning, parse_moment

    found = parse_moment(text, "--since", expected=f"a time, such as {TIMES}")
    if not isinstance(found, datetime):
        raise InvalidError("--since: must be a time, not a position")
    return beginning(found)
