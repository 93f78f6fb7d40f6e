"""What must hold of every store, whatever happened to its writers."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import holdlog

Line = dict[str, Any]


def log_of(store: Any) -> list[Any]:
    """All events."""
    events = list[Any]()
    while page := store.events(after=events[-1].position if events else 0, limit=1000).events:
        events += page
    return events


def require_whole_file(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def require_sound_log(store: Any) -> list[Any]:
    """Positions and versions without gaps, times that do not go back, values as their events say; all events."""
    log = log_of(store)
    assert [it.position for it in log] == list(range(1, len(log) + 1))
    versions: dict[str, int] = {}
    for event in log:
        assert event.version == versions.get(event.stream, 0) + 1, event
        versions[event.stream] = event.version
    assert [it.at for it in log] == sorted(it.at for it in log)
    require_current_values(store)
    return log


def require_current_values(store: Any) -> None:
    for namespace in store.list_namespaces():
        for record in store.list_keys(namespace):
            last = store.history(namespace, record.key, limit=1)[0]
            assert (last.version, last.value) == (record.version, record.value)


def require_sound(path: Path) -> None:
    with holdlog.StateStore(path) as store:
        require_sound_log(store)
    require_whole_file(path)


def values_of(store: Any, key: str, limit: int = 0, namespace: str = "n") -> dict[int, Any]:
    """By version; None for a deletion. `limit`: only so many, the last ones."""
    found: dict[int, Any] = {}
    with suppress(holdlog.NotFoundError):
        while page := store.history(namespace, key, limit=limit or 1000, before_version=min(found, default=None)):
            found |= {it.version: it.value for it in page}
            if limit:
                break
    return found


def require_acknowledged(store: Any, lines: Iterable[Line], limit: int = 0) -> None:
    """Every write that was acknowledged is in the history under its version."""
    histories: dict[str, dict[int, Any]] = {}
    for line in lines:
        if "version" in line and "key" in line and "error" not in line:
            key = line["key"]
            histories[key] = histories.get(key) or values_of(store, key, limit)
            assert line["version"] in histories[key], line
            if "value" in line or "tried" in line:
                assert histories[key][line["version"]] == line.get("value", line.get("tried")), line
