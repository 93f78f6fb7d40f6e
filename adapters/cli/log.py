"""`holdlog log`: the events of a store, and new ones with --follow."""

import argparse
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.event_options import add_filters, choice_of
from holdlog.adapters.cli.nats import run_until_ended
from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, named_location, one_or_more, workspaces_of
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.events.event_filter import EventFilter
    from holdlog.adapters.api.values.responses import EventView
    from holdlog.adapters.runtime.engine import Engine

PAGE: Final = 1000
WIDER: Final = 8
"""Factor by which each attempt to find the last events reads further back."""
HEARTBEAT: Final = 60.0
"""Seconds."""

_EXAMPLES: Final = """\
examples:
  holdlog log --last 20
  holdlog log --namespace campaign
  holdlog log --follow --kinds claim,ValueDeleted
  holdlog log --thread run-7 --json
  holdlog log --after 17 --limit 1 --json
"""


def add_log(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "log",
        parents=[store, locations],
        help="list events, oldest first, or follow new ones",
        description="List events, oldest first; with --follow also new ones as they happen. docs/events.md describes"
        " the events.",
        epilog=_EXAMPLES,
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--after", type=int, metavar="POSITION", help="events after this position (default: 0; with --follow: the last)"
    )
    start.add_argument("--last", type=one_or_more, metavar="N", help="only the last N events (default: all)")
    parser.add_argument("--follow", action="store_true", help="wait for new events, until Ctrl-C (default: stop)")
    add_filters(parser)
    parser.add_argument("--limit", type=one_or_more, metavar="N", help="stop after N events (default: no limit)")
    parser.add_argument("--json", action="store_true", help="print each event as JSON on a line (default: text)")
    parser.set_defaults(run=run_log)


def run_log(options: argparse.Namespace) -> int:
    """Run `holdlog log`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.cli.texts import no_store, print_note
    from holdlog.adapters.compose import open_holdlog, store_exists

    location = location_of(options.db)
    if not store_exists(location):
        return no_store(location, expected=named_location(options.db) is not None)
    engine = open_holdlog(location, Settings(workspaces=workspaces_of(options)), what="holdlog log", report=print_note)
    try:
        choice = choice_of(engine, options)
        if options.follow:
            return run_until_ended(_follow(engine, choice, options))
        found = (
            _all(engine, choice, options.after or 0) if options.last is None else _last(engine, choice, options.last)
        )
        for event in islice(found, options.limit):
            _show(event, options.json)
        return 0
    except InvalidError as error:
        raise InvalidError(as_option(str(error), {})) from None
    finally:
        engine.close()


def _all(engine: "Engine", choice: "EventFilter", after: int) -> "Iterable[EventView]":
    while True:
        page = engine.read(engine.requests.events.page(choice, after, PAGE))
        yield from page.events
        after = page.next_position
        if after >= page.bookmark:
            return


def _last(engine: "Engine", choice: "EventFilter", count: int, upto: int | None = None) -> "list[EventView]":
    """The last events that match, up to a position. Reads only as far back as it must."""
    if upto is None:
        with engine.store.reader() as reader:
            upto = reader.position()
    span = max(count, PAGE)
    while True:
        start = max(0, upto - span)
        matches = takewhile(lambda event: event.position <= upto, _all(engine, choice, start))
        found = deque(matches, maxlen=count)
        if len(found) == count or start == 0:
            return list(found)
        span *= WIDER


async def _follow(engine: "Engine", choice: "EventFilter", options: argparse.Namespace) -> None:
    from holdlog.adapters.api.events.event_view import event_view
    from holdlog.adapters.runtime.following import follow

    left = options.limit
    with engine.store.reader() as reader:
        after = reader.position() if options.after is None else options.after
    if options.last is not None:
        for past in islice(_last(engine, choice, options.last, after), left):
            _show(past, options.json)
            left = None if left is None else left - 1
        if left == 0:
            return
    async with aclosing(follow(engine, choice, after, HEARTBEAT)) as coming:
        async for came in coming:
            for event in islice(came.events, left):
                _show(event_view(event.recorded, engine.requests.rules.spelled), options.json)
            left = None if left is None else left - len(came.events)
            if left is not None and left <= 0:
                return


def _show(event: "EventView", as_json: bool) -> None:
    from holdlog.adapters.cli.log_texts import line_of
    from holdlog.adapters.cli.texts import printable

    line = event.model_dump_json() if as_json else line_of(event.model_dump(mode="json"))
    sys.stdout.write(printable(line, kept="") + "\n")
    sys.stdout.flush()
