"""What must hold of every store, whatever happened to its writers."""

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdlog.adapters.stores.event_log.codec import decode, expected_digest
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE, select_from
from holdlog.adapters.stores.sql.text import for_sqlite
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.recorder import uri_of
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.ports import State
from holdlog.projections import fold
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Put, RowChange, Table
from tests.support.log_table import SELECT_EVENTS

Place = Path | str
"""A file, or the URL of a database."""


def require_sound(place: Place) -> None:
    """It opens; the file is whole; versions have no gaps; digests verify; times do not go back; views equal the log."""
    if isinstance(place, str):
        return _require_sound_database(place)
    open_sqlite(place).close()
    with closing(sqlite3.connect(uri_of(place), uri=True, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute("BEGIN")
        changes = _followed(connection.execute(for_sqlite(f"{SELECT_EVENTS} ORDER BY notification_id")))
        _require_views(changes, lambda view: connection.execute(select_from(view)).fetchall())
        assert not connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%rebuilt'").fetchall()
    return None


def _require_sound_database(url: str) -> None:
    with closing(open_postgres(url)) as store, store.snapshot() as reader:
        log = reader.rows(f"{SELECT_EVENTS} ORDER BY notification_id", {})
        assert [row[0] for row in log] == list(range(1, len(log) + 1))
        _require_views(_followed(log), lambda view: reader.rows(select_from(view), {}))


def _followed(log: Iterable[Any]) -> list[RowChange]:
    """The rows of the views, those that came last last."""
    added: list[RowChange] = []
    states: dict[str, State] = {}
    digests: dict[str, bytes] = {}
    last = 0
    for row in log:
        recorded = decode(row)
        envelope = recorded.envelope
        stream = envelope.stream
        state = states.get(stream) or fold.initial(stream)
        assert envelope.version == state.version + 1
        assert envelope.at >= last
        last = envelope.at
        assert envelope.digest == expected_digest(row, digests.get(stream, NO_DIGEST))
        digests[stream] = envelope.digest
        states[stream], _ = fold.apply(state, envelope, recorded.event)
        added += fold.detail_rows(states[stream], recorded.event, envelope.at)
    return [*(fold.put(state, digests[stream]) for stream, state in states.items()), *added]


def _require_views(changes: list[RowChange], kept: Callable[[Table], list[tuple[Any, ...]]]) -> None:
    for view in VIEWS:
        folded = {it.key: it.row if isinstance(it, Put) else None for it in changes if it.table is view}
        assert sorted(kept(view), key=repr) == sorted([row for row in folded.values() if row is not None], key=repr)


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
