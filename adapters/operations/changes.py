"""Who changed what: blame, diff, revert."""

import secrets
from collections.abc import Iterator
from heapq import merge
from itertools import groupby, repeat
from typing import Any, Self

from pydantic import Field, TypeAdapter, model_validator
from pydantic_core import from_json

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Agent, Label, Limit, Name, Note, Prefix, Query, Resource, Task, Version
from holdlog.adapters.operations.moments import MomentArgument, find_moment, find_start
from holdlog.adapters.operations.past import scan_values_at
from holdlog.adapters.operations.rows import NO_LIMIT, find_version, read_history, scan, show_record
from holdlog.adapters.stores import sql
from holdlog.domain import revert
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.names import end_of_range, namespace_prefix, value_stream
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.results import NotFound, utc
from holdlog.domain.revert import Reverted, Run
from holdlog.domain.state import Decision, Reads, State
from holdlog.domain.values import encode
from holdlog.projections.difference import Difference, KeyChange, compare
from holdlog.projections.past import PastMoment
from holdlog.projections.results import Blame, Condition, FileBlame, FileChange, StateRecord

FEW = 8
"""Versions of a key that are read at once: most runs write a key a few times."""


class ReadBlame(Query, name="blame", group="power", route="GET /blame", positional="namespace key"):
    """Who wrote a value last, based on which version, guarded by which claims, and why; with resource, who changed a
    file."""

    results = (Blame, FileBlame, NotFound)
    namespace: Name | None = None
    key: Name | None = None
    at: MomentArgument | None = Field(default=None, description="As of this version of the key, position or time")
    resource: Resource | None = Field(default=None, description="A file that hooks watch, instead of a value")
    before_version: Version | None = Field(default=None, description="The next_before of the page of a file before")
    limit: Limit = Field(default=20, description="Changes of a file, the newest first")

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if (self.resource is None) == (self.key is None) or (self.namespace is None) != (self.key is None):
            raise ValueError("give either namespace and key, or resource")
        if self.resource is not None and self.at is not None:
            raise ValueError("at: cannot be combined with resource")
        return self

    def read(self, reader: Reader) -> Blame | FileBlame:
        if self.resource is not None:
            return self._blame_file(reader, self.resource)
        namespace, key = self.namespace or "", self.key or ""
        stream = value_stream(namespace, key)
        moment = find_moment(reader, "now" if self.at is None else self.at, "at", stream)
        last = find_version(reader, stream, moment.position)
        if last is None:
            raise NotFoundError(NotFound(namespace, key))
        (entry,), _ = read_history(reader, stream, last[1] + 1, 1)
        get = from_json(last[3]).get
        guard = [Condition(it["resource"], it["version"]) for it in get("guard") or ()] or None
        author = (entry.version, entry.updated_by, entry.updated_at, entry.event_type, entry.position)
        return Blame(namespace, key, *author, *entry[6:], guard, get("session"), get("correlation_id"), moment.as_of)

    def _blame_file(self, reader: Reader, resource: str) -> FileBlame:
        before = self.before_version if self.before_version is not None else NO_LIMIT
        parameters = {"stream": f"claim:{resource}", "before": before, "limit": self.limit + 1}
        rows = reader.read(sql.FILE_CHANGES, parameters)
        changes = [_show_change(row) for row in rows[: self.limit]]
        return FileBlame(resource, changes, changes[-1].version if len(rows) > self.limit else None)


class Diff(Query, name="diff", route="GET /diff", positional="start end"):
    """List the values of a namespace, or the parts of one value, that differ between two moments."""

    results = (Difference,)
    start: MomentArgument
    end: MomentArgument = "now"
    namespace: Name
    key: Name | None = None
    limit: Limit = 100
    after_key: Prefix | None = Field(default=None, description="The next_after of the page before")

    def read(self, reader: Reader) -> Difference:
        stream = None if self.key is None else value_stream(self.namespace, self.key)
        start, end = find_moment(reader, self.start, "start", stream), find_moment(reader, self.end, "end", stream)
        changes: list[KeyChange] = []
        for key, before, after in self._pair(reader, start, end):
            if before is not None and after is not None and not _differ(before, after):
                continue
            if len(changes) == self.limit:
                return Difference(self.namespace, changes, start.as_of, end.as_of, changes[-1].key)
            changes.append(self._describe(reader, end, key, before, after))
        return Difference(self.namespace, changes, start.as_of, end.as_of)

    def _pair(
        self, reader: Reader, start: PastMoment, end: PastMoment
    ) -> Iterator[tuple[str, StateRecord | None, StateRecord | None]]:
        """The values of both moments, by key."""
        sides = (zip(repeat(side), self._list(reader, moment)) for side, moment in enumerate((start, end)))
        for key, group in groupby(merge(*sides, key=_key), _key):
            records = dict(group)
            yield key, records.get(0), records.get(1)

    def _list(self, reader: Reader, moment: PastMoment) -> Iterator[StateRecord]:
        """The values at a moment, in order of their keys."""
        first = namespace_prefix(self.namespace)
        prefix, rows = (first, NO_LIMIT) if self.key is None else (first + self.key, 1)
        for row in scan_values_at(reader, prefix, first + (self.after_key or ""), rows, moment):
            record = show_record(row, moment.at)
            if self.key in (None, record.key):
                yield record
            if self.key is not None:
                return

    def _describe(
        self, reader: Reader, end: PastMoment, key: str, before: StateRecord | None, after: StateRecord | None
    ) -> KeyChange:
        stream = value_stream(self.namespace, key)
        last = find_version(reader, stream, end.position)
        entry = read_history(reader, stream, last[1] + 1, 1)[0][0] if last is not None else None
        author: Any = (entry.version, entry.updated_by, entry.updated_at, entry.reason) if entry else (None,) * 4
        if before is None or after is None:
            change: Any = "added" if before is None else "removed"
            return KeyChange(key, change, before.version if before is not None else None, *author)
        redacted = before.redacted or after.redacted
        paths = list(compare(before.value, after.value)) if self.key is not None and not redacted else None
        return KeyChange(key, "changed", before.version, *author)._replace(paths=paths, redacted=redacted)


def _key(pair: tuple[int, StateRecord]) -> str:
    return pair[1].key


def _differ(before: StateRecord, after: StateRecord) -> bool:
    is_redacted = before.redacted or after.redacted
    return before.version != after.version and bool(is_redacted or any(compare(before.value, after.value)))


class RevertBlocks:
    """The command of a revert: what was read of its run before the write lock is taken."""

    def __init__(self, operation: "Revert", run: Run, blocks: list[revert.Block]) -> None:
        self.operation, self.run, self.blocks = operation, run, blocks
        self.reverted_by, self.reason, self.dry_run = operation.reverted_by, operation.reason, operation.dry_run

    def __repr__(self) -> str:
        """Repeats of a request have the same arguments, and find other blocks."""
        return repr(self.operation)

    def reads(self) -> Reads:
        return revert.declare(self)

    def decide(self, state: State, moment: Moment) -> Decision:
        return revert.revert(self, state, moment)

    def recall(self, result: Any, state: State, moment: Moment) -> Reverted:
        return TypeAdapter(Reverted).validate_python(result)


class Revert(Task, name="revert", group="power", route="POST /reverts", scope="write", repeats=True):
    """Undo what a session, or all writes under a correlation id, changed last. Keys that others wrote or claim are
    kept. Try it with dry_run first."""

    results = (Reverted,)
    session: Label | None = Field(default=None, description="Whose writes are undone")
    correlation_id: Label | None = Field(default=None, description="Instead of session")
    agent: Agent | None = Field(default=None, description="Only its writes and those of its sub-agents")
    since: MomentArgument | None = Field(default=None, description="Only writes since this position or time")
    namespace: Name | None = None
    reverted_by: Agent
    dry_run: bool = False
    reason: Note | None = None

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if (self.session is None) == (self.correlation_id is None):
            raise ValueError("give either session or correlation_id")
        return self

    def run(self, engine: Engine, caller: Caller) -> Reverted:
        engine.require_open()
        run, blocks = self._find_run(engine.store)
        caller = caller._replace(correlation_id=secrets.token_hex(8))  # so that this revert alone can be undone
        result: Reverted = engine.run(RevertBlocks(self, run, blocks), caller)
        return result

    def _find_run(self, reader: Reader) -> tuple[Run, list[revert.Block]]:
        after, since = find_start(reader, self.since, "since") if self.since is not None else (0, 0)
        run = Run(self.session, self.correlation_id, self.agent, since, after)
        query = sql.RUN_OF_SESSION if self.session is not None else sql.RUN_OF_TASK
        first = namespace_prefix(self.namespace) if self.namespace is not None else "record:"
        parameters = {"first": first, "end": end_of_range(first), "after": after, "since": since}
        parameters |= {"name": self.session or self.correlation_id, "limit": revert.MAX_KEYS + 1}
        rows = reader.read(query, parameters | {"agent": f"{self.agent}/" if self.agent is not None else ""})
        if len(rows) > revert.MAX_KEYS:
            raise InvalidError(f"this run wrote over {revert.MAX_KEYS} keys; revert a namespace or an agent of it")
        return run, [_find_block(reader, run, stream, earliest) for stream, earliest in rows]


def _find_block(reader: Reader, run: Run, stream: str, earliest: int) -> revert.Block:
    block = revert.find_block(run, stream, earliest, _read_versions(reader, stream))
    if block.reason is not None or block.restored is None:
        return block
    rows = reader.read(sql.TEXTS, {"stream": stream, "first": block.restored, "second": block.last})
    values = {version: from_json(payload).get("value", ...) for version, payload in rows if payload is not None}
    if block.restored not in values:
        return block._replace(reason="redacted")  # meanwhile
    value = encode(values[block.restored])
    is_same = block.last in values and values[block.last] is not ... and encode(values[block.last]) == value
    return block._replace(value=value, is_same=is_same)


def _read_versions(reader: Reader, stream: str) -> Iterator[revert.Version]:
    """The versions of a key, the newest first, without their values."""
    for row in scan(reader, sql.VERSIONS, {"stream": stream, "before": NO_LIMIT}, FEW, "before", payload=3):
        version, topic, at, meta, is_redacted, position = row
        get = from_json(meta).get
        caller = (get("by") or "", get("session"), get("principal"), get("correlation_id"))
        guards = tuple(condition["resource"] for condition in get("guard") or ())
        yield revert.Version(version, position, topic, at, *caller, guards, bool(is_redacted), get("expires_at"))


def _show_change(row: Any) -> FileChange:
    position, version, at, meta = row
    get = from_json(meta).get
    return FileChange(get("by"), utc(at), position, version, get("sha256"), get("session"), get("principal"))
