"""What must hold of every store file, whatever happened to its writers."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdlog.adapters.stores.mapper import expected_digest, unseal
from holdlog.adapters.stores.opening import open_sqlite
from holdlog.adapters.stores.recorder import uri_of
from holdlog.adapters.stores.schema import EVENTS_TABLE, SELECT_EVENTS, select_from
from holdlog.domain.envelope import NO_DIGEST
from holdlog.projections import fold
from holdlog.projections.fold import VIEWS, State


def require_sound(path: Path) -> None:
    """It opens; the file is whole; versions have no gaps; digests verify; times do not go back; views equal the log."""
    open_sqlite(path).close()
    with closing(sqlite3.connect(uri_of(path), uri=True, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute("BEGIN")
        states: dict[str, State] = {}
        digests: dict[str, bytes] = {}
        last = 0
        for row in connection.execute(f"{SELECT_EVENTS} ORDER BY rowid"):
            recorded = unseal(row)
            envelope = recorded.envelope
            stream = envelope.stream
            state = states.get(stream) or fold.initial(stream)
            assert envelope.version == state.version + 1
            assert envelope.at >= last
            last = envelope.at
            assert envelope.digest == expected_digest(row, digests.get(stream, NO_DIGEST))
            digests[stream] = envelope.digest
            states[stream] = fold.evolve(state, recorded.event, envelope.at, envelope.digest)  # type: ignore[arg-type]
        for view in VIEWS:
            kept = connection.execute(select_from(view)).fetchall()
            folded = [put.row for put in map(fold.put, states.values()) if put.table is view]
            assert sorted(kept) == sorted(folded)
        assert not connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%rebuilt'").fetchall()


def versions(path: Path, namespace: str = "n") -> dict[tuple[str, int], Any]:
    """The value that each version of each key of a namespace wrote; None for a deletion."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(uri_of(path), uri=True, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
            return {}
        rows = connection.execute(f"SELECT originator_id, originator_version, payload FROM {EVENTS_TABLE}").fetchall()
    prefix = f"record:{namespace}/"
    return {
        (stream.removeprefix(prefix), version): None if payload is None else json.loads(payload)
        for stream, version, payload in rows
        if stream.startswith(prefix)
    }


def require_acknowledged(path: Path, acknowledged: Iterable[dict[str, Any]]) -> None:
    """Every write that was answered stands in the log under its version."""
    log = versions(path)
    for write in acknowledged:
        assert log[write["key"], write["version"]] == write["value"], write
