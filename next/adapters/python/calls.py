"""What the library does beyond single operations: pages, updates by a function, waits, blocks.

Each is a generator of steps that both halves of the library take, each in its way.
"""

import random
import time
from collections.abc import Callable, Generator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final, NamedTuple

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import BlockingQuery
from holdlog.adapters.operations.claims import Claim, TimeInQueue
from holdlog.adapters.operations.values import Get, List, Replace
from holdlog.domain.claims.claim import OFFER
from holdlog.domain.claims.commands import GiveUp
from holdlog.domain.claims.holder import RECEIPT, Who
from holdlog.domain.claims.results import Busy
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.names import check_label
from holdlog.domain.records import COMPUTED
from holdlog.domain.refusals import ConflictError, HoldlogError, InvalidError, NotFoundError
from holdlog.domain.results import UpdateResult

NOT_GIVEN: Final[Any] = object()
"""Default of arguments for which None is a value."""
ATTEMPTS: Final = 100
"""How often update() computes again because another wrote meanwhile."""
LONGEST_PAUSE: Final = 0.05
PAUSE: Final = 0.002
"""Seconds, times the number of the attempt, so that callers do not disturb each other for ever."""
SHORTEST_PAUSE: Final = 0.01
LOOK_EVERY: Final = OFFER / SECOND
"""Seconds after which a waiter looks again who is in front of it."""
CLOCK_ERROR: Final = 0.5
"""Seconds by which the clocks of a waiter and of its store may differ without having been set."""


class Run(NamedTuple):
    """Step: run a command."""

    command: Any
    caller: Caller


class Subscribe(NamedTuple):
    """Step: from now on, events of these topics end pauses."""

    topics: tuple[str, ...]


Step = Run | Subscribe | float | Any
"""A float is a pause of so many seconds. Queries are asked, and other functions called in a thread of their own."""
Steps = Generator[Step, Any, Any]


def read_pages(namespace: str | None) -> Steps:
    """All pages of a list."""
    pages = []
    after = None
    while True:
        pages.append((yield List.parse({"namespace": namespace, "after_key": after})))
        if (after := pages[-1].next_after) is None:
            return pages


def compute(function: Callable[[Any], Any], arguments: dict[str, Any], caller: Caller) -> Steps:
    """Read, compute and write, again if another wrote meanwhile. The time to live stays."""
    namespace, key = arguments["namespace"], arguments["key"]
    for attempt in range(1, ATTEMPTS + 1):
        try:
            record = yield Get.parse({"namespace": namespace, "key": key})
            value, version = record.value, record.version
        except NotFoundError:
            value, version = None, 0
        new = function(value)
        try:
            command = Replace.parse(arguments | {"value": new, "expected_version": version})
            result = yield Run(command, caller)
            return UpdateResult(
                namespace, key, new, result.version, result.previous_version, result.position, result.lost
            )
        except ConflictError:
            if attempt == ATTEMPTS:
                raise
        yield random.uniform(0, min(PAUSE * attempt, LONGEST_PAUSE))
    raise AssertionError


def wait(query: BlockingQuery, engine: Engine) -> Steps:
    """Ask a blocking query until it has a result."""
    began = time.monotonic()
    if not isinstance(result := (yield query), Wait):
        return result
    seconds, elapsed = query.seconds(), 0.0
    if seconds:
        yield Subscribe(query.topics())
        while isinstance(result := (yield query), Wait):
            elapsed = time.monotonic() - began
            if elapsed >= seconds:
                break
            yield engine.seconds_until(result, seconds - elapsed)
        else:
            return query.finish(result, time.monotonic() - began)
    return (yield partial(query.give_up, engine.store, elapsed))


def claim(command: Claim, caller: Caller, engine: Engine, leaves: bool = False) -> Steps:
    """Claim, and wait in the queue. A call that is given up leaves its place there for a while, or at once if it
    `leaves`; unless another call of its agent waits at the same place."""
    began, beats = time.monotonic(), engine.beats
    who = Who(command.agent, command.receipt or caller.session, caller.principal)
    place = (who, command.resource, tuple(command.also or ()), command.mode)
    give_up = Run(_give_up(command, leaves), caller._replace(request_id=None))
    try:
        with beats.open_call(who, waits_for=place) if command.wait_seconds else nullcontext():
            result = yield Run(command, caller)
            if isinstance(result, Busy) and result.ticket is not None and command.wait_seconds:
                result = yield from _wait_in_queue(command, result, caller, began + command.wait_seconds)
    except (HoldlogError, GeneratorExit):
        raise
    except BaseException:  # the caller is interrupted or cancelled
        if not beats.is_awaited(place):
            with suppress(HoldlogError):
                yield give_up
        raise
    if leaves and not result and not beats.is_awaited(place):
        yield give_up
    return result


def _wait_in_queue(command: Claim, result: Any, caller: Caller, deadline: float) -> Steps:
    """A call whose place is given up elsewhere, by a release of its agent, does not queue again. One that does not
    count as waiting any more, because the database's clock was set, looks again."""
    yield Subscribe((f"claim:{command.resource}",))
    query = TimeInQueue(resource=command.resource, version=result.ticket or 0)
    while result.status == "busy" and result.ticket:
        look_at = time.monotonic() + max(SHORTEST_PAUSE, min(result.expires_in_seconds, LOOK_EVERY))
        while (waits := (yield query)) is not None and (left := min(deadline, look_at) - time.monotonic()) > 0:
            if waits < -CLOCK_ERROR:
                break
            yield left
        left = max(0.0, deadline - time.monotonic()) if waits is not None else 0.0
        result = yield Run(command.model_copy(update={"wait_seconds": left}), caller)
        if not left:
            break
    return result


def _give_up(command: Claim, leaves: bool) -> GiveUp:
    also = tuple(command.also) if command.also else None
    return GiveUp(command.resource, command.agent, command.receipt, also, command.mode, leaves)


def require_label(name: str, text: Any) -> str:
    """Raises InvalidError, which names the argument."""
    try:
        if isinstance(text, str):
            return check_label(text)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None
    raise InvalidError(f"{name}: must be a text")


def require_session(text: Any) -> str:
    """Raises InvalidError."""
    if (session := require_label("session", text)).startswith(RECEIPT):
        raise InvalidError(f"session: must not begin with {RECEIPT}; pass a receipt as receipt")
    return session


def drop_missing(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not NOT_GIVEN}


def require_function_alone(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a write after a function takes. Raises InvalidError if there is another change."""
    rest = drop_missing(arguments)
    del rest["self"]
    if rest.pop("request_id") is not None:
        raise InvalidError("request_id: a repeated function may compute another value; set its result instead")
    if rest.pop("unique") or rest.pop("expected_version") is not None or rest.keys() & COMPUTED:
        raise InvalidError("function: pass it without merge, increment, append, unique and expected_version")
    return rest
