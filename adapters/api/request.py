"""Types of requests: what to run, and how to respond. Runs nothing itself; runtime/engine.py does."""

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
    """Settings of a store. All values in seconds except `max_value_bytes` (of a value as JSON) and the number
    `max_claims`.
    `max_wait`: longest wait of one call; many hosts cut calls at 60. `lease`: default duration of a claim's lease.
    `grace`: what remains of a lease when its holder's process ends. `idle_limit`: how long after a session's last call
    its process renews what it holds. `max_claims`: number of claims that one session may hold. `keeps`: whether this
    process keeps the leases of its callers alive; over HTTP only their calls do, because another replica may get the
    next one. `workspaces`: maps paths to resources; None: paths are plain names.
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
    """Maps paths of workspaces to resources."""

    def canonical(self, text: str) -> str:
        """The canonical name of a resource. Raises ValueError."""

    def claimable(self, text: str) -> str:
        """Like `canonical`, but for a new claim. Also raises ValueError for a name that protects nothing."""

    def shown(self, resource: str) -> str:
        """A name for a stored resource that `canonical` accepts."""

    def is_folder(self, resource: str) -> bool:
        """Whether a stored resource is the name of a folder that exists."""

    def is_missing(self, resource: str, given: str) -> bool:
        """Whether no file exists, or is likely to exist, under a stored resource that the caller passed as `given`."""

    def elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The same path in the other workspaces: their names and resources."""


class CommandRequest(NamedTuple, Generic[Answered]):
    """A command, and the response to its outcome."""

    command: AnyCommand
    answer: Callable[[Outcome], Answered]


class Query(NamedTuple, Generic[Answered]):
    """A response from one snapshot. `large`: it may take longer than a coroutine should block its loop."""

    answer: Callable[[Reader], Answered]
    large: bool = False


class BlockingQuery(NamedTuple, Generic[Answered]):
    """Calls `read` with the elapsed seconds until it returns a response; after `seconds`, returns the response of
    `timed_out`. `concerns`: what must change before another read is useful (projections/waiting.py). `large`: a read
    may take longer than a coroutine should block its loop.
    """

    read: Callable[[Reader, float], Answered | None]
    timed_out: Callable[[Reader, float], Answered]
    seconds: float
    concerns: tuple[str, ...] = EVERYTHING
    large: bool = False


class ClaimRequest(NamedTuple, Generic[Answered]):
    """A claim that may queue: runs `command` once and, after `seconds` or once its ticket is gone, `again`, which no
    longer waits. `answer` converts both outcomes to a response."""

    command: AcquireClaim
    again: AcquireClaim
    answer: Callable[[Outcome, Reader], Answered]
    seconds: float
