"""The library for threads. Written by `make generate` from the operations; do not edit."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from holdlog.adapters.operations import admin, changes, claims, log, past, threads, tokens, transfer, values
from holdlog.adapters.python.base import BlockingHandle
from holdlog.adapters.python.calls import NOT_GIVEN
from holdlog.domain import results
from holdlog.domain import revert as revert_results
from holdlog.domain import threads as thread_results
from holdlog.domain import tokens as token_results
from holdlog.domain.claims import results as claim_results
from holdlog.projections import board, difference
from holdlog.projections import results as query_results


class StateStore(BlockingHandle):
    """Versioned JSON values and claims on resources, shared by agents in many processes and kept as a log of events.

    Thread-safe. Closes itself as a context manager.
    Each method raises InvalidError for an invalid argument, UnavailableError if the store cannot handle the call now,
    and StoreError if it is closed.
    """

    def at(
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
        """Read the past: a value, the list of a namespace, a thread, a resource, or without any the board, as get,
        list, thread_read and status returned it then. moment is a position of the log, a version of the key (v3),
        or a time.

        thread_id: Its newest messages and results then.
        prefix: Of the keys of a namespace.
        agent: Of the board: what it and its sub-agents held.
        after_key: The next_after of the page before of a namespace.
        after: The next_after of the page before of the board.
        """
        return self._query(past.At, locals())

    def backup(self, folder: Any) -> query_results.Backup:
        """Copy the store to a new file in a folder, whole, while others use it. For PostgreSQL use pg_dump.

        folder: Where the file is to be.
        """
        return self._do(transfer.BackUp, locals())

    def blame(
        self,
        namespace: str | None = None,
        key: str | None = None,
        *,
        at: int | str | datetime | None = None,
        resource: str | None = None,
        before_version: int | None = None,
        limit: int = 20,
    ) -> query_results.Blame | query_results.FileBlame:
        """Who wrote a value last, based on which version, guarded by which claims, and why; with resource, who changed
        a file.

        at: As of this version of the key, position or time.
        resource: A file that hooks watch, instead of a value.
        before_version: The next_before of the page of a file before.
        limit: Changes of a file, the newest first.
        """
        return self._query(changes.ReadBlame, locals())

    def checkpoint(self) -> query_results.Checkpoint:
        """The end of the log: position, digest and time. Keep the line elsewhere: with it, verify finds every change
        of the events before it."""
        return self._query(admin.MakeCheckpoint, locals())

    def claim(
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
        """Claim a file, a folder (trailing slash) or custom://name before you change it. claimed or already_claimed:
        you hold it; call release() when done. busy: another agent holds it; work on something else, or queue with
        wait_seconds. deadlock: release one of your claims first. Claim again to renew.

        resource: src/main.py, src/ for all below it, or custom://name.
        agent: A name unique to you; a sub-agent appends /task.
        receipt: The one returned with your grant, if any.
        also: More resources: all are granted or none.
        lease_seconds: The claim ends after this time, whatever you do.
        wait_seconds: How long to queue for it.
        note: For others: what you do, how long it takes.
        """
        return self._queue(claims.Claim, locals())

    def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> results.ClearResult:
        """Delete all values of a namespace in one transaction, whatever their versions."""
        return self._run(values.ClearNamespace, locals())

    def delete(
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
        """Delete a value. Its history stays, and its versions continue."""
        return self._run(values.Delete, locals())

    def diff(
        self,
        start: int | str | datetime,
        end: int | str | datetime = "now",
        *,
        namespace: str,
        key: str | None = None,
        limit: int = 100,
        after_key: str | None = None,
    ) -> difference.Difference:
        """List the values of a namespace, or the parts of one value, that differ between two moments.

        after_key: The next_after of the page before.
        """
        return self._query(changes.Diff, locals())

    def doctor(self) -> query_results.Diagnosis:
        """Look for damage: of the file, of the log, and of the views, which rebuild repairs."""
        return self._do(admin.Diagnose, locals())

    def events(
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
        """Read the log: all events after a position or bookmark, in order. A page without events whose next_position
        moved leads on.

        namespace: Values of this namespace.
        prefix: Of keys; needs a namespace.
        kinds: record, claim, thread, or ValueWritten ….
        resource: Claims that overlap it.
        agent: Events of this agent and its sub-agents.
        wait_seconds: How long to wait for the first event.
        """
        return self._wait(log.Events, locals())

    def export(
        self, destination: Any, *, first: int = 1, last: int | None = None, values: bool = True
    ) -> query_results.ExportedLog:
        """Write the log as JSON lines, whole or from one position to another: `import_` reads it, and
        docs/verify_log.py verifies it without holdlog.

        destination: Path of a new file, or an open binary file.
        values: Or only the hashes of what people wrote.
        """
        return self._query(transfer.Export, locals())

    def export_namespace(
        self, namespace: str, *, include_deleted: bool = False, after_key: str | None = None
    ) -> query_results.Export:
        """Export the values of a namespace with their histories, in pages.

        after_key: The next_after of the page before.
        """
        return self._query(values.ExportNamespace, locals())

    def get(self, namespace: str, key: str) -> query_results.StateRecord:
        """Read a value and its version, which set() takes as expected_version.

        namespace: Group of keys, e.g. order-1234.
        """
        return self._query(values.Get, locals())

    def history(
        self, namespace: str, key: str, limit: int = 100, *, before_version: int | None = None
    ) -> builtins.list[query_results.HistoryEntry]:
        """List the versions of a key, the newest first.

        before_version: The next_before of the page before.
        """
        return self._query(values.ReadHistory, locals())

    def import_(self, source: Any) -> query_results.ImportedLog:
        """Import an export of a whole log into this store, which must be empty and keeps its own id. What was redacted
        stays a hash. All of it is verified first.

        source: Path of an export, or an open binary file.
        """
        return self._do(transfer.Import, locals())

    def list(
        self,
        namespace: str | None = None,
        *,
        prefix: str = "",
        limit: int = 1000,
        after_key: str | None = None,
        deleted: bool = False,
    ) -> query_results.RecordPage | query_results.NamespacePage:
        """List values of a namespace in order of their keys, in pages; without a namespace, the namespaces.

        after_key: The next_after of the page before.
        deleted: List deleted keys instead.
        """
        return self._query(values.List, locals())

    def log(
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
        """List the events of a range, the oldest first; with refusals, refused commands among them, without values. A
        store keeps the last 10,000 refusals, which a process records with its next write.

        namespace: Values of this namespace.
        prefix: Of keys; needs a namespace.
        kinds: record, claim, thread, or ValueWritten ….
        resource: Claims that overlap it.
        agent: Events of this agent and its sub-agents.
        start: The first event, or a time.
        end: The last event, or a time.
        after: The next_after of the page before.
        """
        return self._query(log.Log, locals())

    def rebuild(self) -> query_results.Rebuilt:
        """Rebuild the views of values and claims from the log. Others wait meanwhile."""
        return self._do(admin.Rebuild, locals())

    def redact(
        self, event: str | None = None, *, older_than_seconds: float | None = None, redacted_by: str, reason: str
    ) -> query_results.Redaction:
        """Remove a former text from the log, or all that are older than an age: payload and salt. The hash stays, so
        that the log verifies. Write or delete a current value first, and release a live claim. Backups and exports
        keep the text.

        event: The id of an event: STREAM@VERSION.
        older_than_seconds: Redact all former texts of this age.
        """
        return self._do(admin.Redact, locals())

    def release(
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
        """Release what you hold, or leave the queue; without resource, all that you hold and wait for. Say in outcome
        what you did, so that the next holder knows.

        moved_to: The new name, with outcome moved.
        note: For the next holder.
        """
        return self._run(claims.Release, locals())

    def replay(
        self, start: int | str | datetime, end: int | str | datetime = "now", *, limit: int = 1000
    ) -> board.Replayed:
        """List the events from one moment to another, and the state then: values, claims and queues.

        limit: Of each list.
        """
        return self._query(past.Replay, locals())

    def resource_history(
        self, resource: str, limit: int = 100, *, before: int | None = None
    ) -> builtins.list[query_results.HoldEntry]:
        """List who held a resource, or something that overlaps it, and how each hold ended; the newest first.

        before: The next_before of the page before.
        """
        return self._query(past.ResourceHistory, locals())

    def revert(
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
        """Undo what a session, or all writes under a correlation id, changed last. Keys that others wrote or claim are
        kept. Try it with dry_run first.

        session: Whose writes are undone.
        correlation_id: Instead of session.
        agent: Only its writes and those of its sub-agents.
        since: Only writes since this position or time.
        """
        return self._do(changes.Revert, locals())

    def set(
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
        """Write a value if its version is still the one you read with get(): expected_version, 0 if it must not exist.
        In a program, a write without it is unconditional.

        namespace: Group of keys, e.g. order-1234.
        expected_version: The version you read; 0: must not exist.
        ttl_seconds: The value expires after this many seconds.
        guard: Claims you hold, with the versions of your grants.
        """
        return self._run(values.SetValue, locals())

    def status(
        self,
        resource: str | None = None,
        version: int | None = None,
        *,
        agent: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> board.Available | board.Held | board.BoardPage:
        """Who holds a resource, or how its last hold ended. Without resource, the board: all claims and queues; with
        agent, what that agent and its sub-agents hold and wait for.

        version: Is the grant with this version still current?.
        after: The next_after of the page before.
        """
        return self._query(claims.Status, locals())

    def thread_append(
        self,
        thread_id: str,
        *,
        agent: str,
        messages: Sequence[Mapping[str, Any]] | None = None,
        results: Sequence[Mapping[str, Any]] | None = None,
        request_id: str | None = None,
    ) -> thread_results.Appended:
        """Append messages, then results of agents, to a thread, all or none; the first append starts it. A result that
        the thread has already (same agent, output, tool_calls and created_at) is not appended again.

        messages: {type: text, role, content}; or tool_call, tool_result.
        results: {agent_name, output: messages, tool_calls?: tool_results, created_at?}.
        """
        return self._run(threads.ThreadAppend, locals())

    def thread_read(
        self,
        thread_id: str,
        *,
        after_version: int | None = None,
        before_version: int | None = None,
        limit: int = 50,
        wait_seconds: float = 0,
    ) -> query_results.ThreadPage | query_results.NoThread:
        """Read messages and results of a thread, in order: the newest, or those after a version. To follow it, pass
        the version of the page as after_version, and wait_seconds.

        after_version: Only later ones, the oldest of them first.
        before_version: The next_before of the page before.
        wait_seconds: How long to wait for items after after_version.
        """
        return self._wait(threads.ThreadRead, locals())

    def token_create(
        self,
        name: str,
        allow: Sequence[str],
        *,
        created_by: str,
        ttl_seconds: float | None = 7776000,
        space: str | None = None,
        request_id: str | None = None,
    ) -> token_results.NewToken | token_results.TokenExists:
        """Create a token for callers over HTTP. Its text is returned this once, and the store keeps only a hash of it.

        name: 1 to 64 characters of a-z, 0-9 and -; the log shows it.
        allow: Grants such as read:* or write:build-*.
        ttl_seconds: None: until it is revoked.
        space: The first label of the only namespaces that it reaches.
        """
        return self._run(tokens.TokenCreate, locals())

    def token_list(self, *, after: str = "", limit: int = 1000) -> query_results.TokenPage:
        """List the tokens by name, in pages, without their texts.

        after: The next_after of the page before.
        """
        return self._query(tokens.TokenList, locals())

    def token_revoke(
        self, name: str, *, revoked_by: str, request_id: str | None = None
    ) -> token_results.Revoked | token_results.NoToken:
        """Revoke a token for ever."""
        return self._run(tokens.TokenRevoke, locals())

    def transact(
        self,
        operations: Sequence[Mapping[str, Any]],
        *,
        updated_by: str,
        guard: Sequence[Mapping[str, Any]] | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> results.TransactionResult:
        """Run several operations on values in one transaction: all of them or none."""
        return self._run(values.Transact, locals())

    def update(
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
        """Let the store compute the new value, so that no change of others is lost: merge (RFC 7396), increment or
        append.

        merge: Object to merge; null removes a member.
        increment: Number to add.
        append: Item to add to a list.
        unique: Append only what the list does not contain.
        """
        return self._update(values.Update, locals())

    def verify(self, checkpoint: str | None = None) -> query_results.Verified | query_results.Damaged:
        """Verify that no event was changed, added or removed, and that the views are what follows from the log. Events
        that were removed at its end, or another history, show only against a checkpoint that is kept elsewhere.

        checkpoint: A line that checkpoint returned: the log must contain it.
        """
        return self._query(admin.Verify, locals())

    def wait(self, resource: str, timeout_seconds: float = 30) -> board.Available | board.WaitTimeout:
        """Wait until nobody holds a resource. This only notifies you, it does not give you the claim: call claim()
        next, or queue with claim() and wait_seconds."""
        return self._wait(claims.WaitFor, locals())

    def watch(
        self, namespace: str, key: str, since_version: int, *, timeout_seconds: float = 10
    ) -> query_results.StateRecord | query_results.DeletedRecord | query_results.WatchTimeout:
        """Wait until a value changes from since_version, and return it."""
        return self._wait(values.Watch, locals())
