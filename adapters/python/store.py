# Generated from adapters/python/async_store.py by `make generate`. Do not edit.
"""The library for threads: `StateStore`."""

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from holdlog.adapters.api.changes.moments import moment
from holdlog.adapters.api.changes.responses import Blame, Diff, RevertResult
from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.past.requests import point_in_time
from holdlog.adapters.api.request import ClaimRequest
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.validation import caller
from holdlog.adapters.api.values import responses
from holdlog.adapters.api.values.transactions import NOT_GIVEN
from holdlog.adapters.compose import named_session, open_holdlog
from holdlog.adapters.python.block import HeldClaim
from holdlog.adapters.python.calls import (
    UPDATE_ATTEMPTS,
    AnyAnswer,
    ClaimAnswer,
    ReleaseAnswer,
    WatchAnswer,
    back_off,
    computed,
    hold_options,
    require_function_alone,
)
from holdlog.adapters.python.changes import EventIterator
from holdlog.adapters.python.held import held
from holdlog.adapters.python.past_store import PastStore
from holdlog.domain.message import Caller
from holdlog.domain.record import NOT_UPDATED
from holdlog.domain.refusals import ConflictError, HoldlogError, InapplicableError, NotFoundError


class StateStore:
    """Versioned JSON values and claims on resources, shared by agents in many processes and kept as a log of events.

    A value has a namespace, a key and a version that counts its changes. A claim is an exclusive or shared right to a
    resource, such as a file path, and ends when its lease expires unless it is renewed.
    Thread-safe; closes itself as a context manager.
    Every method raises InvalidError for an invalid argument and UnavailableError if the store cannot handle the call
    now; each method documents its other errors.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        settings: Settings | None = None,
        session: str | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """Open or create the store at `path`: a file, `:memory:`, or a PostgreSQL URL. `session`: processes that pass
        the same text count as one holder of claims; without it, each store object is a separate session.
        `correlation_id`: recorded with every event that this object causes; it joins the writes of one task. Raises
        StoreError; its one-line message says what to do."""
        self._engine = open_holdlog(path, settings, named_session(session))
        self._engine.caller = caller(self._engine.caller, correlation_id=correlation_id)
        if session is not None:
            self._engine.join()
        self._requests = self._engine.requests
        weakref.finalize(self, self._engine.close)  # SQLite must be closed under the write lock, not by its destructor

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
        """Write a JSON value. `expected_version`: N = exactly N, 0 = must not exist now, None = any version.
        `guard`: claims that the write relies on, as `[{"resource": "a.py", "version": 3}]` with the version of the
        grant. `ttl_seconds`: lifetime of the value; None = unlimited, whatever an earlier write set. Raises FencedError
        if the writer no longer holds one of the claims, and ConflictError if the version differs; its `.detail` has the
        current value.
        """
        who = self._caller(reason, request_id)
        call = self._requests.values.set(namespace, key, value, updated_by, expected_version, guard, ttl_seconds)
        return self._engine.write(call, who)

    def get(self, namespace: str, key: str) -> responses.StateRecord:
        """Return the current value. Raises NotFoundError."""
        return self._engine.read(self._requests.values.get(namespace, key))

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
        """Delete the value; its history is kept, and the next write continues the version numbers. `expected_version`,
        `guard`: as for `set`. Raises NotFoundError, ConflictError, FencedError."""
        who = self._caller(reason, request_id)
        call = self._requests.values.delete(namespace, key, deleted_by, expected_version, guard)
        return self._engine.write(call, who)

    def clear_namespace(
        self, namespace: str, *, deleted_by: str, reason: str | None = None, request_id: str | None = None
    ) -> responses.ClearResult:
        """Delete every value of a namespace in one transaction, whatever their versions."""
        who = self._caller(reason, request_id)
        return self._engine.write(self._requests.values.clear(namespace, deleted_by), who)

    def transact(
        self,
        operations: Sequence[Mapping[str, Any]],
        *,
        updated_by: str,
        guard: Sequence[Mapping[str, Any]] = (),
        reason: str | None = None,
        request_id: str | None = None,
    ) -> responses.TransactionResult:
        """Run up to 1,000 operations in one transaction: all or none. Each has `op` (`set`, `delete`, `check`, `merge`,
        `increment`, `append` or `patch`), `namespace`, `key` and the fields of docs/library.md, and sees the effects of
        the ones before it. `guard`: as for `set`. Raises ConflictError, NotFoundError, FencedError, InapplicableError
        (an update does not apply) and InvalidError; their `.operation` is the index of the operation."""
        who = self._caller(reason, request_id)
        return self._engine.write(self._requests.transactions.transact(operations, updated_by, guard), who)

    def update(
        self,
        namespace: str,
        key: str,
        function: Callable[[Any], Any] | None = None,
        *,
        updated_by: str,
        merge: Any = NOT_GIVEN,
        patch: Any = NOT_GIVEN,
        increment: Any = NOT_GIVEN,
        append: Any = NOT_GIVEN,
        unique: bool = False,
        expected_version: int | None = None,
        guard: Sequence[Mapping[str, Any]] = (),
        reason: str | None = None,
        request_id: str | None = None,
    ) -> responses.UpdateResult:
        """Compute a value from the current one. The store does it, in the transaction that writes it, for one of
        `merge` (a JSON merge patch, RFC 7396), `patch` (a JSON patch, RFC 6902), `increment` (a number to add) and
        `append` (a value for the end of a list; `unique`: unless the list has it). The value keeps its expiry.
        `expected_version`, `guard`: as for `set`. Raises ConflictError, FencedError, InapplicableError if the update
        does not apply to the value, and NotFoundError if there is none to patch.

        With `function`, this process computes it: `function` gets the value (None if there is none) and returns the
        next one; if another write came in between, it is called again. Sleeps up to 50 ms after a conflict; raises
        ConflictError after 100 attempts. Cannot be combined with the other arguments but `guard`, `reason` and
        `request_id`; a repeated request returns the first result, whatever `function` returns now.
        """
        if function is None:
            call = self._requests.transactions.update(
                namespace, key, updated_by, expected_version, guard,
                merge=merge, patch=patch, increment=increment, append=append, unique=unique,
            )  # fmt: skip
            return self._engine.write(call, self._caller(reason, request_id))
        require_function_alone(merge, patch, increment, append, unique, expected_version)
        who = self._caller(reason, request_id)
        for attempt in range(1, UPDATE_ATTEMPTS):
            try:
                return self._update_once(namespace, key, function, updated_by, guard, who)
            except ConflictError:
                time.sleep(back_off(attempt))
        return self._update_once(namespace, key, function, updated_by, guard, who)

    def list_records(
        self,
        namespace: str,
        *,
        prefix: str = "",
        limit: int = 1000,
        after_key: str | None = None,
        deleted: bool = False,
    ) -> responses.RecordList:
        """Return a page of the values of a namespace, sorted by key, at one position of the log; `next_after` is set if
        there are more. A page also ends at 1 MiB, but has at least one value."""
        return self._engine.read(self._requests.values.records(namespace, prefix, limit, after_key, deleted))

    def list_keys(self, namespace: str) -> list[responses.StateRecord]:
        """Return all values of a namespace, sorted by key, at one position of the log."""
        return self._engine.read(self._requests.values.all_records(namespace))

    def list_namespaces(self) -> list[str]:
        """Return the namespaces that have values, sorted by name."""
        return self._engine.read(self._requests.values.all_namespaces())

    def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> list[responses.Past]:
        """Return the changes of a key, newest first; empty if there are none."""
        return self._engine.read(self._requests.values.all_history(namespace, key, limit, before_version))

    def at(self, *, position: int | None = None, time: datetime | str | None = None) -> PastStore:
        """Return the store as it was, to read from: after the event at a position, or at a time (aware, else UTC; or
        RFC 3339 text), which means the last position until then. Raises InvalidError unless one of them is passed."""
        return PastStore(self._engine, point_in_time(position, time))

    def export_namespace(self, namespace: str, *, include_deleted: bool = False) -> responses.Export:
        """Return all values of a namespace with their whole histories, at one position of the log."""
        return self._engine.read(self._requests.values.all_exported(namespace, include_deleted))

    def diff(
        self,
        namespace: str,
        key: str | None = None,
        *,
        from_version: int | None = None,
        from_position: int | None = None,
        from_time: datetime | str | None = None,
        to_version: int | None = None,
        to_position: int | None = None,
        to_time: datetime | str | None = None,
        limit: int = 1000,
        after_key: str | None = None,
    ) -> Diff:
        """Return what differs between two moments: of one key, or of all keys of a namespace in pages (`next_after`).
        One argument of each kind: a version of the key, a position in the log (0: before the first event), or a time
        (a `datetime`, aware or in UTC, or RFC 3339); without one of the second kind, the difference to now. Keys that
        do not differ are not listed, so a page may be short although `next_after` is set. Each change has its `paths`,
        like a JSON Patch (RFC 6902) with the previous values. Raises NotFoundError for a key that was never written."""
        start = moment("from", from_version, from_position, from_time)
        end = moment("to", to_version, to_position, to_time)
        return self._engine.read(self._requests.changes.diff(namespace, key, start, end, limit, after_key))

    def blame(
        self,
        namespace: str,
        key: str,
        *,
        fields: bool = False,
        version: int | None = None,
        position: int | None = None,
        time: datetime | str | None = None,
        limit: int = 1000,
        after_field: str | None = None,
    ) -> Blame:
        """Return who wrote, deleted or expired a key last, what that relied on (`based_on`, `forced`, `guard`), and
        why. `fields`: also who changed each field of an object last. `version`, `position` or `time`: as it was then,
        as for `diff`. Reads at most 10,000 versions; `older` names fields that changed before them, and `next_version`
        is the `version` to pass for them. Raises NotFoundError for a key that did not exist yet."""
        at = moment("", version, position, time)
        call = self._requests.changes.blame(namespace, key, at, fields, limit, after_field)
        return self._engine.read(call)

    def revert(
        self,
        *,
        reverted_by: str,
        session: str | None = None,
        correlation_id: str | None = None,
        agent: str | None = None,
        since: datetime | str | None = None,
        namespace: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> RevertResult:
        """Undo what a run wrote: a session, as `blame` shows it or as its client named it, or the writes under a
        correlation id. `agent`: only those of this agent and its sub-agents; `since`: only from this time on;
        `namespace`: only there. Every key gets the value that it had before the versions that the run wrote last
        without interruption, or is deleted if it had none: new events in one transaction, which the returned
        `correlation_id` undoes, too. `kept_as_is` lists the keys that were left as they are, and why: others changed
        or claim them, or a value is redacted. At most 1,000 keys and 64 MiB. Files, threads and claims are not changed.
        `dry_run`: change nothing, only return what would happen. Stop the run first: what it writes during the call
        may remain."""
        who = self._caller(reason, request_id)
        calls = self._requests.reverts
        writes = self._engine.read(calls.find(session, correlation_id, agent, since, namespace))
        if dry_run:
            return self._engine.read(calls.preview(writes, reverted_by, who))
        return self._engine.write(calls.revert(writes, reverted_by), who)

    def watch(self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10) -> WatchAnswer:
        """Block until the key has a version above `since_version` (0: until it exists) or the timeout passes."""
        return self._engine.wait(self._requests.values.watch(namespace, key, since_version, timeout_seconds))

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
        """Return a page of the log above position `after`: ordered, complete, without duplicates, and with whole
        commits only (docs/events.md). Pass `next_position` as `after` to continue; if it equals `bookmark`, there are
        no more events. `wait_seconds`: how long to wait if there are no events yet. `namespace` (with `prefix` of
        keys), `resource` (with what overlaps it) and `thread` select events of any of these; `kinds`: such as
        `ValueWritten` or `claim`; `agent`: only events of this agent and its sub-agents.
        """
        choice = self._requests.events.choice(namespace, prefix, kinds, resource, agent, thread)
        if wait_seconds:
            return self._engine.wait(self._requests.events.next_page(choice, after, limit, wait_seconds))
        return self._engine.read(self._requests.events.page(choice, after, limit))

    def changes(
        self,
        after: int | str | None = None,
        *,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        thread: str | None = None,
        agent: str | None = None,
        wait_seconds: float | None = None,
    ) -> EventIterator:
        """Iterate over events, each once and in order: `for event in store.changes(namespace="orders"): …`.
        Waits for new ones until none came for `wait_seconds` (None: until the store is closed; 0: do not wait), also
        through outages of the store. `after`: a position (0: from the beginning) or a `bookmark` of such an iterator,
        to continue after it; None: only new events. Filters as for `events`. The iterator raises InvalidError for a
        bookmark of another store.
        """
        choice = self._requests.events.choice(namespace, prefix, kinds, resource, agent, thread)
        return EventIterator(self._engine, choice, after, wait_seconds)

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
        """Claim a resource for an agent. If it is not free, the response names its holder, and is false in `if`.
        `also`: further resources, all or nothing. `alternatives`: if the resource is not free, claim the first of these
        that is. `wait_seconds`: how long to queue for it. `mode`: `exclusive` or `shared`. `note`: shown to other
        agents. Every write of the agent renews the lease; `claimed` renews it automatically.
        """
        call = self._requests.claims.claim(resource, agent, also, alternatives, lease_seconds, wait_seconds, mode, note)
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

        Claims the resource, or queues for up to `wait_seconds`, without the limit of `claim`; raises BusyError or
        DeadlockError if it does not get the claim, and leaves the queue. `alternatives` are available only in `claim`.
        The lease is renewed in the background, and exactly this claim is released at the end, even if the block raises.
        `outcome`, or `claim.outcome` and `claim.note` set inside the block, tell the next holder what was done; the
        default is `released`, even after a block that raised. Pass `guard=claim.guard` to a write so that it raises
        FencedError once the claim is lost. A block that ends without an exception also raises FencedError if its claim
        was lost meanwhile, because part of its work was not protected. Claims that the agent held before stay held: in
        nested blocks of one agent only the outermost releases. Threads that must exclude each other need different
        agent names.
        """
        return held(
            self._engine,
            hold_options(self._requests, resource, agent, also, wait_seconds, lease_seconds, mode, note, outcome),
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
        """Release a resource, or everything that the agent holds; the first waiter gets it at once. `outcome`: what was
        done to it (`released`, `modified`, `created`, `deleted`, `moved`), shown to the next holder with the `note`."""
        call = self._requests.claims.release(resource, agent, also, outcome, moved_to, note)
        try:
            answer: ReleaseAnswer = self._engine.write(call, self._caller(None, request_id))
        except HoldlogError as refusal:
            answer = self._requests.expected(refusal)  # type: ignore[assignment]
        return _with_lost(answer, self._engine.lost(self._engine.caller))

    def status(self, resource: str, version: int | None = None) -> claims.Available | claims.Held:
        """Return the holder of a resource; `current` is True if the grant `version` is live. As in responses to `claim`
        and `release`, `lost` lists the claims that this session lost, each once."""
        answer = self._engine.read(self._requests.claims.status(resource, version))
        return _with_lost(answer, self._engine.lost(self._engine.caller))

    def board(self, *, agent: str | None = None, limit: int = 100, after: str | None = None) -> claims.Board:
        """List claims and queues, in pages by resource; with `agent`, only those of this agent and its sub-agents."""
        return self._engine.read(self._requests.claims.board(agent, limit, after))

    def register(
        self,
        agent: str,
        *,
        name: str | None = None,
        model: str | None = None,
        purpose: str | None = None,
        request_id: str | None = None,
    ) -> claims.RegisteredAgent:
        """Register a description of an agent; omitted fields keep their values."""
        call = self._requests.claims.register(agent, name, model, purpose)
        return self._engine.write(call, self._caller(None, request_id))

    def wait(self, resource: str, timeout_seconds: float = 30) -> claims.Available | claims.WaitTimeout:
        """Block until nobody holds the resource or the timeout passes. This only notifies; it does not claim the
        resource."""
        return self._engine.wait(self._requests.claims.wait(resource, timeout_seconds))

    def close(self) -> None:
        """Finish running calls and close the store."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self, call: ClaimRequest[Any], request_id: str | None) -> ClaimAnswer:
        try:
            answer: ClaimAnswer = self._engine.claim(call, self._caller(None, request_id))
        except HoldlogError as refusal:
            answer = self._requests.expected(refusal)  # type: ignore[assignment]
        return _with_lost(answer, self._engine.lost(self._engine.caller))

    def _caller(self, reason: str | None, request_id: str | None) -> Caller:
        who = self._engine.caller
        return who if reason is None and request_id is None else caller(who, reason=reason, request_id=request_id)

    def _update_once(
        self,
        namespace: str,
        key: str,
        function: Callable[[Any], Any],
        by: str,
        guard: Sequence[Mapping[str, Any]],
        who: Caller,
    ) -> responses.UpdateResult:
        try:
            record = self._engine.read(self._requests.values.get(namespace, key))
            value, version = record.value, record.version
            if record.redacted:
                raise InapplicableError(NOT_UPDATED)
        except NotFoundError:
            value, version = None, 0
        value, redacted = function(value), None
        call = self._requests.values.set(namespace, key, value, by, version, guard)
        done = self._engine.write(computed(call), who)
        if done.version <= version:  # the response to the first request; another value may be current
            (first,) = self.history(namespace, key, 1, done.version + 1)
            value, redacted = first.value, first.redacted
        return responses.UpdateResult(**done.__dict__, value=value, redacted=redacted)


def _with_lost(answer: AnyAnswer, lost: list[responses.Lost]) -> AnyAnswer:
    """The response, with the claims that this session has lost since the previous one."""
    return answer.model_copy(update={"lost": lost}) if lost else answer
