"""What deciders read and return."""

from typing import Any, NamedTuple

from holdlog.domain.claims.board import Board
from holdlog.domain.values import Json


class Reads(NamedTuple):
    """What a command reads: records by stream, records with their values, and all records of a prefix. Of the board:
    what overlaps `resources`, for an `agent`, and the holders of the caller's `session`, for which a `receipt` stands;
    all of it if `board`. `beats` reads what the session holds, and all of the board if something is due."""

    streams: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    agent: str = ""
    session: bool = False
    board: bool = False
    beats: bool = False
    queues: bool = False
    receipt: str | None = None


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
    board: Board | None = None


Decision = tuple[list[Any], Any]
"""The events that a command causes, and its result."""
