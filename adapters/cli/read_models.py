"""`holdlog activity` and `holdlog conflicts`: read models that catch up with the log before they answer."""

import argparse
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.event_options import first_moment, last_moment
from holdlog.adapters.cli.existing_store import location_to_read, open_engine
from holdlog.adapters.cli.moments import MOMENT_HELP
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import one_or_more
from holdlog.adapters.cli.store import Bar

if TYPE_CHECKING:
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.api.questions.reports import ModelReport
    from holdlog.adapters.api.questions.responses import Activity, Conflicts
    from holdlog.adapters.runtime.engine import Engine

ReportOf = Callable[["Engine", argparse.Namespace, "PointInTime | None", "PointInTime | None"], "ModelReport[Any]"]

_GROUPS: Final = ("values", "claims", "threads", "other")
_GROUP_OF: Final = {"record": "values", "claim": "claims", "thread": "threads"}

_OF_ACTIVITY: Final = """\
examples:
  holdlog activity
  holdlog activity --agent claude --hours 1
  holdlog activity --since "yesterday 9:00" --until "yesterday 18:00"
  holdlog activity --hours 168 --json
"""
_OF_CONFLICTS: Final = """\
examples:
  holdlog conflicts
  holdlog conflicts --resource src/parser.py
  holdlog conflicts --since "yesterday 9:00" --until "yesterday 18:00"
  holdlog conflicts --agent claude --hours 168 --json
"""


def add_read_models(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:

    activity = commands.add_parser(
        "activity",
        parents=[store, locations],
        help="count the events that each agent caused, per hour",
        description="Count the events that each agent caused, per hour (UTC), newest first. The first and the last\n"
        f"hour count as a whole. Expiries are not counted.\n\n{MOMENT_HELP}.",
        epilog=_OF_ACTIVITY,
    )
    conflicts = commands.add_parser(
        "conflicts",
        aliases=["collisions"],
        parents=[store, locations],
        help="count who collided with whom at which resource, and who was refused",
        description="Count who queued behind whom at which resource, most frequent first, and who was refused because\n"
        "of another agent, and list the newest of these calls. A store keeps its last 10,000 refusals.\n\n"
        f"{MOMENT_HELP}.",
        epilog=_OF_CONFLICTS,
    )
    for parser, what, report, describe in (
        (activity, "activity", _activity, _describe_activity),
        (conflicts, "conflicts", _conflicts, _describe_conflicts),
    ):
        begin = parser.add_mutually_exclusive_group()
        begin.add_argument("--hours", type=one_or_more, default=24, metavar="N", help="how far back (default: 24)")
        begin.add_argument("--since", metavar="MOMENT", help="begin with this event or time (default: see --hours)")
        parser.add_argument("--until", metavar="MOMENT", help="end with this event or time (default: now)")
        parser.add_argument("--agent", metavar="NAME", help="only this agent and its sub-agents (default: all)")
        parser.add_argument("--json", action="store_true", help="print the response as JSON (default: text)")
        parser.set_defaults(run=partial(_run, report_of=report, describe=describe), what=what)
    conflicts.add_argument("--resource", metavar="RESOURCE", help="only queues at this resource (default: all)")
    conflicts.add_argument(
        "--limit", type=one_or_more, default=100, metavar="N", help="at most N rows of each kind (default: 100)"
    )


def _run(options: argparse.Namespace, report_of: ReportOf, describe: Callable[[Any], str]) -> int:
    """Run a command. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import moment_at, print_json, printable
    from holdlog.adapters.eventsourcing.read_models import run_report

    with open_engine(options, location_to_read(options)) as engine, Bar(options.what) as bar:
        since, until = first_moment(options.since, "since"), last_moment(options.until, "until")
        report = report_of(engine, options, since, until)
        found = run_report(engine, report, bar.draw)
        begin = engine.read(report.period).since
    if options.json:
        print_json(found.body())
    else:
        print(printable(describe(found) or f"no {options.what} since {moment_at(begin)}"))
    return 0


def _activity(
    engine: "Engine", options: argparse.Namespace, since: "PointInTime | None", until: "PointInTime | None"
) -> "ModelReport[Any]":
    return engine.requests.reports.activity(options.agent, since, until, options.hours)


def _conflicts(
    engine: "Engine", options: argparse.Namespace, since: "PointInTime | None", until: "PointInTime | None"
) -> "ModelReport[Any]":
    requests = engine.requests.reports
    return requests.conflicts(options.resource, options.agent, since, until, options.hours, options.limit)


def _describe_activity(found: "Activity") -> str:
    """A table; empty if there was none."""
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.cli.texts import marked, table
    from holdlog.projections.fold import KINDS

    groups = {event.topic: _GROUP_OF.get(kind.prefix, "other") for kind in KINDS.values() for event in kind.events}
    rows: list[tuple[str, ...]] = []
    for row in found.activity:
        counts = Counter[str]()
        for topic, times in row.kinds.items():
            counts[groups[topic]] += times
        who = author(marked(row.agent), row.principal)
        hour = f"{row.hour:%Y-%m-%d %H:%M} UTC"
        rows.append((hour, who, str(row.events), *(str(counts[group] or "") for group in _GROUPS)))
    return table([("hour", "agent", "events", *_GROUPS), *rows]) if rows else ""


def _describe_conflicts(found: "Conflicts") -> str:
    """Up to three tables; empty if there was no conflict."""
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.api.questions.reports import CODES
    from holdlog.adapters.cli.texts import duration, marked, moment, table

    queued = [
        (
            marked(it.resource),
            author(marked(it.agent), it.principal),
            author(marked(it.behind), it.behind_principal),
            str(it.times),
            str(it.granted),
            duration(it.waited_seconds),
            moment(it.last_at),
        )
        for it in found.collisions
    ]
    codes = [code for code in CODES if any(code in it.codes for it in found.refused)]
    agents = [
        (_caller(it.agent), str(it.times), *(str(it.codes.get(code, "")) for code in codes), moment(it.last_at))
        for it in found.refused
    ]
    calls = [(moment(it.at), it.code, _caller(it.by), it.what) for it in found.refusals]
    tables = (
        (("resource", "waiter", "behind", "times", "granted", "waited", "last"), queued),
        (("refused agent", "times", *codes, "last"), agents),
        (("refused", "code", "agent", "call"), calls),
    )
    return "\n\n".join(table([heads, *rows]) for heads, rows in tables if rows)


def _caller(name: str) -> str:
    from holdlog.adapters.cli.texts import marked

    return marked(name) or "a caller"
