"""Text formats that all commands share, and escaping that protects the terminal from text written by agents."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from holdlog.domain.names import appears_blank, mixed_scripts
from holdlog.domain.times import microseconds, utc

NEXT_STEP: Final = (
    "the first claim or set creates it, for example: holdlog claim README.md (use --db for another store)"
)
WIDEST_VALUE: Final = 60
"""Maximum characters of a value in a table."""
_REMEMBERED: Final = 4096
"""Formatted names and times that are cached; a log has the same few repeatedly."""
_as_json: Final = json.JSONEncoder(ensure_ascii=False).encode


def print_note(line: str) -> None:
    """Print a note for the user to standard error; the response goes to standard output."""
    sys.stderr.write(f"holdlog: {printable(line, kept='')}\n")


def by_force(operation: str | None, version: int) -> str:
    """What a write that accepted any version did to the one before `version`. An update (`merge`, `increment` …)
    overwrites nothing: it computed its value from that version."""
    verb = {"set": "overwrote", "delete": "deleted", "clear": "deleted"}.get(operation or "")
    return f"updated v{version - 1} without naming it" if verb is None else f"{verb} v{version - 1} by force"


def positions(first: int, last: int) -> str:
    """Format a range of positions of the log."""
    return f"position {first}" if first == last else f"positions {first} to {last}"


def print_json(body: object) -> None:
    """Print a response as JSON, on one line."""
    print(printable(json.dumps(body, ensure_ascii=False)), flush=True)


def is_coloured() -> bool:
    """Whether standard output shows colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str, kept: str = "\n") -> str:
    """Escape, as in JSON, all characters that a terminal could interpret (C0 and C1 control characters, bidirectional
    formatting), except those in `kept`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in text)


@lru_cache(_REMEMBERED)
def marked(name: str) -> str:
    """Format the name of an agent or resource so that it cannot imitate another one: add a note to mixed scripts, and
    escape invisible characters as in JSON."""
    shown = "".join(_escaped(each) if appears_blank(each) else each for each in name)
    return f"{shown} (mixed scripts)" if mixed_scripts(name) else shown


def _escaped(character: str) -> str:
    """Escape a character as in JSON, with one escape per UTF-16 code unit; a lone surrogate is one unit."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def short(value: object) -> str:
    """A value as JSON, cut to the width of a table."""
    whole = _as_json(value)
    return whole if len(whole) <= WIDEST_VALUE else whole[: WIDEST_VALUE - 1] + "…"


def short_value(found: Any) -> str:
    """The value of a part of a response, like `short`."""
    return "redacted" if found.redacted else short(found.value)


def moment(time: datetime) -> str:
    """Format a time that has a time zone: UTC, to the millisecond."""
    return moment_at(microseconds(time))


def moment_at(at: int) -> str:
    """Format a time (microseconds since 1970 UTC) like `moment`."""
    seconds, rest = divmod(at, 1_000_000)
    return f"{_second(seconds)}.{rest // 1000:03} UTC"


@lru_cache(_REMEMBERED)
def _second(seconds: int) -> str:
    return f"{utc(seconds * 1_000_000):%Y-%m-%d %H:%M:%S}"


def clock(time: datetime) -> str:
    """Format a time like `moment`, but without the date if it is today."""
    shown = moment(time)
    return shown.partition(" ")[2] if time.astimezone(UTC).date() == datetime.now(UTC).date() else shown


def since(time: datetime, seconds: float) -> str:
    """Format since when something is so: `seconds` ago. A clock that was set back would place it in the future."""
    if time > datetime.now(UTC):
        return "since before a clock was set back"
    return f"since {clock(time)} ({duration(seconds)})"


def duration(seconds: float) -> str:
    """Format a duration in its largest unit and the next smaller one, up to days."""
    whole = int(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Format aligned columns, one line per row. Omits columns without any text. Empty if there are no rows."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    cells = [tuple(printable(cell, kept="") for cell in row) for row in zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
