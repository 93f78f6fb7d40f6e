"""A read model of one's own over the log: how often each agent wrote in each namespace, and what it last wrote.

Run it: python examples/eventsourcing/read_model.py
"""

import tempfile
from pathlib import Path
from typing import Any

from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder

from holdlog import StateStore
from holdlog.eventsourcing import HoldlogApplication, ValueWrittenEvent


class WritesView(SQLiteTrackingRecorder):
    """The tables of the read model. A count and the position up to which it counts are one transaction."""

    def construct_create_table_statements(self) -> list[str]:
        table = (
            "CREATE TABLE IF NOT EXISTS writes (namespace TEXT, agent TEXT, times INTEGER NOT NULL, last TEXT,"
            " PRIMARY KEY (namespace, agent))"
        )
        return [*super().construct_create_table_statements(), table]

    def count(self, namespace: str, agent: str, value: str, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                "INSERT INTO writes VALUES (?, ?, 1, ?) ON CONFLICT (namespace, agent)"
                " DO UPDATE SET times = times + 1, last = excluded.last",
                (namespace, agent, value),
            )

    def writes(self) -> list[tuple[str, str, int, str]]:
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT namespace, agent, times, last FROM writes ORDER BY namespace, agent")
            return [tuple(row) for row in cursor.fetchall()]


class Writes(Projection[WritesView]):
    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.insert_tracking(tracking)  # every other event: only remember that it was seen

    @process_event.register
    def value_written(self, event: ValueWrittenEvent, tracking: Tracking) -> None:
        self.view.count(event.namespace, event.by, event.value.text, tracking)


def project(store: str, view: str) -> list[tuple[str, str, int, str]]:
    """Catch up with the log, and return the rows. A service would call `run_forever()` instead of `wait`."""
    env = {"HOLDLOG_DB": store, "PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": view}
    with ProjectionRunner(
        application_class=HoldlogApplication, projection_class=Writes, view_class=WritesView, env=env
    ) as runner:
        runner.wait(runner.app.recorder.max_notification_id(), timeout=30)
        return runner.view.writes()


def show(rows: list[tuple[str, str, int, str]]) -> None:
    for namespace, agent, times, last in rows:
        print(f"{namespace}  {agent}  {times} times, last {last}")


def main(folder: Path) -> None:
    store, view = str(folder / "state.db"), str(folder / "writes.db")
    with StateStore(store) as state:
        state.set("campaign", "budget", 10_000, updated_by="ann")
        state.set("campaign", "budget", 8_000, updated_by="bob")
        state.claim("src/report.md", agent="ann")
        show(project(store, view))
        print("two more writes; the view continues after the last event that it counted")
        state.set("campaign", "budget", 6_000, updated_by="bob")
        state.set("orders", "17", {"status": "paid"}, updated_by="ann")
        show(project(store, view))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
