"""The report in a bundle of evidence: one page of HTML, without scripts and external resources. Every stored text in it
is escaped."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, TextIO

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.events.event_view import event_fields
from holdlog.adapters.cli.log_texts import sentence_of, time_of
from holdlog.adapters.cli.texts import by_force, marked, moment, moment_at, positions, printable
from holdlog.adapters.stores.event_log.codec import EncodedEvent, decode
from holdlog.adapters.stores.event_log.evidence import without_payload

if TYPE_CHECKING:
    from holdlog.adapters.cli.evidence_bundle import Case
    from holdlog.adapters.cli.refusals import RefusalView

MAX_REPORTED: Final = 10_000
"""Events, and refusals, in a report; `events.jsonl` has all."""

_HEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Evidence from a holdlog store</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #8884; padding: .25rem .6rem; text-align: left; vertical-align: top }
td { max-width: 40rem; overflow-wrap: break-word }
td:first-child, td:nth-child(2) { font-variant-numeric: tabular-nums; white-space: nowrap }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8884 }
.unproven { border-left: 4px solid #c58a2b; padding-left: 1rem }
</style>
</head>
<body>
"""
_PROVEN: Final = "The bundle proves these events."
_UNPROVEN: Final = "Nothing proves this part: it is not in the log's tree."


class Report:
    """Collects the rows of a report while its events are read. `has_values`: whether it shows values and notes."""

    def __init__(self, has_values: bool, spelled: Callable[[str], str] | None) -> None:
        self._has_values, self._spelled = has_values, spelled
        self._rows: list[str] = []
        self._times: tuple[int, int] | None = None

    def add(self, event: EncodedEvent) -> None:
        """Add an event, with its payload. Raises StoreError if it cannot be read."""
        self._times = (self._times[0] if self._times else event.at, event.at)
        if len(self._rows) == MAX_REPORTED:
            return
        fields = event_fields(decode(event if self._has_values else without_payload(event)), self._spelled)
        redacted = " (redacted)" if event.payload_hash is not None else ""
        who = author(marked(fields["by"]), fields.get("principal"))
        what = f"{sentence_of(fields)}{redacted}"
        basis = "not recorded" if event.format is None else _basis(fields)
        self._rows.append(_row(fields["position"], time_of(fields), who, what, basis))

    def write(
        self, file: TextIO, case: "Case", refusals: "Sequence[RefusalView] | None", agents: Sequence[dict[str, Any]]
    ) -> None:
        file.write(_HEAD)
        file.writelines(self._summary(case))
        file.writelines(_table("Timeline", ("position", "time", "who", "what", "basis"), self._rows, _PROVEN))
        if case.events > len(self._rows):
            file.write(f"<p>{case.events - len(self._rows):,} later events are in events.jsonl only.</p>\n")
        file.write('<div class="unproven">\n')
        if refusals is None:
            file.write("<h2>Refused calls</h2>\n<p>The filters of this bundle do not apply to refused calls.</p>\n")
        else:
            rows = [_row(moment(it.at), it.code, marked(it.by), it.what) for it in refusals[:MAX_REPORTED]]
            file.writelines(_table("Refused calls", ("time", "code", "who", "what"), rows, _UNPROVEN))
        known = [
            _row(marked(it["agent"]), *(it.get(name, "") for name in ("name", "model", "purpose", "principal")))
            for it in agents[:MAX_REPORTED]
        ]
        heads = ("agent", "name", "model", "purpose", "principal")
        file.writelines(_table("Registered agents, as they are now", heads, known, _UNPROVEN))
        file.write("</div>\n</body>\n</html>\n")

    def _summary(self, case: "Case") -> Iterator[str]:
        checkpoint = case.note.checkpoint
        where = positions(case.first, case.last)
        yield "<h1>Evidence from a holdlog store</h1>\n<table>\n"
        yield _row("store", checkpoint.origin)
        yield _row("events", f"{case.events:,} of {where}")
        if self._times is not None:
            yield _row("time", f"{moment_at(self._times[0])} to {moment_at(self._times[1])}")
        if case.filters:
            yield _row("filters", ", ".join(f"{name} {value}" for name, value in case.filters.items()))
        yield _row("values", "included" if case.has_values else "left out: values, messages, notes and purposes")
        signers = ", ".join(f"{it.name}, key id {it.key_id.hex()}" for it in case.note.signatures)
        yield _row("checkpoint", f"{checkpoint.size:,} events, root {b64encode(checkpoint.root).decode()}")
        yield _row("signature", signers or "none")
        yield "</table>\n"
        yield f"<p>{_completeness(case)} This page itself is not proven: it shows what events.jsonl contains.</p>\n"
        yield "<p>To verify the bundle, without holdlog:</p>\n<pre>python3 verify_evidence.py case.zip"
        yield f"{' --key PUBLIC_KEY' if case.note.signatures else ''}</pre>\n"


def _completeness(case: "Case") -> str:
    if case.is_complete:
        return "These are all events between the two positions: the bundle proves that none is missing."
    return "Inclusion only: the bundle proves that these events are in the log, not that no other matches the filters."


def _basis(fields: dict[str, Any]) -> str:
    """What a write relied on, as far as it was recorded."""
    facts = []
    if (version := fields.get("based_on")) is not None:
        facts.append(f"based on version {version}" if version else "expected no value")
    if fields.get("forced"):
        facts.append(by_force(fields.get("operation"), fields["version"]))
    if guard := fields.get("guard"):
        claims = [f"{marked(it['resource'])}@{it['version']}" for it in guard]
        facts.append(f"relied on {', '.join(claims)}")
    if correlation_id := fields.get("correlation_id"):
        facts.append(f"correlation id {correlation_id}")
    return "; ".join(facts)


def _table(title: str, heads: Sequence[str], rows: Sequence[str], note: str) -> Iterator[str]:
    yield f"<h2>{title}</h2>\n<p>{note}</p>\n"
    if not rows:
        yield "<p>None.</p>\n"
        return
    yield f"<table>\n<thead><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead>\n"
    yield from rows
    yield "</table>\n"


def _row(*cells: object) -> str:
    shown = "".join(f"<td>{escape(printable(str(cell), kept=''))}</td>" for cell in cells)
    return f"<tr>{shown}</tr>\n"
