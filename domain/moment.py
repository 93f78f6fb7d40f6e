"""Who calls, and when."""

from typing import Final, NamedTuple

SECOND: Final = 1_000_000
LEASE: Final = 300 * SECOND
"""From a holder's last call to its end, where no process beats. All other times of claims are parts of it."""
IDLE_LIMIT: Final = 1800 * SECOND
"""After so long without a call of a holder, its process stops beating for it."""


class Caller(NamedTuple):
    """Who calls. `principal` is who was authenticated, None for the local user. Repeats of a request have the same
    `request_id`.

    `host` names the program that runs the agent, None if unknown; `handle` what beats for the caller: an open store of
    a process. Both name a machine, too (operating_system/processes.py). `is_anonymous`: the session was made up for
    this call; the result returns it as `receipt`.
    """

    session: str = ""
    principal: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    host: str | None = None
    handle: str | None = None
    lease: int = LEASE
    idle_limit: int = IDLE_LIMIT
    is_anonymous: bool = False
    is_shared: bool = False
    """Others may have the session: its holders may be known to them alone."""


class Moment(NamedTuple):
    """When a command is decided. `at` is in microseconds since 1970, after all earlier transactions; the last event has
    `position`."""

    at: int
    position: int
    caller: Caller
    max_value_bytes: int
    steady: int = 0
    """Microseconds of the clock that leases use: no wall clock moves it."""

    def after(self, seconds: float | None) -> int | None:
        return None if seconds is None else self.at + max(1, round(seconds * SECOND))
