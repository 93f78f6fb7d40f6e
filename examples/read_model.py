"""A read model: how often each agent wrote, in a SQLite file of its own. Each event counts once, also over kill -9,
because its count and its position are one transaction. Start it again, and it goes on where it was.

    python examples/read_model.py state.db writes.db            # print the counts of all that was written
    python examples/read_model.py state.db writes.db --follow   # until you press Ctrl-C
"""

import sys
from typing import Any

from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder

from holdlog.eventsourcing import HoldlogApplication, ValueWritten


class WritesView(SQLiteTrackingRecorder):
    def construct_create_table_statements(self) -> list[str]:
        table = "CREATE TABLE IF NOT EXISTS writes (agent TEXT PRIMARY KEY, times INTEGER NOT NULL)"
        return [*super().construct_create_table_statements(), table]

    def count(self, agent: str, tracking: Tracking) -> None:
        statement = "INSERT INTO writes VALUES (?, 1) ON CONFLICT (agent) DO UPDATE SET times = times + 1"
        with self.datastore.transaction(commit=True) as cursor:  # both rows, or neither
            self._insert_tracking(cursor, tracking)
            cursor.execute(statement, (agent,))

    def list_writes(self) -> dict[str, int]:
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT agent, times FROM writes ORDER BY agent")
            return dict(map(tuple, cursor.fetchall()))


class Writes(Projection[WritesView]):
    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.insert_tracking(tracking)  # any other event

    @process_event.register
    def value_written(self, event: ValueWritten, tracking: Tracking) -> None:
        self.view.count(event.by, tracking)


def main(store: str = "state.db", view: str = "writes.db", *words: str) -> None:
    env = {"HOLDLOG_DB": store, "PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": view}
    with ProjectionRunner(
        application_class=HoldlogApplication, projection_class=Writes, view_class=WritesView, env=env
    ) as runner:
        if "--follow" in words:
            runner.run_forever()
        runner.wait(runner.app.recorder.max_notification_id(), timeout=60)
        for agent, times in runner.view.list_writes().items():
            print(agent, times)


if __name__ == "__main__":
    main(*sys.argv[1:])
