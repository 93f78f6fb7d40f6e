"""`holdlog retention`: how long former values of a namespace are kept."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.commands import add_by
from holdlog.adapters.cli.existing_store import run_call
from holdlog.adapters.cli.parsers import Commands, duration_of
from holdlog.adapters.cli.store import Bar
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine

_EXAMPLES: Final = """\
examples:
  holdlog retention                       list the namespaces with a retention
  holdlog retention build 30d --reason 'logs of builds'
  holdlog retention build none            keep former values again
  holdlog retention --run                 remove now what is due; servers do so every minute
"""
_NAMES: Final = {"namespace": "NAMESPACE", "seconds": "TIME"}


def add_retention(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "retention",
        parents=[store, locations],
        help="list or change how long former values are kept",
        description="List or change how long the former values of a namespace are kept: those that were overwritten\n"
        "or deleted, or have expired. Current values, names and the events themselves always stay. Servers of\n"
        "the store (holdlog serve) remove values that are due; without one, run holdlog retention --run.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="a group of keys (default: list all)")
    parser.add_argument("time", nargs="?", type=_time, metavar="TIME", help="such as 30d, 12h or none")
    add_by(parser, "who decides")
    parser.add_argument("--run", dest="now", action="store_true", help="remove what is due now (default: list)")
    parser.add_argument("--reason", metavar="TEXT", help="why, for the log (default: none)")
    parser.add_argument("--json", action="store_true", help="print the response as JSON (default: text)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    """Raises HoldlogError, LocationError."""
    if options.namespace is not None and options.time is None:
        raise InvalidError("TIME: is required, for example 30d, or none to keep former values")
    if options.now and options.namespace is not None:
        raise InvalidError("--run: applies to all namespaces; leave NAMESPACE out")
    call = _removed if options.now else _listed if options.namespace is None else _changed
    return run_call(options, _NAMES, call, _show)


def _listed(engine: "Engine", options: argparse.Namespace) -> Any:
    return engine.read(engine.requests.retention.listed())


def _changed(engine: "Engine", options: argparse.Namespace) -> Any:
    from holdlog.adapters.api.validation import caller

    seconds = None if options.time == 0 else round(options.time)
    call = engine.requests.retention.change(options.namespace, seconds, options.by)
    return engine.write(call, caller(engine.caller, reason=options.reason))


def _removed(engine: "Engine", options: argparse.Namespace) -> Any:
    from holdlog.adapters.runtime.redacting import run_retention

    with Bar("retention") as bar:
        return run_retention(engine, bar.draw)


def _show(result: Any) -> None:
    from holdlog.adapters.api.retention.responses import RetentionList, RetentionRun
    from holdlog.adapters.cli.texts import duration, print_note, printable, table

    if isinstance(result, RetentionRun):
        print(f"removed {result.removed:,} former value{'' if result.removed == 1 else 's'}")
        for line in result.unfinished:
            print_note(line)
        return
    if isinstance(result, RetentionList):
        rows = [(it.namespace, duration(it.seconds)) for it in result.retention]
        print(table(rows) or "all former values are kept; to limit that: holdlog retention NAMESPACE 30d")
        return
    kept = "are kept" if result.seconds is None else f"are kept for {duration(result.seconds)}"
    print(printable(f"former values of {result.namespace} {kept}{', as before' if result.already else ''}"))


def _time(text: str) -> float:
    """Seconds; 0: no retention."""
    return 0 if text == "none" else duration_of(text, least=1)
