"""kill -9 of a process that projects the log into a view: each event counts exactly once."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from eventsourcing.sqlite import SQLiteFactory

from holdlog import StateStore
from tests.support.projections import SqliteCounts, caught_up, in_log, in_sqlite

ROOT = Path(__file__).parents[2]
KILLS = 6
BACKLOG = 300


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
    place, view = tmp_path / "state.db", tmp_path / "view.db"
    dice = random.Random(16)
    with StateStore(place) as store:
        for number in range(BACKLOG):
            store.set("n", "backlog", number, updated_by="ann")
        committed = 0
        for _ in range(KILLS):
            with projecting(place, view) as process:
                assert process.stdout is not None
                for number in range(dice.randrange(1, 60)):
                    store.set("n", "new", number, updated_by="bob")  # while it projects
                    line = process.stdout.readline()
                    assert line, process.communicate()[1]
                    assert json.loads(line)["position"] == committed + 1
                    committed += 1
                process.kill()
                rest, _ = process.communicate()
                assert process.returncode == -signal.SIGKILL
            tracked = sum(counted(view).values())
            assert committed + len(rest.splitlines()) <= tracked + 1  # the last line may be half of one
            committed = tracked
    assert committed > KILLS
    assert caught_up(place, SqliteCounts, in_sqlite(view)) == in_log(place)


def counted(view: Path) -> dict[str, int]:
    factory = SQLiteFactory(in_sqlite(view))
    try:
        found = factory.tracking_recorder(SqliteCounts)
        assert isinstance(found, SqliteCounts)
        return found.counts()
    finally:
        factory.close()
