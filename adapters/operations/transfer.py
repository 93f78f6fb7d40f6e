"""The log, or all of the store, in other files: export, import, backup."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOBase
from typing import Annotated, Any, BinaryIO

from pydantic import AfterValidator, Field, WithJsonSchema

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operating_system.files import create_private, explain
from holdlog.adapters.operations.base import Query, Task, Version
from holdlog.adapters.stores.transfer import read_import, write_export
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import InvalidError, StoreError
from holdlog.projections.fold import fold
from holdlog.projections.results import Backup, ExportedLog, ImportedLog


def check_file(place: Any) -> Any:
    """Raises ValueError for what is neither a path nor a file."""
    if isinstance(place, (str, os.PathLike)):
        return os.path.abspath(check_path(place))
    if isinstance(place, TextIOBase) or not (hasattr(place, "read") or hasattr(place, "write")):
        raise ValueError("must be a path, or an open binary file")
    return place


def check_path(place: Any) -> str:
    path = os.fspath(place) if isinstance(place, (str, os.PathLike)) else place
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("must be a path")
    return path


File = Annotated[Any, AfterValidator(check_file), WithJsonSchema({"type": "string"})]
Folder = Annotated[Any, AfterValidator(check_path), WithJsonSchema({"type": "string"})]


class Export(Query, name="export", group="audit", positional="destination", scope="admin"):
    """Write the log as JSON lines, whole or from one position to another: `import_` reads it, and docs/verify_log.py
    verifies it without holdlog."""

    results = (ExportedLog,)
    destination: File = Field(description="Path of a new file, or an open binary file")
    first: Annotated[Version, Field(ge=1)] = 1
    last: Annotated[Version, Field(ge=1)] | None = None
    values: bool = Field(default=True, description="Or only the hashes of what people wrote")

    def read(self, reader: Reader) -> ExportedLog:
        if not isinstance(self.destination, str):
            return write_export(reader, self.destination, self.first, self.last, self.values)
        with _explain(self.destination), create_private(self.destination) as part, open(part, "wb") as file:
            return write_export(reader, file, self.first, self.last, self.values)


class Import(Task, name="import_", group="audit", positional="source", scope="admin"):
    """Import an export of a whole log into this store, which must be empty and keeps its own id. What was redacted
    stays a hash. All of it is verified first."""

    results = (ImportedLog,)
    source: File = Field(description="Path of an export, or an open binary file")

    def run(self, engine: Engine, caller: Caller) -> ImportedLog:
        engine.require_open()
        if not isinstance(self.source, str):
            return self._import(engine, caller, self.source)
        if os.path.lexists(f"{self.source}.lock"):  # closing a store's file would drop the locks of this process on it
            raise InvalidError("source: is a store; export its log first")
        with _explain(self.source, "read"), open(self.source, "rb") as file:
            return self._import(engine, caller, file)

    def _import(self, engine: Engine, caller: Caller, file: BinaryIO) -> ImportedLog:
        with engine.write_alone() as batch:
            event = read_import(engine.store, batch, file)
            position = event.last + 1
            engine.append(event, fold(batch.state, event, position), caller, batch)
        return ImportedLog(*event[1:], position)


class BackUp(Task, name="backup", group="audit", positional="folder", scope="admin"):
    """Copy the store to a new file in a folder, whole, while others use it. For PostgreSQL use pg_dump."""

    results = (Backup,)
    folder: Folder = Field(description="Where the file is to be")

    def run(self, engine: Engine, caller: Caller) -> Backup:
        engine.require_open()
        path = os.path.join(os.path.abspath(self.folder), f"holdlog-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.db")
        with _explain(path), create_private(path) as part:
            head = engine.store.backup(part)
        return Backup(path, head.position, head.digest.hex())


@contextmanager
def _explain(path: str, verb: str = "written") -> Iterator[None]:
    """Raise StoreError if a path cannot be read or written."""
    try:
        yield
    except OSError as error:
        raise StoreError(explain(path, error.errno, verb)) from None
