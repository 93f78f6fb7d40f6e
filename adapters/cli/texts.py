"""Formats for people that all commands share, and protection of terminals from text of agents."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.location import without_password
from holdlog.domain.names import appears_blank, mixed_scripts

NEXT_STEP: Final = "the first claim or set creates it, for example: holdlog claim README.md (--db names another store)"
WIDEST_VALUE: Final = 60
"""Characters of a value in a table."""


def print_note(line: str) -> None:
    """Print a note for the user, apart from the response."""
    sys.stderr.write(f"holdlog: {printable(line, kept='')}\n")


def no_store(location: Path | str, expected: bool = True) -> int:
    """Report that the store does not exist, and what to do next. Returns the exit code: 1 if the store is expected to
    exist, else 0."""
    print_note(f"there is no store at {without_password(location)} yet; {NEXT_STEP}")
    return 1 if expected else 0


def printable(text: str, kept: str = "\n") -> str:
    """The text with all characters that a terminal could interpret (controls, C1, directions) escaped as in JSON,
    except those in `kept`."""
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in text)


def marked(name: str) -> str:
    """The name of an agent or resource, safe from look-alikes: mixed scripts are marked, invisible characters are
    escaped as in JSON."""
    shown = "".join(_escaped(each) if appears_blank(each) else each for each in name)
    return f"{shown} (mixed scripts)" if mixed_scripts(name) else shown


def _escaped(character: str) -> str:
    """Escape a character as in JSON: by UTF-16 unit. A lone surrogate is one unit."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def short(value: object) -> str:
    """A value as JSON, cut to the width of a table."""
    whole = json.dumps(value, ensure_ascii=False)
    return whole if len(whole) <= WIDEST_VALUE else whole[: WIDEST_VALUE - 1] + "…"


def moment(time: datetime) -> str:
    """UTC, to the millisecond."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03} UTC"


def clock(time: datetime) -> str:
    """As `moment`, without the date if it is today."""
    shown = moment(time)
    return shown.partition(" ")[2] if time.astimezone(UTC).date() == datetime.now(UTC).date() else shown


def duration(seconds: float) -> str:
    """A duration in the largest unit that fits, and the next one: a hold may last days."""
    whole = int(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Aligned columns, one line per row; empty without rows. Leaves out columns without any text."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    cells = [tuple(printable(cell, kept="") for cell in row) for row in zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
