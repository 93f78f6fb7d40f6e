"""An export of the log as JSON lines, and its import into another store, of either database (docs/audit.md).

The first line says what follows, the last one that nothing is missing. An event without payload was redacted, or
exported without values: its hash keeps the chain whole.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from pydantic_core import from_json

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Batch, Head, Reader
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import FIRST_DIGEST, digest_event, hash_payload
from holdlog.adapters.stores.decoding import decode_event
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ABSENCE, Claims
from holdlog.domain.log import Imported, TextsRedacted
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import HoldlogError, InvalidError, StoreError
from holdlog.domain.state import State
from holdlog.projections.fold import fold, refold
from holdlog.projections.results import ExportedLog, ImportedLog

FORMAT: Final = 1
PAGE_EVENTS: Final = 200
"""Events that are in memory at once: as many values of 256 kB are 50 MB."""
MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of one event."""
_HEADER: Final = ("position", "stream", "version", "topic", "at", "meta")
_TYPES: Final = [int, str, int, str, int, str]
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def write_export(reader: Reader, file: BinaryIO, first: int, last: int | None, values: bool) -> ExportedLog:
    """Write the events from one position to another, both included. Raises InvalidError, StoreError, OSError."""
    rows = reader.read(sql.HEAD, {})
    end = rows[0][0] if rows else 0
    last = end if last is None else last
    if last > end or (first > last and end):
        raise InvalidError(f"last: must be between first and {end}, where the log ends")
    before = reader.read(sql.DIGEST, {"position": first - 1})
    digest = bytes(before[0][0]) if before else FIRST_DIGEST
    about = {"holdlog_export": FORMAT, "store": reader.read(sql.STORE_ID, {})[0][0], "first": first, "last": last}
    about |= {"previous_digest": digest.hex()} | ({} if values else {"values": False})
    file.write(f"{_dump(about)}\n".encode())
    position = first - 1
    while position < last:
        rows = reader.read(sql.ROWS, {"after": position, "limit": min(PAGE_EVENTS, last - position)})
        if not rows or rows[-1][0] != position + len(rows):
            raise StoreError(f"the log lacks an event after position {position}; run `holdlog verify`")
        file.writelines(f"{_dump(_describe(row, values))}\n".encode() for row in rows)
        position, digest = rows[-1][0], bytes(rows[-1][-1])
    file.write(f"{_dump({'end': last, 'digest': digest.hex()})}\n".encode())
    return ExportedLog(first, last, digest.hex())


def _describe(row: Any, values: bool) -> dict[str, Any]:
    payload, salt, hashed, digest = row[6:]
    event = dict(zip(_HEADER, row, strict=False))
    if payload is not None and values:
        event |= {"payload": payload, "salt": bytes(salt).hex()}
    else:
        kept = hashed or b"" if payload is None else hash_payload(payload, salt)
        event["payload_hash"] = bytes(kept).hex()
    event["digest"] = bytes(digest).hex()
    return event


def read_import(engine: Engine, caller: Caller, file: BinaryIO) -> ImportedLog:
    """Add all events of an export to the store, which must be empty, and one that says so; or nothing, if one of them
    differs from its digest or is missing. Claims have a full life from now. Raises InvalidError, StoreError,
    UnavailableError, OSError."""
    own_id = engine.store.read(sql.STORE_ID, {})[0][0]
    lines = _Lines(file)
    with engine.write_alone() as batch, lines.explain_damage():
        if batch.head.position:
            raise StoreError("this store has events; import into a new one")
        source = _require_whole(lines.read())
        claims: Claims = {}
        _add_events(engine, batch, lines, claims)
        last, digest, at = batch.head
        if lines.line != {"end": last, "digest": digest.hex()} or lines.read() or source["last"] != last:
            raise InvalidError(f"source: ends at position {last}, and not as a whole export does")
        batch.at, batch.steady = max(engine.store.now(), at), engine.store.steady()
        batch.state = State({}, _make_board(claims, batch.steady))
        event = Imported(f"store:{own_id}", source["store"], last, digest.hex())
        engine.append(event, fold(batch.state, event, last + 1), caller, batch)
    return ImportedLog(source["store"], last, digest.hex(), last + 1)


def _require_whole(about: dict[str, Any]) -> dict[str, Any]:
    if about.get("holdlog_export") != FORMAT or type(about["store"]) is not str or len(about["store"]) > 100:
        raise InvalidError("source: is not an export of this release of holdlog")
    if about["first"] != 1 or about.get("values") is False:
        raise InvalidError("source: has only a part of the log; export all of it, with values")
    return about


def _add_events(engine: Engine, batch: Batch, lines: "_Lines", claims: Claims) -> None:
    """Write all events, and fold them. Ends at the line behind them, or at the end of the file."""
    bare: set[int] = set()
    while "position" in lines.read():
        row = _check(lines.line, batch)
        position, stream, version, topic, at, meta, payload = row[:7]
        event = decode_event(stream, topic, meta, payload if stream.startswith("claim:") else None)
        refold(batch.state.records, claims, event, version, position, at)
        batch.rows.append(row)
        batch.head = Head(position, row[-1], at)
        if payload is None:
            bare.add(position)
        if type(event) is TextsRedacted:
            if not bare.issuperset(event.positions):
                raise InvalidError(f"source: has a text that the event at position {position} redacted")
            bare.difference_update(event.positions)
        if len(batch.rows) == PAGE_EVENTS:
            _flush(engine, batch)
    if bare:
        raise InvalidError(f"source: the event at position {min(bare)} lacks its text, and no later one redacted it")
    _flush(engine, batch)


def _check(line: dict[str, Any], batch: Batch) -> tuple[Any, ...]:
    """The row of an event that follows the head. Raises ValueError, TypeError, KeyError."""
    facts = [line[name] for name in _HEADER]
    payload = line.get("payload")
    salt = None if payload is None else bytes.fromhex(line["salt"])
    hashed = bytes.fromhex(line["payload_hash"]) if payload is None or salt is None else hash_payload(payload, salt)
    digest = digest_event(batch.head.digest, *(*facts, hashed))
    is_next = facts[0] == batch.head.position + 1 and facts[4] >= batch.head.at
    if [type(fact) for fact in facts] != _TYPES or not is_next or digest.hex() != line["digest"]:
        raise ValueError
    return (*facts, payload, salt, hashed if payload is None else None, digest)


def _flush(engine: Engine, batch: Batch) -> None:
    if batch.rows:
        engine.store.append(batch)
        batch.rows.clear()
        batch.state.records.clear()


def _make_board(claims: Claims, now: int) -> Board:
    """A board with these claims, of which nobody knows when their holders were heard."""
    board = Board(now, is_alive)
    board.claims = claims
    board.changed_claims = set(claims)
    for claim in list(claims.values()):
        board.adopt(claim.who)
        if claim.is_ticket:
            board.keep(claim._replace(deadline=now + ABSENCE))
    return board


class _Lines:
    """The lines of an export. `line` is the last one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self.line: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """The next line; an empty one at the end of the file. Raises ValueError, TypeError."""
        text = self._file.readline(MAX_LINE)
        self._number += 1
        self.line = from_json(text) if text else {}
        if type(self.line) is not dict:
            raise TypeError
        return self.line

    @contextmanager
    def explain_damage(self) -> Iterator[None]:
        """Raise InvalidError for whatever is wrong with a line."""
        try:
            yield
        except HoldlogError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
            number = self._number
            raise InvalidError(f"source: line {number} is damaged, or not of an export of this log") from None
