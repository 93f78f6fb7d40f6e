"""`holdlog log`: the events of a store, and new ones with --follow."""

import argparse
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from heapq import merge
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.event_options import add_filters, choice_of, first_moment, last_moment
from holdlog.adapters.cli.existing_store import location_to_read, open_engine
from holdlog.adapters.cli.moments import MOMENT_HELP
from holdlog.adapters.cli.nats import run_until_ended
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import one_or_more
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.events.event_filter import EventFilter
    from holdlog.adapters.api.events.ranges import LogRange
    from holdlog.adapters.api.values.responses import EventView
    from holdlog.adapters.cli.refusals import RefusalView
    from holdlog.adapters.runtime.engine import Engine

PAGE: Final = 1000
WIDER: Final = 8
"""Factor by which each attempt to find the last events reads further back."""
HEARTBEAT: Final = 60.0
"""Seconds."""

_DESCRIPTION: Final = f"""\
List events, oldest first; with --follow also new ones as they happen. docs/events.md describes the events. Times are
shown in UTC.

{MOMENT_HELP}."""
_EXAMPLES: Final = """\
examples:
  holdlog log --last 20
  holdlog log --namespace campaign
  holdlog log --follow --kinds claim,ValueDeleted
  holdlog log --thread run-7 --json
  holdlog log --after 17 --limit 1 --json
  holdlog log --since "yesterday 9:00" --until "yesterday 10:00" --refusals

Exit code 0, also if no event matches.
"""


def add_log(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "log",
        parents=[store, locations],
        help="list events, oldest first, or follow new ones",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--after", type=int, metavar="POSITION", help="events after this position (default: 0; with --follow: the last)"
    )
    start.add_argument("--last", type=one_or_more, metavar="N", help="only the last N events (default: all)")
    parser.add_argument("--since", metavar="MOMENT", help="begin with this event or time (default: the first event)")
    parser.add_argument("--until", metavar="MOMENT", help="end with this event or time (default: the last event)")
    parser.add_argument("--follow", action="store_true", help="wait for new events, until Ctrl-C (default: stop)")
    add_filters(parser)
    parser.add_argument(
        "--refusals",
        action="store_true",
        help="also refused calls; a store keeps its last 10,000 (default: only events)",
    )
    parser.add_argument("--limit", type=one_or_more, metavar="N", help="stop after N events (default: no limit)")
    parser.add_argument("--json", action="store_true", help="print each event as JSON on a line (default: text)")
    parser.set_defaults(run=run_log)


def run_log(options: argparse.Namespace) -> int:
    """Run `holdlog log`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import print_note

    _check(options)
    with open_engine(options, location_to_read(options)) as engine:
        choice = choice_of(engine, options)
        if options.follow:
            return run_until_ended(_follow(engine, choice, options))
        is_empty = True
        for entry in islice(_entries(engine, choice, options), options.limit):
            _show(entry, options.json)
            is_empty = False
    if is_empty and not options.json:
        print_note("no event of the store matches")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other. Raises InvalidError."""
    if options.after is not None and options.since is not None:
        raise InvalidError("--since: not together with --after; pass one of them")
    if options.follow and (options.until is not None or options.refusals):
        raise InvalidError(f"--follow: not together with {'--refusals' if options.refusals else '--until'}")
    for name in ("namespace", "resource", "thread", "kinds"):
        if options.refusals and getattr(options, name) is not None:
            raise InvalidError(f"--refusals: not together with --{name}; the store does not record it for a refusal")


def _entries(
    engine: "Engine", choice: "EventFilter", options: argparse.Namespace
) -> "Iterable[EventView | RefusalView]":
    from holdlog.adapters.cli.refusals import refusals_of

    first, last = first_moment(options.since, "since"), last_moment(options.until, "until")
    found = engine.read(engine.requests.events.range(first, last))
    if options.after is not None:
        if last is not None and options.after >= found.upto:
            raise InvalidError("--until: is not after --after; swap the two")
        found = found._replace(after=options.after)
    events = _all(engine, choice, found) if options.last is None else _last(engine, choice, options.last, found)
    if not options.refusals:
        return events
    refusals = refusals_of(engine, found, first, last, options.agent)
    entries: Iterable[EventView | RefusalView] = merge(events, refusals, key=lambda it: it.at)
    return entries if options.last is None else deque(entries, maxlen=options.last)


def _all(engine: "Engine", choice: "EventFilter", found: "LogRange") -> "Iterable[EventView]":
    after = found.after
    while True:
        page = engine.read(engine.requests.events.page(choice, after, PAGE))
        yield from takewhile(lambda event: event.position <= found.upto, page.events)
        after = page.next_position
        if after >= min(page.bookmark, found.upto):
            return


def _last(engine: "Engine", choice: "EventFilter", count: int, found: "LogRange") -> "list[EventView]":
    """The last events of a range that match. Reads only as far back as it must."""
    span = max(count, PAGE)
    while True:
        start = max(found.after, found.upto - span)
        last = deque(_all(engine, choice, found._replace(after=start)), maxlen=count)
        if len(last) == count or start == found.after:
            return list(last)
        span *= WIDER


async def _follow(engine: "Engine", choice: "EventFilter", options: argparse.Namespace) -> None:
    from holdlog.adapters.api.events.event_view import event_view
    from holdlog.adapters.runtime.following import follow

    left = options.limit
    found = engine.read(engine.requests.events.range(first_moment(options.since, "since"), None))
    after = found.upto if options.after is None else options.after
    if options.last is not None:
        for past in islice(_last(engine, choice, options.last, found), left):
            _show(past, options.json)
            left = None if left is None else left - 1
        if left == 0:
            return
    elif options.since is not None:
        after = found.after
    async with aclosing(follow(engine, choice, after, HEARTBEAT)) as coming:
        async for came in coming:
            for event in islice(came.events, left):
                _show(event_view(event.recorded, engine.requests.rules.spelled), options.json)
            left = None if left is None else left - len(came.events)
            if left is not None and left <= 0:
                return


def _show(entry: "EventView | RefusalView", as_json: bool) -> None:
    from holdlog.adapters.cli.log_texts import line_of
    from holdlog.adapters.cli.texts import printable

    line = entry.model_dump_json() if as_json else line_of(entry.model_dump(mode="json"))
    sys.stdout.write(printable(line, kept="") + "\n")
    sys.stdout.flush()
