"""What deciders read and return."""

from typing import Any, NamedTuple

from holdlog.domain.claims.claim import Claims
from holdlog.domain.claims.holder import Holders
from holdlog.domain.values import Json


class Caller(NamedTuple):
    """Who calls. `principal` is who was authenticated, None for the local user. Repeats of a request have the same
    `request_id`."""

    session: str = ""
    principal: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    host: str | None = None
    """The program that runs the agent, as far as it is known: a caller below it acts as holders that left it."""
    beats: bool = False
    """Whether a process keeps the caller's holders alive."""


class Moment(NamedTuple):
    """When a command is decided. `at` is in microseconds since 1970, never before the last event, whose position is
    `position`."""

    at: int
    position: int
    caller: Caller
    max_value_bytes: int
    steady: int = 0
    """Microseconds of the clock that leases use: no wall clock moves it."""

    def after(self, seconds: float | None) -> int | None:
        return None if seconds is None else self.at + max(1, round(seconds * 1_000_000))


class Reads(NamedTuple):
    """What a command reads: records by stream, records with their values, and all records of a prefix."""

    streams: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()


class Record(NamedTuple):
    """A value's row in the view `current`. `version` counts its events, `position` is that of the last one. `value`
    is None if it was not loaded."""

    stream: str
    version: int = 0
    position: int = 0
    exists: bool = False
    expires_at: int | None = None
    value: Json | None = None


class State(NamedTuple):
    """The rows of the views that a batch of commands has read, with what they changed. A record that does not exist
    has version 0; one that nobody declared in `Reads` is missing."""

    records: dict[str, Record]
    claims: Claims = {}  # noqa: RUF012  # deciders never change what they read
    holders: Holders = {}  # noqa: RUF012


Decision = tuple[list[Any], Any]
"""The events that a command causes, and its result."""
