"""`holdlog activity` and `holdlog collisions`: read models that catch up with the log before they answer."""

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import location_of, named_location, one_or_more, workspaces_of

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.adapters.stores.read_models.view import CollisionRow, ReadModelView
    from holdlog.domain.ports import Refusal

_CODES: Final = ("busy", "conflict", "deadlock", "fenced")
"""Codes of refusals that another agent caused."""
_GROUPS: Final = ("values", "claims", "threads", "other")
_GROUP_OF: Final = {"record": "values", "claim": "claims", "thread": "threads"}

_OF_ACTIVITY: Final = """\
examples:
  holdlog activity
  holdlog activity --agent claude --hours 1
  holdlog activity --hours 168 --json
"""
_OF_COLLISIONS: Final = """\
examples:
  holdlog collisions
  holdlog collisions --resource src/parser.py
  holdlog collisions --agent claude --hours 168 --json
"""


def add_read_models(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    """Add the commands; `run` of their namespace returns the exit code."""

    def add(name: str, help_text: str, description: str, epilog: str, run: "Answer") -> argparse.ArgumentParser:
        parser = commands.add_parser(
            name,
            parents=[store, locations],
            help=help_text,
            description=description,
            epilog=epilog,
        )
        parser.add_argument("--hours", type=one_or_more, default=24, metavar="N", help="how far back (default: 24)")
        parser.add_argument("--agent", metavar="NAME", help="only this agent and its sub-agents (default: all)")
        parser.add_argument("--json", action="store_true", help="print the response as JSON (default: text)")
        parser.set_defaults(run=lambda options: _run(options, run))
        return parser

    add(
        "activity",
        "count the events that each agent caused, per hour",
        "Count the events that each agent caused, per hour, newest first. Expiries are not counted.",
        _OF_ACTIVITY,
        _activity,
    )
    collisions = add(
        "collisions",
        "count who queued behind whom, and list refused calls",
        "Count who queued behind whom at which resource, most frequent first, and list the newest calls that were\n"
        "refused because of another agent. A store keeps its last 10,000 refusals.",
        _OF_COLLISIONS,
        _collisions,
    )
    collisions.add_argument("--resource", metavar="RESOURCE", help="only queues at this resource (default: all)")
    collisions.add_argument(
        "--limit", type=one_or_more, default=100, metavar="N", help="at most N rows of each kind (default: 100)"
    )


class CaughtUp(NamedTuple):
    """The view at the end of the log. `position`: of the last event; `since`: microseconds UTC, from `--hours`."""

    engine: "Engine"
    view: "ReadModelView"
    position: int
    since: int


Answer = Callable[[CaughtUp, argparse.Namespace], tuple[dict[str, Any], str]]
"""The response as JSON, and as text."""


def _run(options: argparse.Namespace, answer: Answer) -> int:
    """Run a command. Raises HoldlogError, LocationError."""
    from holdlog.adapters.api.validation import STORED_AGENT
    from holdlog.adapters.api.validation import text as checked_text
    from holdlog.adapters.cli.texts import no_store, print_json, printable
    from holdlog.adapters.compose import store_exists

    if options.agent is not None:
        options.agent = checked_text(options.agent, "--agent", STORED_AGENT)
    location = location_of(options.db)
    if not store_exists(location):
        return no_store(location, expected=named_location(options.db) is not None)
    with _caught_up(location, options) as models:
        body, text = answer(models, options)
    if options.json:
        print_json({"status": "ok", "position": models.position, **body})
    else:
        print(printable(text))
    return 0


@contextmanager
def _caught_up(location: Any, options: argparse.Namespace) -> "Iterator[CaughtUp]":
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, open_read_models, recorder_of
    from holdlog.adapters.eventsourcing.read_models import HOUR, catch_up

    settings = Settings(workspaces=workspaces_of(options))
    engine = open_holdlog(location, settings, what=f"holdlog {options.command}", report=print_note)
    try:
        with engine.store.reader() as reader:
            since, store_id = reader.at - options.hours * HOUR, reader.meta("store_id") or ""
        with open_read_models(location, store_id) as view:
            position = catch_up(recorder_of(engine), f"holdlog/{store_id}", view)
            yield CaughtUp(engine, view, position, since)
    finally:
        engine.close()


def _activity(models: CaughtUp, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from holdlog.adapters.eventsourcing.read_models import HOUR
    from holdlog.domain.times import utc

    kinds: dict[tuple[int, str, str | None], dict[str, int]] = defaultdict(dict)
    for row in models.view.activity(models.since // HOUR, options.agent):
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
    return {"activity": found}, _text_of_activity(found) or _nothing(options)


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


def _collisions(models: CaughtUp, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from holdlog.domain.names import acts_for

    rules = models.engine.requests.rules
    resource = None if options.resource is None else rules.resource(options.resource, "--resource")
    rows = models.view.collisions(models.since, resource, options.agent, options.limit)
    with models.engine.store.reader() as reader:
        refusals = reader.refusals(_CODES, models.since, -1) if resource is None else []
    if options.agent is not None:
        refusals = [it for it in refusals if acts_for(it.by, options.agent)]
    shown = rules.spelled or str
    found = [_collision(row, shown) for row in rows]
    refused = [_refusal(it) for it in refusals[: options.limit]]
    return {"collisions": found, "refusals": refused}, _text_of_collisions(found, refused) or _nothing(options)


def _collision(row: "CollisionRow", shown: Callable[[str], str]) -> dict[str, Any]:
    from holdlog.domain.times import utc

    fields = row._asdict() | {"resource": shown(row.resource)}
    waited, last = fields.pop("waited"), utc(fields.pop("last")).isoformat()
    fields |= {"waited_seconds": round(waited / 1_000_000, 3), "last_at": last}
    return {name: value for name, value in fields.items() if value is not None}


def _refusal(refusal: "Refusal") -> dict[str, Any]:
    from holdlog.domain.times import utc

    return {"at": utc(refusal.at).isoformat(), "code": refusal.code, "by": refusal.by, "what": refusal.what}


def _text_of_collisions(found: list[dict[str, Any]], refused: list[dict[str, Any]]) -> str:
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
    refusals = [(moment(datetime.fromisoformat(it["at"])), it["code"], marked(it["by"]), it["what"]) for it in refused]
    parts = [
        table([heads, *queued]) if queued else "",
        table([("refused", "code", "agent", "call"), *refusals]) if refusals else "",
    ]
    return "\n\n".join(filter(None, parts))


def _nothing(options: argparse.Namespace) -> str:
    hours = "hour" if options.hours == 1 else f"{options.hours} hours"
    return f"no {options.command} in the last {hours}"
