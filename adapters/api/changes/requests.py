"""Requests about changes: check the arguments, then define what to read and how to respond."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from holdlog.adapters.api.changes.blame import origins
from holdlog.adapters.api.changes.moments import KeyState, NamedMoment, ResolvedMoment, key_at, keys_at, resolved
from holdlog.adapters.api.changes.presenter import author, field_author, key_change
from holdlog.adapters.api.changes.responses import Blame, Diff, KeyChange
from holdlog.adapters.api.pagination import FIRST_CHUNK, LAST_CHUNK, MAX_PAGE, MAX_PAGE_BYTES, ROW_BYTES
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import NAME, after_argument, page_size, text
from holdlog.adapters.api.values.requests import records_by_key
from holdlog.domain.history import newest_first
from holdlog.domain.ports import Reader
from holdlog.domain.record import Record
from holdlog.domain.refusals import InvalidError, NotFoundError

NOW: Final = NamedMoment("to")
MAX_COMPARED: Final = 5_000
"""Keys written between the two moments that a page compares; most of them differ."""


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
        """Of one key, or of the keys of a namespace in pages. The query raises InvalidError for a moment that the log
        does not have, and NotFoundError for a key that was never written."""
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
            if not reader.record(namespace, key).version:
                raise NotFoundError.of_record(namespace, key)
            first, before = key_at(reader, namespace, key, start)
            second, later = key_at(reader, namespace, key, end)
            changed = key_change(first, second)
            return Diff(namespace=namespace, before=before, after=later, changes=[changed] if changed else [])

        def of_namespace(reader: Reader) -> Diff:
            first, second = resolved(reader, start), resolved(reader, end)
            changes, next_after = _page(_compared(reader, namespace, first, second, after_key), size)
            return Diff(
                namespace=namespace, before=first.shown, after=second.shown, changes=changes, next_after=next_after
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
            found, _ = key_at(reader, namespace, key, moment)
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

    def _fields(self, reader: Reader, found: KeyState, limit: int, after_field: str | None) -> dict[str, Any]:
        """The members of a response that concern fields."""
        record, newest = found.record, found.recorded
        assert newest is not None
        value = record.value.value if record.live else None
        members = value if isinstance(value, dict) else {}
        names = sorted(name for name in members if after_field is None or name > after_field)
        history = newest_first(reader, record.stream, newest.envelope.version)
        traced = origins({name: members[name] for name in names[:limit]}, newest, history)
        authors = sorted(traced.found.items())
        return {
            "fields": [field_author(name, it, self._rules, record.namespace) for name, it in authors],
            "next_after": names[limit - 1] if len(names) > limit else None,
            "older": traced.older or None,
            "next_version": traced.last if traced.older else None,
        }


def _compared(
    reader: Reader, namespace: str, first: ResolvedMoment, second: ResolvedMoment, after: str | None
) -> Iterator[tuple[str, KeyChange | None]]:
    """The keys that may differ, each with how it does."""
    written = records_by_key(reader, namespace, after, include_deleted=True)
    keys = (it.key for it in written if _may_differ(it, first, second))
    size = FIRST_CHUNK
    while batch := list(islice(keys, size)):
        pairs = zip(*(keys_at(reader, namespace, batch, point) for point in (first, second)), strict=True)
        yield from ((later.record.key, key_change(before, later)) for before, later in pairs)
        size = min(2 * size, LAST_CHUNK)


def _page(compared: Iterator[tuple[str, KeyChange | None]], limit: int) -> tuple[list[KeyChange], str | None]:
    """The changes of one page, and the last key that it compared if there may be more."""
    changes: list[KeyChange] = []
    held, last = 0, ""
    for count, (key, change) in enumerate(compared):
        if change is not None:
            held += ROW_BYTES + len(change.model_dump_json())
        if count == MAX_COMPARED or (change and changes and (len(changes) == limit or held > MAX_PAGE_BYTES)):
            return changes, last
        if change is not None:
            changes.append(change)
        last = key
    return changes, None


def _may_differ(record: Record, first: ResolvedMoment, second: ResolvedMoment) -> bool:
    """Whether a record may have changed between two points. An expiry has no event until somebody notices it."""
    return record.updated_at >= min(first.begins, second.begins) or record.expires_at is not None
