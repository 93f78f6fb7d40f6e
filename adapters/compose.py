"""Composition root: the one place that chooses store, notifier and liveness."""

import logging
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.validation import SESSION
from holdlog.adapters.api.validation import text as checked_text
from holdlog.adapters.auth.identity import SALT, Identity, SessionId
from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.extras import missing
from holdlog.adapters.operating_system.liveness import Liveness, Process
from holdlog.adapters.operating_system.location import LocationError, is_there, is_url, state_location
from holdlog.adapters.operating_system.notifications import MachineNotifier, ProcessNotifier
from holdlog.adapters.operating_system.pause import is_paused, resume
from holdlog.adapters.operating_system.presence import Presence, announce, connected, is_connected
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError

if TYPE_CHECKING:
    from holdlog.adapters.nats.background import BackgroundRelay
    from holdlog.adapters.nats.lead import Lead
    from holdlog.adapters.nats.options import NatsOptions
    from holdlog.adapters.stores.event_log.findings import Finding
    from holdlog.adapters.stores.event_log.rebuild import ShadowTables
    from holdlog.adapters.stores.postgres.store import PostgresStore
    from holdlog.adapters.stores.read_models.view import ReadModelView
    from holdlog.adapters.stores.sql.recorder import LogRecorder
    from holdlog.adapters.stores.sqlite.store import SqliteStore
    from holdlog.domain.checkpoint import Checkpoint
    from holdlog.domain.ports import Store

MEMORY: Final = ":memory:"

_log = logging.getLogger("holdlog")


def open_holdlog(
    location: str | Path,
    settings: Settings | None = None,
    session: SessionId | None = None,
    what: str = "python",
    report: Callable[[str], None] = _log.info,
) -> Engine:
    """Open the store at `location`: `:memory:`, a file, or a PostgreSQL URL. `session`: the session of callers that
    name none; None: this process is a session. `what`: describes this process in lists of connections. `report`: called
    with a line if the schema was migrated. Raises StoreError, UnavailableError.
    """
    session = session or SessionId("process", process_session())
    settings = settings or Settings()
    if str(location) == MEMORY:
        from holdlog.adapters.stores.sqlite.memory import open_memory

        memory = open_memory()
        server = Liveness()
        caller, identity = _identified(memory, session)
        calls = Requests(RequestRules(settings, platform.now, platform.steady, server.connected, identity))
        return _kept(Engine(memory, ProcessNotifier(), caller, calls, server), MEMORY)
    if is_url(str(location)):
        return _kept(_open_database(str(location), session, settings, what), str(location))
    from holdlog.adapters.stores.sqlite.opening import open_sqlite

    path = file_of(location)
    store = open_sqlite(path, report=report)
    notifier = MachineNotifier(path.with_name(path.name + ".bells"), store.changed)
    caller, identity = _identified(store, session)
    server = ProcessLiveness(path, caller.session or "", what, store.why_read_only is not None)
    calls = Requests(RequestRules(settings, platform.now, platform.steady, server.connected, identity))
    return _kept(Engine(store, notifier, caller, calls, server), path)


def recorder_of(engine: Engine) -> "LogRecorder":
    """The recorder of an open store's log; its subscriptions wake when the log grows."""
    recorder = cast("SqliteStore | PostgresStore", engine.store).recorder
    recorder.notifier = engine.notifier
    return recorder


def open_read_models(location: str | Path, store_id: str) -> "AbstractContextManager[ReadModelView]":
    """The view database of a store's read models: next to its file, or, for a database, in the user's state folder.
    Raises StoreError, UnavailableError."""
    from holdlog.adapters.stores.read_models.view import open_view

    if str(location) == MEMORY:
        raise StoreError("a store in memory has no read models; name a file with --db")
    if is_url(str(location)):
        return open_view(state_location(os.environ) / f"{store_id}.views")
    path = file_of(location)
    return open_view(path.with_name(f"{path.name}.views"))


def named_session(text: str | None) -> SessionId | None:
    """The session that a person or program names, by `--session` or `session=`. Raises InvalidError."""
    return None if text is None else SessionId("option", checked_text(text, "session", SESSION))


def _identified(store: "Store", session: SessionId) -> tuple[Caller, Identity]:
    """The local caller, and the identity that hashes sessions for this store."""
    salt: str | None = getattr(store, "session_salt", None)
    if salt is None:
        with store.reader() as reader:
            salt = reader.meta(SALT)
    identity = Identity(salt or "")
    return Caller(session=identity.session(*session)), identity


def _open_database(url: str, session: SessionId, settings: Settings, what: str) -> Engine:
    require_database(url)
    from holdlog.adapters.stores.postgres.opening import open_postgres
    from holdlog.adapters.stores.postgres.session import DatabaseNotifier, PostgresLiveness

    store = open_postgres(url)
    notifier = DatabaseNotifier()
    notifier.session = server = PostgresLiveness(store, notifier.wake, what)
    caller, identity = _identified(store, session)
    server.session = caller.session or ""
    calls = Requests(RequestRules(settings, store.now, store.steady, server.connected, identity))
    return Engine(store, notifier, caller, calls, server)


def file_of(location: str | Path) -> Path:
    """Resolve to the path that all processes use: the files next to a store need one name for all."""
    return Path(os.path.realpath(Path(location).expanduser()))


def require_database(url: str) -> None:
    """Check that the URL can name a store and that its driver is installed. Raises StoreError."""
    scheme = url.partition(":")[0]
    if scheme not in ("postgresql", "postgres"):
        raise StoreError(f"{scheme}:// is not a store; pass the path of a file, or postgresql://user@host/database")
    try:
        import holdlog.adapters.stores.postgres.opening  # noqa: F401
    except ImportError as error:
        raise StoreError(str(missing(error.name or "libpq") or error)) from None


def store_exists(location: str | Path) -> bool:
    """Whether a store exists there; if not, `open_holdlog` creates one. Raises StoreError, UnavailableError."""
    if str(location) == MEMORY:
        return True
    if isinstance(location, Path) or not is_url(location):
        try:
            return is_there(Path(location))
        except LocationError as error:
            raise StoreError(str(error)) from None
    require_database(location)
    from holdlog.adapters.stores.postgres import opening

    return opening.store_exists(location)


def open_store(location: str | Path, report: Callable[[str], None]) -> "Store":
    """Open an existing store, without an engine. Raises StoreError, UnavailableError."""
    if isinstance(location, str):
        from holdlog.adapters.stores.postgres.opening import open_postgres

        return open_postgres(location)
    from holdlog.adapters.stores.sqlite.opening import open_sqlite

    return open_sqlite(file_of(location), report=report)


def open_shadow_tables(location: str | Path, report: Callable[[str], None]) -> "tuple[Store, ShadowTables]":
    """An existing store, and the tables of one rebuild of it. Raises StoreError, UnavailableError."""
    if isinstance(location, str):
        from holdlog.adapters.stores.postgres.opening import open_postgres
        from holdlog.adapters.stores.postgres.shadow_tables import PostgresShadowTables

        database = open_postgres(location)
        return database, PostgresShadowTables(database)
    from holdlog.adapters.stores.sqlite.opening import open_sqlite
    from holdlog.adapters.stores.sqlite.shadow_tables import SqliteShadowTables

    file = open_sqlite(location, report=report)
    return file, SqliteShadowTables(file)


def examine(
    location: str | Path,
    progress: Progress = ignore_progress,
    checkpoints: "Sequence[Checkpoint]" = (),
) -> "list[Finding]":
    """Diagnose a store, and compare its log with checkpoints. Raises StoreError for a URL that cannot name a store."""
    if isinstance(location, str):
        require_database(location)
        from holdlog.adapters.stores.postgres import doctor

        return doctor.examine(location, progress, checkpoints)
    from holdlog.adapters.stores.sqlite.doctor import examine

    return examine(location, progress, checkpoints)


def open_lead(location: str | Path, options: "NatsOptions") -> "Lead":
    """The lead that relays of one store with the same target use to agree on which of them publishes."""
    from holdlog.adapters.nats.lead import FileLead, SoleLead

    if str(location) == MEMORY:
        return SoleLead()
    if is_url(str(location)):
        from holdlog.adapters.stores.postgres.lead import DatabaseLead

        return DatabaseLead(str(location), options.target)
    path = file_of(location)
    return FileLead(path.with_name(f"{path.name}.relay-{options.target:08x}"))


def publish_to_nats(engine: Engine, location: str | Path, options: "NatsOptions") -> "BackgroundRelay":
    """Publish the store's events to NATS and use its messages as notifications, in the background until `stop` is
    called.
    NATS may be down. Raises NatsError for invalid options.
    """
    from holdlog.adapters.nats.background import BackgroundRelay

    background = BackgroundRelay(engine.store, engine.notifier, open_lead(location, options), options)
    background.start()
    return background


class ProcessLiveness(Liveness):
    """Liveness of one process among those on this machine that share the store `path`; connected from its first claim
    on, unless it cannot write (`is_read_only`), and so holds nothing."""

    def __init__(self, path: Path, session: str, what: str, is_read_only: bool = False) -> None:
        from holdlog.adapters.stores.sqlite.database import file_id

        self._path = path
        self._session = session
        self._what = what
        self._is_read_only = is_read_only
        self._file = file_id(path)
        self._presence: Presence | None = None
        self._joining = threading.Lock()

    def join(self) -> str:
        with self._joining:
            if self._is_read_only:
                return ""
            if self._presence is None:
                self._presence = announce(self._path, self._session, self._what, self._file)
            return self._presence.server

    def others_of(self, session: str) -> list[str]:
        own = self._presence.server if self._presence is not None else ""
        return [it.server for it in connected(self._path) if it.session == session and it.server != own]

    def is_paused(self, session: str) -> bool:
        return is_paused(self._path, session)

    def resume(self, session: str) -> bool:
        return resume(self._path, session)

    def processes(self) -> list[Process]:
        return [Process(it.server, it.pid, it.what, it.folder) for it in connected(self._path)]

    def _lives(self, server: str) -> bool:
        return server != "" and is_connected(self._path, server)

    def descriptors(self) -> Sequence[int]:
        return () if self._presence is None else self._presence.descriptors()

    def describe(self, what: str) -> None:
        if self._presence is not None:
            self._presence.describe(what)

    def close(self) -> None:
        if self._presence is not None:
            self._presence.close()


def process_session() -> str:
    """A name for this process, unique among all that share a store; a fork gets a new one."""
    return f"p-{secrets.token_hex(5)}"


def _kept(engine: Engine, location: Path | str) -> Engine:
    engine.location = location
    _engines.add(engine)
    return engine


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _abandon_after_fork() -> None:
    for engine in list(_engines):
        engine.detach_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_after_fork)
