"""Who is told what a writer does, for figures and traces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdlog.adapters.runtime.group_commit import Job


class CommandObserver(Protocol):
    """Told by whichever thread does it, before the callers are: it must be quick. What it raises is logged."""

    def received(self) -> object:
        """A command came; what its job carries along, for whoever watches."""

    def turned_away(self) -> None:
        """A command was not run, because too many wait or it waited too long."""

    def ran(self, batch: "Sequence[Job]", topics: Sequence[str]) -> None:
        """These commands have their outcomes, and what they appended together are events of these topics."""
