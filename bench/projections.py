"""How fast programs' projections and our own read models read the log."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import Tracking, TrackingRecorder
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder

from bench.bench import Bench
from bench.figures import Figure, number
from bench.rebuild import commands
from bench.size import fill
from holdlog.adapters.compose import open_holdlog, open_read_models, recorder_of
from holdlog.adapters.eventsourcing.read_models import catch_up
from holdlog.eventsourcing import HoldlogApplication, LogEvent

GROUP = "projections"
EVENTS = 10_000


class Seen(Projection[TrackingRecorder]):
    """Does nothing but note the position, so what remains is the log and the runner."""

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise TypeError

    @process_event.register
    def any_event(self, event: LogEvent, tracking: Tracking) -> None:
        self.view.insert_tracking(tracking)


def run(bench: Bench) -> Iterator[Figure]:
    for place, base in bench.places.items():
        with bench.folder(base) as folder:
            path = folder / "store.db"
            fill(path, commands(EVENTS), lambda done: bench.progress(f"{done} events to read"))
            for what, view, env in (
                ("memory", POPOTrackingRecorder, {}),
                ("SQLite", SQLiteTrackingRecorder, {"PERSISTENCE_MODULE": "eventsourcing.sqlite"}),
            ):
                rates = []
                for turn in range(bench.pick(5, 3)):
                    bench.progress(f"{what}, {place}, {turn}")
                    rates.append(EVENTS / _projected(path, view, env | {"SQLITE_DBNAME": str(folder / f"{turn}.db")}))
                yield Figure(GROUP, f"ProjectionRunner, a view in {what}, {place}", median(rates), " events/s")
            yield _of_read_models(bench, place, path)


def _projected(path: Path, view: type[TrackingRecorder], env: dict[str, str]) -> float:
    """Seconds until the view has all events."""
    started = time.perf_counter()
    with ProjectionRunner(
        application_class=HoldlogApplication,
        projection_class=Seen,
        view_class=view,
        env={"HOLDLOG_DB": str(path), **env},
    ) as runner:
        while not runner.view.has_tracking_id(runner.app_name, EVENTS):
            time.sleep(0.005)
        return time.perf_counter() - started


def _of_read_models(bench: Bench, place: str, path: Path) -> Figure:
    engine = open_holdlog(path)
    took: dict[str, list[float]] = {"all": [], "nothing new": []}
    for turn in range(bench.pick(5, 3)):
        bench.progress(f"read models, {place}, {turn}")
        path.with_name(f"{path.name}.views").unlink(missing_ok=True)
        for seconds in took.values():
            started = time.perf_counter()
            with open_read_models(path, "") as view:
                assert catch_up(recorder_of(engine), "bench", view) == EVENTS
            seconds.append(time.perf_counter() - started)
    engine.close()
    beside = f"nothing new: {number(median(took['nothing new']) * 1000)} ms"
    return Figure(
        GROUP, f"activity and collisions of {number(EVENTS)} events, {place}", median(took["all"]), " s", beside=beside
    )
