"""`holdlog redact`: remove a text from the log; its digest stays, and so does the record of who removed it."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.commands import add_by
from holdlog.adapters.cli.existing_store import run_call
from holdlog.adapters.cli.parsers import Commands
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.redaction.responses import RedactedText, RedactionResult
    from holdlog.adapters.runtime.engine import Engine

_EXAMPLES: Final = """\
examples:
  holdlog redact config token@3 token@4 --reason 'contained a key'
  holdlog redact --position 812 --reason 'a note named a customer'
  holdlog redact config token@3 --field reason --reason 'its reason contained a key'
  holdlog redact --finish                 after an interrupted redaction

holdlog history NAMESPACE KEY shows versions, holdlog log positions. Names, keys, ids and labels cannot be redacted.
The response lists where else the removed text is, but not where only a part of it is: begin with the value that is
the secret alone.
"""
_NAMES: Final = {"namespace": "NAMESPACE", "key": "KEY@VERSION"}
_SHOWN: Final = 20
"""Other places of the text that are listed on the terminal."""
_PER_COMMAND: Final = 100
"""Texts that a proposed command names."""


def add_redact(commands: Commands, store: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "redact",
        parents=[store],
        help="remove a text from the log, keeping its digest",
        description="Remove values, or other texts of events, from the log, its views and the files of the store.\n"
        "Their digests stay, so that the log still verifies, and an event records who removed them and why.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="a group of keys")
    parser.add_argument("key", nargs="*", metavar="KEY@VERSION", help="versions of values to redact")
    parser.add_argument(
        "--position",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="redact a text of the event at this position of the log, of any kind; repeatable (default: none)",
    )
    parser.add_argument(
        "--field",
        metavar="NAME",
        help="which text: value, note, purpose or reason (default: what the event has other than its reason)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why, for the log; required, without the text itself")
    add_by(parser, "who redacts")
    parser.add_argument("--finish", action="store_true", help="finish interrupted redactions (default: redact)")
    parser.add_argument("--json", action="store_true", help="print the response as JSON (default: text)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    """Raises HoldlogError, LocationError."""
    given = [bool(options.key), bool(options.position), options.finish]
    if sum(given) != 1 or (options.namespace is not None) != bool(options.key):
        raise InvalidError("NAMESPACE and KEY@VERSION, or --position, or --finish is required; see holdlog redact -h")
    if not options.finish and not options.reason:
        raise InvalidError("--reason: is required; it is recorded in the log")
    return run_call(options, _NAMES, _finished if options.finish else _redacted, lambda result: _show(result, options))


def _redacted(engine: "Engine", options: argparse.Namespace) -> Any:
    from holdlog.adapters.api.validation import caller
    from holdlog.adapters.runtime.redacting import redact

    requests = engine.requests.redactions
    query = (
        requests.of_events(options.position, options.field)
        if options.position
        else requests.of_values(options.namespace, options.key, options.field)
    )
    return redact(engine, query, options.by, caller(engine.caller, reason=options.reason))


def _finished(engine: "Engine", options: argparse.Namespace) -> Any:
    from holdlog.adapters.runtime.redacting import finish

    return finish(engine)


def _show(result: "RedactionResult", options: argparse.Namespace) -> None:
    from holdlog.adapters.cli.texts import print_note, printable, table

    for it in result.redacted:
        print(printable(f"{_named(it)}: {'was redacted before' if it.already else 'redacted'}"))
    for backup in result.rewritten:
        print(printable(f"backup {backup}: redacted"))
    if result.also_in:
        print("\nthe same text is also in:")
        print(table([(f"  {_named(it)}", f"position {it.position}") for it in result.also_in[:_SHOWN]]))
        if (more := len(result.also_in) - _SHOWN) > 0:
            print(f"  and {'at least ' if result.more else ''}{more:,} more")
        print("to redact it there:")
        for command in _commands(result.also_in, options):
            print(printable(f"  {command}"))
    for line in (*result.remaining, *result.unfinished):
        print_note(line)
    if result.redacted:
        print_note(result.hint)
    elif not result.unfinished:
        print("all redactions are finished")
    sys.stdout.flush()


def _named(text: "RedactedText") -> str:
    """An event and its field, for people."""
    if text.namespace is not None:
        return f"{text.namespace}/{text.key} version {text.version}, {text.field}"
    kind = next((it for it in ("resource", "thread", "agent") if getattr(text, it) is not None), None)
    name = text.id.rpartition("@")[0] if kind is None else f"{kind} {getattr(text, kind)}"
    return f"{name} version {text.version}, {text.field}"


def _commands(texts: "list[RedactedText]", options: argparse.Namespace) -> list[str]:
    """The commands that redact these texts, by position: names may need quotes."""
    from holdlog.adapters.cli.undo_texts import store_option

    found = []
    for field in ("", "reason"):
        positions = [str(it.position) for it in texts if (it.field == "reason") == bool(field)]
        for start in range(0, len(positions), _PER_COMMAND):
            named = " ".join(f"--position {it}" for it in positions[start : start + _PER_COMMAND])
            which = f" --field {field}" if field else ""
            found.append(f"holdlog redact {named}{which} --reason TEXT{store_option(options.db)}")
    return found
