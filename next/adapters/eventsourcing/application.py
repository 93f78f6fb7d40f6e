"""The infrastructure of the eventsourcing library on a store, and holdlog's own events for projections."""

import os
import weakref
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn

from eventsourcing.application import Application
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    Mapper,
    NotSupportedError,
    StoredEvent,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType
from pydantic_core import from_json

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.eventsourcing.recorder import OWN, LogRecorder, SnapshotRecorder
from holdlog.adapters.operating_system.files import is_missing
from holdlog.adapters.operating_system.location import find_store, is_url, mask_password, read_variable
from holdlog.adapters.operations.rows import show_event
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import CONTENT
from holdlog.domain.refusals import StoreError
from holdlog.projections.results import EventEntry

VARIABLE: Final = "HOLDLOG_DB"
_NO_VIEWS: Final = (
    "holdlog's log has no views of programs; set PERSISTENCE_MODULE of the projection to a database of its own, such as"
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
