"""What a call is: what to run, and how to answer. Runs nothing itself; opened.py does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.ports import Reader
from holdlog.projections.waiting import EVERYTHING

Answered = TypeVar("Answered", covariant=True)


@dataclass(frozen=True)
class Settings:
    """`max_value_bytes`: of a value as JSON. All else in seconds, but for the number `max_claims`.

    `max_wait`: that one call may wait; many hosts cut calls at 60. `lease`: of a claim that names none. `grace`: what
    is left of a lease when its holder's server ended. `idle_limit`: how long after a session's last call its server
    renews what it holds. `max_claims`: that one agent may hold. `keeps`: whether this process keeps the leases of
    its callers alive; over HTTP only their calls do, because another replica may get the next one. `workspaces`: which
    paths are where; None: paths are names, as told.
    """

    max_value_bytes: int = 256 * 1024
    max_wait: float = 50.0
    lease: float = 300.0
    grace: float = 60.0
    idle_limit: float = 1800.0
    max_claims: int = 64
    keeps: bool = True
    workspaces: "ResourceNames | None" = None


class ResourceNames(Protocol):
    """Which paths are where."""

    def canonical(self, text: str) -> str:
        """The one spelling of a resource. Raises ValueError."""

    def claimable(self, text: str) -> str:
        """As `canonical`, for a new claim. Raises ValueError for a name that protects nothing, too."""

    def shown(self, resource: str) -> str:
        """How to tell a stored resource, so that `canonical` takes it back."""

    def is_folder(self, resource: str) -> bool:
        """Whether a stored resource is the name of a folder that exists."""

    def is_missing(self, resource: str, given: str) -> bool:
        """Whether nothing exists under a stored resource, given by its caller as `given`, and nothing is likely to."""

    def elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The same path in the other workspaces: their names and resources."""


class CommandRequest(NamedTuple, Generic[Answered]):
    """A command, and the answer to its outcome."""

    command: AnyCommand
    answer: Callable[[Outcome], Answered]


class Query(NamedTuple, Generic[Answered]):
    """An answer from one snapshot. `large`: it may take longer than a coroutine should block its loop."""

    answer: Callable[[Reader], Answered]
    large: bool = False


class BlockingQuery(NamedTuple, Generic[Answered]):
    """Look, given the seconds gone by, until there is an answer; after `seconds` the last word is `timed_out`'s.

    `concerns`: what has to change before another look is worth its while (projections/waiting.py). `large`: a look may
    take longer than a coroutine should block its loop."""

    look: Callable[[Reader, float], Answered | None]
    timed_out: Callable[[Reader, float], Answered]
    seconds: float
    concerns: tuple[str, ...] = EVERYTHING
    large: bool = False


class ClaimRequest(NamedTuple, Generic[Answered]):
    """A claim that may stand in line: `command` once, and, after `seconds` or when its ticket is gone, `again`, which
    waits no more. Both outcomes are answered by `answer`."""

    command: AcquireClaim
    again: AcquireClaim
    answer: Callable[[Outcome, Reader], Answered]
    seconds: float
