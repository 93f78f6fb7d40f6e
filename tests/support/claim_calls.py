"""Short ways to claim, and to look at what is held."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from holdlog.adapters.runtime.command_handler import handle
from holdlog.domain.claims.board_storage import load_board
from holdlog.domain.claims.commands import AcquireClaim, ClaimAcquired, Queued
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import Delete, FencingCondition, Set, Transact
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.value import Json
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, run

HOUR = 3600
Change = Callable[..., Transact]


def by(session: str | None = "s1", request_id: str | None = None, server: str | None = None) -> Caller:
    """Session `s1` lives as long as server `v1`."""
    if server is None:
        server = session.replace("s", "v") if session else ""
    return Caller(session=session, server=server, request_id=request_id)


def claim(
    store: Store, resource: str = "a", agent: str = "ann", caller: Caller | None = None, **more: Any
) -> ClaimAcquired:
    outcome = run(store, AcquireClaim(resource=resource, agent=agent, **more), caller or by())
    assert isinstance(outcome, ClaimAcquired)
    return outcome


def wait(store: Store, resource: str, agent: str, seconds: int = 30) -> Queued:
    outcome = run(store, AcquireClaim(resource=resource, agent=agent, wait=seconds * SECOND), by())
    assert isinstance(outcome, Queued)
    return outcome


def writes(agent: str = "ann", guard: tuple[FencingCondition, ...] = (), expected: int | None = None) -> Transact:
    put = Set(namespace="n", key="k", value=Json.of(1), expected_version=expected)
    return Transact(operations=(put,), by=agent, guard=guard)


def deletes(agent: str = "ann", guard: tuple[FencingCondition, ...] = (), expected: int | None = None) -> Transact:
    return Transact(operations=(Delete(namespace="n", key="k", expected_version=expected),), by=agent, guard=guard)


def refused(store: Store, command: AnyCommand) -> HoldlogError:
    """As the writer does: what had ended before the refusal stays ended."""
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        with pytest.raises(HoldlogError) as refusal:
            handle(command, by(), transaction)
        return refusal.value


def holder(store: Store, clock: Clock, resource: str = "a") -> str | None:
    """As reads see it: what is due has ended."""
    with store.reader() as reader:
        holds = load_board(reader, [resource], clock.steady(), clock()).holds(resource)
    return holds[0].grant.agent if holds else None


def left(store: Store, clock: Clock, resource: str = "a") -> float:
    """Seconds."""
    with store.reader() as reader:
        (lease,) = reader.leases.of([resource])
    return (lease.deadline - clock.steady()) / SECOND
