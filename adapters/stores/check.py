"""Comparison of the views with the log, and their rebuild. For both stores."""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.stores.board import list_changed_claims
from holdlog.adapters.stores.chain import Chain, make_damage_error, read_log
from holdlog.adapters.stores.decoding import decode_event
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ABSENCE, Claims
from holdlog.domain.names import WITHOUT_RECORD
from holdlog.domain.state import Record
from holdlog.projections.fold import refold

KEYS: Final = 2_000
"""Rows without texts read at once."""
_VERSIONS: Final = (
    "SELECT stream, version, position FROM events WHERE (stream, version) > (:stream, :version)"
    " AND NOT (stream >= 'foreign:' AND stream < 'foreign;') ORDER BY stream, version LIMIT :limit"
)
"""Other applications number their events as they like."""
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


class Change(NamedTuple):
    """A row of a view that must change: its name, and the statements that change it."""

    row: str
    statements: tuple[tuple[str, dict[str, Any]], ...]


def list_changes(snapshot: Reader, claims: Claims) -> Iterator[Change]:
    """What rows of the views must change to follow from the log. Raises DamageError for a gap in a stream."""
    yield from _compare_claims(snapshot, claims)
    rows = _read_current(snapshot)
    row: Any = next(rows, None)
    for stream, version, position in _list_last(snapshot):
        if stream.startswith(WITHOUT_RECORD):
            continue
        while row is not None and row[0] < stream:
            yield Change(row[0], ((_END_RECORD, {"stream": row[0]}),))
            row = next(rows, None)
        is_there = row is not None and row[0] == stream
        if not (is_there and _is_plain(row, version, position)):
            record = _fold_record(snapshot, stream, version, position)
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


def _fold_record(snapshot: Reader, stream: str, version: int, position: int) -> Record:
    records: dict[str, Record] = {}
    ((topic, meta),) = snapshot.read(_EVENT, {"position": position})
    refold(records, {}, decode_event(stream, topic, meta, None), version, position, 0)
    return records[stream]


def rebuild(chain: Chain, snapshot: Reader, execute: Callable[[str, dict[str, Any]], Any]) -> int:
    """Rebuild the views from the log, in a transaction. `chain`: the log as it was verified before. Returns how many
    rows changed. Raises DamageError."""
    chain.trusted = chain.head.position
    for row in read_log(snapshot, chain.head.position):
        chain.follow(row)
    chain.finish()
    count = 0
    for change in list_changes(snapshot, chain.claims):
        for statement, parameters in change.statements:
            execute(statement, parameters)
        count += 1
    return count


def _compare_claims(snapshot: Reader, claims: Claims) -> Iterator[Change]:
    """A ticket whose row is missing waits for its caller to return; a grant lives as its holder does."""
    board = Board(0)
    absent = snapshot.steady() + ABSENCE
    for key, claim in claims.items():
        board.claims[key] = claim._replace(deadline=absent) if claim.is_ticket else claim
    board.changed_claims = set(claims)
    rows = {tuple(row[:2]): tuple(row) for row in snapshot.read(_CLAIMS, {})}
    for row in sorted(list_changed_claims(board)[0], key=itemgetter(0, 1)):
        if rows.pop(row[:2], None) != row[:11]:
            yield Change(f"claim:{row[0]}", ((_PUT_CLAIM, dict(zip(_CLAIM_COLUMNS, row, strict=True))),))
    for resource, version in rows:
        yield Change(f"claim:{resource}", ((_END_CLAIM, {"resource": resource, "version": version}),))


def _read_current(snapshot: Reader) -> Iterator[Any]:
    stream = ""
    while rows := snapshot.read(_CURRENT, {"stream": stream, "limit": KEYS}):
        yield from rows
        stream = rows[-1][0]


def _list_last(snapshot: Reader) -> Iterator[tuple[str, int, int]]:
    """Stream, version and position of the last event of each stream. Raises DamageError for a gap."""
    stream, version, position = "", 0, 0
    while rows := snapshot.read(_VERSIONS, {"stream": stream, "version": version, "limit": KEYS}):
        for row in rows:
            if row[0] != stream:
                if version:
                    yield stream, version, position
                stream, version, position = row[0], 0, 0
            if row[1] != version + 1 or row[2] <= position:
                raise make_damage_error(row[2], f"version {row[1]} follows version {version} of {stream}")
            version, position = row[1:]
    if version:
        yield stream, version, position
