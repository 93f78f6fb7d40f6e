"""Who is measured: plain sqlite3, holdlog and agenthold behind the same few calls, each in its own environment."""

import asyncio
import json
import os
import sqlite3
import time
from typing import Any

NAMESPACE = "bench"
AGENT = "agent-1"
PATIENCE = 30.0
"""Seconds that plain sqlite3 waits for the lock: longer than any wait that we want to see."""

VALUE = {
    "title": "the text of a value that is 116 bytes as JSON",
    "state": "open",
    "tags": ["alpha", "beta"],
    "n": 12345,
    "ok": True,
}
"""116 bytes as compact JSON."""


class Raw:
    """What one would write by hand: an event and its view row in one transaction, durable, JSON text for values.

    It knows its versions by heart, so a set is one INSERT and one upsert and nothing else.
    """

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA synchronous = FULL")
        self._execute(
            "CREATE TABLE IF NOT EXISTS events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL,"
            " version INTEGER NOT NULL, topic TEXT NOT NULL, value TEXT, by TEXT NOT NULL,"
            " at INTEGER NOT NULL, UNIQUE (stream, version))"
        )
        self._execute(
            "CREATE TABLE IF NOT EXISTS current (namespace TEXT, key TEXT, version INTEGER, value TEXT,"
            " updated_by TEXT, updated_at INTEGER, PRIMARY KEY (namespace, key)) WITHOUT ROWID"
        )
        self._execute(
            "CREATE TABLE IF NOT EXISTS claims (resource TEXT PRIMARY KEY, version INTEGER, holder TEXT, at INTEGER)"
            " WITHOUT ROWID"
        )
        self._versions: dict[str, int] = {}

    def set(self, key: str, value: Any) -> None:
        version = self._versions[key] = self._versions.get(key, 0) + 1
        text = json.dumps(value)
        self._execute("BEGIN IMMEDIATE")
        self._write(key, version, text)
        self._execute("COMMIT")

    def get(self, key: str) -> Any:
        row = self._execute(
            "SELECT version, value FROM current WHERE namespace = ? AND key = ?", (NAMESPACE, key)
        ).fetchone()
        return row and (row[0], json.loads(row[1]))

    def claim(self, resource: str) -> None:
        self._hold(resource, AGENT, "Granted")

    def release(self, resource: str) -> None:
        self._hold(resource, None, "Released")

    def increment(self, key: str) -> bool:
        """One attempt to read, add 1 and write if nobody wrote in between."""
        found = self.get(key)
        version, value = found or (0, 0)
        self._execute("BEGIN IMMEDIATE")
        row = self._execute("SELECT version FROM current WHERE namespace = ? AND key = ?", (NAMESPACE, key)).fetchone()
        same = (row[0] if row else 0) == version
        if same:
            self._write(key, version + 1, json.dumps(value + 1))
        self._execute("COMMIT" if same else "ROLLBACK")
        return same

    def close(self) -> None:
        self._connection.close()

    def _write(self, key: str, version: int, text: str) -> None:
        at = time.time_ns() // 1000
        self._execute(
            "INSERT INTO events (stream, version, topic, value, by, at) VALUES (?, ?, ?, ?, ?, ?)",
            (f"record:{NAMESPACE}/{key}", version, "ValueWritten", text, AGENT, at),
        )
        self._execute(
            "INSERT INTO current VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, key) DO UPDATE SET"
            " version = excluded.version, value = excluded.value, updated_by = excluded.updated_by,"
            " updated_at = excluded.updated_at",
            (NAMESPACE, key, version, text, AGENT, at),
        )

    def _hold(self, resource: str, holder: str | None, topic: str) -> None:
        version = self._versions[resource] = self._versions.get(resource, 0) + 1
        at = time.time_ns() // 1000
        self._execute("BEGIN IMMEDIATE")
        self._execute(
            "INSERT INTO events (stream, version, topic, by, at) VALUES (?, ?, ?, ?, ?)",
            (f"claim:{resource}", version, topic, AGENT, at),
        )
        self._execute(
            "INSERT INTO claims VALUES (?, ?, ?, ?) ON CONFLICT (resource) DO UPDATE SET"
            " version = excluded.version, holder = excluded.holder, at = excluded.at",
            (resource, version, holder, at),
        )
        self._execute("COMMIT")


class Sql:
    """What holdlog's `set` sends to SQLite, without holdlog: the same tables, rows and statements."""

    def __init__(self, path: str) -> None:
        from holdlog import StateStore

        with StateStore(path) as store:
            store.set(NAMESPACE, "first", VALUE, updated_by=AGENT)
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
        self._execute = self._connection.execute
        self._execute("PRAGMA synchronous = FULL")
        self._event = self._row("stored_events", without="rowid")
        self._record = self._row("current")
        self._insert = self._statement("stored_events", self._event)
        self._upsert = self._statement("current", self._record) + " ON CONFLICT (namespace, key) DO UPDATE SET "
        self._upsert += ", ".join(f"{it} = excluded.{it}" for it in self._record)
        self._select = f"SELECT {', '.join(self._record)} FROM current WHERE namespace = ? AND key = ?"
        self._versions: dict[str, int] = {}

    def set(self, key: str, value: Any) -> None:
        text, at, digest = json.dumps(value), time.time_ns() // 1000, os.urandom(32)
        version = self._versions[key] = self._versions.get(key, 0) + 1
        self._execute("BEGIN IMMEDIATE")
        self._execute(self._select, (NAMESPACE, key)).fetchone()
        event = {"originator_id": f"record:{NAMESPACE}/{key}", "originator_version": version, "at": at}
        self._execute(self._insert, self._event | event | {"digest": digest, "salt": os.urandom(16), "payload": text})
        record = {"key": key, "version": version, "value": text, "updated_at": at, "digest": digest}
        self._execute(self._upsert, self._record | record)
        self._execute(
            "UPDATE leases SET seen = ? WHERE principal IS NULL AND session = ? AND deadline > ?", (at, "s", at)
        )
        self._execute("COMMIT")

    def transact(self, keys: list[str], value: Any) -> None:
        """The rows of a transaction, without reading any before."""
        text, at = json.dumps(value), time.time_ns() // 1000
        events, records = [], []
        for key in keys:
            version = self._versions[key] = self._versions.get(key, 0) + 1
            digest, salt, stream = os.urandom(32), os.urandom(16), f"record:{NAMESPACE}/{key}"
            event = {"originator_id": stream, "originator_version": version, "at": at, "digest": digest}
            events.append(self._event | event | {"salt": salt, "payload": text})
            record = {"key": key, "version": version, "value": text, "updated_at": at, "digest": digest}
            records.append(self._record | record)
        self._execute("BEGIN IMMEDIATE")
        self._connection.executemany(self._insert, events)
        self._connection.executemany(self._upsert, records)
        self._execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def _row(self, table: str, without: str = "") -> dict[str, Any]:
        found = self._execute(f"SELECT * FROM {table}")
        return {it[0]: value for it, value in zip(found.description, found.fetchone(), strict=True) if it[0] != without}

    def _statement(self, table: str, row: dict[str, Any]) -> str:
        return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{it}' for it in row)})"


class Holdlog:
    def __init__(self, path: str) -> None:
        from holdlog import AsyncStateStore, ConflictError, NotFoundError, StateStore

        self.store = StateStore(path)
        self._open_async = lambda: AsyncStateStore(path)
        self._conflict, self._not_found = ConflictError, NotFoundError

    def set(self, key: str, value: Any) -> None:
        self.store.set(NAMESPACE, key, value, updated_by=AGENT)

    def transact(self, keys: list[str], value: Any) -> None:
        operations = [{"op": "set", "namespace": NAMESPACE, "key": key, "value": value} for key in keys]
        self.store.transact(operations, updated_by=AGENT)

    def increment_all(self, keys: list[str]) -> None:
        operations = [{"op": "increment", "namespace": NAMESPACE, "key": key, "by": 1} for key in keys]
        self.store.transact(operations, updated_by=AGENT)

    def get(self, key: str) -> Any:
        return self.store.get(NAMESPACE, key)

    def history(self, key: str, limit: int) -> Any:
        return self.store.history(NAMESPACE, key, limit=limit)

    def version(self, key: str) -> int:
        try:
            return self.store.get(NAMESPACE, key).version
        except self._not_found:
            return 0

    def claim(self, resource: str) -> None:
        assert self.store.claim(resource, agent=AGENT).status == "claimed"

    def release(self, resource: str) -> None:
        assert self.store.release(resource, agent=AGENT).status == "released"

    def increment(self, key: str) -> bool:
        try:
            found = self.store.get(NAMESPACE, key)
            value, version = found.value, found.version
        except self._not_found:
            value, version = 0, 0
        try:
            self.store.set(NAMESPACE, key, value + 1, updated_by=AGENT, expected_version=version)
        except self._conflict:
            return False
        return True

    def close(self) -> None:
        self.store.close()

    async def waiting(self) -> "Waiting":
        store = self._open_async()

        async def change(key: str) -> None:
            await store.set(NAMESPACE, key, VALUE, updated_by=AGENT)

        async def watch(key: str, since: int) -> None:
            assert (await store.watch(NAMESPACE, key, since, PATIENCE)).status == "ok"

        return Waiting(change, watch, store.close)


class Agenthold:
    def __init__(self, path: str) -> None:
        from agenthold.coordinator import Coordinator
        from agenthold.exceptions import ConflictError, NotFoundError
        from agenthold.resources import Workspace, WorkspaceRegistry
        from agenthold.store import StateStore

        self._store = StateStore(path)
        self._coordinator = Coordinator(self._store, WorkspaceRegistry([Workspace(name="default", root="/tmp")]))
        self._agent = self._coordinator.register("bench")["agent_id"]
        self._conflict, self._not_found = ConflictError, NotFoundError

    def set(self, key: str, value: Any) -> None:
        self._store.set(NAMESPACE, key, value, updated_by=AGENT)

    def get(self, key: str) -> Any:
        return self._store.get(NAMESPACE, key)

    def history(self, key: str, limit: int) -> Any:
        return self._store.history(NAMESPACE, key, limit=limit)

    def version(self, key: str) -> int:
        try:
            return self._store.get(NAMESPACE, key).version
        except self._not_found:
            return 0

    def claim(self, resource: str) -> None:
        self._coordinator.refresh_agent(self._agent)  # as its server does before each claim and release
        assert self._coordinator.claim(resource, self._agent)["status"] == "claimed"

    def release(self, resource: str) -> None:
        self._coordinator.refresh_agent(self._agent)
        assert self._coordinator.release(resource, self._agent)["status"] == "released"

    def increment(self, key: str) -> bool:
        try:
            found = self._store.get(NAMESPACE, key)
            value, version = found.value, found.version
        except self._not_found:
            value, version = 0, 0
        try:
            self._store.set(NAMESPACE, key, value + 1, updated_by=AGENT, expected_version=version)
        except self._conflict:
            return False
        return True

    def close(self) -> None:
        self._store._conn.close()

    async def waiting(self) -> "Waiting":
        from agenthold.notifier import KeyNotifier
        from agenthold.server import _watch, _watch_key

        notifier = KeyNotifier()

        async def change(key: str) -> None:
            await asyncio.to_thread(self._store.set, NAMESPACE, key, VALUE, AGENT)  # as its server does
            notifier.notify(_watch_key(NAMESPACE, key))

        async def watch(key: str, since: int) -> None:
            assert (await _watch(self._store, NAMESPACE, key, since, PATIENCE, notifier))["status"] == "ok"

        async def close() -> None:
            """The store is closed with the contestant."""

        return Waiting(change, watch, close)


class Waiting:
    """A contestant's coroutines to change a key and to wait for a change."""

    def __init__(self, change: Any, watch: Any, close: Any) -> None:
        self.change, self.watch, self.close = change, watch, close


CONTESTANTS = {"raw": Raw, "sql": Sql, "holdlog": Holdlog, "agenthold": Agenthold}
