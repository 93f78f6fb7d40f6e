"""The calls of every surface: arguments checked, then what to run and how to answer. Runs nothing itself."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from holdlog.adapters import answers, results
from holdlog.adapters.pages import MAX_PAGE, chunks, event_bytes, page, record_bytes, up_to_a_page
from holdlog.domain.claim import Claim, Release, Take
from holdlog.domain.envelope import Recorded
from holdlog.domain.handle import Command, Outcome
from holdlog.domain.message import NOBODY, Caller, Event
from holdlog.domain.names import Beginning, Name, record_stream
from holdlog.domain.ports import Reader
from holdlog.domain.record import (
    MAX_TTL_SECONDS,
    MIN_TTL_SECONDS,
    ClearNamespace,
    Delete,
    Record,
    Set,
    Transact,
    seen,
)
from holdlog.domain.refusals import InvalidError
from holdlog.domain.resource import Resource
from holdlog.domain.times import utc
from holdlog.domain.value import Json

EXPORT_PAGE: Final = 100
"""Records in a page of an export; the whole history of each comes with it."""
MAX_VERSION: Final = 2**63 - 1
MAX_SHOWN: Final = 64
"""Characters of an argument's name in an error."""

Answer = TypeVar("Answer")
Answered = TypeVar("Answered", covariant=True)


@dataclass(frozen=True)
class Settings:
    """`max_value_bytes`: of a value as JSON. `max_wait`: seconds that one call may wait; many hosts cut calls at 60."""

    max_value_bytes: int = 256 * 1024
    max_wait: float = 50.0


class Write(NamedTuple, Generic[Answered]):
    """A command, and the answer to its outcome."""

    command: Command
    answer: Callable[[Outcome], Answered]


class Read(NamedTuple, Generic[Answered]):
    """An answer from one snapshot. `large`: it may take longer than a coroutine should block its loop."""

    answer: Callable[[Reader], Answered]
    large: bool = False


class Wait(NamedTuple, Generic[Answered]):
    """Look, given the seconds gone by, until there is an answer; after `seconds` the last word is `timed_out`'s."""

    look: Callable[[Reader, float], Answered | None]
    timed_out: Callable[[Reader, float], Answered]
    seconds: float


class Calls:
    """Every method raises InvalidError for an argument that breaks a rule. `clock`: microseconds UTC."""

    def __init__(self, settings: Settings, clock: Callable[[], int]) -> None:
        self._settings = settings
        self._clock = clock

    # --- state

    def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        by: str,
        expected_version: int | None,
        ttl_seconds: float | None = None,
    ) -> Write[results.SetResult]:
        json_value = self._json(value)
        expected = None if expected_version is None else whole(expected_version, "expected_version")
        ttl = None if ttl_seconds is None else time_to_live(ttl_seconds)
        operation = checked(
            lambda: Set(namespace=namespace, key=key, value=json_value, expected_version=expected, ttl_seconds=ttl)
        )
        return Write(checked(lambda: Transact(operations=(operation,), by=by)), answers.set_result)

    def get(self, namespace: str, key: str) -> Read[results.StateRecord]:
        """Its answer raises NotFoundError."""
        place = _place(namespace, key)
        return Read(lambda reader: answers.state_record(*_now(reader, *place)))

    def delete(self, namespace: str, key: str, by: str, expected_version: int | None) -> Write[results.DeleteResult]:
        expected = None if expected_version is None else whole(expected_version, "expected_version")
        operation = checked(lambda: Delete(namespace=namespace, key=key, expected_version=expected))
        command = checked(lambda: Transact(operations=(operation,), by=by), by="deleted_by")
        return Write(command, lambda outcome: answers.delete_result(outcome, command.by))

    def clear_namespace(self, namespace: str, by: str) -> Write[results.ClearResult]:
        command = checked(lambda: ClearNamespace(namespace=namespace, by=by), by="deleted_by")
        return Write(command, lambda outcome: answers.clear_result(outcome, command.namespace, command.by))

    def list_records(
        self, namespace: str, prefix: str = "", limit: int = MAX_PAGE, after: str | None = None, deleted: bool = False
    ) -> Read[results.RecordList]:
        namespace, size = text(namespace, "namespace", _NAME), page_size(limit)
        prefix, after = text(prefix, "prefix", _BEGINNING), _after(after, "after_key")

        def answer(reader: Reader) -> results.RecordList:
            found, more = page(_records(reader, namespace, prefix, after, deleted), size, record_bytes)
            return results.RecordList(
                namespace=namespace,
                count=len(found),
                records=[answers.listed(record) for record in found],
                position=reader.position(),
                next_after=found[-1].key if more else None,
            )

        return Read(answer, large=True)

    def list_namespaces(self, limit: int = MAX_PAGE, after: str | None = None) -> Read[results.NamespaceList]:
        size, after = page_size(limit), _after(after, "after_key")

        def answer(reader: Reader) -> results.NamespaceList:
            found, more = page(reader.namespaces(after, size + 1), size)
            return results.NamespaceList(
                count=len(found),
                namespaces=[results.ListedNamespace(namespace=name, count=count) for name, count in found],
                position=reader.position(),
                next_after=found[-1][0] if more else None,
            )

        return Read(answer, large=True)

    def all_records(self, namespace: str) -> Read[list[results.StateRecord]]:
        namespace = text(namespace, "namespace", _NAME)
        return Read(
            lambda reader: [
                answers.state_record(it, reader.at) for it in reader.records(namespace, "", None, -1, False)
            ],
            large=True,
        )

    def all_namespaces(self) -> Read[list[str]]:
        return Read(lambda reader: [namespace for namespace, _ in reader.namespaces(None, -1)], True)

    def history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> Read[results.History]:
        namespace, key = _place(namespace, key)
        size = page_size(limit)
        before = None if before_version is None else whole(before_version, "before_version")

        def answer(reader: Reader) -> results.History:
            found, more = page(_history(reader, record_stream(namespace, key), before), size, event_bytes)
            return results.History(
                namespace=namespace,
                key=key,
                history=[answers.past(recorded) for recorded in found],
                next_before=found[-1].envelope.version if more else None,
            )

        return Read(answer, large=True)

    def all_history(
        self, namespace: str, key: str, limit: int = 100, before_version: int | None = None
    ) -> Read[list[results.Past]]:
        """As many entries as asked for, however large: a list cannot tell that it was cut."""
        namespace, key = _place(namespace, key)
        size = page_size(limit)
        before = None if before_version is None else whole(before_version, "before_version")
        stream = record_stream(namespace, key)
        return Read(lambda reader: [answers.past(it) for it in reader.history(stream, before, size)], large=True)

    def export(self, namespace: str, include_deleted: bool = False, after: str | None = None) -> Read[results.Export]:
        namespace, after = text(namespace, "namespace", _NAME), _after(after, "after_key")

        def answer(reader: Reader) -> results.Export:
            found, more = page(
                _exported(reader, namespace, after, include_deleted),
                EXPORT_PAGE,
                lambda record: (
                    record_bytes(record) + up_to_a_page(event_bytes(it) for it in _history(reader, record.stream, None))
                ),
            )
            return self._export(reader, namespace, found, found[-1].key if more else None)

        return Read(answer, large=True)

    def all_exported(self, namespace: str, include_deleted: bool = False) -> Read[results.Export]:
        namespace = text(namespace, "namespace", _NAME)
        return Read(
            lambda reader: self._export(
                reader, namespace, list(_exported(reader, namespace, None, include_deleted)), None
            ),
            large=True,
        )

    def watch(
        self, namespace: str, key: str, since_version: int, timeout_seconds: float = 10
    ) -> Wait[results.StateRecord | results.Deleted | results.WatchTimeout]:
        place = _place(namespace, key)
        since = whole(since_version, "since_version")
        seconds, cap = self._timeout(timeout_seconds)
        known: int | None = None

        def look(reader: Reader, elapsed: float) -> results.StateRecord | results.Deleted | None:
            nonlocal known
            record, now = _now(reader, *place)
            if known is None:  # 0 means "not there": a deletion that lies before the call is then no news
                known = record.version if since == 0 and not record.live else since
            return answers.watched(record, now) if record.version > known else None

        def timed_out(reader: Reader, elapsed: float) -> results.WatchTimeout:
            return answers.watch_timeout(Record(*place), since, elapsed, cap)

        return Wait(look, timed_out, seconds)

    # --- claims

    def claim(self, resource: str, agent: str) -> Write[results.Claimed | results.AlreadyClaimed]:
        return Write(checked(lambda: Take(resource=resource, agent=agent)), answers.claim_result)

    def release(self, resource: str, agent: str) -> Write[results.Released | results.AlreadyFree]:
        return Write(checked(lambda: Release(resource=resource, agent=agent)), answers.release_result)

    def status(self, resource: str) -> Read[results.Available | results.Held]:
        resource = text(resource, "resource", _RESOURCE)
        return Read(lambda reader: answers.claim_status(reader.claim(resource), self._clock()))

    def board(self, limit: int = 100, after: str | None = None) -> Read[results.Board]:
        size, after = page_size(limit), _after(after, "after")

        def answer(reader: Reader) -> results.Board:
            found, more = page(reader.claims(after, size + 1), size)
            return results.Board(
                claims=[answers.held(claim, self._clock()) for claim in found],
                next_after=found[-1].resource if more else None,
            )

        return Read(answer, large=True)

    def wait(self, resource: str, timeout_seconds: float = 30) -> Wait[results.Available | results.WaitTimeout]:
        resource = text(resource, "resource", _RESOURCE)
        seconds, cap = self._timeout(timeout_seconds)

        def look(reader: Reader, elapsed: float) -> results.Available | None:
            claim = reader.claim(resource)
            return answers.available(claim, elapsed) if claim.holder is None else None

        def timed_out(reader: Reader, elapsed: float) -> results.Available | results.WaitTimeout:
            claim: Claim = reader.claim(resource)
            if claim.holder is None:
                return answers.available(claim, elapsed)
            return answers.wait_timeout(claim, self._clock(), elapsed, cap)

        return Wait(look, timed_out, seconds)

    def _export(self, reader: Reader, namespace: str, found: list[Record], next_after: str | None) -> results.Export:
        exported = [answers.exported(record, reader.history(record.stream, None, -1)) for record in found]
        return results.Export(
            namespace=namespace,
            exported_at=utc(self._clock()),
            record_count=len(exported),
            history_count=sum(len(record.history) for record in exported),
            records=exported,
            position=reader.position(),
            next_after=next_after,
        )

    def _json(self, value: Any) -> Json:
        try:
            json_value = Json.of(value)
        except ValueError as error:
            raise InvalidError(f"value: {error}") from None
        limit = self._settings.max_value_bytes
        if len(json_value.text) * 4 > limit and len(json_value.text.encode()) > limit:
            raise InvalidError(f"value: must have {limit} bytes as JSON at most")
        return json_value

    def _timeout(self, seconds: object) -> tuple[float, float | None]:
        """Seconds to wait, and the cap if it cut them."""
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not math.isfinite(seconds)
            or seconds < 0
        ):
            raise InvalidError("timeout_seconds: must be a finite number of seconds, 0 or more")
        cap = self._settings.max_wait
        return (float(seconds), None) if seconds <= cap else (cap, cap)


def caller(base: Caller = NOBODY, **facts: str | None) -> Caller:
    """`base` with the facts of one call (reason, request_id …); None adds nothing. Raises InvalidError."""
    told = {fact: value for fact, value in facts.items() if value is not None}
    return checked(lambda: Caller.model_validate(base.model_dump() | told)) if told else base


def checked(make: Callable[[], Answer], by: str = "updated_by") -> Answer:
    """Build a message; what pydantic finds becomes an InvalidError of one line, without the value.

    `by`: what the caller calls the field of that name."""
    try:
        return make()
    except ValidationError as error:
        raise InvalidError(first_finding(error, by)) from None


def whole(number: object, argument: str) -> int:
    """A version: 0 or more, small enough for every store."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_VERSION:
        raise InvalidError(f"{argument}: must be a whole number from 0 to {MAX_VERSION}")
    return number


def time_to_live(seconds: object) -> float:
    """Within its bounds, to the microsecond."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not MIN_TTL_SECONDS <= seconds <= MAX_TTL_SECONDS
    ):
        raise InvalidError(
            f"ttl_seconds: must be a number of seconds from {MIN_TTL_SECONDS:f} to {MAX_TTL_SECONDS} (ten years)"
        )
    return float(seconds)


def page_size(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidError(f"limit: must be a whole number from 1 to {MAX_PAGE}")
    return limit


def text(given: str, argument: str, rule: TypeAdapter[str]) -> str:
    try:
        return rule.validate_python(given)
    except ValidationError as error:
        raise InvalidError(f"{argument}: {first_finding(error)}") from None


def _place(namespace: str, key: str) -> tuple[str, str]:
    return text(namespace, "namespace", _NAME), text(key, "key", _NAME)


def _after(given: str | None, argument: str) -> str | None:
    return None if given is None else text(given, argument, _BEGINNING)


def _now(reader: Reader, namespace: str, key: str) -> tuple[Record, int]:
    """The record as it is now, and the time that was gone by (0 where none matters)."""
    record = reader.record(namespace, key)
    if record.expires_at is None:
        return record, 0
    at = reader.at
    # Read again after the time: a value that was renewed in between must not be taken for ended.
    return seen(reader.record(namespace, key), at), at


def _records(reader: Reader, namespace: str, prefix: str, after: str | None, deleted: bool) -> Iterator[Record]:
    found = chunks(lambda key, size: reader.records(namespace, prefix, key, size, deleted), after, lambda it: it.key)
    return (seen(record, reader.at) for record in found)


def _exported(reader: Reader, namespace: str, after: str | None, include_deleted: bool) -> Iterable[Record]:
    kinds = (False, True) if include_deleted else (False,)
    return heapq.merge(
        *(_records(reader, namespace, "", after, deleted) for deleted in kinds), key=lambda record: record.key
    )


def _history(reader: Reader, stream: str, before: int | None) -> Iterator[Recorded[Event]]:
    return chunks(lambda version, size: reader.history(stream, version, size), before, lambda it: it.envelope.version)


def first_finding(error: ValidationError, by: str = "by") -> str:
    """The argument and what is wrong with it; an unknown argument whose name is no name is not repeated."""
    finding = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = str(finding["loc"][-1]) if finding["loc"] else ""
    message = finding["msg"].removeprefix("Value error, ")
    if len(place) > MAX_SHOWN or not place.isprintable():
        place = "arguments"
    return f"{by if place == 'by' else place}: {message}" if place else message


_NAME: Final = TypeAdapter[str](Name)
_BEGINNING: Final = TypeAdapter[str](Beginning)
_RESOURCE: Final = TypeAdapter[str](Resource)
