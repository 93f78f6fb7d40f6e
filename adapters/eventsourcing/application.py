"""The infrastructure of the eventsourcing library on a store, and holdlog's own events for projections."""

import json
import os
import weakref
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    DataError,
    InfrastructureFactory,
    IntegrityError,
    ListenNotifySubscription,
    Mapper,
    Notification,
    NotSupportedError,
    StoredEvent,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType
from pydantic_core import from_json, to_json

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.engine import MAX_VALUE_BYTES, Engine
from holdlog.adapters.engine.waiting import ALL
from holdlog.adapters.operating_system.files import is_missing
from holdlog.adapters.operating_system.location import find_store, is_url, mask_password, read_variable
from holdlog.adapters.operations.log import GROUPS
from holdlog.adapters.operations.rows import NO_LIMIT, show_event
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import CONTENT, FOREIGN, Foreign
from holdlog.domain.moment import Caller
from holdlog.domain.names import end_of_range, is_name, namespace_prefix
from holdlog.domain.refusals import StoreError
from holdlog.projections.results import EventEntry

OWN: Final = tuple(f"{kind}:" for kind in (*GROUPS, "store"))
"""What the streams of holdlog's own events start with. They are the ids of their originators."""
MAX_EVENTS: Final = 10_000
"""Events of one call, because other writers wait meanwhile."""
_COLUMNS: Final = "SELECT position, stream, version, topic, at, meta, payload FROM events"
_EVENTS: Final = (
    f"{_COLUMNS} WHERE stream = :stream AND version > :after AND version <= :last ORDER BY version LIMIT :limit"
)
_LATEST_EVENTS: Final = _EVENTS.replace("ORDER BY version", "ORDER BY version DESC")
_SCOPE = (
    f"((stream >= :first AND stream < :end) OR (:own = 1 AND (stream < '{FOREIGN}' OR stream >="
    f" '{end_of_range(FOREIGN)}')))"
)
_NOTIFICATIONS: Final = f"{_COLUMNS} WHERE position >= :start AND position <= :stop AND {_SCOPE}"
_PAGE: Final = f"{_NOTIFICATIONS} ORDER BY position LIMIT :limit"
_PAGE_OF_TOPICS: Final = (
    f"{_NOTIFICATIONS} AND topic IN (SELECT value FROM json_each(:topics)) ORDER BY position LIMIT :limit"
)
_LAST: Final = f"SELECT position FROM events WHERE {_SCOPE} ORDER BY position DESC LIMIT 1"
_TAKEN: Final = (
    "SELECT version FROM events WHERE stream = :stream"
    " AND version IN (SELECT CAST(value AS BIGINT) FROM json_each(:versions)) LIMIT 1"
)


class LogRecorder(ApplicationRecorder):
    """The events of one application. The ids of notifications are positions of the log: they grow, with gaps where
    others wrote. Originator ids are texts. Methods raise StoreError and UnavailableError, too."""

    def __init__(
        self, engine: Engine, application: str = "", has_own: bool = False, is_read_only: bool = False
    ) -> None:
        """`has_own`: with holdlog's own events, whose state is a row of the log as JSON. `is_read_only`: with these
        alone."""
        self.engine = engine
        self.factory: Any = None
        """Closes the engine when nobody refers to it."""
        self._prefix = FOREIGN + namespace_prefix(application).partition(":")[2]
        self._has_own = has_own
        self._is_read_only = is_read_only
        end = end_of_range(self._prefix)
        self._scope = {"first": self._prefix, "end": self._prefix if is_read_only else end, "own": int(has_own)}

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Add events in one transaction, and return their positions. Raises the library's IntegrityError if one exists
        already, DataError for one that cannot be stored, NotSupportedError."""
        if self._is_read_only:
            raise NotSupportedError("this application only reads holdlog's log; change it with StateStore")
        if kwargs.get("tracking") is not None:
            raise NotSupportedError("the log has no tracking records; keep views in a database of their own")
        if len(stored_events) > MAX_EVENTS:
            raise DataError(f"at most {MAX_EVENTS} events can be added at once")
        rows = [(self._encode(event), event.originator_version) for event in stored_events]
        versions: dict[str, list[int]] = {}
        for event, version in rows:
            versions.setdefault(event.stream, []).append(version)
        if any(len(set(numbers)) < len(numbers) for numbers in versions.values()):
            raise IntegrityError("two of the events have the same originator and version")
        if not rows:
            return []
        with self.engine.write_alone() as batch:
            for stream, numbers in versions.items():
                if self.engine.store.execute(_TAKEN, {"stream": stream, "versions": json.dumps(numbers)}):
                    raise IntegrityError("another event has the same originator and version")
            for event, version in rows:
                self.engine.append(event, version, Caller(), batch)
            return [row[0] for row in batch.rows]

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        text = str(originator_id)
        stream = text if self._has_own and text.startswith(OWN) else f"{self._prefix}{text}"
        parameters = {
            "stream": stream,
            "after": -1 if gt is None else gt,
            "last": NO_LIMIT if lte is None else lte,
            "limit": NO_LIMIT if limit is None else limit,
        }
        rows = self.engine.store.read(_LATEST_EVENTS if desc else _EVENTS, parameters)
        return [StoredEvent(*self._decode(row)) for row in rows]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        first = (start or 0) + (not inclusive_of_start)
        parameters = self._scope | {"start": first, "stop": NO_LIMIT if stop is None else stop, "limit": limit}
        parameters |= {"topics": json.dumps([*topics, *(f"{FOREIGN}{topic}" for topic in topics)])}
        rows = self.engine.store.read(_PAGE_OF_TOPICS if topics else _PAGE, parameters)
        return [Notification(*self._decode(row), id=row[0]) for row in rows]

    def max_notification_id(self) -> int | None:
        rows = self.engine.store.read(_LAST, self._scope)
        return rows[0][0] if rows else None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> "LogSubscription":
        return LogSubscription(self, gt, topics)

    def _encode(self, event: StoredEvent) -> Foreign:
        text = str(event.originator_id)
        if not is_name(text) or text.startswith(OWN):
            raise DataError("originator_id: must be a name that is not one of a stream of holdlog")
        if not is_name(event.topic) or not 0 <= event.originator_version < NO_LIMIT:
            raise DataError("an event must have a topic and a version that is not negative")
        if len(event.state) > MAX_VALUE_BYTES:
            raise DataError(f"the state of an event may have at most {MAX_VALUE_BYTES} bytes")
        payload = f'{{"state":"{b64encode(event.state).decode()}"}}'
        return Foreign(f"{self._prefix}{text}", f"{FOREIGN}{event.topic}", payload)

    def _decode(self, row: Any) -> tuple[str, int, str, bytes]:
        """Originator, version, topic and state. A redacted event of a program has an empty state, which the library's
        mapper refuses."""
        _, stream, version, topic, _, meta, payload = row
        if not stream.startswith(FOREIGN):
            if topic == "TokenCreated":
                row = (*row[:5], to_json(from_json(meta) | {"hash": ""}).decode(), payload)
            return stream, version, topic, to_json(list(row))
        state = b64decode(from_json(payload)["state"]) if payload is not None else b""
        return stream.removeprefix(self._prefix), version, topic.removeprefix(FOREIGN), state


class SnapshotRecorder(LogRecorder):
    """Snapshots are events of a stream of their own, which notify nobody."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        super().insert_events(stored_events, **kwargs)


class LogSubscription(ListenNotifySubscription[LogRecorder]):
    """Wakes after commits of all processes."""

    def __init__(self, recorder: LogRecorder, gt: int | None, topics: Sequence[str]) -> None:
        self._waiting = ExitStack()
        super().__init__(recorder, gt, topics)
        wake = self._has_been_notified.set
        self._waiting.enter_context(recorder.engine.waiters.subscribe((ALL,), wake))
        wake()  # for what was written before

    def stop(self) -> None:
        super().stop()
        self._waiting.close()

    def _pull(self) -> None:
        """Events that are not selected are not read again."""
        end = self._recorder.engine.store.read("SELECT MAX(position) FROM events", {})[0][0] or 0
        super()._pull()
        self._last_notification_id = max(self._last_notification_id or 0, end)


VARIABLE: Final = "HOLDLOG_DB"
_NO_VIEWS: Final = (
    "holdlog's log has no views of programs; set PERSISTENCE_MODULE of the projection to another database, such as"
    " eventsourcing.sqlite with SQLITE_DBNAME"
)


class LogEvent(EventEntry):
    """An event of holdlog, with the fields that `events` returns, and the library's names for stream, version and
    time."""

    __slots__ = ()
    TOPIC: ClassVar[str] = ""

    @property
    def originator_id(self) -> str:
        return self.stream

    @property
    def originator_version(self) -> int:
        return self.version

    @property
    def timestamp(self) -> datetime:
        return self.at


EVENTS: Final[dict[str, type[LogEvent]]] = {
    topic: type(topic, (LogEvent,), {"TOPIC": topic, "__module__": "holdlog.eventsourcing", "__slots__": ()})
    for topic in CONTENT
}
"""A class for each kind of event, so that projections can be registered for one."""


class LogMapper(Mapper[Any]):
    """Maps holdlog's own events by their closed list of topics, and those of a program as the library does."""

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """Raises StoreError for an unknown event of holdlog: its topic is never imported."""
        if not str(stored_event.originator_id).startswith(OWN):
            return super().to_domain_event(stored_event)
        kind = EVENTS.get(stored_event.topic)
        if kind is None:
            raise StoreError(f"the log has an event of an unknown kind, {stored_event.topic[:50]!r}; update holdlog")
        return kind._make(show_event(from_json(stored_event.state)))


class HoldlogFactory(InfrastructureFactory[TrackingRecorder]):
    """Records the events of applications in the store that `HOLDLOG_DB` names, a path or a PostgreSQL URL; without it,
    where the command line finds one. Applications with different names have separate events. Raises StoreError if
    there is no such store, UnavailableError."""

    is_read_only = False

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        place = self.env.get(VARIABLE) or read_variable("db")
        place = find_store(place, os.environ, os.getcwd())
        if place == ":memory:" or (not is_url(place) and is_missing(place)):
            raise StoreError(f"there is no store at {mask_password(place)}; set {VARIABLE} to one that exists")
        views = (value for name, value in self.env.items() if name.endswith("SQLITE_DBNAME") and value)
        if any(os.path.realpath(view) == place for view in views):
            raise StoreError("SQLITE_DBNAME: is the store; keep views in another file")
        self.engine = open_engine(place)
        self._finalizer = weakref.finalize(self, Engine.close_unused, self.engine)

    @property
    def store_id(self) -> str:
        return str(self.engine.store.read(sql.STORE_ID, {})[0][0])

    def mapper(
        self, transcoder: Transcoder | None = None, mapper_class: type[Mapper[Any]] | None = None
    ) -> Mapper[Any]:
        named = mapper_class is None and not self.env.get(self.MAPPER_TOPIC)
        return super().mapper(transcoder, LogMapper if named else mapper_class)

    def application_recorder(self) -> ApplicationRecorder:
        has_own = self.is_read_only or not self.env.name
        return self._keep(LogRecorder(self.engine, self.env.name, has_own, self.is_read_only))

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        return self._keep(SnapshotRecorder(self.engine, f"{self.env.name}/{purpose}"))

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> NoReturn:
        raise NotSupportedError(_NO_VIEWS)

    def process_recorder(self) -> NoReturn:
        raise NotSupportedError(_NO_VIEWS)

    def close(self) -> None:
        self.engine.close()

    def _keep(self, recorder: LogRecorder) -> LogRecorder:
        """The store stays open as long as one of its recorders is used."""
        recorder.factory = self
        return recorder


class _ReadingFactory(HoldlogFactory):
    is_read_only = True


class HoldlogApplication(Application[str]):
    """The events of holdlog in the store that `HOLDLOG_DB` names, for projections. It only reads. Its name, under which
    views are tracked, contains the id of the store."""

    name = "holdlog"
    factory: HoldlogFactory

    def __init__(self, env: EnvType | None = None) -> None:
        super().__init__(env)
        self.name = f"holdlog/{self.factory.store_id}"

    def construct_factory(self, env: Environment) -> HoldlogFactory:
        """Of the log, whatever database `PERSISTENCE_MODULE` names for views."""
        return _ReadingFactory(env)
