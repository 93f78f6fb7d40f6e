"""The library: `StateStore` for threads, `AsyncStateStore` for coroutines. The same calls, the same answers."""

import asyncio
import random
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdlog.adapters import answers, results
from holdlog.adapters.calls import Answered, Settings, Write, caller
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.machine.host import now
from holdlog.domain.refusals import BusyError, ConflictError, HoldlogError, NotFoundError, NotHolderError

UPDATE_ATTEMPTS: Final = 100
"""How often `update` starts again before it gives the conflict to its caller."""

BACK_OFF: Final = 0.002
MAX_BACK_OFF: Final = 0.05
"""Seconds: after its nth conflict `update` sleeps a random part of n times the first, and of the second at most, so
that those who read the same version do not meet again."""

ClaimAnswer = results.Claimed | results.AlreadyClaimed | results.Busy
ReleaseAnswer = results.Released | results.AlreadyFree | results.NeverClaimed | results.NotHolder
WatchAnswer = results.StateRecord | results.Deleted | results.WatchTimeout


class StateStore:
    """Shared, versioned state and claims in one place: a file that many processes share, or `:memory:`.

    Safe in threads. Every method raises InvalidError for an argument that breaks a rule and UnavailableError when the
    store cannot take the call; what else it raises is told beside it. As a context manager it closes itself.
    """

    def __init__(self, path: str | Path, *, settings: Settings | None = None) -> None:
        """Open or create the store. Raises StoreError, with one line that says what to do."""
        self._opened = open_holdlog(path, settings)
        self._calls = self._opened.calls
        weakref.finalize(self, self._opened.close)  # SQLite must not close by itself, outside the gate

    def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        updated_by: str,
        expected_version: int | None = None,
        ttl_seconds: float | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.SetResult:
        """Write a JSON value. `expected_version`: N = exactly N, 0 = must not exist now, None = whatever is there.

        `ttl_seconds`: how long it lives; None = until somebody ends it, whatever was told before.
        Raises ConflictError when the version is another; `.detail` tells what stands there.
        """
        call = self._calls.set(namespace, key, value, updated_by, expected_version, ttl_seconds)
        return self._write(call, reason, request_id)

    def get(self, namespace: str, key: str) -> results.StateRecord:
        """The value now. Raises NotFoundError."""
        return self._opened.read(self._calls.get(namespace, key))

    def delete(
        self,
        namespace: str,
        key: str,
        *,
        deleted_by: str,
        expected_version: int | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.DeleteResult:
        """Delete the value; its history stays and its version counts on. Raises NotFoundError, ConflictError."""
        return self._write(self._calls.delete(namespace, key, deleted_by, expected_version), reason, request_id)

    def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> results.ClearResult:
        """Delete every value of a namespace in one transaction, whatever the versions."""
        return self._write(self._calls.clear_namespace(namespace, deleted_by), reason, request_id)

    def update(
        self, namespace: str, key: str, function: Callable[[Any], Any], *, updated_by: str, reason: str | None = None
    ) -> results.SetResult:
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
    ) -> results.RecordList:
        """A page of the values of a namespace by key, at one position; `next_after` when there are more.

        A page ends at 1 MiB, too, but holds one value at least.
        """
        return self._opened.read(self._calls.list_records(namespace, prefix, limit, after_key, deleted))

    def list_keys(self, namespace: str) -> list[results.StateRecord]:
        """All values of a namespace by key, at one position."""
        return self._opened.read(self._calls.all_records(namespace))

    def list_namespaces(self) -> list[str]:
        """The namespaces that hold values, by name."""
        return self._opened.read(self._calls.all_namespaces())

    def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> list[results.Past]:
        """What happened to a key, newest first; empty when nothing did."""
        return self._opened.read(self._calls.all_history(namespace, key, limit, before_version))

    def export_namespace(self, namespace: str, *, include_deleted: bool = False) -> results.Export:
        """All values of a namespace with their whole histories, at one position."""
        return self._opened.read(self._calls.all_exported(namespace, include_deleted))

    def watch(self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10) -> WatchAnswer:
        """Block until the key has a version above `since_version` (0: until it exists), or the time is over."""
        return self._opened.wait(self._calls.watch(namespace, key, since_version, timeout_seconds))

    def claim(self, resource: str, *, agent: str, request_id: str | None = None) -> ClaimAnswer:
        """Claim a resource for an agent, or learn who holds it."""
        try:
            return self._write(self._calls.claim(resource, agent), None, request_id)
        except BusyError as refusal:
            return refused(refusal, results.Busy)

    def release(self, resource: str, *, agent: str, request_id: str | None = None) -> ReleaseAnswer:
        """Let go of a resource; whoever waits for it is told at once."""
        try:
            return self._write(self._calls.release(resource, agent), None, request_id)
        except NotHolderError as refusal:
            return refused(refusal, results.NotHolder)
        except NotFoundError as refusal:
            return refused(refusal, results.NeverClaimed)

    def status(self, resource: str) -> results.Available | results.Held:
        """Who holds a resource."""
        return self._opened.read(self._calls.status(resource))

    def board(self, *, limit: int = 100, after: str | None = None) -> results.Board:
        """Everything that is held now, in pages by resource."""
        return self._opened.read(self._calls.board(limit, after))

    def wait(self, resource: str, timeout_seconds: float = 30) -> results.Available | results.WaitTimeout:
        """Block until nobody holds the resource, or the time is over. Told, not granted."""
        return self._opened.wait(self._calls.wait(resource, timeout_seconds))

    def close(self) -> None:
        """Finish what runs and let go of the store."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, call: Write[Answered], reason: str | None, request_id: str | None) -> Answered:
        return self._opened.write(call, caller(self._opened.caller, reason=reason, request_id=request_id))

    def _update_once(
        self, namespace: str, key: str, function: Callable[[Any], Any], by: str, reason: str | None
    ) -> results.SetResult:
        value, version = read_for_update(self.get, namespace, key)
        return self.set(namespace, key, function(value), updated_by=by, expected_version=version, reason=reason)


class AsyncStateStore:
    """`StateStore` for coroutines: the same methods, awaitable, each documented there.

    A cancelled call that nothing has begun yet is withdrawn. As an asynchronous context manager it closes itself.
    """

    def __init__(self, path: str | Path, *, settings: Settings | None = None) -> None:
        """Open or create the store. Raises StoreError, with one line that says what to do."""
        self._opened = open_holdlog(path, settings)
        self._calls = self._opened.calls
        weakref.finalize(self, self._opened.close)  # SQLite must not close by itself, outside the gate

    async def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        updated_by: str,
        expected_version: int | None = None,
        ttl_seconds: float | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.SetResult:
        call = self._calls.set(namespace, key, value, updated_by, expected_version, ttl_seconds)
        return await self._write(call, reason, request_id)

    async def get(self, namespace: str, key: str) -> results.StateRecord:
        return await self._opened.read_async(self._calls.get(namespace, key))

    async def delete(
        self,
        namespace: str,
        key: str,
        *,
        deleted_by: str,
        expected_version: int | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.DeleteResult:
        call = self._calls.delete(namespace, key, deleted_by, expected_version)
        return await self._write(call, reason, request_id)

    async def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> results.ClearResult:
        return await self._write(self._calls.clear_namespace(namespace, deleted_by), reason, request_id)

    async def update(
        self, namespace: str, key: str, function: Callable[[Any], Any], *, updated_by: str, reason: str | None = None
    ) -> results.SetResult:
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
    ) -> results.RecordList:
        return await self._opened.read_async(self._calls.list_records(namespace, prefix, limit, after_key, deleted))

    async def list_keys(self, namespace: str) -> list[results.StateRecord]:
        return await self._opened.read_async(self._calls.all_records(namespace))

    async def list_namespaces(self) -> list[str]:
        return await self._opened.read_async(self._calls.all_namespaces())

    async def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> list[results.Past]:
        return await self._opened.read_async(self._calls.all_history(namespace, key, limit, before_version))

    async def export_namespace(self, namespace: str, *, include_deleted: bool = False) -> results.Export:
        return await self._opened.read_async(self._calls.all_exported(namespace, include_deleted))

    async def watch(self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10) -> WatchAnswer:
        return await self._opened.wait_async(self._calls.watch(namespace, key, since_version, timeout_seconds))

    async def claim(self, resource: str, *, agent: str, request_id: str | None = None) -> ClaimAnswer:
        try:
            return await self._write(self._calls.claim(resource, agent), None, request_id)
        except BusyError as refusal:
            return refused(refusal, results.Busy)

    async def release(self, resource: str, *, agent: str, request_id: str | None = None) -> ReleaseAnswer:
        try:
            return await self._write(self._calls.release(resource, agent), None, request_id)
        except NotHolderError as refusal:
            return refused(refusal, results.NotHolder)
        except NotFoundError as refusal:
            return refused(refusal, results.NeverClaimed)

    async def status(self, resource: str) -> results.Available | results.Held:
        return await self._opened.read_async(self._calls.status(resource))

    async def board(self, *, limit: int = 100, after: str | None = None) -> results.Board:
        return await self._opened.read_async(self._calls.board(limit, after))

    async def wait(self, resource: str, timeout_seconds: float = 30) -> results.Available | results.WaitTimeout:
        return await self._opened.wait_async(self._calls.wait(resource, timeout_seconds))

    async def close(self) -> None:
        self._opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _write(self, call: Write[Answered], reason: str | None, request_id: str | None) -> Answered:
        return await self._opened.write_async(call, caller(self._opened.caller, reason=reason, request_id=request_id))

    async def _update_once(
        self, namespace: str, key: str, function: Callable[[Any], Any], by: str, reason: str | None
    ) -> results.SetResult:
        value, version = read_for_update(lambda *place: self._opened.read(self._calls.get(*place)), namespace, key)
        return await self.set(namespace, key, function(value), updated_by=by, expected_version=version, reason=reason)


def read_for_update(get: Callable[[str, str], results.StateRecord], namespace: str, key: str) -> tuple[Any, int]:
    """The value (None when there is none) and the version that its successor must expect."""
    try:
        record = get(namespace, key)
    except NotFoundError:
        return None, 0
    return record.value, record.version


def back_off(attempt: int) -> float:
    """Seconds to sleep after the conflict of an attempt (from 1)."""
    return random.uniform(0, min(attempt * BACK_OFF, MAX_BACK_OFF))


def refused(refusal: HoldlogError, expected: type[Answered]) -> Answered:
    """The answer that stands for a refusal."""
    answer = answers.refused(refusal, now())
    assert isinstance(answer, expected)
    return answer
