"""The options of commands about what happened: filters of events, and the moments from which and until which."""

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.parsers import did_you_mean
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.events.event_filter import EventFilter
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.runtime.engine import Engine

GROUPS: Final = ("record", "claim", "thread", "agent", "token", "store")
"""Groups of event kinds, by name."""
FILTERS: Final = ("namespace", "prefix", "resource", "thread", "kinds", "agent")
"""The options of `add_filters`."""


def add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="first", metavar="MOMENT", help="begin with this event or time (default: first)")
    parser.add_argument("--to", dest="last", metavar="MOMENT", help="end with this event or time (default: the last)")


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", metavar="NAMESPACE", help="only values of this namespace (default: all)")
    parser.add_argument("--prefix", metavar="TEXT", help="only keys that start with this; needs --namespace")
    parser.add_argument(
        "--resource", metavar="RESOURCE", help="only claims and changes of files that overlap this (default: all)"
    )
    parser.add_argument("--thread", metavar="ID", help="only this thread (default: all)")
    parser.add_argument(
        "--kinds",
        metavar="KINDS",
        help=f"only these, separated by commas: {', '.join(GROUPS)}, ValueWritten … (default: all)",
    )
    parser.add_argument("--agent", metavar="NAME", help="only events of this agent and its sub-agents (default: all)")


def add_window(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add `--since` and `--until`, which keep what overlaps a time. `when`: what their help begins with."""
    parser.add_argument(
        "--since", metavar="MOMENT", help=f"{when}only what had not ended at this time or position (default: all)"
    )
    parser.add_argument(
        "--until", metavar="MOMENT", help=f"{when}only what had begun at this time or position (default: all)"
    )


def choice_of(engine: "Engine", options: argparse.Namespace) -> "EventFilter":
    """The filter that the options describe. Raises InvalidError."""
    kinds = None if options.kinds is None else _kinds(options.kinds)
    return engine.requests.events.choice(
        options.namespace, options.prefix, kinds, options.resource, options.agent, options.thread
    )


def first_moment(text: str | None, name: str) -> "PointInTime | None":
    """The beginning of a range of events. `name`: of the option, without dashes. Raises InvalidError."""
    from holdlog.adapters.cli.moments import beginning, parse_moment

    if text is None:
        return None
    found = parse_moment(text, f"--{name}")
    return _point(beginning(found) if isinstance(found, datetime) else found, name)


def last_moment(text: str | None, name: str) -> "PointInTime | None":
    """Like `first_moment`, for the end."""
    from holdlog.adapters.cli.moments import parse_moment

    return None if text is None else _point(parse_moment(text, f"--{name}"), name)


def _point(found: int | datetime, name: str) -> "PointInTime":
    from holdlog.adapters.api.past.requests import point_in_time

    position, time = (None, found) if isinstance(found, datetime) else (found, None)
    return point_in_time(position, time, (name, name))


def _kinds(text: str) -> list[str]:
    """The kinds of events. Raises InvalidError, with the one that was probably meant."""
    from holdlog.projections.fold import EVENTS

    kinds = [word.strip() for word in text.split(",")]
    for word in kinds:
        if word not in GROUPS and word not in EVENTS:
            guess = did_you_mean(word, (*GROUPS, *EVENTS))
            raise InvalidError(
                f"--kinds: {word!r} is not one of {', '.join(GROUPS)}, nor an event of docs/events.md{guess}"
            )
    return kinds
