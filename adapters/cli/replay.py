"""`holdlog replay`: the log as it happened, and the state that resulted."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.event_options import add_filters, add_range, choice_of, first_moment, last_moment
from holdlog.adapters.cli.existing_store import location_to_read, open_engine
from holdlog.adapters.cli.moments import MOMENT_HELP
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import typed
from holdlog.adapters.cli.store import Bar
from holdlog.adapters.operating_system.options import Rule

if TYPE_CHECKING:
    from holdlog.adapters.api.events.ranges import LogRange
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.domain.envelope import Recorded
    from holdlog.domain.message import Event

    Show = Callable[[Recorded[Event]], tuple[int, str]]

SPEED: Final = Rule("N", "a number from 0.001 to 1000000", float, lambda it: 0.001 <= it <= 1_000_000)
_LONGEST_SLEEP: Final = 86_400.0
"""Seconds."""

_DESCRIPTION: Final = f"""\
Print the events of a range in the order in which they happened, and with --state what they led to: values, claims,
queues and threads, as `holdlog at` shows them. With filters, only what they select. Times are in UTC.

{MOMENT_HELP}."""
_EXAMPLES: Final = """\
examples:
  holdlog replay --from 14:00 --to 14:10
  holdlog replay --from "yesterday 9:00" --resource src/parser.py --state
  holdlog replay --from 1200 --to 1300 --speed 10       ten times as fast as it happened
  holdlog replay --namespace campaign --state --json
"""


def add_replay(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "replay",
        parents=[store, locations],
        help="show what happened from one moment to another, and the resulting state",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    add_range(parser)
    add_filters(parser)
    parser.add_argument(
        "--speed", type=typed(SPEED), metavar="N", help="N times as fast as it happened (default: without waiting)"
    )
    parser.add_argument("--state", action="store_true", help="print the resulting state at the end (default: no)")
    parser.add_argument(
        "--json",
        action="store_true",
        help='print each event as JSON on a line; last: {"kind": "State"} (default: text)',
    )
    parser.set_defaults(run=run_replay)


class Pace:
    """Waits so that events follow each other as they happened, `speed` times as fast. `clock`: in seconds."""

    def __init__(
        self, speed: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._speed, self._clock, self._sleep = speed, clock, sleep
        self._offset: float | None = None

    def wait(self, at: int) -> None:
        """Wait until it is the turn of an event, recorded at `at` (microseconds UTC). The first is at once."""
        due = at / 1_000_000 / self._speed
        if self._offset is None:
            self._offset = self._clock() - due
        while (left := due + self._offset - self._clock()) > 0:
            self._sleep(min(left, _LONGEST_SLEEP))


def run_replay(options: argparse.Namespace) -> int:
    """Run `holdlog replay`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.cli.texts import print_note

    first, last = first_moment(options.first, "from"), last_moment(options.last, "to")
    with open_engine(options, location_to_read(options)) as engine:
        if last is not None:  # found once, so that the state is that of the events
            last = last._replace(as_of=engine.read(engine.requests.past.resolved(last)))
        found = engine.read(engine.requests.events.range(first, last))
        count = replay(engine, found, options, None if options.speed is None else Pace(options.speed))
        if not (count or options.state or options.json):
            print_note("no event of the range matches")
        if options.state:
            from holdlog.adapters.cli.replay_state import ReplayedState, print_state

            point = PointInTime(found.upto, None) if last is None else last
            print_state(ReplayedState(engine, point, options), options.json)
    return 0


def replay(engine: "Engine", found: "LogRange", options: argparse.Namespace, pace: Pace | None) -> int:
    """Print the events of a range, part by part. Each part is read on its own, so that a slow replay keeps no
    transaction open. Returns their number. Raises InvalidError."""
    requests, choice = engine.requests.events, choice_of(engine, options)
    show = _as_json(engine) if options.json else _as_text(engine)
    rest, count = found, 0
    with Bar("replay") as bar:
        while rest.after < rest.upto:
            lines, after = engine.read(requests.part(choice, rest, show))
            rest, count = rest._replace(after=after), count + len(lines)
            if pace is None:
                sys.stdout.writelines(line for _, line in lines)
            else:
                for at, line in lines:
                    pace.wait(at)
                    sys.stdout.write(line)
                    sys.stdout.flush()
            if not sys.stdout.isatty():
                bar.draw(after - found.after, found.upto - found.after)
    return count


def _as_text(engine: "Engine") -> "Show":
    from holdlog.adapters.api.events.event_view import event_fields
    from holdlog.adapters.cli.log_texts import line_of
    from holdlog.adapters.cli.texts import printable

    spelled = engine.requests.rules.spelled
    return lambda recorded: (
        recorded.envelope.at,
        printable(line_of(event_fields(recorded, spelled)), kept="") + "\n",
    )


def _as_json(engine: "Engine") -> "Show":
    from holdlog.adapters.api.events.event_view import event_view
    from holdlog.adapters.cli.texts import printable

    spelled = engine.requests.rules.spelled
    return lambda recorded: (
        recorded.envelope.at,
        printable(event_view(recorded, spelled).model_dump_json(), kept="") + "\n",
    )
