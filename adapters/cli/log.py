"""`holdlog log`: events and refusals, a line each."""

from argparse import Namespace
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from holdlog.adapters.cli.fields import add_fields, collect, rename_argument
from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.store import find_names, open_to_read
from holdlog.adapters.cli.texts import print_json, print_note, show_line
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.admin import MakeCheckpoint
from holdlog.adapters.operations.json import Object, to_object
from holdlog.adapters.operations.log import Events, Log
from holdlog.adapters.operations.steps import take_steps, wait
from holdlog.adapters.operations.surface import Names, parse
from holdlog.domain.refusals import InvalidError

EXAMPLES: Final = (
    "log --last 20",
    "log --follow --kinds claim",
    "log --from 14:03 --to 14:10 --resource src/parser.py",
    "log --refusals --agent claude",
)
FOREVER: Final = 1e6
"""Seconds of a wait that begins again at its end."""
_FILTERS: Final = ("namespace", "prefix", "kinds", "resource", "agent", "start", "after", "refusals")


def run(words: list[str]) -> int:
    parser = Parser("log", "List events, the oldest first; with --refusals, refused commands among them.", EXAMPLES)
    add_fields(parser, Log, (), ("limit",))
    parser.add_argument("--limit", dest="most", type=int, metavar="N", help="end after this many events")
    parser.add_argument("--last", type=int, metavar="N", help="only the newest")
    parser.add_argument("--follow", action="store_true", help="continue with new events, until an interrupt")
    options = parser.parse_args(words)
    for name, number in (("limit", options.most), ("last", options.last)):
        if number is not None and number < 1:
            raise InvalidError(f"--{name}: must be at least 1")
    if options.follow and hasattr(options, "end"):
        raise InvalidError("--follow: cannot be combined with --to")
    arguments = collect(Log, options)
    names = find_names(options)
    try:
        parse(Log, arguments, names)
        with closing(open_to_read(options, is_list=True)) as engine:
            count = 0
            for entry in _read(engine, arguments, names, options):
                print_json(entry) if options.json else print(show_line(entry), flush=options.follow)
                count += 1
                if count == options.most:
                    break
            if not count and not options.json:
                first = "" if arguments else "; the first claim or set adds one, for example: holdlog claim README.md"
                unknown = (
                    f"the log has no event of {arguments.get('resource')}; to see what it has: holdlog log --last 20"
                )
                print_note(unknown if arguments.keys() == {"resource"} else f"no such events{first}")
    except InvalidError as error:
        raise rename_argument(error, Log, ()) from None
    return 0


def _read(engine: Engine, arguments: dict[str, Any], names: Names, options: Namespace) -> Iterator[Object]:
    """All entries; those that follow have been recorded after the others were read."""
    pages = Pages(engine, arguments, names)
    if options.last is not None and not any(hasattr(options, name) for name in _FILTERS):
        pages.after = max(0, engine.query(MakeCheckpoint()).position - options.last)
    entries = pages.read()
    yield from entries if options.last is None else deque(entries, options.last)
    while options.follow:
        take_steps(wait(Events(after=pages.after or 0, wait_seconds=FOREVER), engine), engine)
        yield from pages.read()


class Pages:
    """Reads the log in pages. `after`: up to which position it has read."""

    def __init__(self, engine: Engine, arguments: dict[str, Any], names: Names) -> None:
        self._engine, self._arguments, self._names = engine, arguments, names
        self._shown: tuple[int, str] = (0, "")
        """Position and time of the last refusal: those at the end of one page are on the next one, too."""
        self.after: int | None = None

    def read(self) -> Iterator[Object]:
        """The entries from here to the end."""
        while True:
            head = self._engine.query(MakeCheckpoint()).position
            place = {} if self.after is None else {"after": self.after}
            page = self._engine.query(parse(Log, self._arguments | place, self._names))
            for entry in map(to_object, page.entries):
                if "code" in entry:
                    if (entry["after"], entry["at"]) <= self._shown:
                        continue
                    self._shown = (entry["after"], entry["at"])
                else:
                    head = max(head, entry["position"])
                yield entry
            self.after = head if page.next_after is None else page.next_after
            if page.next_after is None:
                return
