"""Redaction: removes texts from events of the log. Their hashes stay, so that the digests verify."""

import json
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from pydantic import Field
from pydantic_core import from_json, to_json

from holdlog.domain import store_log
from holdlog.domain.message import Caller, Command, Message
from holdlog.domain.names import AllowedAgent
from holdlog.domain.ports import Change, Transaction
from holdlog.domain.refusals import InvalidError
from holdlog.domain.store_log import (
    MAX_STREAM,
    STORE_STREAM,
    EventTexts,
    Part,
    PayloadRedacted,
    Redactions,
    SearchText,
    merged,
)

MAX_TARGETS: Final = 1_000
"""Texts of one command, because other writers wait meanwhile."""
UNFINISHED: Final = "redaction"
"""Metadata of the store: not empty while files may still contain a text that was redacted."""
_LEAST_PART: Final = 8
"""Characters of a text that is searched for within other texts; a shorter one must be equal."""
_MOST_PARTS: Final = 32
"""Strings of a value that are searched for separately."""


class RedactionTarget(Message):
    """A text of an event: its payload, or its reason."""

    stream: str = Field(max_length=MAX_STREAM)
    version: int = Field(ge=1)
    part: Part = "payload"


class Redact(Command):
    """Remove these texts from the log, from its views, and from what is remembered next to it."""

    kind: ClassVar[str] = "redact"
    targets: tuple[RedactionTarget, ...] = Field(min_length=1, max_length=MAX_TARGETS)
    by: AllowedAgent


class Redacted(NamedTuple):
    """`targets`: the texts that are now recorded as redacted; `already`: those that were before. `position`: of the
    last event, or of the end of the log if there is none."""

    targets: tuple[RedactionTarget, ...]
    already: tuple[RedactionTarget, ...]
    position: int


def redact(command: Redact, caller: Caller, transaction: Transaction) -> Redacted:
    """Raises InvalidError for an event that does not exist, or has no such text."""
    known: Redactions | None = None
    due: dict[tuple[str, Part], list[EventTexts]] = {}
    already: list[RedactionTarget] = []
    targets = dict.fromkeys(command.targets)
    for target in targets:
        found = require_text(target, next(iter(transaction.texts(target.stream, [target.version])), None))
        if found.text(target.part) is None:
            known = known or Redactions(it.event for it in transaction.following(STORE_STREAM, 0, -1))
            if known.cover(target.stream, target.version, target.part):
                already.append(target)
                continue
        due.setdefault((target.stream, target.part), []).append(found)
    texts = [(found, part) for (_, part), events in due.items() for found in events]
    whole = [form for text in texts for form in forms(*text)]
    strings = [form for text in texts for form in parts_of(*text)]
    if caller.reason is not None and any(it.is_in(caller.reason) for it in (*whole, *strings)):
        raise InvalidError("reason: contains the text that it is about, or a part of it; say why without it")
    record(transaction, {key: ranges_of(events) for key, events in due.items()}, command.by, caller)
    for (stream, part), events in due.items():
        transaction.redact(stream, [it.version for it in events if it.text(part) is not None], part)
    transaction.forget_texts(whole)
    if due:
        transaction.put_meta(UNFINISHED, "unfinished")
    return Redacted(tuple(it for it in targets if it not in already), tuple(already), transaction.position())


def record(
    transaction: Transaction, ranges: dict[tuple[str, Part], tuple[tuple[int, int], ...]], by: str, caller: Caller
) -> None:
    """Append an event for each stream and part."""
    after, changes = transaction.store_log(), list[Change]()
    for (stream, part), versions in ranges.items():
        event = PayloadRedacted(target=stream, versions=versions, part=part, by=by)
        before, after = after, store_log.evolve(after, event)
        changes.append(Change(before, event, after))
    if changes:
        transaction.append(changes, caller)


def require_text(target: RedactionTarget, found: EventTexts | None) -> EventTexts:
    """The event of a target. Raises InvalidError if it has no such text, and never had it."""
    name = f"{target.stream}@{target.version}"
    if found is None:
        raise InvalidError(f"{name}: there is no such event")
    if found.text(target.part) is None and target.part not in found.removed:
        raise InvalidError(f"{name}: is an event {found.topic} without a {target.part}")
    if target.part == "reason" and not found.has_redactable_reason:
        raise InvalidError(f"{name}: release 0.1 wrote this event; its digest covers the reason, which must stay")
    return found


def forms(found: EventTexts, part: Part) -> list[SearchText]:
    """How a text may be written elsewhere: plain, or escaped as JSON in two ways."""
    text = found.text(part)
    if text is None:
        return []
    plain = from_json(text) if part == "payload" else text
    return _forms_of(plain) if isinstance(plain, str) else [_search_text(text)]


def parts_of(found: EventTexts, part: Part) -> list[SearchText]:
    """The long strings within a value, which may be in others too; the longest ones."""
    text = found.text(part)
    value = from_json(text) if text is not None and part == "payload" else None
    strings = {it for it in _strings(value) if len(it) >= _LEAST_PART}
    longest = sorted(strings, key=lambda it: (-len(it), it))[:_MOST_PARTS]
    return [form for it in longest for form in _forms_of(it)] if isinstance(value, dict | list) else []


def _forms_of(plain: str) -> list[SearchText]:
    if len(plain) < _LEAST_PART:
        written = (plain, to_json(plain).decode(), json.dumps(plain))
    else:
        written = (plain, to_json(plain).decode()[1:-1], json.dumps(plain)[1:-1])
    return [_search_text(it, len(plain)) for it in dict.fromkeys(written)]


def _search_text(text: str, length: int | None = None) -> SearchText:
    return SearchText(text, (len(text) if length is None else length) >= _LEAST_PART)


def _strings(value: object) -> list[str]:
    """All strings of a JSON value, except keys. Its nesting is limited."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [it for part in value for it in _strings(part)] if isinstance(value, list) else []


def ranges_of(events: Sequence[EventTexts]) -> tuple[tuple[int, int], ...]:
    """Their versions as ranges, in order."""
    return tuple(merged((it.version, it.version) for it in events))
