"""Reads and checks options and the environment. Imported by every command: it must load fast."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from holdlog.adapters.operating_system.location import find_store, is_url
from holdlog.adapters.operating_system.secrets import secret

if TYPE_CHECKING:
    from holdlog.adapters.operating_system.workspaces import Workspaces

LONGEST_WAIT: Final = 3600.0
"""Seconds; hosts cancel a call long before that."""
LONGEST_LEASE: Final = 86_400.0
"""Seconds; a day."""
MOST_CLAIMS: Final = 1_000_000
LARGEST_VALUE: Final = 16 * 1024 * 1024
"""Bytes; every reader of a key gets the whole value."""

LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("off", "text", "json")


def location_of(db: str | None) -> Path | str:
    """The store named by `--db`, else the environment, else the working folder. Raises LocationError, InvalidError."""
    explicit = named_location(db)
    if explicit is not None and (explicit == ":memory:" or is_url(explicit)):
        return explicit
    environ = os.environ if explicit is None else {**os.environ, "HOLDLOG_DB": explicit}
    return find_store(db, environ, Path.cwd())


def named_location(db: str | None) -> str | None:
    """The store named by `--db`, else the environment. Raises InvalidError."""
    return db if db is not None else secret(os.environ, "HOLDLOG_DB")


def workspaces_of(options: argparse.Namespace) -> "Workspaces":
    """The workspaces. Raises LocationError, InvalidError."""
    from holdlog.adapters.operating_system.workspaces import find_workspaces

    return find_workspaces(os.environ, Path.cwd(), options.workspace, options.claims_across_worktrees)


def seconds(text: str) -> float:
    return _read(text, float, lambda it: 0 < it <= LONGEST_WAIT, f"more than 0 and at most {LONGEST_WAIT:.0f} seconds")


def lease_seconds(text: str) -> float:
    return _read(text, float, lambda it: 1 <= it <= LONGEST_LEASE, f"from 1 to {LONGEST_LEASE:.0f} seconds")


def whole_number(text: str) -> int:
    return _read(text, int, lambda it: 0 < it <= MOST_CLAIMS, f"a whole number from 1 to {MOST_CLAIMS}")


def whole_bytes(text: str) -> int:
    return _read(text, int, lambda it: 0 < it <= LARGEST_VALUE, f"a whole number of bytes from 1 to {LARGEST_VALUE}")


def port(text: str) -> int:
    return _read(text, int, lambda it: 0 <= it <= 65_535, "a port from 0 to 65535")


def one_or_more(text: str) -> int:
    """At most `sys.maxsize`, which itertools and deque accept: more is as good as no limit."""
    return min(sys.maxsize, _read(text, int, lambda it: it > 0, "a whole number, 1 or more"))


def whole_from(least: int, most: int) -> Callable[[str], int]:
    return lambda text: _read(text, int, lambda it: least <= it <= most, f"a whole number from {least} to {most}")


def log_level(text: str) -> str:
    return _read(text, str.lower, LEVELS.__contains__, f"one of {', '.join(LEVELS)}")


def log_format(text: str) -> str:
    return _read(text, str.lower, LOG_FORMATS.__contains__, f"one of {', '.join(LOG_FORMATS)}")


def switched(text: str) -> bool:
    """Parse an on/off setting. Any other word is an error."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    word = _read(text, lambda it: it.strip().lower(), words.__contains__, "on or off (also 1, true, yes, 0, false, no)")
    return words[word]


class _FromEnvironment(str):
    """The text of a setting, with the name of its variable."""

    __slots__ = ("variable",)
    variable: str


def environment(name: str, fallback: str) -> str:
    text = os.environ.get(f"HOLDLOG_{name}")
    if not text:
        return fallback
    setting = _FromEnvironment(text)
    setting.variable = f"HOLDLOG_{name}"
    return setting


Parsed = TypeVar("Parsed")


def _read(text: str, read: Callable[[str], Parsed], is_good: Callable[[Parsed], bool], rule: str) -> Parsed:
    with suppress(ValueError):
        if is_good(given := read(text)):
            return given
    where = f" (in {text.variable})" if isinstance(text, _FromEnvironment) else ""
    raise argparse.ArgumentTypeError(f"must be {rule}{where}")
