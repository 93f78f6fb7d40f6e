"""How much each agent did: rows of a read model."""

from typing import Final, NamedTuple

HOUR: Final = 3_600_000_000
"""Microseconds."""


class ActivityRow(NamedTuple):
    """How many events of one kind an agent caused in an hour. `hour`: hours since 1970."""

    hour: int
    agent: str
    principal: str | None
    topic: str
    times: int
