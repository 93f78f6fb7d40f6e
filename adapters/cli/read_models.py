"""`holdlog activity` and `holdlog conflicts`: read models that catch up with the log before they answer."""

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdlog.adapters.cli.event_options import first_moment, last_moment
from holdlog.adapters.cli.moments import EXAMPLES
from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, named_location, one_or_more, workspaces_of
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.adapters.stores.read_models.view import CollisionRow, ReadModelView
    from holdlog.domain.ports import Reader, Refusal

_CODES: Final = ("busy", "conflict", "deadlock", "fenced")
"""Codes of refusals that another agent caused."""
_FOREVER: Final = 2**62
"""Microseconds UTC: for a time that has no end."""
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
    """Add the commands; `run` of their namespace returns the exit code."""

    def add(
        name: str, help_text: str, about: str, epilog: str, run: "Answer", *aliases: str
    ) -> argparse.ArgumentParser:
        parser = commands.add_parser(
            name,
            aliases=aliases,
            parents=[store, locations],
            help=help_text,
            description=f"{about}\n\nMOMENT is {EXAMPLES}.\nA time without an offset is in your time zone.",
            epilog=epilog,
        )
        begin = parser.add_mutually_exclusive_group()
        begin.add_argument("--hours", type=one_or_more, default=24, metavar="N", help="how far back (default: 24)")
        begin.add_argument("--since", metavar="MOMENT", help="begin with this event or time (default: see --hours)")
        parser.add_argument("--until", metavar="MOMENT", help="end with this event or time (default: now)")
        parser.add_argument("--agent", metavar="NAME", help="only this agent and its sub-agents (default: all)")
        parser.add_argument("--json", action="store_true", help="print the response as JSON (default: text)")
        parser.set_defaults(run=lambda options: _run(options, run), what=name)
        return parser

    add(
        "activity",
        "count the events that each agent caused, per hour",
        "Count the events that each agent caused, per hour (UTC), newest first. The first and the last hour\n"
        "count as a whole. Expiries are not counted.",
        _OF_ACTIVITY,
        _activity,
    )
    conflicts = add(
        "conflicts",
        "count who collided with whom at which resource, and who was refused",
        "Count who queued behind whom at which resource, most frequent first, and who was refused because of another\n"
        "agent, and list the newest of these calls. A store keeps its last 10,000 refusals.",
        _OF_CONFLICTS,
        _conflicts,
        "collisions",  # its name until the first release
    )
    conflicts.add_argument("--resource", metavar="RESOURCE", help="only queues at this resource (default: all)")
    conflicts.add_argument(
        "--limit", type=one_or_more, default=100, metavar="N", help="at most N rows of each kind (default: 100)"
    )


class CaughtUp(NamedTuple):
    """The view at the end of the log. `position`: of the last event; `since`, `until`: microseconds UTC."""

    engine: "Engine"
    view: "ReadModelView"
    position: int
    since: int
    until: int


Answer = Callable[[CaughtUp, argparse.Namespace], tuple[dict[str, Any], str]]
"""The response as JSON, and as text."""


def _run(options: argparse.Namespace, answer: Answer) -> int:
    """Run a command. Raises HoldlogError, LocationError."""
    from holdlog.adapters.api.validation import STORED_AGENT
    from holdlog.adapters.api.validation import text as checked_text
    from holdlog.adapters.cli.texts import moment_at, no_store, print_json, printable
    from holdlog.adapters.compose import store_exists

    if options.agent is not None:
        options.agent = checked_text(options.agent, "--agent", STORED_AGENT)
    location = location_of(options.db)
    if not store_exists(location):
        return no_store(location, expected=named_location(options.db) is not None)
    try:
        with _caught_up(location, options) as models:
            body, text = answer(models, options)
    except InvalidError as error:
        raise InvalidError(as_option(str(error), {})) from None
    if options.json:
        print_json({"status": "ok", "position": models.position, **body})
    else:
        print(printable(text or f"no {options.what} since {moment_at(models.since)}"))
    return 0


@contextmanager
def _caught_up(location: Any, options: argparse.Namespace) -> "Iterator[CaughtUp]":
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, open_read_models, recorder_of
    from holdlog.adapters.eventsourcing.read_models import catch_up

    settings = Settings(workspaces=workspaces_of(options))
    engine = open_holdlog(location, settings, what=f"holdlog {options.command}", report=print_note)
    try:
        with engine.store.reader() as reader:
            window, store_id = _window(reader, options), reader.meta("store_id") or ""
        with open_read_models(location, store_id) as view:
            position = catch_up(recorder_of(engine), f"holdlog/{store_id}", view)
            yield CaughtUp(engine, view, position, *window)
    finally:
        engine.close()


def _window(reader: "Reader", options: argparse.Namespace) -> tuple[int, int]:
    """The time that the options name. Raises InvalidError."""
    from holdlog.adapters.api.events.ranges import range_of, window_of
    from holdlog.adapters.eventsourcing.read_models import HOUR

    first, last = first_moment(options.since, "since"), last_moment(options.until, "until")
    since, until = window_of(reader, range_of(reader, first, last), first, last)
    end = _FOREVER if until is None else until
    return (min(end, reader.at) - options.hours * HOUR if since is None else since), end


def _activity(models: CaughtUp, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from holdlog.adapters.eventsourcing.read_models import HOUR
    from holdlog.domain.times import utc

    kinds: dict[tuple[int, str, str | None], dict[str, int]] = defaultdict(dict)
    for row in models.view.activity(models.since // HOUR, models.until // HOUR, options.agent):
        kinds[row.hour, row.agent, row.principal][row.topic] = row.times
    found = [
        {
            "hour": utc(hour * HOUR).isoformat(),
            "agent": agent,
            **({} if principal is None else {"principal": principal}),
            "events": sum(times.values()),
            "kinds": times,
        }
        for (hour, agent, principal), times in kinds.items()
    ]
    return {"activity": found}, _text_of_activity(found)


def _text_of_activity(found: list[dict[str, Any]]) -> str:
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.cli.texts import marked, table
    from holdlog.projections.fold import KINDS

    groups = {event.topic: _GROUP_OF.get(kind.prefix, "other") for kind in KINDS.values() for event in kind.events}
    rows: list[tuple[str, ...]] = []
    for row in found:
        counts = Counter[str]()
        for topic, times in row["kinds"].items():
            counts[groups[topic]] += times
        hour = f"{row['hour'][:10]} {row['hour'][11:16]} UTC"
        who = author(marked(row["agent"]), row.get("principal"))
        rows.append((hour, who, str(row["events"]), *(str(counts[group] or "") for group in _GROUPS)))
    return table([("hour", "agent", "events", *_GROUPS), *rows]) if rows else ""


def _conflicts(models: CaughtUp, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from holdlog.domain.names import acts_for

    rules = models.engine.requests.rules
    resource = None if options.resource is None else rules.resource(options.resource)
    rows = models.view.collisions(models.since, models.until, resource, options.agent, options.limit)
    with models.engine.store.reader() as reader:
        refusals = reader.refusals(_CODES, models.since, -1) if resource is None else []
    refusals = [
        it for it in refusals if it.at <= models.until and (options.agent is None or acts_for(it.by, options.agent))
    ]
    shown = rules.spelled or str
    found = [_collision(row, shown) for row in rows]
    refused = _refused(refusals)[: options.limit]
    newest = [_refusal(it) for it in refusals[: options.limit]]
    text = _text_of_conflicts(found, refused, newest)
    return {"collisions": found, "refused": refused, "refusals": newest}, text


def _refused(refusals: "list[Refusal]") -> list[dict[str, Any]]:
    """How often each agent was refused with which code, most often first. `refusals`: newest first."""
    codes: dict[str, Counter[str]] = defaultdict(Counter)
    last: dict[str, int] = {}
    for it in refusals:
        codes[it.by][it.code] += 1
        last.setdefault(it.by, it.at)
    return [
        {"agent": agent, "times": times.total(), "codes": dict(sorted(times.items())), "last_at": _time(last[agent])}
        for agent, times in sorted(codes.items(), key=lambda it: (-it[1].total(), it[0]))
    ]


def _collision(row: "CollisionRow", shown: Callable[[str], str]) -> dict[str, Any]:
    fields = row._asdict() | {"resource": shown(row.resource)}
    waited, last = fields.pop("waited"), fields.pop("last")
    fields |= {"waited_seconds": round(waited / 1_000_000, 3), "last_at": _time(last)}
    return {name: value for name, value in fields.items() if value is not None}


def _refusal(refusal: "Refusal") -> dict[str, Any]:
    return {"at": _time(refusal.at), "code": refusal.code, "by": refusal.by, "what": refusal.what}


def _time(at: int) -> str:
    from holdlog.domain.times import utc

    return utc(at).isoformat()


def _text_of_conflicts(found: list[dict[str, Any]], refused: list[dict[str, Any]], newest: list[dict[str, Any]]) -> str:
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.cli.texts import duration, marked, moment, table

    queued = [
        (
            marked(row["resource"]),
            author(marked(row["agent"]), row.get("principal")),
            author(marked(row["behind"]), row.get("behind_principal")),
            str(row["times"]),
            str(row["granted"]),
            duration(row["waited_seconds"]),
            moment(datetime.fromisoformat(row["last_at"])),
        )
        for row in found
    ]
    heads = ("resource", "waiter", "behind", "times", "granted", "waited", "last")
    codes = [code for code in _CODES if any(code in row["codes"] for row in refused)]
    agents = [
        (
            marked(row["agent"]) or "a caller",
            str(row["times"]),
            *(str(row["codes"].get(code, "")) for code in codes),
            moment(datetime.fromisoformat(row["last_at"])),
        )
        for row in refused
    ]
    calls = [(moment(datetime.fromisoformat(it["at"])), it["code"], marked(it["by"]), it["what"]) for it in newest]
    parts = [
        table([heads, *queued]) if queued else "",
        table([("refused agent", "times", *codes, "last"), *agents]) if agents else "",
        table([("refused", "code", "agent", "call"), *calls]) if calls else "",
    ]
    return "\n\n".join(filter(None, parts))
