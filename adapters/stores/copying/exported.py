"""The log as JSON lines of CloudEvents 1.0: a header, each event in the order of the log, and a trailer with the root
of the Merkle tree over them (docs/decisions/0049-export-and-import.md)."""

import gzip
import zlib
from collections.abc import Generator, Iterator
from io import BufferedReader
from typing import Annotated, Any, Final, cast
from uuid import UUID, uuid4

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import from_json, to_json

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.copying.carried import BadEventError
from holdlog.adapters.stores.copying.copy import CopyReport
from holdlog.adapters.stores.copying.source import CopySource
from holdlog.adapters.stores.copying.writing import CopySteps, LogTally, Target, write_log
from holdlog.adapters.stores.event_log.codec import COLUMNS, REQUIRED, UNREADABLE, EncodedEvent, decode
from holdlog.domain.cloud_event import CALLER_ATTRIBUTES, TYPE_PREFIX, caller_attributes, moment, source_of
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError
from holdlog.projections.projection import Row

NAME: Final = "holdlog.log"
MAJOR: Final = 1
MINOR: Final = 0
"""Version of the export. A minor adds only attributes that an older reader may ignore."""
MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes."""

_BEGINS: Final = f"{TYPE_PREFIX}LogExportBegins"
_ENDS: Final = f"{TYPE_PREFIX}LogExportEnds"
_GZIP: Final = b"\x1f"
"""The first byte of compressed data, which begins no JSON."""
_SQLITE: Final = b"SQLite format 3\x00"
_IN_DATA: Final = (
    *("at", "session", "format", "clock", "operation", "based_on", "forced", "guard"),
    *("salt", "payload_hash", "reason_salt", "reason_hash"),
)
"""Columns that are members of the `data` of an event, under their names."""
_TIMES: Final = ("expires_at", "due")
"""Fields of events that are times."""
_HEX: Final = tuple(name for name in _IN_DATA if COLUMNS[name] is bytes)
_KINDS: Final[dict[type, Any]] = {int: Annotated[int, Field(ge=-(2**63), lt=2**63)], str: str, bytes: bytes}
_CELLS: Final = (int, *(_KINDS[it] if name in REQUIRED else _KINDS[it] | None for name, it in COLUMNS.items()))
_ROW: Final = TypeAdapter[Row](cast(Any, tuple.__class_getitem__(_CELLS)), config=ConfigDict(strict=True))
"""Checks the types of the cells of an event."""


def export_lines(source: CopySource, progress: Progress = ignore_progress) -> Generator[bytes]:
    """The lines of an export of one snapshot, read one at a time. Raises StoreError, UnavailableError."""
    with source.contents() as contents:
        count, tally = contents.count(), LogTally()
        store = source_of(contents.meta()["store_id"])
        begin = {"format": NAME, "version": f"{MAJOR}.{MINOR}", "events": count}
        yield _line(f"export@{count}", store, _BEGINS, platform.now(), {"data": begin})
        for row in tally.of(CopySteps(count, progress, passes=1).of(contents.events())):
            try:
                yield event_line(store, EncodedEvent._make(row))
            except UNREADABLE:
                raise BadEventError(row[0], f"the event at position {row[0]:,} cannot be read") from None
        end = {"events": tally.size, "root": tally.root().hex()}
        yield _line(f"export-end@{count}", store, _ENDS, platform.now(), {"data": end})


def import_log(export: "LogExport", target: Target, progress: Progress = ignore_progress) -> CopyReport:
    """Create a store with the log of an export, under a new store id. Verifies it before anybody sees it.

    Raises StoreError that names the damaged line, OccupiedError, UnavailableError; then there is no store."""
    tally, steps, store_id = LogTally(), CopySteps(export.count, progress), str(uuid4())
    try:
        with target.prepared():
            write_log(target, tally.forked(steps.of(export.events(tally)), export.store_id), tally, steps)
            target.publish(store_id, {})
    except BadEventError as bad:
        raise export.refusal(bad.problem, bad.position + 1) from None
    return CopyReport(export.name, target.name, tally.size - 1, tally.size, store_id, kept_id=False, sealed=False)


class LogExport:
    """An export that is read line by line. `name`: for messages; `store_id`: of the exported store; `count`: its
    events, according to the header.

    Raises StoreError for everything that is not a whole export."""

    def __init__(self, stream: BufferedReader, name: str) -> None:
        self.name = name
        self._number = 0
        begin = stream.peek(len(_SQLITE))
        if begin.startswith(_SQLITE):
            raise StoreError(f"{name} is a database, not an export; to copy a store: holdlog copy {name} TO")
        self._lines = self._read(gzip.GzipFile(fileobj=stream) if begin.startswith(_GZIP) else stream)
        header = self._parsed(next(self._lines, b""))
        facts = header.get("data")
        if header.get("type") != _BEGINS or not isinstance(facts, dict) or facts.get("format") != NAME:
            raise StoreError(f"{name} is not an export of a log, such as holdlog export --log prints")
        major, _, minor = str(facts.get("version")).partition(".")
        if major != str(MAJOR) or not minor.isdigit():
            version = f"{major}.{minor}"[:20]
            raise StoreError(f"{name} has format {version!r}, but this holdlog reads {MAJOR}.x; use the newer holdlog")
        try:
            self.store_id = str(UUID(str(header.get("source")).removeprefix(source_of(""))))
            self.count = max(0, int(facts["events"]))
        except UNREADABLE:
            raise self.refusal("the header names no store, or no number of events") from None

    def events(self, tally: LogTally) -> Iterator[Row]:
        """The events. `tally` must have all events that were yielded: it must agree with the trailer."""
        for line in self._lines:
            found = self._parsed(line)
            if found.get("type") == _ENDS:
                break
            try:
                row = row_of(found)
                _require_readable(EncodedEvent._make(row))
            except StoreError as error:
                raise self.refusal(str(error)) from None
            except UNREADABLE:
                raise self.refusal("this is not an event as holdlog exports it") from None
            yield row
        else:
            raise self.refusal("the export was cut: its last line is missing")
        end = found.get("data")
        if not isinstance(end, dict) or (end.get("events"), end.get("root")) != (tally.size, tally.root().hex()):
            raise self.refusal("the number of events or the root of their tree differs from that of the lines before")
        if next(self._lines, None) is not None:
            raise self.refusal("this follows the end of the export")

    def refusal(self, problem: str, line: int | None = None) -> StoreError:
        number = self._number if line is None else line
        return StoreError(f"{self.name}, line {number:,}: {problem}; nothing was imported")

    def _read(self, stream: BufferedReader | gzip.GzipFile) -> Iterator[bytes]:
        try:
            while line := stream.readline(MAX_LINE + 1):
                self._number += 1
                if len(line) > MAX_LINE:
                    raise self.refusal(f"the line has more than {MAX_LINE:,} bytes")
                yield line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise self.refusal("the compressed data is damaged or was cut", self._number + 1) from None
        except OSError as error:
            raise StoreError(f"{self.name} cannot be read ({error.strerror}); nothing was imported") from None

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            found = from_json(line, allow_inf_nan=False)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self.refusal("this is not a JSON object: the file was cut or damaged", max(1, self._number))
        return found


def _line(identity: str, source: str, kind: str, at: int, more: dict[str, Any]) -> bytes:
    head = {"specversion": "1.0", "id": identity, "source": source, "type": kind, "time": moment(at)}
    return to_json({**head, **more}) + b"\n"


def event_line(source: str, event: EncodedEvent) -> bytes:
    stream, version = event.originator_id, event.originator_version
    more: dict[str, Any] = {"subject": stream, "position": event.id, "version": version, "digest": event.digest.hex()}
    more |= caller_attributes(event)
    if event.payload_hash is not None:
        more["redacted"] = True
    data: dict[str, Any] = {}
    for name in _IN_DATA:
        if (cell := getattr(event, name)) is not None:
            data[name] = cell.hex() if name in _HEX else cell
    _put_json(data, "body", bytes(event.state))
    if event.payload is not None:
        _put_json(data, "payload", event.payload.encode())
    return _line(f"{stream}@{version}", source, TYPE_PREFIX + event.topic, event.at, {**more, "data": data})


def _require_readable(event: EncodedEvent) -> None:
    """Require what the fold does not: a digest says nothing about whether calls can show the event. Raises one of
    `UNREADABLE`, or StoreError."""
    moment(event.at)
    if b"expires_at" in event.state or b"due" in event.state:
        body = from_json(event.state)
        for name in _TIMES:
            moment(body.get(name) or 0)
    if event.payload is not None:
        from_json(event.payload, allow_inf_nan=False)
    if event.guard is not None:
        decode(event)


def _put_json(data: dict[str, Any], name: str, text: bytes) -> None:
    """Add a JSON text as JSON if that restores it byte by byte, else as a string."""
    try:
        value = from_json(b"[[%b]]" % text, allow_inf_nan=False)[0][0]  # as deep as in the line
        is_exact = to_json(value) == text
    except (ValueError, IndexError):
        is_exact = False
    if is_exact:
        data[name] = value
    else:
        data[f"{name}_text"] = text.decode()


def _json_of(data: dict[str, Any], name: str) -> bytes | None:
    """The inverse of `_put_json`; None if the text is missing."""
    if (text := data.get(f"{name}_text")) is not None:
        return bytes(text.encode())
    return to_json(data[name]) if name in data else None


def row_of(found: dict[str, Any]) -> Row:
    """The row of an event's line. Raises one of `UNREADABLE` for anything else."""
    data = found["data"]
    body, payload = _json_of(data, "body"), _json_of(data, "payload")
    cells = data | {column: found.get(attribute) for attribute, column in CALLER_ATTRIBUTES.items()}
    cells |= {name: bytes.fromhex(data[name]) for name in _HEX if name in data}
    cells |= {"originator_id": found["subject"], "originator_version": found["version"], "state": body}
    cells |= {"topic": found["type"].removeprefix(TYPE_PREFIX), "digest": bytes.fromhex(found["digest"])}
    cells["payload"] = None if payload is None else payload.decode()
    return _ROW.validate_python((found["position"], *map(cells.get, COLUMNS)))
