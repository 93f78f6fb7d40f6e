"""The library: `StateStore` for threads, `AsyncStateStore` for coroutines. The same calls, the same answers."""

import asyncio
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.request import Answered, ClaimRequest, CommandRequest, Settings
from holdlog.adapters.api.validation import caller, number_of_seconds
from holdlog.adapters.api.values import responses
from holdlog.adapters.api.values.requests import Requests
from holdlog.adapters.compose import named_session, open_holdlog
from holdlog.adapters.python.held import HeldClaim, HoldOptions, held, held_async
from holdlog.domain.refusals import (
    ConflictError,
    HoldlogError,
    NotFoundError,
)

UPDATE_ATTEMPTS: Final = 100
"""How often `update` starts again before it gives the conflict to its caller."""

BACK_OFF: Final = 0.002
MAX_BACK_OFF: Final = 0.05
"""Seconds: after its nth conflict `update` sleeps a random part of n times the first, and of the second at most, so
that those who read the same version do not meet again."""

ClaimAnswer = claims.Claimed | claims.AlreadyClaimed | claims.Busy | claims.Deadlock
ReleaseAnswer = claims.Released | claims.AlreadyFree | claims.NeverClaimed | claims.NotHolder | claims.Expired
AnyAnswer = TypeVar("AnyAnswer", bound=responses.Result)
WatchAnswer = responses.StateRecord | responses.Deleted | responses.WatchTimeout


class StateStore:
    """Shared, versioned state and claims in one place: a file that many processes share, or `:memory:`.

    Safe in threads. Every method raises InvalidError for an argument that breaks a rule and UnavailableError when the
    store cannot take the call; what else it raises is told beside it. As a context manager it closes itself.
    """

    def __init__(self, path: str | Path, *, settings: Settings | None = None, session: str | None = None) -> None:
        """Open or create the store. `session`: processes that give the same text are one holder of claims; without it,
        each store object is a separate session. Raises StoreError, with one line that says what to do."""
        self._engine = open_holdlog(path, settings, named_session(session))
        if session is not None:
            self._engine.join()
        self._requests = self._engine.requests
        weakref.finalize(self, self._engine.close)  # SQLite must not close by itself, outside the gate

    def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        updated_by: str,
        expected_version: int | None = None,
        guard: Sequence[Mapping[str, Any]] = (),
        ttl_seconds: float | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> responses.SetResult:
        """Write a JSON value. `expected_version`: N = exactly N, 0 = must not exist now, None = whatever is there.

        `guard`: claims that the write relies on, as `[{"resource": "a.py", "version": 3}]` with the version of the
        grant. `ttl_seconds`: how long it lives; None = until somebody ends it, whatever was told before. Raises
        FencedError when the writer does not hold one of the claims any more, ConflictError when the version is another;
        `.detail` tells what stands there.
        """
        call = self._requests.set(namespace, key, value, updated_by, expected_version, guard, ttl_seconds)
        return self._write(call, reason, request_id)

    def get(self, namespace: str, key: str) -> responses.StateRecord:
        """The value now. Raises NotFoundError."""
        return self._engine.read(self._requests.get(namespace, key))

    def delete(
        self,
        namespace: str,
        key: str,
        *,
        deleted_by: str,
        expected_version: int | None = None,
        guard: Sequence[Mapping[str, Any]] = (),
        reason: str | None = None,
        request_id: str | None = None,
    ) -> responses.DeleteResult:
        """Delete the value; its history stays and its version counts on. Raises NotFoundError, ConflictError."""
        return self._write(
            self._requests.delete(namespace, key, deleted_by, expected_version, guard), reason, request_id
        )

    def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> responses.ClearResult:
        """Delete every value of a namespace in one transaction, whatever the versions."""
        return self._write(self._requests.clear_namespace(namespace, deleted_by), reason, request_id)

    def update(
        self, namespace: str, key: str, function: Callable[[Any], Any], *, updated_by: str, reason: str | None = None
    ) -> responses.SetResult:
        """Read, compute, write, and again when somebody wrote in between. `function` gets the value (None when there is
        none) and returns the next one. Sleeps up to 50 ms after a conflict; raises ConflictError after 100 attempts."""
        for attempt in range(1, UPDATE_ATTEMPTS):
            try:
                return self._update_once(namespace, key, function, updated_by, reason)
            except ConflictError:
                time.sleep(back_off(attempt))
        return self._update_once(namespace, key, function, updated_by, reason)

    def list_records(
        self,
        namespace: str,
        *,
        prefix: str = "",
        limit: int = 1000,
        after_key: str | None = None,
        deleted: bool = False,
    ) -> responses.RecordList:
        """A page of the values of a namespace by key, at one position; `next_after` when there are more.

        A page ends at 1 MiB, too, but holds one value at least.
        """
        return self._engine.read(self._requests.list_records(namespace, prefix, limit, after_key, deleted))

    def list_keys(self, namespace: str) -> list[responses.StateRecord]:
        """All values of a namespace by key, at one position."""
        return self._engine.read(self._requests.all_records(namespace))

    def list_namespaces(self) -> list[str]:
        """The namespaces that hold values, by name."""
        return self._engine.read(self._requests.all_namespaces())

    def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> list[responses.Past]:
        """What happened to a key, newest first; empty when nothing did."""
        return self._engine.read(self._requests.all_history(namespace, key, limit, before_version))

    def export_namespace(self, namespace: str, *, include_deleted: bool = False) -> responses.Export:
        """All values of a namespace with their whole histories, at one position."""
        return self._engine.read(self._requests.all_exported(namespace, include_deleted))

    def watch(self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10) -> WatchAnswer:
        """Block until the key has a version above `since_version` (0: until it exists), or the time is over."""
        return self._engine.wait(self._requests.watch(namespace, key, since_version, timeout_seconds))

    def events(
        self,
        after: int = 0,
        *,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        thread: str | None = None,
        agent: str | None = None,
        limit: int = 100,
        wait_seconds: float = 0,
    ) -> responses.Events:
        """A page of the log above a position: ordered, unique, complete, and no commit is split (docs/events.md).

        Pass `next_position` as `after` to go on; when it is the `bookmark`, that was all. `wait_seconds`: block so long
        until there is something. `namespace`, with the `prefix` of keys, `resource`, with what overlaps it, and
        `thread` choose places; `kinds`: such as `ValueWritten`, `claim`; `agent`: what it did, or its sub-agents.
        """
        choice = self._requests.choice(namespace, prefix, kinds, resource, agent, thread)
        if wait_seconds:
            return self._engine.wait(self._requests.coming_events(choice, after, limit, wait_seconds))
        return self._engine.read(self._requests.events(choice, after, limit))

    def claim(
        self,
        resource: str,
        *,
        agent: str,
        also: Sequence[str] = (),
        alternatives: Sequence[str] = (),
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        mode: str = "exclusive",
        note: str | None = None,
        request_id: str | None = None,
    ) -> ClaimAnswer:
        """Claim a resource for an agent, or learn who holds it.

        `also`: more resources, all or nothing. `alternatives`: when the resource is not free, the first of these that
        is. `wait_seconds`: stand in line so long. `mode`: `exclusive` or `shared`. `note`: told to others. The lease
        is renewed by whatever the agent writes; `claimed` renews by itself.
        """
        call = self._requests.claim(resource, agent, also, alternatives, lease_seconds, wait_seconds, mode, note)
        return self._claim(call, request_id)

    def claimed(
        self,
        resource: str,
        *,
        agent: str,
        also: Sequence[str] = (),
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
        mode: str = "exclusive",
        note: str | None = None,
        outcome: str | None = None,
    ) -> AbstractContextManager[HeldClaim]:
        """Hold a resource while a block runs: `with store.claimed("a.md", agent="w") as claim:`

        Claims, or stands in line for `wait_seconds`, however long; raises BusyError or DeadlockError when it does not
        get it, and leaves the line. There are no `alternatives` here: `claim` has them. The lease is renewed in the
        background, and exactly this claim is released at the end, also when the block raises. `outcome`, or
        `claim.outcome` and `claim.note` set inside, tell the next holder what was done; where nothing is set it is told
        `released`, also after a block that raised.

        Pass `guard=claim.guard` to a write, and it raises FencedError once the claim is lost. A block that ends without
        an exception raises FencedError, too, if its claim was lost meanwhile: part of its work was not protected.

        What the agent held before stays held: a block inside another of the same agent lets go of nothing. Threads that
        shall keep each other out need names of their own.
        """
        return held(
            self._engine, _wish(self._requests, resource, agent, also, wait_seconds, lease_seconds, mode, note, outcome)
        )

    def release(
        self,
        resource: str | None = None,
        *,
        agent: str,
        also: Sequence[str] = (),
        outcome: str | None = None,
        moved_to: str | None = None,
        note: str | None = None,
        request_id: str | None = None,
    ) -> ReleaseAnswer:
        """Let go of a resource, or of everything; whoever waits gets it at once. `outcome`: what was done to it
        (`released`, `modified`, `created`, `deleted`, `moved`), told to the next holder with the `note`."""
        call = self._requests.release(resource, agent, also, outcome, moved_to, note)
        try:
            answer: ReleaseAnswer = self._write(call, None, request_id)
        except HoldlogError as refusal:
            answer = self._requests.refused(refusal)  # type: ignore[assignment]
        return _with_lost(answer, self._engine.lost())

    def status(self, resource: str, version: int | None = None) -> claims.Available | claims.Held:
        """Who holds a resource; `current` tells whether the grant `version` does. As in responses to `claim` and
        `release`, `lost` lists once the claims that this session has lost."""
        return _with_lost(self._engine.read(self._requests.status(resource, version)), self._engine.lost())

    def board(self, *, agent: str | None = None, limit: int = 100, after: str | None = None) -> claims.Board:
        """Everything that is held or waited for now, in pages by resource; of one agent and its sub-agents."""
        return self._engine.read(self._requests.board(agent, limit, after))

    def register(
        self, agent: str, *, name: str | None = None, model: str | None = None, purpose: str | None = None
    ) -> claims.RegisteredAgent:
        """Say who an agent is; what is left out stays as it was."""
        return self._write(self._requests.register(agent, name, model, purpose), None, None)

    def wait(self, resource: str, timeout_seconds: float = 30) -> claims.Available | claims.WaitTimeout:
        """Block until nobody holds the resource, or the time is over. Told, not granted."""
        return self._engine.wait(self._requests.wait(resource, timeout_seconds))

    def close(self) -> None:
        """Finish what runs and let go of the store."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self, call: ClaimRequest[Any], request_id: str | None) -> ClaimAnswer:
        try:
            answer: ClaimAnswer = self._engine.claim(call, caller(self._engine.caller, request_id=request_id))
        except HoldlogError as refusal:
            answer = self._requests.refused(refusal)  # type: ignore[assignment]
        return _with_lost(answer, self._engine.lost())

    def _write(self, call: CommandRequest[Answered], reason: str | None, request_id: str | None) -> Answered:
        return self._engine.write(call, caller(self._engine.caller, reason=reason, request_id=request_id))

    def _update_once(
        self, namespace: str, key: str, function: Callable[[Any], Any], by: str, reason: str | None
    ) -> responses.SetResult:
        try:
            record = self._engine.read(self._requests.get(namespace, key))
            value, version = record.value, record.version
        except NotFoundError:
            value, version = None, 0
        return self.set(namespace, key, function(value), updated_by=by, expected_version=version, reason=reason)


class AsyncStateStore:
    """`StateStore` for coroutines: the same methods, awaitable, each documented there.

    A cancelled call that nothing has begun yet is withdrawn. As an asynchronous context manager it closes itself.
    """

    def __init__(self, path: str | Path, *, settings: Settings | None = None, session: str | None = None) -> None:
        """Open or create the store. `session`: processes that give the same text are one holder of claims; without it,
        each store object is a separate session. Raises StoreError, with one line that says what to do."""
        self._engine = open_holdlog(path, settings, named_session(session))
        if session is not None:
            self._engine.join()
        self._requests = self._engine.requests
        weakref.finalize(self, self._engine.close)  # SQLite must not close by itself, outside the gate

    async def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        updated_by: str,
        expected_version: int | None = None,
        guard: Sequence[Mapping[str, Any]] = (),
        ttl_seconds: float | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> responses.SetResult:
        call = self._requests.set(namespace, key, value, updated_by, expected_version, guard, ttl_seconds)
        return await self._write(call, reason, request_id)

    async def get(self, namespace: str, key: str) -> responses.StateRecord:
        return await self._engine.read_async(self._requests.get(namespace, key))

    async def delete(
        self,
        namespace: str,
        key: str,
        *,
        deleted_by: str,
        expected_version: int | None = None,
        guard: Sequence[Mapping[str, Any]] = (),
        reason: str | None = None,
        request_id: str | None = None,
    ) -> responses.DeleteResult:
        call = self._requests.delete(namespace, key, deleted_by, expected_version, guard)
        return await self._write(call, reason, request_id)

    async def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> responses.ClearResult:
        return await self._write(self._requests.clear_namespace(namespace, deleted_by), reason, request_id)

    async def update(
        self, namespace: str, key: str, function: Callable[[Any], Any], *, updated_by: str, reason: str | None = None
    ) -> responses.SetResult:
        for attempt in range(1, UPDATE_ATTEMPTS):
            try:
                return await self._update_once(namespace, key, function, updated_by, reason)
            except ConflictError:
                await asyncio.sleep(back_off(attempt))
        return await self._update_once(namespace, key, function, updated_by, reason)

    async def list_records(
        self,
        namespace: str,
        *,
        prefix: str = "",
        limit: int = 1000,
        after_key: str | None = None,
        deleted: bool = False,
    ) -> responses.RecordList:
        return await self._engine.read_async(self._requests.list_records(namespace, prefix, limit, after_key, deleted))

    async def list_keys(self, namespace: str) -> list[responses.StateRecord]:
        return await self._engine.read_async(self._requests.all_records(namespace))

    async def list_namespaces(self) -> list[str]:
        return await self._engine.read_async(self._requests.all_namespaces())

    async def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> list[responses.Past]:
        return await self._engine.read_async(self._requests.all_history(namespace, key, limit, before_version))

    async def export_namespace(self, namespace: str, *, include_deleted: bool = False) -> responses.Export:
        return await self._engine.read_async(self._requests.all_exported(namespace, include_deleted))

    async def watch(self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10) -> WatchAnswer:
        return await self._engine.wait_async(self._requests.watch(namespace, key, since_version, timeout_seconds))

    async def events(
        self,
        after: int = 0,
        *,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        thread: str | None = None,
        agent: str | None = None,
        limit: int = 100,
        wait_seconds: float = 0,
    ) -> responses.Events:
        choice = self._requests.choice(namespace, prefix, kinds, resource, agent, thread)
        if wait_seconds:
            return await self._engine.wait_async(self._requests.coming_events(choice, after, limit, wait_seconds))
        return await self._engine.read_async(self._requests.events(choice, after, limit))

    async def claim(
        self,
        resource: str,
        *,
        agent: str,
        also: Sequence[str] = (),
        alternatives: Sequence[str] = (),
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        mode: str = "exclusive",
        note: str | None = None,
        request_id: str | None = None,
    ) -> ClaimAnswer:
        call = self._requests.claim(resource, agent, also, alternatives, lease_seconds, wait_seconds, mode, note)
        return await self._claim(call, request_id)

    def claimed(
        self,
        resource: str,
        *,
        agent: str,
        also: Sequence[str] = (),
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
        mode: str = "exclusive",
        note: str | None = None,
        outcome: str | None = None,
    ) -> AbstractAsyncContextManager[HeldClaim]:
        """`async with store.claimed(…) as claim:`"""
        return held_async(
            self._engine, _wish(self._requests, resource, agent, also, wait_seconds, lease_seconds, mode, note, outcome)
        )

    async def release(
        self,
        resource: str | None = None,
        *,
        agent: str,
        also: Sequence[str] = (),
        outcome: str | None = None,
        moved_to: str | None = None,
        note: str | None = None,
        request_id: str | None = None,
    ) -> ReleaseAnswer:
        call = self._requests.release(resource, agent, also, outcome, moved_to, note)
        try:
            answer: ReleaseAnswer = await self._write(call, None, request_id)
        except HoldlogError as refusal:
            answer = self._requests.refused(refusal)  # type: ignore[assignment]
        return _with_lost(answer, await self._engine.lost_async(self._engine.caller))

    async def status(self, resource: str, version: int | None = None) -> claims.Available | claims.Held:
        answer = await self._engine.read_async(self._requests.status(resource, version))
        return _with_lost(answer, await self._engine.lost_async(self._engine.caller))

    async def board(self, *, agent: str | None = None, limit: int = 100, after: str | None = None) -> claims.Board:
        return await self._engine.read_async(self._requests.board(agent, limit, after))

    async def register(
        self, agent: str, *, name: str | None = None, model: str | None = None, purpose: str | None = None
    ) -> claims.RegisteredAgent:
        return await self._write(self._requests.register(agent, name, model, purpose), None, None)

    async def wait(self, resource: str, timeout_seconds: float = 30) -> claims.Available | claims.WaitTimeout:
        return await self._engine.wait_async(self._requests.wait(resource, timeout_seconds))

    async def close(self) -> None:
        self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _claim(self, call: ClaimRequest[Any], request_id: str | None) -> ClaimAnswer:
        try:
            answer: ClaimAnswer = await self._engine.claim_async(
                call, caller(self._engine.caller, request_id=request_id)
            )
        except HoldlogError as refusal:
            answer = self._requests.refused(refusal)  # type: ignore[assignment]
        return _with_lost(answer, await self._engine.lost_async(self._engine.caller))

    async def _write(self, call: CommandRequest[Answered], reason: str | None, request_id: str | None) -> Answered:
        return await self._engine.write_async(call, caller(self._engine.caller, reason=reason, request_id=request_id))

    async def _update_once(
        self, namespace: str, key: str, function: Callable[[Any], Any], by: str, reason: str | None
    ) -> responses.SetResult:
        try:
            record = await self._engine.read_async(self._requests.get(namespace, key))
            value, version = record.value, record.version
        except NotFoundError:
            value, version = None, 0
        return await self.set(namespace, key, function(value), updated_by=by, expected_version=version, reason=reason)


def _with_lost(answer: AnyAnswer, lost: list[responses.Lost]) -> AnyAnswer:
    """The response, with the claims that this session has lost since the last one."""
    return answer.model_copy(update={"lost": lost}) if lost else answer


def _wish(
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
    def stand(seconds: float) -> ClaimRequest[Any]:
        return calls.claim(resource, agent, also, (), lease_seconds, seconds, mode, note)

    return HoldOptions(stand, number_of_seconds(wait_seconds, "wait_seconds"), outcome)


def back_off(attempt: int) -> float:
    """Seconds to sleep after the conflict of an attempt (from 1)."""
    return random.uniform(0, min(attempt * BACK_OFF, MAX_BACK_OFF))
