"""Requests about the data of threads: check the arguments, then define what to run and how to respond."""

from collections.abc import Callable, Sequence
from typing import Any

from holdlog.adapters.api.pagination import chunks, datum_bytes, page
from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.threads import presenter, responses
from holdlog.adapters.api.validation import AGENT, NAME, after_argument, checked, json_value, text, whole
from holdlog.domain.commands import Outcome
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.commands import MAX_KEYS, ChangeData
from holdlog.domain.threads.thread import Datum, Thread, require_started
from holdlog.domain.value import REDACTED, Json


class ThreadDataRequests:
    """Builds requests about the data of threads. `expected_data_version`: None = any version."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def get(self, thread_id: str, key: str) -> Query[responses.ThreadValue]:
        """The query raises NotFoundError."""
        name = text(thread_id, "thread_id", NAME)
        find = self.datum(name, key)

        def answer(reader: Reader) -> responses.ThreadValue:
            datum, version = find.answer(reader)
            return responses.ThreadValue(
                thread_id=name,
                key=datum.key,
                value=datum.value.value,
                redacted=True if datum.value is REDACTED else None,
                data_version=version,
            )

        return Query(answer)

    def datum(self, thread_id: str, key: str) -> Query[tuple[Datum, int]]:
        """The stored value behind `thread_get`, and the data_version. The query raises NotFoundError."""
        name, key, find = self._find(thread_id, key)

        def answer(reader: Reader) -> tuple[Datum, int]:
            datum, version = find(reader)
            if datum is None:
                raise presenter.key_missing(name, key)
            return datum, version

        return Query(answer)

    def has(self, thread_id: str, key: str) -> Query[responses.ThreadKey]:
        name, key, find = self._find(thread_id, key)

        def answer(reader: Reader) -> responses.ThreadKey:
            datum, version = find(reader)
            return responses.ThreadKey(thread_id=name, key=key, has=datum is not None, data_version=version)

        return Query(answer)

    def page(self, thread_id: str, after: str | None = None) -> Query[responses.ThreadData]:
        """All keys with their values, or as many as fit a page."""
        name, after = readable_thread(self._rules, thread_id), after_argument(after, "after_key")

        def answer(reader: Reader) -> responses.ThreadData:
            thread = started(reader, name)
            rows = chunks(lambda key, size: reader.thread_data(name, None, key, size), after, lambda it: it.key)
            found, more = page(rows, MAX_KEYS, datum_bytes)
            return responses.ThreadData(
                thread_id=name,
                data={datum.key: datum.value.value for datum in found},
                redacted=[datum.key for datum in found if datum.value is REDACTED] or None,
                data_version=thread.data_version,
                next_after=found[-1].key if more else None,
            )

        return Query(answer, large=True)

    def set(
        self, thread_id: str, key: str, value: Any, agent: str, expected_data_version: int | None
    ) -> CommandRequest[responses.DataChanged]:
        return self.change(thread_id, {text(key, "key", NAME): value}, (), agent, expected_data_version)

    def delete(
        self, thread_id: str, key: str, agent: str, expected_data_version: int | None
    ) -> CommandRequest[responses.DataChanged]:
        """The response raises NotFoundError if the key did not exist."""
        key = text(key, "key", NAME)
        write = self.change(thread_id, {}, (key,), agent, expected_data_version)

        def answer(outcome: Outcome) -> responses.DataChanged:
            changed = write.answer(outcome)
            if not changed.deleted:
                raise presenter.key_missing(changed.thread_id, key)
            return changed

        return CommandRequest(write.command, answer)

    def change(
        self, thread_id: str, written: Any, deleted: Sequence[str], agent: str, expected_data_version: int | None
    ) -> CommandRequest[responses.DataChanged]:
        """Write and delete several keys at once."""
        name, by = text(thread_id, "thread_id", NAME), text(agent, "agent", AGENT)
        expected = None if expected_data_version is None else whole(expected_data_version, "expected_data_version")
        members, gone = members_of(self._rules, written), tuple(text(key, "data", NAME) for key in deleted)
        if not members and not gone:
            raise InvalidError("data: must have at least one key")
        command = checked(
            lambda: ChangeData(thread=name, written=members, deleted=gone, expected_data_version=expected, by=by)
        )
        self._rules.require("write-threads", name)
        return CommandRequest(command, lambda outcome: presenter.changed(outcome, command))

    def _find(self, thread_id: str, key: str) -> tuple[str, str, Callable[[Reader], tuple[Datum | None, int]]]:
        name, key = text(thread_id, "thread_id", NAME), text(key, "key", NAME)
        self._rules.require("read-threads", name)

        def find(reader: Reader) -> tuple[Datum | None, int]:
            """Return the value and its version, which match even if another write falls between the two reads."""
            version = started(reader, name).data_version
            datum = next(iter(reader.thread_data(name, [key])), None)
            return datum, version if datum is None else max(version, datum.version)

        return name, key, find


def started(reader: Reader, name: str) -> Thread:
    """Return the thread. Raises NotFoundError."""
    thread = reader.thread(name)
    require_started(thread)
    return thread


def members_of(rules: RequestRules, given: object) -> dict[str, Json]:
    if not isinstance(given, dict):
        raise InvalidError("data: must be an object")
    if len(given) > MAX_KEYS:
        raise InvalidError(f"data: must have at most {MAX_KEYS} keys")
    limit = rules.settings.max_value_bytes
    members = {text(key, "data", NAME): json_value(value, limit) for key, value in given.items()}
    if len(members) < len(given):
        raise InvalidError("data: has the same key in two Unicode spellings")
    return members


def readable_thread(rules: RequestRules, thread_id: str) -> str:
    name = text(thread_id, "thread_id", NAME)
    rules.require("read-threads", name)
    return name
