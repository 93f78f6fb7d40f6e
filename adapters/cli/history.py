"""`holdlog history`: the versions of a value, or who held a resource and who waited for it."""

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.commands import Add
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.api.values.responses import Result
    from holdlog.adapters.runtime.engine import Engine

_DESCRIPTION: Final = """\
With NAMESPACE and KEY: the versions of a value, newest first.
With RESOURCE: who held it, or something that overlaps it, from when to when, how each hold ended, and who waited."""
_EXAMPLES: Final = """\
examples:
  holdlog history campaign budget --limit 5
  holdlog history src/parser.py                 who held it, and who waited
  holdlog history src/ --since "yesterday 9:00" --until "yesterday 18:00"
  holdlog history custom://deploy --json
"""


def add_history(add: Add) -> None:
    parser = add("history", "list the versions of a value, or who held a resource", _history)
    parser.usage = "holdlog history [options] NAMESPACE KEY | RESOURCE"
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.add_argument("namespace", metavar="NAMESPACE|RESOURCE", help="the group of keys, or what was claimed")
    parser.add_argument("key", nargs="?", metavar="KEY", help="the name of the value (default: look up a resource)")
    add_window(parser, "with RESOURCE: ")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="show the newest N (default: 100)")


def add_window(parser: argparse.ArgumentParser, when: str = "", since: str = "all") -> None:
    """Add `--since` and `--until`. `when`: what their help begins with; `since`: the default."""
    parser.add_argument(
        "--since", metavar="MOMENT", help=f"{when}only what had not ended at this time or position (default: {since})"
    )
    parser.add_argument(
        "--until", metavar="MOMENT", help=f"{when}only what had begun at this time or position (default: all)"
    )


def moment_of(text: str | None, name: str) -> "PointInTime | None":
    """The moment that `--since` or `--until` names; None if it was not given. The first one is the beginning of the
    millisecond that a time names: commands print times cut to milliseconds. Raises InvalidError."""
    from holdlog.adapters.api.past.requests import point_in_time
    from holdlog.adapters.cli.moments import parse_moment

    if text is None:
        return None
    found = parse_moment(text, f"--{name}")
    if not isinstance(found, datetime):
        return point_in_time(found, None, (name, name))
    begins = found.replace(microsecond=found.microsecond // 1000 * 1000) if name == "since" else found
    return point_in_time(None, begins, (name, name))


def _history(engine: "Engine", options: argparse.Namespace) -> "Result":
    since, until = moment_of(options.since, "since"), moment_of(options.until, "until")
    if options.key is None:
        return engine.read(engine.requests.questions.history(options.namespace, since, until, options.limit))
    if since is not None or until is not None:
        name = "--until" if since is None else "--since"
        raise InvalidError(f"{name}: only works with a RESOURCE; for values, see holdlog at MOMENT history")
    return engine.read(engine.requests.values.history(options.namespace, options.key, options.limit))
