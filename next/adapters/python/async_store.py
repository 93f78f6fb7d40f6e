"""The library for coroutines. Written by `make generate` from the operations; do not edit."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from holdlog.adapters.operations import admin, changes, claims, log, past, threads, tokens, transfer, values
from holdlog.adapters.python.base import AwaitableHandle
from holdlog.adapters.python.calls import NOT_GIVEN
from holdlog.domain import results
from holdlog.domain import revert as revert_results
from holdlog.domain import threads as thread_results
from holdlog.domain import tokens as token_results
from holdlog.domain.claims import results as claim_results
from holdlog.projections import board, difference
from holdlog.projections import results as query_results


class AsyncStateStore(AwaitableHandle):
    """Versioned JSON values and claims on resources, shared by agents in many processes and kept as a log of events.

    As StateStore, for coroutines of any event loops.
    Each method raises InvalidError for an invalid argument, UnavailableError if the store cannot handle the call now,
    and StoreError if it is closed.
    """

    async def at(
        self,
        moment: int | str | datetime,
        namespace: str | None = None,
        key: str | None = None,
        *,
        resource: str | None = None,
        thread_id: str | None = None,
        prefix: str = "",
        agent: str | None = None,
        limit: int = 100,
        after_key: str | None = None,
        after: str | None = None,
    ) -> (
        query_results.StateRecord
        | query_results.RecordPage
        | query_results.ThreadPage
        | query_results.NoThread
        | board.Held
        | board.Available
        | board.BoardPage
    ):
        """As StateStore.at."""
        return await self._ask(past.At, locals())

    async def backup(self, folder: Any) -> query_results.Backup:
        """As StateStore.backup."""
        return await self._do(transfer.BackUp, locals())

    async def blame(
        self,
        namespace: str | None = None,
        key: str | None = None,
        *,
        at: int | str | datetime | None = None,
        resource: str | None = None,
        before_version: int | None = None,
        limit: int = 20,
    ) -> query_results.Blame | query_results.FileBlame:
        """As StateStore.blame."""
        return await self._ask(changes.ReadBlame, locals())

    async def checkpoint(self) -> query_results.Checkpoint:
        """As StateStore.checkpoint."""
        return await self._ask(admin.MakeCheckpoint, locals())

    async def claim(
        self,
        resource: str,
        *,
        agent: str,
        receipt: str | None = None,
        also: Sequence[str] | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        mode: Literal["exclusive", "shared"] = "exclusive",
        note: str | None = None,
        request_id: str | None = None,
    ) -> (
        claim_results.Claimed
        | claim_results.AlreadyClaimed
        | claim_results.Busy
        | claim_results.Deadlock
        | claim_results.Expired
    ):
        """As StateStore.claim."""
        return await self._queue(claims.Claim, locals())

    async def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> results.ClearResult:
        """As StateStore.clear_namespace."""
        return await self._run(values.ClearNamespace, locals())

    async def delete(
        self,
        namespace: str,
        key: str,
        *,
        deleted_by: str,
        expected_version: int | None = None,
        guard: Sequence[Mapping[str, Any]] | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.DeleteResult:
        """As StateStore.delete."""
        return await self._run(values.Delete, locals())

    async def diff(
        self,
        start: int | str | datetime,
        end: int | str | datetime = "now",
        *,
        namespace: str,
        key: str | None = None,
        limit: int = 100,
        after_key: str | None = None,
    ) -> difference.Difference:
        """As StateStore.diff."""
        return await self._ask(changes.Diff, locals())

    async def doctor(self) -> query_results.Diagnosis:
        """As StateStore.doctor."""
        return await self._do(admin.Diagnose, locals())

    async def events(
        self,
        after: int | str = 0,
        *,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        agent: str | None = None,
        limit: int = 100,
        wait_seconds: float = 0,
    ) -> query_results.EventPage:
        """As StateStore.events."""
        return await self._wait(log.Events, locals())

    async def export(
        self, destination: Any, *, first: int = 1, last: int | None = None, values: bool = True
    ) -> query_results.ExportedLog:
        """As StateStore.export."""
        return await self._ask(transfer.Export, locals())

    async def export_namespace(
        self, namespace: str, *, include_deleted: bool = False, after_key: str | None = None
    ) -> query_results.Export:
        """As StateStore.export_namespace."""
        return await self._ask(values.ExportNamespace, locals())

    async def get(self, namespace: str, key: str) -> query_results.StateRecord:
        """As StateStore.get."""
        return await self._ask(values.Get, locals())

    async def history(
        self, namespace: str, key: str, limit: int = 100, *, before_version: int | None = None
    ) -> builtins.list[query_results.HistoryEntry]:
        """As StateStore.history."""
        return (await self._ask(values.ReadHistory, locals())).history

    async def import_(self, source: Any) -> query_results.ImportedLog:
        """As StateStore.import_."""
        return await self._do(transfer.Import, locals())

    async def list(
        self,
        namespace: str | None = None,
        *,
        prefix: str = "",
        limit: int = 1000,
        after_key: str | None = None,
        deleted: bool = False,
    ) -> query_results.RecordPage | query_results.NamespacePage:
        """As StateStore.list."""
        return await self._ask(values.List, locals())

    async def log(
        self,
        *,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        agent: str | None = None,
        start: int | str | datetime | None = None,
        end: int | str | datetime | None = None,
        after: int | str | None = None,
        refusals: bool = False,
        limit: int = 100,
    ) -> query_results.LogPage:
        """As StateStore.log."""
        return await self._ask(log.Log, locals())

    async def rebuild(self) -> query_results.Rebuilt:
        """As StateStore.rebuild."""
        return await self._do(admin.Rebuild, locals())

    async def redact(
        self, event: str | None = None, *, older_than_seconds: float | None = None, redacted_by: str, reason: str
    ) -> query_results.Redaction:
        """As StateStore.redact."""
        return await self._do(admin.Redact, locals())

    async def release(
        self,
        resource: str | None = None,
        *,
        agent: str,
        receipt: str | None = None,
        also: Sequence[str] | None = None,
        outcome: Literal["released", "modified", "created", "deleted", "moved"] | None = None,
        moved_to: str | None = None,
        note: str | None = None,
        request_id: str | None = None,
    ) -> (
        claim_results.Released
        | claim_results.AlreadyFree
        | claim_results.NeverClaimed
        | claim_results.NotHolder
        | claim_results.Expired
    ):
        """As StateStore.release."""
        return await self._run(claims.Release, locals())

    async def replay(
        self, start: int | str | datetime, end: int | str | datetime = "now", *, limit: int = 1000
    ) -> board.Replayed:
        """As StateStore.replay."""
        return await self._ask(past.Replay, locals())

    async def resource_history(
        self, resource: str, limit: int = 100, *, before: int | None = None
    ) -> builtins.list[query_results.HoldEntry]:
        """As StateStore.resource_history."""
        return (await self._ask(past.ResourceHistory, locals())).history

    async def revert(
        self,
        *,
        session: str | None = None,
        correlation_id: str | None = None,
        agent: str | None = None,
        since: int | str | datetime | None = None,
        namespace: str | None = None,
        reverted_by: str,
        dry_run: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> revert_results.Reverted:
        """As StateStore.revert."""
        return await self._do(changes.Revert, locals())

    async def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        updated_by: str,
        expected_version: int | None = None,
        ttl_seconds: float | None = None,
        guard: Sequence[Mapping[str, Any]] | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.SetResult:
        """As StateStore.set."""
        return await self._run(values.SetValue, locals())

    async def status(
        self,
        resource: str | None = None,
        version: int | None = None,
        *,
        agent: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> board.Available | board.Held | board.BoardPage:
        """As StateStore.status."""
        return await self._ask(claims.Status, locals())

    async def thread_append(
        self,
        thread_id: str,
        *,
        agent: str,
        messages: Sequence[Mapping[str, Any]] | None = None,
        results: Sequence[Mapping[str, Any]] | None = None,
        request_id: str | None = None,
    ) -> thread_results.Appended:
        """As StateStore.thread_append."""
        return await self._run(threads.ThreadAppend, locals())

    async def thread_read(
        self,
        thread_id: str,
        *,
        after_version: int | None = None,
        before_version: int | None = None,
        limit: int = 50,
        wait_seconds: float = 0,
    ) -> query_results.ThreadPage | query_results.NoThread:
        """As StateStore.thread_read."""
        return await self._wait(threads.ThreadRead, locals())

    async def token_create(
        self,
        name: str,
        allow: Sequence[str],
        *,
        created_by: str,
        ttl_seconds: float | None = 7776000,
        space: str | None = None,
        request_id: str | None = None,
    ) -> token_results.NewToken | token_results.TokenExists:
        """As StateStore.token_create."""
        return await self._run(tokens.TokenCreate, locals())

    async def token_list(self, *, after: str = "", limit: int = 1000) -> query_results.TokenPage:
        """As StateStore.token_list."""
        return await self._ask(tokens.TokenList, locals())

    async def token_revoke(
        self, name: str, *, revoked_by: str, request_id: str | None = None
    ) -> token_results.Revoked | token_results.NoToken:
        """As StateStore.token_revoke."""
        return await self._run(tokens.TokenRevoke, locals())

    async def transact(
        self,
        operations: Sequence[Mapping[str, Any]],
        *,
        updated_by: str,
        guard: Sequence[Mapping[str, Any]] | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.TransactionResult:
        """As StateStore.transact."""
        return await self._run(values.Transact, locals())

    async def update(
        self,
        namespace: str,
        key: str,
        function: Callable[[Any], Any] | None = None,
        *,
        updated_by: str,
        expected_version: int | None = None,
        merge: Any = NOT_GIVEN,
        increment: Any = NOT_GIVEN,
        append: Any = NOT_GIVEN,
        unique: bool = False,
        guard: Sequence[Mapping[str, Any]] | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.UpdateResult:
        """As StateStore.update."""
        return await self._update(values.Update, locals())

    async def verify(self, checkpoint: str | None = None) -> query_results.Verified | query_results.Damaged:
        """As StateStore.verify."""
        return await self._ask(admin.Verify, locals())

    async def wait(self, resource: str, timeout_seconds: float = 30) -> board.Available | board.WaitTimeout:
        """As StateStore.wait."""
        return await self._wait(claims.WaitFor, locals())

    async def watch(
        self, namespace: str, key: str, since_version: int, *, timeout_seconds: float = 10
    ) -> query_results.StateRecord | query_results.DeletedRecord | query_results.WatchTimeout:
        """As StateStore.watch."""
        return await self._wait(values.Watch, locals())
