"""Reads the views and the log: the part of the port that both databases share."""

from collections.abc import Iterable, Sequence
from itertools import chain
from types import TracebackType
from typing import Any, Final, Protocol, Self

from pydantic_core import from_json

from holdlog.adapters.stores.event_log.codec import EncodedEvent, decode
from holdlog.adapters.stores.sql.leases import SqlLeases
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sql.tables import IS_ACTIVE, IS_JOINT, REFUSALS, select_from
from holdlog.adapters.stores.sql.text import NONE, beyond, bound
from holdlog.adapters.stores.sql.threads import SqlThreads
from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim, Ticket
from holdlog.domain.claims.resource import covering
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import HistoryEntry, LogTime, Refusal, WriteEntry
from holdlog.domain.record import Record
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.store_log import EventTexts, Part, SearchText, StoreLog
from holdlog.domain.token import Token
from holdlog.projections import fold
from holdlog.projections.agents import AGENTS
from holdlog.projections.claims import CLAIMS, PAST_CLAIMS, PAST_TICKETS, SNAPSHOTS, TICKETS, past_claim_of, ticket_of
from holdlog.projections.current import CURRENT
from holdlog.projections.projection import Row, Table
from holdlog.projections.store_log import STORE_LOG
from holdlog.projections.tokens import TOKENS
from holdlog.projections.tree import TREE

_ENDING: Final = "live = 1 AND expires_at IS NOT NULL"  # the index's exact condition; else it is not used
_LIVE: Final = "live = 1 AND COALESCE(expires_at > :at, TRUE)"
_SELECT_RECORD: Final = f"{select_from(CURRENT)} WHERE namespace = :namespace AND key = :key"
_KEYS: Final = {
    bounded: f"namespace = :namespace AND key >= :first{end} AND key <> :after"
    for bounded, end in ((True, " AND key < :end"), (False, ""))
}
"""With one lower bound: of two, SQLite seeks the first, so that each page would begin with all pages before it."""
_SELECT_RECORDS: Final = {
    bounded: f"{select_from(CURRENT)} WHERE {keys} AND ({_LIVE}) = :live ORDER BY key LIMIT :limit"
    for bounded, keys in _KEYS.items()
}
_SELECT_KEYS: Final = {
    bounded: f"SELECT key FROM current WHERE {keys} ORDER BY key LIMIT :limit" for bounded, keys in _KEYS.items()
}
_SELECT_WRITTEN: Final = (
    "SELECT DISTINCT namespace FROM current WHERE namespace > :after ORDER BY namespace LIMIT :limit"
)
_SELECT_NAMESPACES: Final = (
    f"SELECT namespace, COUNT(*) FROM current WHERE namespace > :after AND {_LIVE}"
    " GROUP BY namespace ORDER BY 1 LIMIT :limit"
)
SELECT_DUE: Final = (
    f"{select_from(CURRENT)} WHERE {_ENDING} AND expires_at <= :at ORDER BY expires_at, namespace, key LIMIT :limit"
)
SELECT_NEXT_END: Final = f"SELECT MIN(expires_at) FROM current WHERE {_ENDING}"
_SELECT_CLAIM: Final = f"{select_from(CLAIMS)} WHERE resource = :resource"
_SELECT_CLAIMS: Final = f"{select_from(CLAIMS)} WHERE resource > :after AND {IS_ACTIVE} ORDER BY resource LIMIT :limit"
_SELECT_NAMED: Final = f"{select_from(CLAIMS)} WHERE resource = ANY(:names)"
_SELECT_BELOW: Final = f"{select_from(CLAIMS)} WHERE resource >= :prefix AND resource < :end AND {IS_ACTIVE}"
_NAMES_AMONG: Final = "SELECT resource FROM claims WHERE resource = ANY(:names)"
_NAMES_BELOW: Final = "SELECT resource FROM claims WHERE resource >= :prefix AND resource < :end"
_SELECT_QUEUED: Final = f"{select_from(CLAIMS)} WHERE waiting > 0"
_COUNT_TICKETS: Final = "SELECT COUNT(*) FROM tickets"
_SELECT_TICKETS: Final = f"{select_from(TICKETS)} WHERE resource = ANY(:names)"
_SELECT_JOINT: Final = f"{select_from(TICKETS)} WHERE {IS_JOINT}"
_SELECT_AWAITED: Final = "SELECT DISTINCT resource FROM tickets WHERE agent = ANY(:names)"
_SELECT_TICKET: Final = "SELECT 1 FROM tickets WHERE resource = :resource AND version = :version"
_SELECT_SNAPSHOT: Final = f"SELECT MAX(position) FROM {SNAPSHOTS.name} WHERE position <= :position"
_SELECT_PAST_CLAIMS: Final = f"{select_from(PAST_CLAIMS)} WHERE position = :position"
_SELECT_PAST_TICKETS: Final = f"{select_from(PAST_TICKETS)} WHERE position = :position ORDER BY turn"
_SELECT_REGISTERED: Final = "SELECT agent FROM agents WHERE agent > :after ORDER BY agent LIMIT :limit"
_SELECT_AGENTS: Final = f"{select_from(AGENTS)} WHERE agent = ANY(:names)"
_SELECT_STORE_LOG: Final = select_from(STORE_LOG)
_SELECT_TOKEN: Final = f"{select_from(TOKENS)} WHERE name = :name"
_SELECT_TOKENS: Final = f"{select_from(TOKENS)} WHERE name > :after ORDER BY name LIMIT :limit"
_SELECT_REFUSALS: Final = (
    f"{select_from(REFUSALS)} WHERE code = ANY(:names) AND at >= :since ORDER BY id DESC LIMIT :limit"
)
_SELECT_META: Final = "SELECT value FROM meta WHERE name = :name"


class ReadStore(Protocol):
    """What a reader needs of its store."""

    def end_read(self, reader: Any) -> None:
        """End the transaction of its connection, if any."""

    def give_back(self, reader: Any, error: BaseException | None) -> None:
        """Take the connection back. `error`: what ended the block."""

    def refusal_of(self, error: BaseException) -> HoldlogError | None:
        """The refusal for an error of the database; None for other errors."""


class SqlReader(SqlThreads):
    """Reads through one connection. `now`: microseconds UTC, read before anything else."""

    def __init__(self, recorder: LogRecorder, now: int) -> None:
        self.recorder = recorder
        self.clock = now
        self._at: int | None = None

    def state(self, view: Table, row: Row) -> Any:
        return fold.state_of(view, row)

    def states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        return list(map(fold.decoder(view), rows))

    @property
    def at(self) -> int:
        # Read on demand: most records never expire.
        if self._at is None:
            self._at = max(self.clock, self.recorder.last_time(self))
        return self._at

    @property
    def leases(self) -> SqlLeases:
        return SqlLeases(self)

    def refusals(self, codes: Sequence[str], since: int, limit: int) -> list[Refusal]:
        found = self.rows_in(_SELECT_REFUSALS, codes, {"since": since, "limit": bound(limit)})
        return [Refusal(*row) for row in found]

    def meta(self, name: str) -> str | None:
        rows = self.rows(_SELECT_META, {"name": name})
        return rows[0][0] if rows else None

    # --- values

    def record(self, namespace: str, key: str) -> Record:
        rows = self.rows(_SELECT_RECORD, {"namespace": namespace, "key": key})
        return self.state(CURRENT, rows[0]) if rows else Record(namespace, key)

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        end = beyond(prefix)
        parameters: dict[str, object] = {"namespace": namespace, "after": after or "", "at": self.at}
        parameters |= {"first": max(prefix, after or ""), "live": not deleted, "limit": bound(limit)}
        parameters |= {} if end is None else {"end": end}
        return self.states(CURRENT, self.rows(_SELECT_RECORDS[end is not None], parameters))

    def written_keys(self, namespace: str, prefix: str, after: str | None, limit: int) -> list[str]:
        end = beyond(prefix)
        parameters: dict[str, object] = {"namespace": namespace, "after": after or "", "limit": bound(limit)}
        parameters |= {"first": max(prefix, after or "")} | ({} if end is None else {"end": end})
        return [key for (key,) in self.rows(_SELECT_KEYS[end is not None], parameters)]

    def written_namespaces(self, after: str | None, limit: int) -> list[str]:
        found = self.rows(_SELECT_WRITTEN, {"after": after or "", "limit": bound(limit)})
        return [name for (name,) in found]

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        found = self.rows(_SELECT_NAMESPACES, {"after": after or "", "at": self.at, "limit": bound(limit)})
        return [(name, count) for name, count in found]

    def next_value_end(self) -> int | None:
        end: int | None = self.rows(SELECT_NEXT_END, {})[0][0]
        return end

    # --- claims, agents, tokens

    def claim(self, resource: str) -> Claim:
        rows = self.rows(_SELECT_CLAIM, {"resource": resource})
        return self.state(CLAIMS, rows[0]) if rows else Claim(resource)

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        return self.states(CLAIMS, self.rows(_SELECT_CLAIMS, {"after": after or "", "limit": bound(limit)}))

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        names = list(dict.fromkeys(chain.from_iterable(map(covering, resources))))
        found = self.rows_in(_SELECT_NAMED, names)
        for resource in resources:
            if resource.endswith("/"):
                found += self.rows(_SELECT_BELOW, {"prefix": resource, "end": beyond(resource)})
        return self.states(CLAIMS, found)

    def ever_claimed(self, resource: str) -> list[str]:
        found = self.rows_in(_NAMES_AMONG, covering(resource))
        if resource.endswith("/"):
            found += self.rows(_NAMES_BELOW, {"prefix": resource, "end": beyond(resource)})
        return sorted({name for (name,) in found})

    def queued(self) -> list[Claim]:
        return self.states(CLAIMS, self.rows(_SELECT_QUEUED, {}))

    def ticket_count(self) -> int:
        count: int = self.rows(_COUNT_TICKETS, {})[0][0]
        return count

    def tickets(self, resources: Sequence[str]) -> list[Ticket]:
        return list(map(ticket_of, self.rows_in(_SELECT_TICKETS, resources)))

    def joint_tickets(self) -> list[Ticket]:
        return list(map(ticket_of, self.rows(_SELECT_JOINT, {})))

    def awaited_by(self, agents: Sequence[str]) -> list[str]:
        return sorted({row[0] for row in self.rows_in(_SELECT_AWAITED, agents)})

    def is_queued(self, resource: str, version: int) -> bool:
        return bool(self.rows(_SELECT_TICKET, {"resource": resource, "version": version}))

    def snapshot_before(self, position: int) -> tuple[int, list[Claim], list[Ticket]]:
        found: int | None = self.rows(_SELECT_SNAPSHOT, {"position": position})[0][0]
        if found is None:
            return 0, [], []
        claims = list(map(past_claim_of, self.rows(_SELECT_PAST_CLAIMS, {"position": found})))
        tickets = [ticket_of(row[1:]) for row in self.rows(_SELECT_PAST_TICKETS, {"position": found})]
        return found, claims, tickets

    def registered(self, after: str | None, limit: int) -> list[str]:
        found = self.rows(_SELECT_REGISTERED, {"after": after or "", "limit": bound(limit)})
        return [name for (name,) in found]

    def agents(self, names: Sequence[str]) -> list[Profile]:
        found = {profile.agent: profile for profile in self.states(AGENTS, self.rows_in(_SELECT_AGENTS, list(names)))}
        return [found[name] for name in names if name in found]

    def store_log(self) -> StoreLog:
        rows = self.rows(_SELECT_STORE_LOG, NONE)
        return self.state(STORE_LOG, rows[0]) if rows else StoreLog()

    def texts(self, stream: str, versions: Sequence[int]) -> list[EventTexts]:
        events = self.recorder.select_versions(stream, versions, self)
        return [_texts(events[version]) for version in versions if version in events]

    def containing(self, text: SearchText, limit: int) -> list[EventTexts]:
        found = self.recorder.containing(text.text, text.within, bound(limit), self)
        return [
            EventTexts(
                position, stream, version, topic, text.text if in_payload else None, text.text if in_reason else None
            )
            for position, stream, version, topic, in_payload, in_reason in found
        ]

    def token(self, name: str) -> Token:
        rows = self.rows(_SELECT_TOKEN, {"name": name})
        return self.state(TOKENS, rows[0]) if rows else Token(name)

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        return self.states(TOKENS, self.rows(_SELECT_TOKENS, {"after": after or "", "limit": bound(limit)}))

    # --- the log

    def position(self) -> int:
        return self.recorder.max_notification_id(self) or 0

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        last = None if before is None else before - 1
        return list(
            map(decode, self.recorder.select_events(stream, lte=last, desc=True, limit=bound(limit), unit=self))
        )

    def times(self, after: int, limit: int) -> list[LogTime]:
        return list(map(LogTime._make, self.recorder.times(after, bound(limit), self)))

    def following(self, stream: str, after: int, limit: int) -> list[Recorded[Event]]:
        return list(map(decode, self.recorder.select_events(stream, gt=after, limit=bound(limit), unit=self)))

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        return list(map(decode, self.recorder.select_notifications(after + 1, bound(limit), unit=self)))

    def entries(self, after: int, limit: int) -> list[HistoryEntry]:
        found = self.recorder.select_notifications(after + 1, bound(limit), payload=False, unit=self)
        return [HistoryEntry(it.id, it.originator_id, it.topic, it.at) for it in found]

    def writes_of(
        self, sessions: Sequence[str], correlation_id: str | None, since: int, after: int, upto: int
    ) -> list[WriteEntry]:
        column, names = ("session", sessions) if correlation_id is None else ("correlation_id", [correlation_id])
        found = self.recorder.writes_of(column, names, since, after, upto, self)
        return [WriteEntry(stream, version, from_json(bytes(body))["by"]) for stream, version, body in found]

    def log_of(self, topics: Sequence[str], after: int, upto: int, limit: int) -> list[Recorded[Event]]:
        found = self.recorder.select_notifications(after + 1, bound(limit), upto, topics, unit=self)
        return list(map(decode, found))

    def digests(self, after: int, upto: int) -> list[bytes]:
        return self.recorder.digests(after, upto, self)

    def subtree_roots(self) -> dict[int, bytes]:
        return dict(self.rows(select_from(TREE), NONE))

    def version_at(self, stream: str, position: int | None, at: int | None) -> int:
        return self.recorder.version_at(stream, position, at, self)

    def position_at(self, at: int) -> int:
        return self.recorder.position_at(at, self)

    def last_events(self, streams: Sequence[str], position: int) -> list[Recorded[Event]]:
        return list(map(decode, self.recorder.select_last(streams, position, self)))

    def next_events(self, streams: Sequence[str], position: int, topics: Sequence[str]) -> list[Recorded[Event]]:
        return list(map(decode, self.recorder.select_next(streams, position, topics, self)))


class BorrowingReader(SqlReader):
    """Reads through a connection that may be borrowed from a store. The end of its `with` block returns it."""

    _store: ReadStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (store := self._store) is None:
            return
        store.end_read(self)
        self._store = None  # from here on, an interrupt can only lose a connection without a transaction
        store.give_back(self, error)
        if error is not None and (refusal := store.refusal_of(error)) is not None:
            raise refusal from error

    def __del__(self) -> None:
        if self._store is not None:
            self.__exit__(None, None, None)  # after an interrupt outside the block


def _texts(event: EncodedEvent) -> EventTexts:
    is_removed: dict[Part, bool] = {
        "payload": event.payload is None and event.payload_hash is not None,
        "reason": event.reason is None and event.reason_hash is not None,
    }
    removed = tuple(part for part, is_so in is_removed.items() if is_so)
    position, stream, version, topic = event[:4]
    return EventTexts(position, stream, version, topic, event.payload, event.reason, removed, event.format is not None)
