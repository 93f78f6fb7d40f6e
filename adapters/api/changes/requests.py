"""Requests about changes: check the arguments, then define what to read and how to respond."""

import heapq
from collections.abc import Iterator
from typing import Any, Final

from holdlog.adapters.api.changes.blame import origins
from holdlog.adapters.api.changes.moments import Known, NamedMoment, Point, known, known_at, point
from holdlog.adapters.api.changes.presenter import author, field_author, key_change
from holdlog.adapters.api.changes.responses import Blame, Diff, KeyChange, PointView
from holdlog.adapters.api.pagination import MAX_PAGE, ROW_BYTES, chunks, page
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import NAME, after_argument, page_size, text
from holdlog.domain.ports import Reader
from holdlog.domain.record import Record
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.times import utc

NOW: Final = NamedMoment("to")


class ChangeRequests:
    """Builds requests about changes. Every method raises InvalidError for an invalid argument, then DeniedError for
    what the caller may not do."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def diff(
        self,
        namespace: str,
        key: str | None,
        start: NamedMoment,
        end: NamedMoment = NOW,
        limit: int = MAX_PAGE,
        after_key: str | None = None,
    ) -> Query[Diff]:
        """Of one key, or of the keys of a namespace in pages. The query raises InvalidError for a moment that has not
        come yet."""
        size, after_key = page_size(limit), after_argument(after_key, "after_key")
        if start.is_now:
            kinds = ("position", "time") if key is None else ("version", "position", "time")
            first, *others = map(start.named, kinds)
            raise InvalidError(f"{first}: required, or {' or '.join(others)}")
        namespace = text(namespace, "namespace", NAME)
        if key is not None:
            key = text(key, "key", NAME)
        elif versioned := next((it for it in (start, end) if it.version is not None), None):
            raise InvalidError(f"{versioned.named('version')}: needs key; compare a namespace by positions or times")
        self._rules.require("read-values", namespace)

        def of_key(reader: Reader, key: str) -> Diff:
            first, second = known(reader, namespace, key, start), known(reader, namespace, key, end)
            changed = key_change(first, second)
            before, after = _with_version(reader, start, first), _with_version(reader, end, second)
            return Diff(namespace=namespace, before=before, after=after, changes=[changed] if changed else [])

        def of_namespace(reader: Reader) -> Diff:
            first, second = point(reader, start), point(reader, end)
            found, more = page(_changes(reader, namespace, first, second, after_key), size, _change_bytes)
            return Diff(
                namespace=namespace,
                before=_at(first),
                after=_at(second),
                changes=found,
                next_after=found[-1].key if more else None,
            )

        return Query(of_namespace if key is None else lambda reader: of_key(reader, key), large=True)

    def blame(
        self,
        namespace: str,
        key: str,
        moment: NamedMoment,
        fields: bool = False,
        limit: int = MAX_PAGE,
        after_field: str | None = None,
    ) -> Query[Blame]:
        """The query raises NotFoundError for a key that did not exist yet."""
        size, after_field = page_size(limit), after_argument(after_field, "after_field")
        namespace, key = text(namespace, "namespace", NAME), text(key, "key", NAME)
        self._rules.require("read-values", namespace)

        def answer(reader: Reader) -> Blame:
            found = known(reader, namespace, key, moment)
            if found.recorded is None:
                raise NotFoundError.of_record(namespace, key)
            live = found.record.live
            response = Blame(
                namespace=namespace,
                key=key,
                value=found.record.value.value if live else None,
                missing=None if live else True,
                author=author(found.recorded, self._rules, namespace),
            )
            return response.model_copy(update=self._fields(reader, found, size, after_field)) if fields else response

        return Query(answer, large=True)

    def _fields(self, reader: Reader, found: Known, limit: int, after_field: str | None) -> dict[str, Any]:
        """The members of a response that concern fields."""
        record, newest = found.record, found.recorded
        assert newest is not None
        value = record.value.value if record.live else None
        members = value if isinstance(value, dict) else {}
        names = sorted(name for name in members if after_field is None or name > after_field)
        history = chunks(
            lambda version, size: reader.history(record.stream, version, size),
            newest.envelope.version,
            lambda it: it.envelope.version,
        )
        known = origins({name: members[name] for name in names[:limit]}, newest, history)
        authors = sorted(known.found.items())
        return {
            "fields": [field_author(name, it, self._rules, record.namespace) for name, it in authors],
            "next_after": names[limit - 1] if len(names) > limit else None,
            "older": known.older or None,
            "next_version": known.last if known.older else None,
        }


def _changes(reader: Reader, namespace: str, first: Point, second: Point, after: str | None) -> Iterator[KeyChange]:
    for record in _records(reader, namespace, after):
        if _may_differ(record, first, second):
            before, later = (known_at(reader, namespace, record.key, it) for it in (first, second))
            if (change := key_change(before, later)) is not None:
                yield change


def _may_differ(record: Record, first: Point, second: Point) -> bool:
    """Whether a record may have changed between two points. An expiry has no event until somebody notices it."""
    return record.updated_at >= min(first.at, second.at) or record.expires_at is not None


def _records(reader: Reader, namespace: str, after: str | None) -> Iterator[Record]:
    """All records that ever existed, by key, as their last events left them."""

    def of(deleted: bool) -> Iterator[Record]:
        return chunks(lambda key, size: reader.records(namespace, "", key, size, deleted), after, lambda it: it.key)

    return heapq.merge(of(False), of(True), key=lambda record: record.key)


def _with_version(reader: Reader, moment: NamedMoment, found: Known) -> PointView:
    """A moment of a key, with the version that it had."""
    if moment.version is None:
        return _at(point(reader, moment)).model_copy(update={"version": found.record.version})
    if found.recorded is None:
        return PointView(version=0, position=0)
    envelope = found.recorded.envelope
    return PointView(version=envelope.version, position=envelope.position, at=utc(envelope.at))


def _at(point: Point) -> PointView:
    return PointView(position=point.position, at=utc(point.at) if point.at else None)


def _change_bytes(change: KeyChange) -> int:
    return ROW_BYTES + len(change.model_dump_json())
