"""Copies, exports and imports a store: selects the kinds of source and target."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from holdlog.adapters.compose import MEMORY, file_of, require_database
from holdlog.adapters.operating_system.location import is_url
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError

if TYPE_CHECKING:
    from holdlog.adapters.stores.agenthold.importing import ImportReport
    from holdlog.adapters.stores.copying.copy import CopyReport
    from holdlog.adapters.stores.copying.source import CopySource
    from holdlog.adapters.stores.copying.writing import Target

_log = logging.getLogger("holdlog")


def copy(
    source: str | Path,
    target: str | Path,
    seal: bool = False,
    progress: "Progress | None" = None,
    tell: Callable[[str], None] = _log.info,
) -> "CopyReport":
    """Copy a store to a file or a PostgreSQL schema, as described in `stores.copying.copy.copy_between`.
    Opening the source migrates an older schema first. `tell` is called with a line about the migration and the sealing.
    Raises StoreError, UnavailableError.
    """
    from holdlog.adapters.stores.copying.copy import copy_between

    destination = _copy_target(target)
    with _copy_source(source, tell) as found:
        return copy_between(found, destination, seal, progress or ignore_progress, tell)


def export_log(
    source: str | Path,
    write: Callable[[bytes], object],
    progress: Progress = ignore_progress,
    report: Callable[[str], None] = _log.info,
) -> int:
    """Write the log of a store as `stores.copying.exported` describes, line by line. Returns the number of events.
    Opening the source migrates an older schema first, and calls `report` with a line about it.
    Raises StoreError, UnavailableError."""
    from holdlog.adapters.stores.copying.exported import export_lines

    lines = 0
    with (
        _copy_source(source, report) as found,
        closing(export_lines(found, progress)) as exported,
    ):
        for line in exported:
            write(line)
            lines += 1
    return lines - 2  # the first and the last are no events


def import_log(
    source: BufferedReader, name: str, target: str | Path, progress: Progress = ignore_progress
) -> "CopyReport":
    """Create a store with the log of an export, as described in `stores.copying.exported.import_log`. `name`: of the
    export, for messages. Raises StoreError, UnavailableError."""
    from holdlog.adapters.stores.copying import exported

    destination, export = _copy_target(target), exported.LogExport(source, name)
    return exported.import_log(export, destination, progress)


def import_agenthold(
    source: str | Path,
    target: str | Path,
    claim_ttl: float | None = None,
    progress: Progress = ignore_progress,
) -> "ImportReport":
    """Import a file of agenthold into a new store, as described in `stores.agenthold.importing.import_into`. Does not
    change the file. Raises StoreError, UnavailableError."""
    from holdlog.adapters.stores.agenthold.file import open_agenthold
    from holdlog.adapters.stores.agenthold.importing import import_into

    destination = _copy_target(target)
    with open_agenthold(Path(source), str(source)) as found:
        return import_into(destination, found, claim_ttl, progress)


def _copy_source(location: str | Path, report: Callable[[str], None]) -> "AbstractContextManager[CopySource]":
    if _is_database(location):
        from holdlog.adapters.stores.copying.database import open_source

        return open_source(str(location))
    from holdlog.adapters.stores.copying.file import open_file_source

    return open_file_source(file_of(location), report)


def _copy_target(location: str | Path) -> "Target":
    if _is_database(location):
        from holdlog.adapters.stores.copying.database import DatabaseCopyTarget

        return DatabaseCopyTarget(str(location))
    from holdlog.adapters.stores.copying.file import FileTarget

    return FileTarget(file_of(location))


def _is_database(location: str | Path) -> bool:
    """Whether the place is a database. Raises StoreError if it cannot be copied from or to."""
    if str(location) == MEMORY:
        raise StoreError("a store in memory cannot be copied; pass a file or a database")
    if not is_url(str(location)):
        return False
    require_database(str(location))
    return True
