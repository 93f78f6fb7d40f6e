"""What deciders read and return."""

from typing import Any, Literal, NamedTuple

from holdlog.domain.values import Json


class Reads(NamedTuple):
    """What a command reads: records by stream, records with their values, and all records of a prefix; whether threads
    have `results`, by names as of `threads.name_result`. Of the board, what overlaps `resources`, and `claims`:
    "holders" of the caller's session, which are also read with resources; what they hold, their "own" claims; or "all".

    `agent`: also the holders that left to this agent. `queues`: the command may wait, and needs all of the board where
    agents queue. `receipt` stands for the caller's session."""

    streams: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    claims: Literal["", "holders", "own", "all"] = ""
    agent: str = ""
    queues: bool = False
    receipt: str | None = None
    results: tuple[str, ...] = ()


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
    board: Any = None
    """A Board, if a command reads claims."""


Decision = tuple[list[Any], Any]
"""The events that a command causes, and its result."""
