"""Who calls, and when."""

from typing import Final, NamedTuple

SECOND: Final = 1_000_000  # in microseconds, as all times and durations of the domain
LEASE: Final = 300 * SECOND
"""From a holder's last call to its end, if no process beats for it. All other times of claims are fractions of it."""
IDLE_LIMIT: Final = 1800 * SECOND
"""If a holder makes no call for this time, its process stops beating for it."""


class Caller(NamedTuple):
    """Who calls. `principal` is the authenticated user, None for the local one. Repeats of a request have the same
    `request_id`.

    `host` names the program that runs the agent, None if unknown. `handle` names the open store of a process that beats
    for the caller. Both contain the machine (operating_system/processes.py). `lease`, `idle_limit`: microseconds.
    `is_anonymous`: the session was created for this call; the result returns it as `receipt`.
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
    """Other processes may have the same session, with holders that this process does not know."""


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
