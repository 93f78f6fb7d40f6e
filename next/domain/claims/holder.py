"""Holders: one lease for all claims of an agent in a session. Liveness, not history: never an event.

Times are microseconds of a steady clock that no wall clock moves: the machine's, or the database's.
"""

from typing import Final, NamedTuple

from holdlog.domain.claims.claim import SECOND, Who

LIFE: Final = 300 * SECOND
"""From the last call, where no process beats."""
BEATEN_LIFE: Final = LIFE // 5
"""From the last beat of a process."""
BEAT_EVERY: Final = LIFE // 15
SILENCE: Final = LIFE // 5
"""After so long without a call, a parent may take over what its sub-agent holds."""


class Holder(NamedTuple):
    """A row of the table `holders`. `host`: the program that runs the agent, as far as it is known; `has_left`: its
    process ended cleanly; `beats`: a process keeps it alive; `open_calls`: ids of calls that have not ended."""

    who: Who
    expires_at: int
    seen_at: int
    life: int
    beats: bool = False
    host: str | None = None
    has_left: bool = False
    open_calls: tuple[str, ...] = ()

    def is_left_to(self, who: Who, host: str | None) -> bool:
        """Whether a caller of the same name acts as this holder, which left: below the same host."""
        same = (self.who.agent, self.who.principal) == (who.agent, who.principal)
        return self.has_left and same and self.host is not None and self.host == host

    def is_silent(self, now: int) -> bool:
        return not self.open_calls and self.seen_at + SILENCE <= now

    def hear(self, now: int) -> "Holder":
        """The holder after a call. Its life never becomes shorter."""
        return self._replace(seen_at=now, expires_at=max(self.expires_at, now + self.life), has_left=False)


Holders = dict[Who, Holder]
