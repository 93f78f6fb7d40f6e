"""Observer of the commands that a process runs, for metrics and traces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdlog.adapters.runtime.group_commit import Job


class CommandObserver(Protocol):
    """Called by the thread that does the work, before the callers get their outcomes: methods must be quick. Errors are
    logged."""

    def received(self) -> object:
        """A command arrived. The returned object is attached to its job as `seen`."""

    def turned_away(self) -> None:
        """A command was not run because too many were waiting or it waited too long."""

    def ran(self, batch: "Sequence[Job]", topics: Sequence[str]) -> None:
        """These commands have their outcomes. `topics`: of the events that they appended together."""
