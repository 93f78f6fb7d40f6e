"""Response types and small steps of `AsyncStateStore` and `StateStore`."""

import random
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.request import Answered, ClaimRequest, CommandRequest
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.validation import number_of_seconds
from holdlog.adapters.api.values import responses
from holdlog.adapters.api.values.transactions import NOT_GIVEN
from holdlog.adapters.python.block import HoldOptions
from holdlog.domain.refusals import InvalidError

UPDATE_ATTEMPTS: Final = 100
"""How often `update` tries before it raises the conflict."""

BACK_OFF: Final = 0.002
MAX_BACK_OFF: Final = 0.05
"""Seconds. After its nth conflict `update` sleeps a random time of up to n times the first value and at most the
second, so that callers that read the same version do not collide again."""

ClaimAnswer = claims.Claimed | claims.AlreadyClaimed | claims.Busy | claims.Deadlock
ReleaseAnswer = claims.Released | claims.AlreadyFree | claims.NeverClaimed | claims.NotHolder | claims.Expired
AnyAnswer = TypeVar("AnyAnswer", bound=responses.Result)
WatchAnswer = responses.StateRecord | responses.Deleted | responses.WatchTimeout


def hold_options(
    calls: Requests,
    resource: str,
    agent: str,
    also: Sequence[str],
    wait_seconds: float,
    lease_seconds: float | None,
    mode: str,
    note: str | None,
    outcome: str | None,
) -> HoldOptions:
    def request(seconds: float) -> ClaimRequest[Any]:
        return calls.claims.claim(resource, agent, also, (), lease_seconds, seconds, mode, note)

    return HoldOptions(request, number_of_seconds(wait_seconds, "wait_seconds"), outcome)


def require_function_alone(*others: Any) -> None:
    """Raises InvalidError if an update by a function has other arguments: each is NOT_GIVEN, None or False."""
    if any(it is not NOT_GIVEN and it is not None and it is not False for it in others):
        raise InvalidError("function: can only be combined with guard, reason and request_id")


def computed(call: CommandRequest[Answered]) -> CommandRequest[Answered]:
    """The same write, marked as one whose value a function of the caller computed."""
    return call._replace(command=call.command.model_copy(update={"computed": True}))


def back_off(attempt: int) -> float:
    """Seconds to sleep after the conflict of an attempt (from 1)."""
    return random.uniform(0, min(attempt * BACK_OFF, MAX_BACK_OFF))
