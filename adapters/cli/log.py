"""`holdlog log`: the events of a store, and new ones with --follow."""

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.commands import Parsers
from holdlog.adapters.cli.nats import run_until_ended
from holdlog.adapters.cli.settings import named_place, one_or_more, place_of, workspaces_of

if TYPE_CHECKING:
    from holdlog.adapters.api.events.event_filter import EventFilter
    from holdlog.adapters.api.values.responses import EventView
    from holdlog.adapters.runtime.engine import Engine

WIDEST: Final = 60
"""Characters for the fields of an event, apart from its names."""
PAGE: Final = 1000
HEARTBEAT: Final = 60.0

_NAMED: Final = frozenset(
    {"position", "id", "stream", "version", "kind", "at", "by", "principal", "namespace", "key", "resource", "thread"}
    | {"mixed_scripts"}
)
_RELIED_ON: Final = frozenset({"operation", "based_on", "forced", "guard"})
"""Fields with what a write relied on, shown only with --json."""
_SESSIONS: Final = ("session", "former_session")
"""Fields at the end of a line, where an agent's text leaves room for them."""
_AGENTS: Final = ("agent", "forced_by")
"""Further fields that name an agent."""
_SAID: Final = ("value", "checksum")
"""Fields with the contents of a thread, which `holdlog thread` shows."""
_EXAMPLES: Final = """\
examples:
  holdlog log --namespace campaign
  holdlog log --follow --kinds claim,ValueDeleted
  holdlog log --thread run-7 --json
  holdlog log --after 17 --limit 1 --json
"""


def add_log(commands: Parsers, store: argparse.ArgumentParser, places: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "log",
        parents=[store, places],
        help="what happened, in order (docs/events.md)",
        description="What happened, in order; with --follow also what comes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--after", type=int, metavar="POSITION", help="go on from there (default: 0; to follow: now)")
    parser.add_argument("--follow", action="store_true", help="go on with whatever comes, until Ctrl-C")
    parser.add_argument("--namespace", metavar="NAMESPACE", help="values of this namespace")
    parser.add_argument("--prefix", metavar="TEXT", help="whose keys begin so")
    parser.add_argument("--resource", metavar="RESOURCE", help="claims that overlap this")
    parser.add_argument("--thread", metavar="ID", help="this thread")
    parser.add_argument("--kinds", metavar="KINDS", help="with commas: record, claim, thread, agent, ValueWritten …")
    parser.add_argument("--agent", metavar="NAME", help="what this agent did, or its sub-agents")
    parser.add_argument("--limit", type=one_or_more, metavar="N", help="end after N events")
    parser.add_argument("--json", action="store_true", help="print each event as JSON, one a line")
    parser.set_defaults(run=run_log)


def run_log(options: argparse.Namespace) -> int:
    """Run `holdlog log`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.api.request import Settings
    from holdlog.adapters.cli.texts import no_store, print_note
    from holdlog.adapters.compose import open_holdlog, store_exists

    place = place_of(options.db)
    if not store_exists(place):
        return no_store(place, expected=named_place(options.db) is not None)
    engine = open_holdlog(place, Settings(workspaces=workspaces_of(options)), what="holdlog log", report=print_note)
    try:
        kinds = None if options.kinds is None else options.kinds.split(",")
        places = (options.namespace, options.prefix, kinds, options.resource, options.agent, options.thread)
        choice = engine.requests.choice(*places)
        if options.follow:
            return run_until_ended(_follow(engine, choice, options))
        for event in islice(_all(engine, choice, options.after or 0), options.limit):
            _show(event, options.json)
        return 0
    finally:
        engine.close()


def _all(engine: "Engine", choice: "EventFilter", after: int) -> "Iterable[EventView]":
    while True:
        page = engine.read(engine.requests.events(choice, after, PAGE))
        yield from page.events
        after = page.next_position
        if after >= page.bookmark:
            return


async def _follow(engine: "Engine", choice: "EventFilter", options: argparse.Namespace) -> None:
    from holdlog.adapters.api.events.event_view import event_view
    from holdlog.adapters.runtime.following import follow

    left = options.limit
    with engine.store.reader() as reader:
        after = reader.position() if options.after is None else options.after
    async with aclosing(follow(engine, choice, after, HEARTBEAT)) as coming:
        async for came in coming:
            for event in islice(came.events, left):
                _show(event_view(event.recorded, engine.requests.spelled), options.json)
            left = None if left is None else left - len(came.events)
            if left is not None and left <= 0:
                return


def _show(event: "EventView", as_json: bool) -> None:
    from holdlog.adapters.cli.texts import printable

    line = event.model_dump_json() if as_json else _line(event.model_dump(mode="json"))
    sys.stdout.write(printable(line, kept="") + "\n")
    sys.stdout.flush()


def _line(event: dict[str, Any]) -> str:
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.cli.texts import marked

    place = f"{event['namespace']}/{event['key']}" if "namespace" in event else ""
    place = place or marked(event.get("resource", "")) or event.get("thread", "")
    left_out = (*_NAMED, *_RELIED_ON, *(_SAID if "thread" in event else ()))
    rest = {
        name: value
        for name, value in event.items()
        if name not in left_out and (value != event["by"] or name == "forced_by")
    }
    rest |= {name: rest.pop(name) for name in _SESSIONS if name in rest}
    summary = json.dumps(rest.pop("value"), ensure_ascii=False) if "value" in rest else ""
    summary = " ".join([summary, *(f"{name}={_told(name, value)}" for name, value in rest.items())]).strip()
    short = summary if len(summary) <= WIDEST else summary[: WIDEST - 1] + "…"
    moment = event["at"][:19].replace("T", " ")
    by = author(marked(event["by"]), event.get("principal"))
    return "  ".join(filter(None, (str(event["position"]), moment, by, event["kind"], place, short)))


def _told(name: str, value: Any) -> str:
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.cli.texts import marked

    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if name in _AGENTS:
        return author(marked(text), None)
    return marked(text) if name == "moved_to" else text
