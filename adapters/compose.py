"""Opens stores: the only file that names the classes behind the ports."""

import os
import sys

if sys.platform == "win32":
    raise ImportError(
        "holdlog runs on Linux and macOS; on Windows, use it within WSL: https://learn.microsoft.com/windows/wsl"
    )

from holdlog.adapters.engine.engine import MAX_VALUE_BYTES, Engine
from holdlog.adapters.engine.port import Store
from holdlog.adapters.operating_system.file_systems import require_usable
from holdlog.adapters.operating_system.files import explain_read_only
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.refusals import StoreError


def open_engine(place: str | os.PathLike[str], max_value_bytes: int = MAX_VALUE_BYTES, creates: bool = True) -> Engine:
    """Open or create the store at a path, `:memory:` or a PostgreSQL URL. Unless it `creates`, the caller has checked
    that a path exists. Raises StoreError, UnavailableError."""
    return Engine(_open_store(os.fspath(place), creates), max_value_bytes)


def _open_store(place: str, creates: bool) -> Store:
    if place == ":memory:":
        return SqliteStore(None)
    scheme, separator, _ = place.partition("://")
    if not separator:
        return _open_file(os.path.realpath(place))
    if scheme not in ("postgresql", "postgres"):
        raise StoreError("this URL is of an unknown kind; pass a path, or postgresql://user@host/database")
    try:
        from holdlog.adapters.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        raise StoreError(f"{error.name} is not installed; install holdlog[postgres]") from None

    return PostgresStore(place, creates)


def _open_file(path: str) -> Store:
    require_usable(path)
    why = explain_read_only(path)
    if why is None:
        return SqliteStore(path)
    from holdlog.adapters.stores.sqlite.read_only import ReadOnlyStore

    return ReadOnlyStore(path, why)
