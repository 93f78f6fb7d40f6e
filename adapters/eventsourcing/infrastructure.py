"""The library's infrastructure factory for an existing log."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from eventsourcing.persistence import (
    InfrastructureFactory,
    Mapper,
    NotSupportedError,
    ProgrammingError,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType

from holdlog.adapters.compose import MEMORY, open_holdlog, recorder_of, store_exists
from holdlog.adapters.eventsourcing.mapper import LogMapper
from holdlog.adapters.operating_system.location import LocationError, find_store, is_url, shown, without_password
from holdlog.adapters.operating_system.secrets import secret
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.domain.refusals import StoreError

VARIABLE: Final = "HOLDLOG_DB"
_PLAIN: Final = (
    "holdlog's log is neither encrypted nor compressed; unset {0}, or, if another application needs it, put its name"
    " in front: MYAPP_{0}"
)
_NO_VIEWS: Final = (
    "holdlog's log keeps no views of programs; set PERSISTENCE_MODULE to the database of yours, for example"
    " eventsourcing.sqlite with SQLITE_DBNAME"
)


class HoldlogFactory(InfrastructureFactory[TrackingRecorder]):
    """Reads the log of the store that `HOLDLOG_DB` names (or `HOLDLOG_DB_FILE`, a file with its location): a SQLite
    file or a PostgreSQL URL. Without it, that of the git repository or of the user, as for the command line.

    The store must exist. Raises StoreError, UnavailableError, InvalidError; the library's ProgrammingError if a cipher
    or a compressor is configured, or the file of the store for views.
    """

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        location = _location(self.env)
        if not store_exists(location):
            raise StoreError(f"there is no store at {without_password(location)}; set {VARIABLE} to an existing one")
        if isinstance(location, Path):
            self._require_other_views(location)
        self._engine = open_holdlog(location, what="eventsourcing")
        with self._engine.store.reader() as reader:
            self.store_id = reader.meta("store_id") or ""
            """Identifies the log; copies that both accept writes have different ones."""

    def _require_other_views(self, store: Path) -> None:
        """Raise ProgrammingError if views are configured to be in the file of the store, which has one writer at a
        time."""
        for name, value in self.env.items():
            if name.endswith("SQLITE_DBNAME") and value and os.path.realpath(value) == os.path.realpath(store):
                raise ProgrammingError(f"{name}: {shown(store)} is the store; use another file for your views")

    def mapper(
        self, transcoder: Transcoder | None = None, mapper_class: type[Mapper[Any]] | None = None
    ) -> Mapper[Any]:
        for name in ("CIPHER_KEY", self.CIPHER_TOPIC, self.COMPRESSOR_TOPIC):
            if self.env.get(name):
                raise ProgrammingError(_PLAIN.format(name))
        return LogMapper()

    def application_recorder(self) -> LogRecorder:
        return recorder_of(self._engine)

    def is_snapshotting_enabled(self) -> bool:
        return False

    def aggregate_recorder(self, purpose: str = "events") -> NoReturn:
        raise NotSupportedError(_NO_VIEWS)

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> NoReturn:
        raise NotSupportedError(_NO_VIEWS)

    def process_recorder(self) -> NoReturn:
        raise NotSupportedError(_NO_VIEWS)

    def close(self) -> None:
        self._engine.close()


def _location(environ: Mapping[str, str]) -> Path | str:
    named = secret(environ, VARIABLE)
    if named == MEMORY:
        raise StoreError(f"{VARIABLE}: a store in memory has no other readers; use a file")
    if named is not None and is_url(named):
        return named
    try:
        return find_store(None, environ if named is None else {**environ, VARIABLE: named}, Path.cwd())
    except LocationError as error:
        raise StoreError(str(error)) from None
