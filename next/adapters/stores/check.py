"""Verification of the log and of the views against it, and the rebuild of the views. For both stores."""

import json
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdlog.adapters.engine.port import Head, Reader
from holdlog.adapters.stores.board import list_changed_claims
from holdlog.adapters.stores.codec import FIRST_DIGEST, digest_event, hash_payload
from holdlog.adapters.stores.decoding import decode_event
from holdlog.adapters.stores.sql import ROWS
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ABSENCE, Claims
from holdlog.domain.names import WITHOUT_RECORD
from holdlog.domain.state import Record
from holdlog.projections.fold import refold
from holdlog.projections.results import Damaged

PAGE: Final = 500
"""Events read at once: they may have 128 MB."""
KEYS: Final = 2_000
"""Rows without texts read at once."""
_VERSIONS: Final = (
    "SELECT stream, version, position FROM events WHERE (stream, version) > (:stream, :version)"
    " ORDER BY stream, version LIMIT :limit"
)
_CURRENT: Final = (
    "SELECT c.stream, c.version, c.position, c.exists_now, c.expires_at, e.topic, e.meta FROM current AS c"
    " LEFT JOIN events AS e ON e.position = c.position WHERE c.stream > :stream ORDER BY c.stream LIMIT :limit"
)
_EVENT: Final = "SELECT topic, meta FROM events WHERE position = :position"
_CLAIMS: Final = (
    "SELECT resource, version, is_ticket, mode, agent, session, principal, position, since, hold, also FROM claims"
)
_END_RECORD: Final = "DELETE FROM current WHERE stream = :stream"
_PUT_RECORD: Final = "INSERT INTO current VALUES (:stream, :version, :position, :exists, :expires_at)"
_END_CLAIM: Final = "DELETE FROM claims WHERE resource = :resource AND version = :version"
_CLAIM_COLUMNS: Final = (
    *("resource", "version", "is_ticket", "mode", "agent", "session", "principal", "position", "since", "hold", "also"),
    *("deadline", "waits_until", "is_offered", "note"),
)
_OF_VIEW: Final = _CLAIM_COLUMNS[2:11]
_PUT_CLAIM: Final = (
    f"INSERT INTO claims VALUES ({', '.join(f':{name}' for name in _CLAIM_COLUMNS)}) ON CONFLICT (resource, version)"
    f" DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _OF_VIEW)}"
)
"""Keeps what no event says."""


class DamageError(Exception):
    """The first thing that is wrong."""

    def __init__(self, damage: Damaged) -> None:
        super().__init__(damage.problem)
        self.damage = damage


class Change(NamedTuple):
    """A row of a view that must change: its name, and the statements that change it."""

    row: str
    statements: tuple[tuple[str, dict[str, Any]], ...]


# --- the log


def read_log(view: Reader, after: int = 0) -> Iterator[Any]:
    """The rows of the log after a position, in order, in constant memory."""
    while rows := view.read(ROWS, {"after": after, "limit": PAGE}):
        yield from rows
        after = rows[-1][0]


def fold_log(view: Reader, checkpoint: tuple[int, str] | None = None) -> tuple[Head, Claims]:
    """Verify the chain of the log. Returns its end, and the claims that follow from it. Raises DamageError, also if the
    log does not contain the checkpoint, a position and a digest in hexadecimal."""
    claims: Claims = {}
    redacted: set[int] = set()
    position, digest, at = 0, FIRST_DIGEST, 0
    wanted = checkpoint[0] if checkpoint is not None else -1
    for row in read_log(view):
        position += 1
        hashed = _hash_row(row, position)
        _, stream, version, topic, now, meta = row[:6]
        digest = digest_event(digest, position, stream, version, topic, now, meta, hashed)
        if digest != row[9]:
            raise _damage(position, "the event was changed")
        if now < at:
            raise _damage(position, "its time is before that of the event before it")
        at = now
        if position == wanted:
            _require_digest(position, digest, checkpoint)
        if row[6] is None:
            redacted.add(position)
        if stream.startswith("claim:"):
            _fold_claim(claims, row)
        elif topic == "TextsRedacted":
            _require_redacted(row, redacted)
    if redacted:
        raise _damage(min(redacted), "its text was removed, and no event says so")
    if wanted == 0:
        _require_digest(0, FIRST_DIGEST, checkpoint)
    if wanted > position:
        problem = f"the log ends at position {position}, before the checkpoint: events were removed at its end"
        raise DamageError(Damaged("checkpoint", problem, position))
    return Head(position, digest, at), claims


def _hash_row(row: Any, position: int) -> bytes:
    found, *_, payload, salt, payload_hash, _ = row
    if found != position:
        raise _damage(position, "the event is missing")
    try:
        if payload is None and salt is None:
            return bytes(payload_hash)
        if payload_hash is None:
            return hash_payload(payload, salt)
    except (TypeError, AttributeError, ValueError):
        raise _damage(position, "the event has no text, nor the hash of one") from None
    raise _damage(position, "the event has a text and the hash of one that was redacted")


def _fold_claim(claims: Claims, row: Any) -> None:
    position, stream, version, topic, at, meta, payload = row[:7]
    try:
        refold({}, claims, decode_event(stream, topic, meta, payload), version, position, at)
    except (KeyError, TypeError, ValueError):
        raise _damage(position, "this event cannot follow the ones before it") from None


def _require_redacted(row: Any, redacted: set[int]) -> None:
    for target in json.loads(row[5])["positions"]:
        if target not in redacted:
            raise _damage(target, f"a text is back that the event at position {row[0]} redacted")
        redacted.discard(target)


def _require_digest(position: int, digest: bytes, checkpoint: tuple[int, str] | None) -> None:
    if checkpoint is not None and checkpoint[1] != digest.hex():
        problem = f"position {position}: the log has another history than the checkpoint"
        raise DamageError(Damaged("checkpoint", problem, position))


def _damage(position: int, problem: str) -> DamageError:
    return DamageError(Damaged("log", f"position {position}: {problem}", position))


# --- the views


def list_changes(view: Reader, claims: Claims) -> Iterator[Change]:
    """What rows of the views must change to follow from the log. Raises DamageError for a gap in a stream."""
    yield from _compare_claims(view, claims)
    rows = _read_current(view)
    row: Any = next(rows, None)
    for stream, version, position in _list_last(view):
        if stream.startswith(WITHOUT_RECORD):
            continue
        while row is not None and row[0] < stream:
            yield Change(row[0], ((_END_RECORD, {"stream": row[0]}),))
            row = next(rows, None)
        is_there = row is not None and row[0] == stream
        if not (is_there and _is_plain(row, version, position)):
            record = _fold_record(view, stream, version, position)
            if not is_there or tuple(row[:5]) != record[:5]:
                names = ("stream", "version", "position", "exists", "expires_at")
                values = dict(zip(names, (*record[:3], int(record.exists), record.expires_at), strict=True))
                yield Change(stream, ((_END_RECORD, {"stream": stream}), (_PUT_RECORD, values)))
        if is_there:
            row = next(rows, None)
    while row is not None:
        yield Change(row[0], ((_END_RECORD, {"stream": row[0]}),))
        row = next(rows, None)


def _is_plain(row: Any, version: int, position: int) -> bool:
    """Whether the row is that of a value without time to live: most are, and to fold their events takes longer than to
    verify them."""
    is_value = row[5] == "ValueWritten" and '"expires_at"' not in row[6]
    return is_value and row[1:5] == (version, position, 1, None)


def _fold_record(view: Reader, stream: str, version: int, position: int) -> Record:
    records: dict[str, Record] = {}
    ((topic, meta),) = view.read(_EVENT, {"position": position})
    refold(records, {}, decode_event(stream, topic, meta, None), version, position, 0)
    return records[stream]


def rebuild(view: Reader, execute: Callable[[str, dict[str, Any]], Any]) -> int:
    """Make the views what follows from the log. Returns how many rows changed. Raises DamageError."""
    _, claims = fold_log(view)
    changes = list(list_changes(view, claims))
    for change in changes:
        for statement, parameters in change.statements:
            execute(statement, parameters)
    return len(changes)


def _compare_claims(view: Reader, claims: Claims) -> Iterator[Change]:
    """A ticket whose row is missing waits for its caller to return; a grant lives as its holder does."""
    board = Board(0)
    absent = view.steady() + ABSENCE
    for key, claim in claims.items():
        board.claims[key] = claim._replace(deadline=absent) if claim.is_ticket else claim
    board.changed_claims = set(claims)
    rows = {tuple(row[:2]): tuple(row) for row in view.read(_CLAIMS, {})}
    for row in sorted(list_changed_claims(board)[0], key=itemgetter(0, 1)):
        if rows.pop(row[:2], None) != row[:11]:
            yield Change(f"claim:{row[0]}", ((_PUT_CLAIM, dict(zip(_CLAIM_COLUMNS, row, strict=True))),))
    for resource, version in rows:
        yield Change(f"claim:{resource}", ((_END_CLAIM, {"resource": resource, "version": version}),))


def _read_current(view: Reader) -> Iterator[Any]:
    stream = ""
    while rows := view.read(_CURRENT, {"stream": stream, "limit": KEYS}):
        yield from rows
        stream = rows[-1][0]


def _list_last(view: Reader) -> Iterator[tuple[str, int, int]]:
    """Stream, version and position of the last event of each stream. Raises DamageError for a gap."""
    stream, version, position = "", 0, 0
    while rows := view.read(_VERSIONS, {"stream": stream, "version": version, "limit": KEYS}):
        for row in rows:
            if row[0] != stream:
                if version:
                    yield stream, version, position
                stream, version, position = row[0], 0, 0
            if row[1] != version + 1 or row[2] <= position:
                raise _damage(row[2], f"version {row[1]} follows version {version} of {stream}")
            version, position = row[1:]
    if version:
        yield stream, version, position
