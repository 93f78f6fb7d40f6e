"""The requests of every surface: check the arguments, then define what to run and how to respond. Runs nothing
itself."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json

from holdlog.adapters.api.pagination import MAX_PAGE, chunks, event_bytes, page, record_bytes, up_to_a_page
from holdlog.adapters.api.request import BlockingQuery, CommandRequest, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import (
    BEGINNING,
    NAME,
    after_argument,
    checked,
    invalid,
    json_value,
    number_of_seconds,
    page_size,
    text,
    whole,
)
from holdlog.adapters.api.values import presenter, responses
from holdlog.adapters.api.values.credentials import with_warnings
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.domain.envelope import Recorded
from holdlog.domain.history import newest_first
from holdlog.domain.message import Event
from holdlog.domain.names import record_stream
from holdlog.domain.ports import Reader
from holdlog.domain.record import (
    MAX_TTL_SECONDS,
    MIN_TTL_SECONDS,
    ClearNamespace,
    Delete,
    Merge,
    Record,
    Set,
    Transact,
    seen,
)
from holdlog.domain.refusals import InvalidError
from holdlog.domain.times import utc

EXPORT_PAGE: Final = 100
"""Records in a page of an export; each comes with its whole history."""
EXPORTED_AT_ONCE: Final = 16
"""Events of a history in memory while a line of an export is written."""


class ValueRequests:
    """Builds requests about values. Every method raises InvalidError for an invalid argument, then DeniedError for what
    the caller may not do."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        by: str,
        expected_version: int | None,
        guard: object = (),
        ttl_seconds: float | None = None,
    ) -> CommandRequest[responses.SetResult]:
        made = json_value(value, self._rules.settings.max_value_bytes)
        expected = None if expected_version is None else whole(expected_version, "expected_version")
        ttl = None if ttl_seconds is None else time_to_live(ttl_seconds)
        try:
            operation = Set(namespace=namespace, key=key, value=made, expected_version=expected, ttl_seconds=ttl)
            command = Transact(operations=(operation,), by=by, guard=self._rules.guards(guard) if guard != () else ())
        except ValidationError as error:
            raise invalid(error) from None
        if self._rules.grants is not EVERYTHING:
            self._rules.require_to_change(command)
        return CommandRequest(command, with_warnings(presenter.set_result, (made.text,)))

    def get(self, namespace: str, key: str) -> Query[responses.StateRecord]:
        """The query raises NotFoundError."""
        address = self._readable(namespace, key)
        return Query(lambda reader: presenter.state_record(*_now(reader, *address)))

    def merge(
        self,
        namespace: str,
        key: str,
        patch: Any,
        by: str,
        expected_version: int | None,
        guard: object = (),
        ttl_seconds: float | None = None,
        keeps_end: bool = True,
    ) -> CommandRequest[responses.SetResult]:
        """Apply a JSON merge patch (RFC 7396). `ttl_seconds` applies to a new value, or to any value unless
        `keeps_end`."""
        arguments = {
            "namespace": namespace,
            "key": key,
            "patch": json_value(patch, self._rules.settings.max_value_bytes),
            "expected_version": None if expected_version is None else whole(expected_version, "expected_version"),
            "ttl_seconds": None if ttl_seconds is None else time_to_live(ttl_seconds),
            "keeps_end": keeps_end,
            "max_bytes": self._rules.settings.max_value_bytes,
        }
        try:
            operation = Merge.model_validate(arguments)
            command = Transact(operations=(operation,), by=by, guard=self._rules.guards(guard) if guard != () else ())
        except ValidationError as error:
            raise invalid(error) from None
        if self._rules.grants is not EVERYTHING:
            self._rules.require_to_change(command)
        return CommandRequest(command, with_warnings(presenter.set_result, (operation.patch.text,)))

    def record(self, namespace: str, key: str) -> Query[Record]:
        """The record as it is now, live or not: the source of `get`."""
        address = self._readable(namespace, key)
        return Query(lambda reader: _now(reader, *address)[0])

    def delete(
        self, namespace: str, key: str, by: str, expected_version: int | None, guard: object = ()
    ) -> CommandRequest[responses.DeleteResult]:
        expected = None if expected_version is None else whole(expected_version, "expected_version")
        try:
            operation = Delete(namespace=namespace, key=key, expected_version=expected)
            command = Transact(operations=(operation,), by=by, guard=self._rules.guards(guard) if guard != () else ())
        except ValidationError as error:
            raise invalid(error, by="deleted_by") from None
        if self._rules.grants is not EVERYTHING:
            self._rules.require_to_change(command)
        return CommandRequest(command, lambda outcome: presenter.delete_result(outcome, command.by))

    def clear(self, namespace: str, by: str) -> CommandRequest[responses.ClearResult]:
        command = checked(lambda: ClearNamespace(namespace=namespace, by=by), by="deleted_by")
        self._rules.require("admin", command.namespace)
        return CommandRequest(command, lambda outcome: presenter.clear_result(outcome, command.namespace, command.by))

    def records(
        self, namespace: str, prefix: str = "", limit: int = MAX_PAGE, after: str | None = None, deleted: bool = False
    ) -> Query[responses.RecordList]:
        namespace, size = text(namespace, "namespace", NAME), page_size(limit)
        prefix, after = text(prefix, "prefix", BEGINNING), after_argument(after, "after_key")
        self._rules.require("read-values", namespace)

        def answer(reader: Reader) -> responses.RecordList:
            found, more = page(_records(reader, namespace, prefix, after, deleted), size, record_bytes)
            return responses.RecordList(
                namespace=namespace,
                count=len(found),
                records=[presenter.listed(record) for record in found],
                position=reader.position(),
                next_after=found[-1].key if more else None,
            )

        return Query(answer, large=True)

    def namespaces(self, limit: int = MAX_PAGE, after: str | None = None) -> Query[responses.NamespaceList]:
        size, after = page_size(limit), after_argument(after, "after_key")

        def answer(reader: Reader) -> responses.NamespaceList:
            found, more = page(self._namespaces(reader, after, size + 1), size)
            return responses.NamespaceList(
                count=len(found),
                namespaces=[responses.ListedNamespace(namespace=name, count=count) for name, count in found],
                position=reader.position(),
                next_after=found[-1][0] if more else None,
            )

        return Query(answer, large=True)

    def all_records(self, namespace: str) -> Query[list[responses.StateRecord]]:
        namespace = self._readable_namespace(namespace)
        return Query(
            lambda reader: [
                presenter.state_record(it, reader.at) for it in reader.records(namespace, "", None, -1, False)
            ],
            large=True,
        )

    def all_namespaces(self) -> Query[list[str]]:
        return Query(lambda reader: [namespace for namespace, _ in self._namespaces(reader, None, -1)], True)

    def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> Query[responses.History]:
        size = page_size(limit)
        before = None if before_version is None else whole(before_version, "before_version")
        namespace, key = self._readable(namespace, key)

        def answer(reader: Reader) -> responses.History:
            found, more = page(newest_first(reader, record_stream(namespace, key), before), size, event_bytes)
            return responses.History(
                namespace=namespace,
                key=key,
                history=self._entries(found),
                next_before=found[-1].envelope.version if more else None,
            )

        return Query(answer, large=True)

    def all_history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> Query[list[responses.Past]]:
        """As many entries as requested, however large: a list cannot indicate that it was cut."""
        size = page_size(limit)
        before = None if before_version is None else whole(before_version, "before_version")
        namespace, key = self._readable(namespace, key)
        stream = record_stream(namespace, key)
        return Query(lambda reader: self._entries(reader.history(stream, before, size)), large=True)

    def export(
        self, namespace: str, include_deleted: bool = False, after: str | None = None
    ) -> Query[responses.Export]:
        after, namespace = after_argument(after, "after_key"), self._readable_namespace(namespace)

        def answer(reader: Reader) -> responses.Export:
            found, more = page(
                records_by_key(reader, namespace, after, include_deleted),
                EXPORT_PAGE,
                lambda record: (
                    record_bytes(record) + up_to_a_page(event_bytes(it) for it in newest_first(reader, record.stream))
                ),
            )
            return self._export(reader, namespace, found, found[-1].key if more else None)

        return Query(answer, large=True)

    def all_exported(self, namespace: str, include_deleted: bool = False) -> Query[responses.Export]:
        namespace = self._readable_namespace(namespace)
        return Query(
            lambda reader: self._export(
                reader, namespace, list(records_by_key(reader, namespace, None, include_deleted)), None
            ),
            large=True,
        )

    def exported_text(
        self, namespace: str | None = None, include_deleted: bool = False
    ) -> Callable[[Reader], Iterator[str]]:
        """All values of one namespace, or of all, with their whole histories: a line of JSON for each key. Parts of
        lines, each with a few events at most, so that neither a large store nor a long history must fit into memory."""
        named = None if namespace is None else self._readable_namespace(namespace)

        def parts(reader: Reader) -> Iterator[str]:
            for name in chunks(reader.written_namespaces, None, str) if named is None else (named,):
                if self._rules.grants.allows("read-values", name):
                    for record in records_by_key(reader, name, None, include_deleted):
                        yield from self._exported_line(reader, record)

        return parts

    def _exported_line(self, reader: Reader, record: Record) -> Iterator[str]:
        """Parts of a line of JSON: the fields of `export`, and the namespace."""
        head = {"namespace": record.namespace, **presenter.listed(record).model_dump(mode="json")}
        yield f'{to_json(head).decode()[:-1]},"history":['
        separator = ""
        for past in newest_first(reader, record.stream, largest=EXPORTED_AT_ONCE):
            (entry,) = self._entries([past])
            yield f"{separator}{to_json(entry.body()).decode()}"
            separator = ","
        yield "]}\n"

    def watch(
        self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10
    ) -> BlockingQuery[responses.StateRecord | responses.Deleted | responses.WatchTimeout]:
        since = whole(since_version, "since_version")
        seconds, cap = self._rules.capped(number_of_seconds(timeout_seconds, "timeout_seconds"))
        address = self._readable(namespace, key)
        known: int | None = None

        def read(reader: Reader, elapsed: float) -> responses.StateRecord | responses.Deleted | None:
            nonlocal known
            record, now = _now(reader, *address)
            if known is None:  # 0 means "missing": a deletion before the call is not a change
                known = record.version if since == 0 and not record.live else since
            return presenter.watched(record, now) if record.version > known else None

        def timed_out(reader: Reader, elapsed: float) -> responses.WatchTimeout:
            return presenter.watch_timeout(Record(*address), since, elapsed, cap)

        return BlockingQuery(read, timed_out, seconds, (record_stream(*address),))

    def _readable(self, namespace: str, key: str) -> tuple[str, str]:
        address = text(namespace, "namespace", NAME), text(key, "key", NAME)
        if self._rules.grants is not EVERYTHING:
            self._rules.require("read-values", address[0])
        return address

    def _readable_namespace(self, namespace: str) -> str:
        namespace = text(namespace, "namespace", NAME)
        self._rules.require("read-values", namespace)
        return namespace

    def _namespaces(self, reader: Reader, after: str | None, limit: int) -> list[tuple[str, int]]:
        """Like `reader.namespaces`, but only those that the caller may read."""
        if self._rules.grants is EVERYTHING:
            return reader.namespaces(after, limit)
        found = chunks(reader.namespaces, after, lambda it: it[0])
        seen = (it for it in found if self._rules.grants.allows("read-values", it[0]))
        return list(seen if limit < 0 else islice(seen, limit))

    def _entries(self, history: list[Recorded[Event]]) -> list[responses.Past]:
        spelled, sees = self._rules.spelled, self._rules.sees
        return [presenter.past(recorded, spelled, sees) for recorded in history]

    def _export(self, reader: Reader, namespace: str, found: list[Record], next_after: str | None) -> responses.Export:
        exported = [
            presenter.exported(record, reader.history(record.stream, None, -1), self._rules.spelled, self._rules.sees)
            for record in found
        ]
        return responses.Export(
            namespace=namespace,
            exported_at=utc(self._rules.clock()),
            record_count=len(exported),
            history_count=sum(len(record.history) for record in exported),
            records=exported,
            position=reader.position(),
            next_after=next_after,
        )


def time_to_live(seconds: object) -> float:
    """Check a time to live: within its bounds, to the microsecond."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not MIN_TTL_SECONDS <= seconds <= MAX_TTL_SECONDS
    ):
        raise InvalidError(
            f"ttl_seconds: must be a number of seconds from {MIN_TTL_SECONDS:f} to {MAX_TTL_SECONDS} (ten years)"
        )
    return float(seconds)


def _now(reader: Reader, namespace: str, key: str) -> tuple[Record, int]:
    """The record as it is now, and the time used for its expiry (0 if it does not expire)."""
    record = reader.record(namespace, key)
    if record.expires_at is None:
        return record, 0
    at = reader.at
    if at < record.expires_at:
        return record, at
    # Read again after taking the time: a value renewed in between must not count as expired.
    return seen(reader.record(namespace, key), at), at


def _records(reader: Reader, namespace: str, prefix: str, after: str | None, deleted: bool) -> Iterator[Record]:
    found = chunks(lambda key, size: reader.records(namespace, prefix, key, size, deleted), after, lambda it: it.key)
    return (seen(record, reader.at) for record in found)


def records_by_key(reader: Reader, namespace: str, after: str | None, include_deleted: bool) -> Iterable[Record]:
    """The records of a namespace that have a value, and with `include_deleted` those that had one, by key, after a key.
    A value that is due has expired."""
    kinds = (False, True) if include_deleted else (False,)
    return heapq.merge(
        *(_records(reader, namespace, "", after, deleted) for deleted in kinds), key=lambda record: record.key
    )
