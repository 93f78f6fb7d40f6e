"""`holdlog timeline`: who did what when, in lanes: in the terminal, or as a picture."""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.event_options import add_window, first_moment, last_moment
from holdlog.adapters.cli.existing_store import run_call
from holdlog.adapters.cli.moments import MOMENT_HELP
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import picture_file
from holdlog.domain.refusals import InvalidError, NotFoundError

if TYPE_CHECKING:
    from holdlog.adapters.api.questions.responses import TimelineResult
    from holdlog.adapters.runtime.engine import Engine

_NAMES: Final = {"resource": "NAME", "namespace": "NAMESPACE", "key": "KEY"}
_DESCRIPTION: Final = f"""\
Show when claims were held and waited for, and when values were written, as lanes over time. With RESOURCE or
NAMESPACE and KEY: one lane for each agent. With AGENT: one for each resource and value; without --since, of the last
100,000 events. A name that was claimed is taken for a resource; --agent NAME is always an agent.

{MOMENT_HELP}."""
_EXAMPLES: Final = """\
examples:
  holdlog timeline src/parser.py
  holdlog timeline campaign budget --since "yesterday 9:00"
  holdlog timeline claude --since "1 hour ago" --svg claude.svg
  holdlog timeline --agent claude/tests --json
"""


def add_timeline(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "timeline",
        parents=[store, locations],
        help="show claims and writes of a resource, a value or an agent over time",
        usage="holdlog timeline [options] RESOURCE | NAMESPACE KEY | AGENT",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a resource, an agent, or a group of keys with KEY")
    parser.add_argument("key", nargs="?", metavar="KEY", help="the name of a value (default: NAME is something else)")
    parser.add_argument("--agent", metavar="NAME", help="this agent and its sub-agents (default: see above)")
    add_window(parser)
    parser.add_argument("--limit", type=int, default=500, metavar="N", help="show the newest N entries (default: 500)")
    parser.add_argument(
        "--svg", metavar="FILE", type=picture_file, help="draw it as a picture instead (default: as text)"
    )
    parser.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
    parser.set_defaults(run=lambda options: run_call(options, _NAMES, _timeline, lambda found: _show(found, options)))


def _timeline(engine: "Engine", options: argparse.Namespace) -> "TimelineResult":
    from holdlog.adapters.api.questions.timelines import Timespan

    if (options.name is None) == (options.agent is None):
        raise InvalidError("NAME: pass a resource, NAMESPACE and KEY, or an agent (see holdlog timeline --help)")
    since, until = first_moment(options.since, "since"), last_moment(options.until, "until")
    part, requests = Timespan(since, until, options.limit), engine.requests.timelines
    if options.agent is not None:
        return engine.read(requests.of_agent(options.agent, part))
    if options.key is not None:
        return engine.read(requests.of_value(options.name, options.key, part))
    try:
        return engine.read(requests.of_resource(options.name, part))
    except NotFoundError as missing:
        found = engine.read(requests.of_agent(options.name, part))
        if found.lanes:
            return found
        message = f"{missing}, and no agent of that name claimed or wrote something in that time"
        raise NotFoundError(message, missing.facts) from None


def _show(found: "TimelineResult", options: argparse.Namespace) -> None:
    from holdlog.adapters.cli import timeline_texts
    from holdlog.adapters.cli.texts import print_note

    if options.svg is None:
        print(timeline_texts.describe(found, sys.stdout))
    else:
        from holdlog.adapters.cli.drawing.picture import picture
        from holdlog.adapters.operating_system.private import new_private_file

        with new_private_file(options.svg, replaces=True) as file:
            file.write(picture(timeline_texts.drawn(found)).encode())
        print_note(f"drawn: {options.svg}")
    if found.more:
        print_note("there is more: --limit N shows the newest N entries, --since and --until others")
