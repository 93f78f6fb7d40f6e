"""What a bundle of evidence contains, and how it is written: docs/evidence.md describes the format."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO
from zipfile import ZipFile

from holdlog.adapters.cli.evidence_report import Report
from holdlog.adapters.stores.event_log.codec import EncodedEvent, decode
from holdlog.adapters.stores.event_log.evidence import ProvenEvents, fields_of, without_payload
from holdlog.domain.checkpoint import CheckpointNote
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.events.event_filter import EventFilter
    from holdlog.adapters.cli.refusals import RefusalView
    from holdlog.adapters.stores.sql.reader import SqlReader

FORMAT: Final = "holdlog-evidence/1"
AGENTS_PAGE: Final = 500
DRAWN_EVERY: Final = 500
"""Events between two updates of the progress bar."""

_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Case(NamedTuple):
    """What a bundle is about. `first`, `last`: positions; `filters`: options that select events, none: all.
    `events`, `refusals`: how many it has."""

    first: int
    last: int
    filters: dict[str, str]
    has_values: bool
    note: CheckpointNote
    events: int = 0
    refusals: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether it has all events of the range."""
        return self.events == self.last - self.first + 1


def write_bundle(
    bundle: ZipFile,
    reader: "SqlReader",
    case: Case,
    choice: "EventFilter",
    refusals: "list[RefusalView] | None",
    spelled: Callable[[str], str] | None,
    progress: Callable[[int, int], None],
) -> Case:
    """Write everything, and return the case with its counts. `refusals`: None if they are left out; `spelled`: how the
    report spells resources. Raises StoreError, and InvalidError if no event matches."""
    checkpoint = case.note.checkpoint
    bounds = (case.first - 1, case.last)
    events = ProvenEvents(reader, bounds, checkpoint.size, checkpoint.root, lambda event: _fits(choice, event))
    report = Report(case.has_values, spelled)
    with _text(bundle, "events.jsonl") as file:
        count = 0
        for event, previous, before in events.rows():
            report.add(event)
            shown = event if case.has_values else without_payload(event)
            file.write(_json(fields_of(shown, previous, before)) + "\n")
            count += 1
            if count % DRAWN_EVERY == 0:
                progress(event.id - case.first, case.last - case.first)
    if count == 0:
        raise InvalidError("no event of the range matches the filters; there is nothing to prove")
    case = case._replace(events=count, refusals=len(refusals or ()))
    agents = list(_agents(reader, case))
    _write(bundle, "manifest.json", _json(_manifest(case, events)) + "\n")
    _write_checkpoint(bundle, case.note)
    if refusals is not None:
        _write_lines(bundle, "unproven/refusals.jsonl", (it.model_dump(mode="json") for it in refusals))
    _write_lines(bundle, "unproven/agents.jsonl", agents)
    with _text(bundle, "report.html") as file:
        report.write(file, case, refusals, agents)
    return case


def _fits(choice: "EventFilter", event: EncodedEvent) -> bool:
    if not choice.may_fit(event.originator_id, event.topic):
        return False
    return choice.agent is None or choice.fits(decode(event))


def _manifest(case: Case, events: ProvenEvents) -> dict[str, Any]:
    manifest: dict[str, Any] = {"format": FORMAT, "store": case.note.checkpoint.origin}
    manifest |= {"first": case.first, "last": case.last, "events": case.events, "complete": case.is_complete}
    manifest |= {"filters": case.filters, "values": case.has_values, "after": [it.hex() for it in events.after]}
    return manifest


def _write_checkpoint(bundle: ZipFile, note: CheckpointNote) -> None:
    """The note, and its two parts as `openssl pkeyutl` reads them."""
    _write(bundle, "checkpoint.note", note.text)
    _write(bundle, "checkpoint.body", note.checkpoint.text)
    own = [it.signature for it in note.signatures if it.name == note.checkpoint.origin]
    if own:
        bundle.writestr("checkpoint.sig", own[0])


def _agents(reader: "SqlReader", case: Case) -> Iterator[dict[str, Any]]:
    """Profiles as they are now. A purpose is a text, as values are."""
    after = None
    while names := reader.registered(after, AGENTS_PAGE):
        for profile in reader.agents(names):
            fields = {name: it for name, it in profile._asdict().items() if it is not None}
            if not case.has_values:
                fields.pop("purpose", None)
            yield fields
        after = names[-1]


def _write(bundle: ZipFile, name: str, text: str) -> None:
    bundle.writestr(name, text.encode())


def _write_lines(bundle: ZipFile, name: str, rows: Iterable[dict[str, Any]]) -> None:
    _write(bundle, name, "".join(f"{_json(row)}\n" for row in rows))


@contextmanager
def _text(bundle: ZipFile, name: str) -> Iterator[TextIO]:
    from io import TextIOWrapper

    with bundle.open(name, "w", force_zip64=True) as raw, TextIOWrapper(raw, encoding="utf-8", newline="\n") as file:
        yield file
