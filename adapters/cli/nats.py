"""`holdlog relay` and `holdlog subscribe`, and the NATS options that several commands share."""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.existing_store import NoStoreError
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import (
    add_options,
    given_options,
    location_of,
    named_location,
    one_or_more,
    read_options,
)
from holdlog.adapters.nats.options import NatsOptions, StreamLimits, nats_options
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.nats.relay import Status

REPORT_EVERY: Final = 1.0
"""Minimum seconds between two progress reports."""

_EXAMPLE: Final = "example:\n  holdlog relay --nats nats://127.0.0.1:4222"


_SUBSCRIBE_EXAMPLES: Final = """\
examples:
  holdlog subscribe --nats nats://127.0.0.1:4222 --after 0
  holdlog subscribe --nats nats://127.0.0.1:4222 --subject 'claim.>' --durable robot
"""


def add_nats_options(parser: argparse.ArgumentParser, limits: bool = True) -> None:
    """Add `--nats` and the related options. `limits`: also add the options that limit the stream."""
    group = parser.add_argument_group(
        "NATS", "User, password and token come from the URL, or from HOLDLOG_NATS_USER, _PASSWORD and _TOKEN."
    )

    add_options(group, NatsOptions)
    if limits:
        add_options(group, StreamLimits)


def nats_options_of(options: argparse.Namespace) -> NatsOptions:
    """Read the NATS options of a command. Raises NatsError, InvalidError."""
    if not options.nats:
        raise InvalidError("--nats: is required, for example --nats nats://127.0.0.1:4222 (or set HOLDLOG_NATS)")
    given = given_options(NatsOptions, options)
    found = nats_options(given.pop("servers"), os.environ, **given, limits=read_options(StreamLimits, options))
    found.arguments()  # report unusable files before doing anything else
    return found


def add_relay(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `holdlog relay`; `shared` provides `--db`."""
    parser = commands.add_parser(
        "relay",
        parents=[shared],
        help="publish the events of the store to NATS, until Ctrl-C",
        description="Publish every event of the store to a NATS JetStream stream, once and in order. If several relays"
        " run, one of them publishes and the others wait. It reports its progress on standard error.",
        epilog=_EXAMPLE,
    )
    add_nats_options(parser)
    parser.add_argument(
        "--once", action="store_true", help="stop once all events that exist now are published (default: at Ctrl-C)"
    )
    parser.add_argument(
        "--json", action="store_true", help="report progress as JSON Lines on standard output (default: text)"
    )
    parser.set_defaults(run=run_relay)


def add_subscribe(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `holdlog subscribe`; `shared` provides `--db`."""
    parser = commands.add_parser(
        "subscribe",
        parents=[shared],
        help="print events from NATS as they happen",
        description="Print the events of a store from NATS, each once and in order, as CloudEvents 1.0: one JSON object"
        " per line. If this machine can also read the store itself (--db, or the store of this repository unless"
        " --nats-name is given), the command reads events that NATS dropped from there.",
        epilog=_SUBSCRIBE_EXAMPLES,
    )
    add_nats_options(parser, limits=False)
    parser.add_argument(
        "--subject",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these subjects, for example record.campaign.* or claim.>; repeatable (default: all)",
    )
    parser.add_argument(
        "--after", type=int, metavar="POSITION", help="events after this position; 0: all (default: new events)"
    )
    parser.add_argument(
        "--durable", metavar="NAME", help="store the position in NATS under this name (default: do not store it)"
    )
    parser.add_argument(
        "--bookmarks",
        type=float,
        metavar="SECONDS",
        help="print the position if no event arrives for this long (default: never)",
    )
    parser.add_argument("--limit", type=one_or_more, metavar="N", help="stop after N events (default: no limit)")
    parser.set_defaults(run=run_subscribe)


def run_subscribe(options: argparse.Namespace) -> int:
    """Run `holdlog subscribe`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import print_note, printable
    from holdlog.adapters.compose import open_holdlog, store_exists
    from holdlog.adapters.python.subscriber import Subscription

    nats = nats_options_of(options)
    named = named_location(options.db)
    location = location_of(options.db) if named or nats.name is None else None
    engine = None
    if location is not None and store_exists(location):
        engine = open_holdlog(location, what="holdlog subscribe", report=print_note)
    elif location is not None and named:
        raise NoStoreError(location)

    async def show() -> None:
        left = options.limit
        subscription = Subscription(
            nats, options.subject, options.after, options.durable, engine, options.bookmarks, print_note
        )
        async with subscription as events:
            async for event in events:
                sys.stdout.write(printable(event.text) + "\n")
                sys.stdout.flush()
                left = None if left is None else left - 1
                if left == 0:
                    return

    return run_until_ended(show())


def run_relay(options: argparse.Namespace) -> int:
    """Run `holdlog relay`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, open_lead
    from holdlog.adapters.nats.relay import Relay

    nats = nats_options_of(options)
    location = location_of(options.db)
    if isinstance(location, Path) and not os.path.lexists(location):
        raise NoStoreError(location)
    engine = open_holdlog(location, what="holdlog relay", report=print_note)
    try:
        printer = _StatusPrinter(nats.address, options.json, options.once)
        relay = Relay(engine.store, engine.notifier, open_lead(location, nats), nats, printer.report)
        return run_until_ended(relay.run(options.once))
    finally:
        engine.close()


def run_until_ended(work: Coroutine[object, object, None]) -> int:
    """Run the work until it is done or a termination signal cancels it; returns the exit code 0. Ctrl-C raises
    KeyboardInterrupt."""

    async def run() -> None:
        requested = False
        task = asyncio.current_task()
        assert task is not None

        def cancel_on_signal() -> None:
            nonlocal requested
            requested = True
            task.cancel()

        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) != signal.SIG_IGN:
                with suppress(NotImplementedError):  # Windows
                    asyncio.get_running_loop().add_signal_handler(number, cancel_on_signal)
        try:
            await work
        except asyncio.CancelledError:
            if not requested:
                raise

    asyncio.run(run())
    return 0


class _StatusPrinter:
    """Prints each change of status, and the progress once a second. Prints a repeated failure only once."""

    def __init__(self, where: str, as_json: bool, once: bool = False) -> None:
        self._where = where
        self._once = once
        self._json = as_json
        self._last: tuple[str, str | None] = ("", None)
        self._error: str | None = None
        self._at = 0.0
        self._position = -1

    def report(self, status: "Status") -> None:
        if self._error is not None and (status.state == "connecting" or status.error == self._error):
            return
        self._error = status.error
        now = time.monotonic()
        changed = (status.state, status.error) != self._last
        late = now - self._at >= REPORT_EVERY and status.position != self._position
        if not (late or (changed and not (status.state == "publishing" and self._last[0] == "current"))):
            return
        self._last, self._at, self._position = (status.state, status.error), now, status.position
        if self._json:
            sys.stdout.write(json.dumps({**status._asdict(), "servers": self._where}) + "\n")
            sys.stdout.flush()
        else:
            from holdlog.adapters.cli.texts import print_note

            print_note(self._line(status))

    def _line(self, status: "Status") -> str:
        match status.state:
            case "waiting" if self._once:
                return "another relay is publishing; this one stops once the stream has all events that exist now"
            case "waiting":
                return "another relay is publishing; this one takes over when that one stops"
            case "connecting":
                return f"connecting to {self._where}"
            case "publishing":
                return f"published up to position {status.position:,}; {status.behind:,} to go"
            case "current":
                return f"everything up to position {status.position:,} is published ({status.published:,} just now)"
            case "failed":
                return f"{status.error}; trying again"
