"""`holdlog history`: the versions of a value, or who held a resource and who waited for it."""

import argparse
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.commands import Add
from holdlog.adapters.cli.event_options import add_window, first_moment, last_moment
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
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


def _history(engine: "Engine", options: argparse.Namespace) -> "Result":
    since, until = first_moment(options.since, "since"), last_moment(options.until, "until")
    if options.key is None:
        return engine.read(engine.requests.questions.history(options.namespace, since, until, options.limit))
    if since is not None or until is not None:
        name = "--until" if since is None else "--since"
        raise InvalidError(f"{name}: only works with a RESOURCE; for values, see holdlog at MOMENT history")
    return engine.read(engine.requests.values.history(options.namespace, options.key, options.limit))
