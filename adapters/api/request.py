"""Types of requests: what to run, and how to respond. Runs nothing itself; runtime/engine.py does."""

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.commands import AnyCommand, Outcome
from holdlog.domain.ports import Reader
from holdlog.projections.waiting import EVERYTHING

Answered = TypeVar("Answered", covariant=True)


async def always_valid() -> bool:
    return True


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
    may take longer than a coroutine should block its loop. `still`: whether the caller's token is still valid.
    """

    read: Callable[[Reader, float], Answered | None]
    timed_out: Callable[[Reader, float], Answered]
    seconds: float
    concerns: tuple[str, ...] = EVERYTHING
    large: bool = False
    still: Callable[[], Awaitable[bool]] = always_valid


class ClaimRequest(NamedTuple, Generic[Answered]):
    """A claim that may queue: runs `command` once and, after `seconds` or once its ticket is gone, `again`, which no
    longer waits. `answer` converts both outcomes to a response, or to a query of what else it needs. `still`: as in
    BlockingQuery."""

    command: AcquireClaim
    again: AcquireClaim
    answer: Callable[[Outcome], "Answered | Query[Answered]"]
    seconds: float
    still: Callable[[], Awaitable[bool]] = always_valid
