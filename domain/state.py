"""What deciders read and return."""

from typing import Any, Literal, NamedTuple

from holdlog.domain.values import Json


class Reads(NamedTuple):
    """What a command reads. `streams`: records without their values; `values`: records with them; `prefixes`: all
    records whose stream begins so. `results`: whether threads have these results (names: `threads.name_result`).

    `resources`: claims that overlap these, and the holders of the caller's session. `claims`: "holders" of that session
    alone; the "own" claims of these holders, too; or "all". `agent`: also the holders that left to this agent.
    `queues`: the command may wait, so it needs the whole board if any agent waits. `receipt`: replaces the caller's
    session."""

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
    """A value's row in the view `current`. `version` counts its events, `position` is that of the last one,
    `expires_at` is in microseconds since 1970. `value` is None if it was not loaded."""

    stream: str
    version: int = 0
    position: int = 0
    exists: bool = False
    expires_at: int | None = None
    value: Json | None = None


class State(NamedTuple):
    """The rows of the views that a batch of commands has read and changed. A record that does not exist has version 0;
    a record that no command declared in `Reads` is missing."""

    records: dict[str, Record]
    board: Any = None
    """A Board, if a command reads claims."""


Decision = tuple[list[Any], Any]
"""The events that a command causes, and its result."""
