"""`holdlog at`: values, claims, agents and threads as they were at an earlier moment."""

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.commands import add_address
from holdlog.adapters.cli.existing_store import run_call
from holdlog.adapters.cli.moments import MOMENT_HELP, parse_moment
from holdlog.adapters.cli.parsers import Commands, add_action
from holdlog.adapters.cli.settings import one_or_more
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.api.request import Query
    from holdlog.adapters.api.requests import Requests
    from holdlog.adapters.api.values.responses import Result
    from holdlog.adapters.runtime.engine import Engine

Ask = Callable[["Requests", "PointInTime", argparse.Namespace], "Query[Any]"]

_NAMES: Final = {
    "moment": "MOMENT",
    "position": "MOMENT",
    "time": "MOMENT",
    "namespace": "NAMESPACE",
    "key": "KEY",
    "resource": "RESOURCE",
    "thread_id": "ID",
    "after_key": "--after",
}
_DESCRIPTION: Final = f"""\
Show values, claims, agents and threads as they were at an earlier moment. Without a further word: all claims and
queues.

{MOMENT_HELP}, and means the last event until then: 14:03 is 14:03:00."""
_EXAMPLES: Final = """\
examples:
  holdlog at 14:03                              what was claimed at 14:03
  holdlog at "yesterday 9:00" get campaign budget
  holdlog at "10 minutes ago" list campaign
  holdlog at 1234 status src/parser.py          who held it after event 1234, and how that ended
  holdlog at 2026-11-23T14:03:00Z agents --json
  holdlog at 14:03 thread run-7
"""


def add_past(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "at",
        parents=[store, locations],
        help="show values, claims, agents and threads of an earlier moment",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.add_argument("moment", metavar="MOMENT", help="a position or a time")
    parser.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
    parser.set_defaults(run=lambda options: _run(options, _status), resource=None, after=None)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION")

    def add(name: str, help_text: str, ask: Ask, example: str) -> argparse.ArgumentParser:
        action = add_action(actions, store, name, help_text, f"example:\n  holdlog at 14:03 {example}")
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON (default: text)")
        action.set_defaults(run=lambda options: _run(options, ask))
        return action

    get = add("get", "print a value", _get, "get campaign budget")
    history = add(
        "history", "list the versions of a value until then, newest first", _history, "history campaign budget"
    )
    for each in (get, history):
        add_address(each)
    history.add_argument("--limit", type=one_or_more, default=100, metavar="N", help="the newest N (default: 100)")
    listing = add("list", "list the values of a namespace, or all namespaces", _list, "list campaign --prefix bud")
    listing.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="a group of keys (default: list namespaces)")
    listing.add_argument("--prefix", default="", metavar="TEXT", help="only keys that start with this (default: all)")
    status = add("status", "show who held a resource, or list claims and queues", _status, "status src/parser.py")
    status.add_argument("resource", nargs="?", metavar="RESOURCE", help="what to look up (default: list all claims)")
    for each, name in ((listing, "KEY"), (status, "RESOURCE")):
        each.add_argument("--after", metavar=name, help="only what comes after this: the next page (default: all)")
    add("agents", "list the agents that held or waited for something, or had registered", _agents, "agents")
    add("tokens", "list the tokens, without their secrets", _tokens, "tokens")
    thread = add("thread", "show messages and results of a thread, or list all threads", _thread, "thread run-7")
    thread.add_argument("thread_id", nargs="?", metavar="ID", help="a thread (default: list all threads)")
    thread.add_argument("--data", action="store_true", help="show its data (default: its messages and results)")
    thread.add_argument("--limit", type=one_or_more, default=50, metavar="N", help="the newest N (default: 50)")


def _run(options: argparse.Namespace, ask: Ask) -> int:
    """Raises HoldlogError, LocationError."""
    from holdlog.adapters.api.past.requests import point_in_time
    from holdlog.adapters.cli import past_texts, texts

    found = parse_moment(options.moment, "MOMENT")
    position, time = (None, found) if isinstance(found, datetime) else (found, None)

    def call(engine: "Engine", options: argparse.Namespace) -> Any:
        return engine.read(ask(engine.requests, point_in_time(position, time), options))

    def show(result: "Result") -> None:
        assert result.as_of is not None
        texts.print_note(past_texts.describe_moment(result.as_of))
        print(past_texts.describe(result, texts.is_coloured()))

    return run_call(options, _NAMES, call, show)


def _get(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    return requests.past.of(requests.values.get(options.namespace, options.key), point)


def _history(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    return requests.past.of(requests.values.history(options.namespace, options.key, options.limit), point)


def _list(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    if options.namespace is None:
        return requests.past.of(requests.values.namespaces(after=options.after), point)
    return requests.past.of(requests.values.records(options.namespace, options.prefix, after=options.after), point)


def _status(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    if options.resource is None:
        return requests.past.board(point, after=options.after, limit=1000)
    if options.after is not None:
        raise InvalidError("--after: applies to the list of claims; leave out RESOURCE")
    return requests.past.status(options.resource, point)


def _agents(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    return requests.past.agents(point)


def _tokens(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    return requests.past.tokens(point)


def _thread(requests: "Requests", point: "PointInTime", options: argparse.Namespace) -> "Query[Any]":
    if options.thread_id is None:
        return requests.past.of(requests.threads.listed(), point)
    if options.data:
        return requests.past.of(requests.thread_data.page(options.thread_id), point)
    return requests.past.of(requests.threads.page(options.thread_id, options.limit), point)
