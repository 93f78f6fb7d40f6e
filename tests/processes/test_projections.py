"""kill -9 of a process that projects the log into a view: each event counts exactly once."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from eventsourcing.sqlite import SQLiteFactory

from holdlog import StateStore
from tests.support.projections import SqliteCounts, caught_up, in_log, in_sqlite

ROOT = Path(__file__).parents[2]
KILLS = 6
WRITERS = 2


@contextmanager
def projecting(store: Path, view: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that projects until it is killed, and prints each position that its view has committed."""
    command = [sys.executable, "-m", "tests.support.projections", str(store), str(view)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.check
def test_projection_killed_while_it_projects_counts_each_event_once(tmp_path: Path) -> None:
    store, view = tmp_path / "state.db", tmp_path / "view.db"
    dice = random.Random(16)
    done = threading.Event()

    def write(number: int) -> None:
        with StateStore(store) as opened:
            for version in range(100_000):
                opened.set("n", f"key-{number}", version, updated_by="ann")
                if done.is_set():
                    return

    StateStore(store).close()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    committed = 0
    try:
        for _ in range(KILLS):
            with projecting(store, view) as process:
                assert process.stdout is not None
                for _ in range(dice.randrange(1, 60)):
                    line = process.stdout.readline()
                    assert line, process.communicate()[1]
                    assert json.loads(line)["position"] == committed + 1
                    committed += 1
                process.kill()
                rest, _ = process.communicate()
                assert process.returncode == -signal.SIGKILL
            tracked = sum(counted(view).values())
            assert committed + len(rest.splitlines()) <= tracked + 1
            committed = tracked
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert committed > KILLS
    assert caught_up(store, SqliteCounts, in_sqlite(view)) == in_log(store)


def counted(view: Path) -> dict[str, int]:
    factory = SQLiteFactory(in_sqlite(view))
    try:
        found = factory.tracking_recorder(SqliteCounts)
        assert isinstance(found, SqliteCounts)
        return found.counts()
    finally:
        factory.close()
