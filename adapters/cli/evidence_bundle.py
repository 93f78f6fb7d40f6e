"""What a bundle of evidence contains, and how it is written: docs/evidence.md describes the format."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO
from zipfile import ZipFile

from holdlog.adapters.cli.evidence_report import Report
from holdlog.adapters.stores.event_log.codec import EncodedEvent, decode
from holdlog.adapters.stores.event_log.evidence import ProvenEvents, fields_of, without_payload
from holdlog.domain.agent import Profile
from holdlog.domain.checkpoint import CheckpointNote
from holdlog.domain.progress import Progress
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.events.event_filter import EventFilter
    from holdlog.adapters.cli.refusals import RefusalView

FORMAT: Final = "holdlog-evidence/1"

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


class EvidenceBundle:
    """Writes the files of a bundle, each once, and then what counts them."""

    def __init__(self, file: ZipFile, case: Case, spelled: Callable[[str], str] | None) -> None:
        self._file, self._case = file, case
        self._report = Report(case.has_values, spelled)

    def add_events(self, events: ProvenEvents, choice: "EventFilter", progress: Progress) -> None:
        """Raises StoreError, and InvalidError if no event matches."""
        count = 0
        with _text(self._file, "events.jsonl") as file:
            for event, previous, before in events.rows(lambda event: _fits(choice, event), progress):
                self._report.add(event)
                shown = event if self._case.has_values else without_payload(event)
                file.write(_json(fields_of(shown, previous, before)) + "\n")
                count += 1
        if count == 0:
            raise InvalidError("no event of the range matches the filters; there is nothing to prove")
        self._case = case = self._case._replace(events=count)
        manifest = {"format": FORMAT, "store": case.note.checkpoint.origin, "first": case.first, "last": case.last}
        manifest |= {"events": count, "complete": case.is_complete, "filters": case.filters, "values": case.has_values}
        self._write("manifest.json", _json({**manifest, "after": [it.hex() for it in events.after]}) + "\n")

    def add_checkpoint(self) -> None:
        """The note, and its two parts as `openssl pkeyutl` reads them."""
        note = self._case.note
        self._write("checkpoint.note", note.text)
        self._write("checkpoint.body", note.checkpoint.text)
        own = [it.signature for it in note.signatures if it.name == note.checkpoint.origin]
        if own:
            self._file.writestr("checkpoint.sig", own[0])

    def add_report(self, refusals: "Sequence[RefusalView] | None", agents: Sequence[Profile]) -> Case:
        """Add the report, and what nothing proves; return the case with its counts. `refusals`: None if the filters do
        not apply to them; `agents`: as they are now."""
        self._case = self._case._replace(refusals=len(refusals or ()))
        if refusals is not None:
            self._write_lines("unproven/refusals.jsonl", (it.model_dump(mode="json") for it in refusals))
        hidden = () if self._case.has_values else ("purpose",)  # a text of an agent, as values are
        known = [
            {name: it for name, it in agent._asdict().items() if it is not None and name not in hidden}
            for agent in agents
        ]
        self._write_lines("unproven/agents.jsonl", known)
        with _text(self._file, "report.html") as file:
            self._report.write(file, self._case, refusals, known)
        return self._case

    def _write(self, name: str, text: str) -> None:
        self._file.writestr(name, text.encode())

    def _write_lines(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        self._write(name, "".join(f"{_json(row)}\n" for row in rows))


def _fits(choice: "EventFilter", event: EncodedEvent) -> bool:
    if not choice.may_fit(event.originator_id, event.topic):
        return False
    return choice.agent is None or choice.fits(decode(event))


@contextmanager
def _text(bundle: ZipFile, name: str) -> Iterator[TextIO]:
    with bundle.open(name, "w", force_zip64=True) as raw, TextIOWrapper(raw, encoding="utf-8", newline="\n") as file:
        yield file
