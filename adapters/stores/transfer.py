"""An export of the log as JSON lines, and its import into another store, of either database (docs/audit.md).

The first line says what follows and where the log ended, the last one that nothing is missing. An event without payload
was redacted, or exported without values: its hash keeps the chain whole.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO, Final

from pydantic_core import from_json

from holdlog.adapters.engine.port import Batch, Reader, Store
from holdlog.adapters.operating_system.files import escape
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.chain import PAGE, Chain, DamageError, read_log
from holdlog.adapters.stores.codec import FIRST_DIGEST, hash_payload
from holdlog.adapters.stores.decoding import decode_event
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ABSENCE, Claims
from holdlog.domain.redaction import Imported
from holdlog.domain.refusals import HoldlogError, InvalidError, StoreError
from holdlog.domain.state import State
from holdlog.domain.values import dump
from holdlog.projections.fold import refold
from holdlog.projections.results import ExportedLog

FORMAT: Final = 1
MAX_LINE: Final = 128 * 1024 * 1024
"""Bytes of one event: six for each of a value whose characters are all escaped, and some for the rest."""
_HEADER: Final = ("position", "stream", "version", "topic", "at", "meta")
_TYPES: Final = [int, str, int, str, int, str]


def write_export(reader: Reader, file: BinaryIO, first: int, last: int | None, values: bool) -> ExportedLog:
    """Write the events from one position to another, both included. Raises InvalidError, StoreError, OSError."""
    with reader.snapshot() as snapshot:  # a redaction meanwhile would take a text, and its event would be missing
        rows = snapshot.read(sql.HEAD, {})
        end = rows[0][0] if rows else 0
        last = end if last is None else last
        if last > end or (first > last and end):
            raise InvalidError(f"last: must be between first and {end}, where the log ends")
        before = snapshot.read(sql.DIGEST, {"position": first - 1})
        position, digest = first - 1, bytes(before[0][0]) if before else FIRST_DIGEST
        store_id = snapshot.read(sql.STORE_ID, {})[0][0]
        header = {"holdlog_export": FORMAT, "store": store_id, "first": first, "last": last}
        header |= {"log_end": end, "previous_digest": digest.hex()} | ({} if values else {"values": False})
        _write(file, header)
        for row in islice(read_log(snapshot, position), last - position):
            if row[0] != position + 1:
                break
            _write(file, _describe(row, values))
            position, digest = row[0], bytes(row[-1])
    if position < last:
        raise StoreError(f"the log lacks an event after position {position}; run `holdlog verify`")
    _write(file, {"end": last, "digest": digest.hex()})
    return ExportedLog(first, last, digest.hex())


def _write(file: BinaryIO, fields: dict[str, Any]) -> None:
    file.write(f"{escape(dump(fields))}\n".encode())  # it may be a terminal


def _describe(row: Any, values: bool) -> dict[str, Any]:
    payload, salt, hashed, digest = row[6:]
    event = dict(zip(_HEADER, row, strict=False))
    if payload is not None and values:
        event |= {"payload": payload, "salt": bytes(salt).hex()}
    else:
        event["payload_hash"] = bytes((hashed or b"") if payload is None else hash_payload(payload, salt)).hex()
    event["digest"] = bytes(digest).hex()
    return event


def read_import(store: Store, batch: Batch, file: BinaryIO) -> Imported:
    """Add all events of an export to an empty store, in a transaction. Claims have a full life from now. Returns the
    event that records the import. Raises InvalidError if an event differs from its digest or is missing, StoreError,
    UnavailableError, OSError: then the caller must undo the transaction."""
    if batch.head.position:
        raise StoreError("this store has events; import into a new one")
    lines = _Lines(file)
    with lines.explain_damage():
        source = _require_whole(lines.read())
        chain = Chain()
        while "position" in lines.read():
            row = _make_row(lines.line)
            chain.follow(row)
            position, stream, version, topic, at, meta = row[:6]
            if not stream.startswith("claim:"):
                refold(batch.state.records, {}, decode_event(stream, topic, meta, None), version, position, at)
            batch.rows.append(row)
            if len(batch.rows) == PAGE:
                _flush(store, batch)
        chain.finish()
        _flush(store, batch)
        last, digest, at = batch.head = chain.head
        if lines.line != {"end": last, "digest": digest.hex()} or lines.read() or source["last"] != last:
            raise InvalidError(f"source: ends at position {last}, and not as a whole export does")
    batch.at, batch.steady = max(store.now(), at + 1), store.steady()
    batch.state = State({}, _make_board(chain.claims, batch.steady))
    return Imported(f"store:{store.read(sql.STORE_ID, {})[0][0]}", source["store"], last, digest.hex())


def _require_whole(header: dict[str, Any]) -> dict[str, Any]:
    if header.get("holdlog_export") != FORMAT or type(header["store"]) is not str or len(header["store"]) > 100:
        raise InvalidError("source: is not an export of this release of holdlog")
    if header["first"] != 1 or header["last"] != header["log_end"] or header.get("values") is False:
        raise InvalidError("source: has only a part of the log; export all of it, with values")
    return header


def _make_row(line: dict[str, Any]) -> tuple[Any, ...]:
    """The row of an event. Raises ValueError, TypeError, KeyError."""
    header = [line[name] for name in _HEADER]
    if [type(fact) for fact in header] != _TYPES:
        raise ValueError
    hashes = (bytes.fromhex(line[name]) if name in line else None for name in ("salt", "payload_hash", "digest"))
    return (*header, line.get("payload"), *hashes)


def _flush(store: Store, batch: Batch) -> None:
    if batch.rows:
        store.append(batch)
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
        except DamageError as error:
            raise InvalidError(f"source: {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
            number = self._number
            raise InvalidError(f"source: line {number} is damaged, or not of an export of this log") from None
