"""How an operation runs: a generator of steps, which each surface takes in its own way, in threads or on an event
loop."""

import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from typing import Any, Final, NamedTuple

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import BlockingQuery, Command, Operation, Query, Task
from holdlog.adapters.operations.claims import Claim, TimeInQueue
from holdlog.domain.claims.claim import OFFER
from holdlog.domain.claims.commands import GiveUp
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.results import Busy
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.refusals import HoldlogError

SHORTEST_PAUSE: Final = 0.01
CHECK_SECONDS: Final = OFFER / SECOND
"""A waiter runs its command again at least this often."""
CLOCK_ERROR: Final = 0.5
"""Seconds by which the clocks of a waiter and of its store may differ without having been set."""


class Run(NamedTuple):
    """Step: run a command."""

    command: Any
    caller: Caller


class Subscribe(NamedTuple):
    """Step: from now on, an event of one of these topics ends a pause."""

    topics: tuple[str, ...]


Step = Run | Subscribe | float | Any
"""A float is a pause in seconds. Queries are read, and other functions are called in another thread."""
Steps = Generator[Step, Any, Any]


def execute(operation: Operation, caller: Caller, engine: Engine) -> Steps:
    """The steps of any operation."""
    if isinstance(operation, Claim) and operation.wait_seconds:
        return (yield from claim(operation, caller, engine))
    if isinstance(operation, BlockingQuery):
        return (yield from wait(operation, engine))
    if isinstance(operation, Task):
        return (yield partial(operation.run, engine, caller))
    return (yield Run(operation, caller) if isinstance(operation, Command) else operation)


def take_steps(steps: Steps, engine: Engine) -> Any:
    """Take the steps in this thread, and return what their generator returns."""
    with ExitStack() as subscriptions:
        event = threading.Event()
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
                error = None
                result = _take(step, event, subscriptions, engine)
            except StopIteration as end:
                return end.value
            except BaseException as problem:  # an interrupt may come at any point
                if problem is error:  # the generator has ended with it
                    raise
                error = problem


def _take(step: Step, event: threading.Event, subscriptions: ExitStack, engine: Engine) -> Any:
    if isinstance(step, float):
        event.wait(step)
        return event.clear()
    if isinstance(step, Run):
        return engine.run(*step)
    if isinstance(step, Subscribe):
        return subscriptions.enter_context(engine.waiters.subscribe(step.topics, event.set))
    return engine.query(step) if isinstance(step, Query) else step()


def wait(query: BlockingQuery, engine: Engine) -> Steps:
    """Run a blocking query again and again until it has a result, or its time is over."""
    began = time.monotonic()
    if not isinstance(result := (yield query), Wait):
        return result
    seconds, elapsed = query.find_timeout(), 0.0
    if seconds:
        yield Subscribe(query.list_topics())
        while isinstance(result := (yield query), Wait):
            elapsed = time.monotonic() - began
            if elapsed >= seconds:
                break
            yield engine.seconds_until(result, seconds - elapsed)
        else:
            return query.finish(result, time.monotonic() - began)
    return (yield partial(query.give_up, engine.store, elapsed))


def claim(command: Claim, caller: Caller, engine: Engine, leaves: bool = False) -> Steps:
    """Claim, and wait in the queue. If the caller gives up, its ticket stays in the queue for ABSENCE, or is removed at
    once if it `leaves`, unless another call of the agent waits for the same request."""
    beats = engine.beats
    who = HolderId(command.agent, command.receipt or caller.session, caller.principal)
    request = (who, command.resource, tuple(command.also or ()), command.mode)
    give_up = Run(_give_up(command, leaves), caller._replace(request_id=None))
    try:
        with beats.open_call(who, waits_for=request) if command.wait_seconds else nullcontext():
            result = yield Run(command, caller)
            if isinstance(result, Busy) and result.ticket is not None and command.wait_seconds:
                deadline = time.monotonic() + command.wait_seconds  # not before its ticket counts as absent
                result = yield from _wait_in_queue(command, result, caller, deadline)
    except (HoldlogError, GeneratorExit):
        raise
    except BaseException:  # the caller is interrupted or cancelled
        if not beats.is_awaited(request):
            with suppress(HoldlogError):
                yield give_up
        raise
    if leaves and not result and not beats.is_awaited(request):
        yield give_up
    return result


def _wait_in_queue(command: Claim, result: Any, caller: Caller, deadline: float) -> Steps:
    """Wait for a grant. If the agent's ticket was released in another call, the command does not queue again. If the
    ticket no longer counts as waiting, because the database's clock was set, the command runs again. If the
    conversation has continued in another session, the call continues there."""
    yield Subscribe((f"claim:{command.resource}",))
    query = TimeInQueue(resource=command.resource, version=result.ticket or 0)
    while result.status == "busy":
        check_at = time.monotonic() + max(SHORTEST_PAUSE, min(result.expires_in_seconds, CHECK_SECONDS))
        while True:
            waits, session = yield query
            left = min(deadline, check_at) - time.monotonic()
            if waits is None or waits < -CLOCK_ERROR or left <= 0:
                break
            yield left
        caller = caller._replace(session=session or caller.session)
        left = max(0.0, deadline - time.monotonic()) if waits is not None else 0.0
        again = command.model_copy(update={"wait_seconds": left, "continues": True})
        result = yield Run(again, caller)
        if not left:
            break
    return result


def _give_up(command: Claim, leaves: bool) -> GiveUp:
    also = tuple(command.also) if command.also else None
    return GiveUp(command.resource, command.agent, command.receipt, also, command.mode, leaves)
