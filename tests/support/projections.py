"""A read model as a program would have it, in each database of the eventsourcing library: events per topic.

`python -m tests.support.projections STORE VIEW` runs it over a store, into a SQLite file, until it is killed.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import Tracking, TrackingRecorder
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Composed, Identifier

from holdlog.adapters.compose import open_holdlog
from holdlog.eventsourcing import HoldlogApplication, LogEvent

TABLE = "CREATE TABLE IF NOT EXISTS {} (topic TEXT PRIMARY KEY, times BIGINT NOT NULL)"
COUNT = "INSERT INTO {0} VALUES ({1}, 1) ON CONFLICT (topic) DO UPDATE SET times = {0}.times + 1"


class MemoryCounts(POPOTrackingRecorder):
    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def count(self, topic: str, tracking: Tracking) -> None:
        with self._database_lock:
            self._assert_tracking_uniqueness(tracking)
            self._insert_tracking(tracking)
            self.counted[topic] += 1

    def counts(self) -> dict[str, int]:
        return dict(self.counted)


class SqliteCounts(SQLiteTrackingRecorder):
    def construct_create_table_statements(self) -> list[str]:
        return [*super().construct_create_table_statements(), TABLE.format("counts")]

    def count(self, topic: str, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            cursor.execute(COUNT.format("counts", "?"), (topic,))
            self._insert_tracking(cursor, tracking)

    def counts(self) -> dict[str, int]:
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT topic, times FROM counts")
            return dict(map(tuple, cursor.fetchall()))


class PostgresCounts(PostgresTrackingRecorder):
    def _of(self, statement: str) -> Composed:
        return SQL(statement).format(Identifier(self.datastore.schema, "counts"), SQL("%s"))  # type: ignore[arg-type]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sql_create_statements.append(self._of(TABLE))

    def count(self, topic: str, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            cursor.execute(self._of(COUNT), (topic,))
            self._insert_tracking(cursor, tracking)

    def counts(self) -> dict[str, int]:
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(self._of("SELECT topic, times FROM {}"))
            return {row["topic"]: row["times"] for row in cursor.fetchall()}


class Counts(Projection[Any]):
    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise AssertionError(f"{domain_event!r} is not an event of the log")

    @process_event.register
    def any_event(self, event: LogEvent, tracking: Tracking) -> None:
        self.view.count(event.TOPIC, tracking)


def runner(
    store: str | Path, view: type[TrackingRecorder], env: dict[str, str], projection: type[Projection[Any]] = Counts
) -> ProjectionRunner[HoldlogApplication, Any]:
    return ProjectionRunner(
        application_class=HoldlogApplication,
        projection_class=projection,
        view_class=view,
        env={"HOLDLOG_DB": str(store), **env},
    )


def in_sqlite(view: Path) -> dict[str, str]:
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(view)}


def in_postgres(server: str, schema: str) -> dict[str, str]:
    target = conninfo_to_dict(server)
    named = {f"POSTGRES_{name.upper()}": str(target.get(name) or "") for name in ("dbname", "host", "user", "password")}
    return {"PERSISTENCE_MODULE": "eventsourcing.postgres", "POSTGRES_SCHEMA": schema, **named}


def caught_up(
    store: str | Path, view: type[TrackingRecorder], env: dict[str, str], projection: type[Projection[Any]] = Counts
) -> dict[str, int]:
    """The counts once the view has every event that the log has now."""
    with runner(store, view, env, projection) as running:
        running.wait(running.app.recorder.max_notification_id(), timeout=30)
        counted: dict[str, int] = running.view.counts()
        return counted


def in_log(store: str | Path) -> dict[str, int]:
    """Events per topic, read without the library."""
    engine = open_holdlog(store)
    with engine.store.reader() as reader:
        counted = Counter(entry.topic for entry in reader.entries(0, -1))
    engine.close()
    return dict(counted)


class ReportedCounts(SqliteCounts):
    """Prints each position that it has committed."""

    def count(self, topic: str, tracking: Tracking) -> None:
        super().count(topic, tracking)
        print(json.dumps({"position": tracking.notification_id}), flush=True)


if __name__ == "__main__":
    with runner(sys.argv[1], ReportedCounts, in_sqlite(Path(sys.argv[2]))) as running:
        running.run_forever()
