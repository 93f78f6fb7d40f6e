"""A move next to four processes that write; copies, imports and exports that are killed at every stage."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdlog import StateStore, StoreError, UnavailableError
from holdlog.adapters.cli.main import main
from holdlog.adapters.python.copying import copy
from holdlog.adapters.stores.postgres.opening import lock_of
from holdlog.domain.envelope import Recorded
from tests.processes import test_postgres
from tests.processes.conftest import Start
from tests.support.commands import require_chained, require_views_equal_the_log, rows, until, whole_log
from tests.support.copies import exported, imported, require_fork
from tests.support.places import Place, Somewhere, engine, places, schema_of, stands
from tests.support.slow import check

PAIRS = [("file", "schema"), ("schema", "file")]

server = test_postgres.server
"""A PostgreSQL server for one test alone."""

COPY_AND_STOP = """
import os, sys
from pathlib import Path
from holdlog.adapters.python.copying import copy, import_log
from holdlog.adapters.stores.copying import carried
from holdlog.adapters.stores.copying.database import DatabaseCopyTarget
from holdlog.adapters.stores.copying.file import FileTarget

where, source, target, how = sys.argv[1:]
carried.PAGE_ROWS = 10

def stop():
    print("here", flush=True)
    sys.stdin.readline()

for kind in (FileTarget, DatabaseCopyTarget):
    if where == "after publish":
        publish = kind.publish
        kind.publish = lambda *all, publish=publish: (publish(*all), stop())
    elif where == "in publish" and kind is FileTarget:
        replace = os.replace
        os.replace = lambda *all: (stop(), replace(*all))
    elif where == "in publish":
        kind.publish = lambda *all: stop()
    else:
        step = getattr(kind, where)
        setattr(kind, where, lambda *all, step=step: (step(*all), stop())[0])
if how == "import":
    with open(source, "rb") as file:
        print(import_log(file, source, target), flush=True)
else:
    print(copy(source, target, seal=True), flush=True)
"""
EXPORT_AND_STOP = """
import sys
from holdlog.adapters.cli.main import main
from holdlog.adapters.stores.copying import exported

line_of = exported.event_line

def stop(*all):
    print("here", flush=True)
    sys.stdin.readline()
    return line_of(*all)

exported.event_line = stop
sys.exit(main(["export", "--log", "--db", sys.argv[1], "-o", sys.argv[2]]))
"""
STAGES = ["put", "events_by_stream", "steady", "in publish", "after publish"]


@pytest.fixture
def somewhere(tmp_path: Path, postgres_server: str) -> Iterator[Somewhere]:
    with places(tmp_path, postgres_server) as found:
        yield found


def copying(
    where: str, source: Place, target: Place, how: str = "copy"
) -> "AbstractContextManager[subprocess.Popen[str]]":
    """A process that copies or imports, and stops at a stage of that while the block runs."""
    return stopped(COPY_AND_STOP, where, source, target, how)


@contextmanager
def stopped(script: str, *arguments: object) -> "Iterator[subprocess.Popen[str]]":
    """A process that stops where its script says while the block runs."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def fill(place: Place, events: int = 50) -> None:
    with StateStore(place) as store:
        for number in range(events):
            store.set("n", f"k{number % 7}", number, updated_by="ann")


@pytest.mark.check
@pytest.mark.parametrize("pair", PAIRS, ids="-to-".join)
def test_move_copies_every_acknowledged_write_and_refuses_every_later_one(
    somewhere: Somewhere, start: Start, pair: tuple[str, str]
) -> None:
    source, target = (somewhere(kind) for kind in pair)
    fill(source, 200)
    writers = [start("write_until_sealed", source, f"w{number}") for number in range(4)]
    for writer in writers:
        assert writer.hear() == {"ready": True}
    report = copy(source, target, seal=True)
    told = [line for writer in writers for line in writer.rest()]
    with engine(source) as ours, engine(target) as theirs:
        assert rows(ours) == rows(theirs)
        assert len(rows(theirs)) == report.events
        require_chained(theirs)
        require_views_equal_the_log(theirs)
        log = {(it.envelope.stream, it.envelope.version): value_of(it) for it in whole_log(theirs)}
    acknowledged = [line for line in told if "version" in line]
    refused = [line for line in told if "refused" in line]
    assert len(acknowledged) >= len(writers)
    for line in acknowledged:
        assert log[f"record:n/{line['key']}", line["version"]] == line["value"]
    assert len(log) == 200 + len(acknowledged)
    assert len(refused) == len(writers)
    assert all(line["refused"].startswith("the store was sealed on") for line in refused)


def value_of(recorded: Recorded[Any]) -> Any:
    return json.loads(recorded.event.value.text)


@pytest.mark.parametrize("where", STAGES)
@pytest.mark.parametrize("pair", PAIRS, ids="-to-".join)
def test_killed_copy_leaves_no_store_and_can_be_run_again(
    somewhere: Somewhere, pair: tuple[str, str], where: str
) -> None:
    source, target = (somewhere(kind) for kind in pair)
    fill(source)
    with copying(where, source, target) as process:
        process.kill()
        process.wait()
    done = where == "after publish"
    wait_for_the_database(target, done)
    assert stands(target) == done
    if isinstance(target, Path) and where in ("events_by_stream", "steady"):  # half of it is there, under another name
        with pytest.raises(StoreError):
            StateStore(target.with_name(target.name + ".copying"))
    report = copy(source, target, seal=True)
    assert (report.events, report.kept_id, report.already) == (50, True, done)
    with engine(source) as ours, engine(target) as theirs:
        assert rows(ours) == rows(theirs)
    if isinstance(target, Path):
        assert not target.with_name(target.name + ".copying").exists()


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        *[("file", "put"), ("schema", "in publish")],
        *check(("file", "events_by_stream"), ("file", "in publish"), ("schema", "put"), ("schema", "events_by_stream")),
    ],
)
def test_killed_import_leaves_no_store_and_can_be_run_again(
    somewhere: Somewhere, tmp_path: Path, kind: str, where: str
) -> None:
    source, target, path = somewhere("file"), somewhere(kind), tmp_path / "log.jsonl"
    fill(source)
    path.write_bytes(b"".join(lines := exported(source)))
    with copying(where, path, target, "import") as process:
        process.kill()
        process.wait()
    wait_for_the_database(target, done=False)
    assert not stands(target)
    assert imported(lines, target).events == 50
    require_fork(source, target)


def test_killed_export_leaves_no_file_of_that_name(somewhere: Somewhere, tmp_path: Path) -> None:
    fill(source := somewhere("file"))
    path = tmp_path / "exports" / "log.jsonl"
    path.parent.mkdir()
    with stopped(EXPORT_AND_STOP, source, path) as process:
        process.kill()
        process.wait()
    assert not path.exists()
    assert [it.suffix for it in path.parent.iterdir()] == [".partial"]
    assert main(["export", "--log", "--db", str(source), "-o", str(path)]) == 0
    assert imported([path.read_bytes()], somewhere("file")).events == 50


def wait_for_the_database(target: Place, done: bool) -> None:
    """It notices that a client is gone when it next hears nothing of it."""
    if isinstance(target, Path) or done:
        return
    with psycopg.connect(target.partition("&schema=")[0], autocommit=True) as connection:
        lock = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
        number = lock_of(schema_of(target))
        until(lambda: connection.execute(lock, (number,)).fetchone() is None)


@pytest.mark.check
@pytest.mark.parametrize("kind", ["file", "schema"])
def test_running_copy_keeps_others_from_creating_its_target(somewhere: Somewhere, kind: str) -> None:
    source, target = somewhere("file"), somewhere(kind)
    fill(source)
    with copying("steady", source, target), pytest.raises(UnavailableError, match="process"):
        copy(source, target)
    wait_for_the_database(target, done=False)
    assert not stands(target)


@pytest.mark.check
@pytest.mark.parametrize("direction", ["to", "from"])
def test_database_killed_during_a_copy_leaves_no_half_copy(server: Any, tmp_path: Path, direction: str) -> None:
    with places(tmp_path, server.get_uri()) as somewhere:
        source, target = (somewhere("file"), somewhere("schema"))
        if direction == "from":
            source, target = target, source
        fill(source)
        with copying("put", source, target) as process:
            test_postgres.kill(server)
            finish(process)
        test_postgres.restart(server)
        assert not stands(target)
        report = copy(source, target, seal=True)
        assert (report.events, report.kept_id) == (50, True)
        with engine(source) as ours, engine(target) as theirs:
            assert rows(ours) == rows(theirs)


def finish(process: "subprocess.Popen[str]") -> None:
    """Let it go on to its end."""
    assert process.stdin is not None
    process.stdin.write("go\n" * 100)
    process.stdin.flush()
    assert process.wait(30) != 0
