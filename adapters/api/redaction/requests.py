"""Requests about redaction. For people: they need the grant `admin:*`, because a text may be anywhere."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdlog.adapters.api.events.event_filter import names_in
from holdlog.adapters.api.redaction.responses import RedactedText
from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import MAX_VERSION, NAME, checked, text, whole
from holdlog.domain import redaction
from holdlog.domain.commands import Outcome
from holdlog.domain.names import record_stream
from holdlog.domain.ports import Reader
from holdlog.domain.redaction import MAX_TARGETS, Redact, Redacted, RedactionTarget, require_text
from holdlog.domain.refusals import InvalidError
from holdlog.domain.store_log import EventTexts, Part, SearchText
from holdlog.projections.fold import EVENTS

MAX_COPIES: Final = 1_000
"""Other texts that are listed."""
_ADDRESS: Final = re.compile(r"(?P<key>.+)@(?P<version>[1-9][0-9]{0,18})", re.DOTALL)


class FoundTexts(NamedTuple):
    """The texts to redact, and where else to look for them: as read before."""

    targets: tuple[RedactionTarget, ...]
    events: tuple[RedactedText, ...]
    wanted: tuple[SearchText, ...]


class TextCopies(NamedTuple):
    """Other texts that contain what was redacted. `more`: there are more than these."""

    texts: tuple[RedactedText, ...]
    more: bool


class RedactionRequests:
    """Builds requests about redaction. Every method raises InvalidError, then DeniedError."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def of_values(self, namespace: str, addresses: Sequence[str], field: str | None = None) -> Query[FoundTexts]:
        """Versions of values. `addresses`: `key@version`; `field`: `value` (the default) or `reason`."""
        namespace, part = text(namespace, "namespace", NAME), part_of(field or "value", "value")
        wanted = [_address(it) for it in addresses]
        _require_few(wanted, "key")
        self._rules.require("admin", "*")
        targets = [
            RedactionTarget(stream=record_stream(namespace, key), version=version, part=part) for key, version in wanted
        ]
        return Query(lambda reader: _found(reader, targets), large=True)

    def of_events(self, positions: Sequence[int], field: str | None = None) -> Query[FoundTexts]:
        """Texts of any events. `field`: what an event has, by name, or `payload` for whatever it is (the default), or
        `reason`."""
        wanted = [whole(it, "position") for it in positions]
        _require_few(wanted, "position")
        self._rules.require("admin", "*")

        def answer(reader: Reader) -> FoundTexts:
            targets = []
            for position in wanted:
                page = reader.log(position - 1, 1) if position else []
                if not page or page[0].envelope.position != position:
                    raise InvalidError(f"position: is {position}, but the log has 1 to {reader.position()}")
                envelope, event, _ = page[0]
                part = part_of(field or "payload", event.payload_field)
                targets.append(RedactionTarget(stream=envelope.stream, version=envelope.version, part=part))
            return _found(reader, targets)

        return Query(answer, large=True)

    def redact(self, found: FoundTexts, by: str) -> CommandRequest[tuple[list[RedactedText], int]]:
        """The response: the texts, with those that were redacted before marked, and the position of the last event."""
        command = checked(lambda: Redact(targets=found.targets, by=by), by="by")
        self._rules.require("admin", "*")

        def answer(outcome: Outcome) -> tuple[list[RedactedText], int]:
            assert isinstance(outcome, Redacted)
            texts = zip(found.targets, found.events, strict=True)
            marked = [it.model_copy(update={"already": target in outcome.already or None}) for target, it in texts]
            return marked, outcome.position

        return CommandRequest(command, answer)

    def copies(self, found: FoundTexts) -> Query[TextCopies]:
        """Other texts that contain what was redacted."""
        self._rules.require("admin", "*")

        def answer(reader: Reader) -> TextCopies:
            texts: dict[tuple[int, str], RedactedText] = {}
            for wanted in found.wanted:
                for event in reader.containing(wanted, MAX_COPIES + 1):
                    parts: list[Part] = [part for part in ("payload", "reason") if event.text(part) is not None]
                    texts |= {(event.position, part): _text(event, part) for part in parts}
            ordered = [texts[key] for key in sorted(texts)]
            return TextCopies(tuple(ordered[:MAX_COPIES]), len(ordered) > MAX_COPIES)

        return Query(answer, large=True)


def part_of(field: str, payload: str | None) -> Part:
    """The part of an event that a field is. `payload`: the name of its payload. Raises InvalidError."""
    if field == "reason":
        return "reason"
    if payload is None or field not in ("payload", payload):
        raise InvalidError(f"field: the event has no {field}; it can have {payload or 'no payload'} or reason")
    return "payload"


def _address(given: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(given)
    if found is None or int(found["version"]) > MAX_VERSION:
        raise InvalidError("key: must be KEY@VERSION, for example budget@3")
    return text(found["key"], "key", NAME), int(found["version"])


def _require_few(wanted: Sequence[object], argument: str) -> None:
    if not 1 <= len(wanted) <= MAX_TARGETS:
        raise InvalidError(f"{argument}: 1 to {MAX_TARGETS} are required")


def _found(reader: Reader, targets: Sequence[RedactionTarget]) -> FoundTexts:
    targets = tuple(dict.fromkeys(targets))
    events: list[RedactedText] = []
    wanted: dict[SearchText, None] = {}
    for target in targets:
        event = require_text(target, next(iter(reader.texts(target.stream, [target.version])), None))
        events.append(_text(event, target.part))
        wanted |= dict.fromkeys((*redaction.forms(event, target.part), *redaction.parts_of(event, target.part)))
    return FoundTexts(targets, tuple(events), tuple(wanted))


def _text(event: EventTexts, part: Part) -> RedactedText:
    kind = EVENTS.get(event.topic)
    field = (kind.payload_field if kind is not None else None) or part
    facts = {
        "id": f"{event.stream}@{event.version}",
        "position": event.position,
        "version": event.version,
        "field": "reason" if part == "reason" else field,
    }
    return RedactedText.model_validate(names_in(event.stream) | facts)
