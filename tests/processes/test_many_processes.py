"""Many processes at one file: all open it, all count exactly, nobody starves."""

import time
from pathlib import Path

import pytest

from holdlog import StateStore
from tests.processes.conftest import EVERY_STORE, Start
from tests.support.processes.soundness import Place, require_acknowledged, require_sound
from tests.support.slow import slow

TOGETHER = 8


@pytest.mark.check
@pytest.mark.parametrize("round_", [0, *slow(*range(1, 8))])
def test_eight_processes_that_start_at_once_make_one_store(path: Path, start: Start, round_: int) -> None:
    workers = [start("open_together", path) for _ in range(TOGETHER)]
    for worker in workers:
        worker.hear()
    moment = time.time() + 0.1
    for worker in workers:
        worker.tell(str(moment))
    for worker in workers:
        worker.rest()
        assert worker.process.returncode == 0, worker.complaints
        assert worker.said[-1].get("closed"), worker.said
    require_sound(path)
    require_acknowledged(path, [said for worker in workers for said in worker.said if "key" in said])
    with StateStore(path) as store:
        assert len(store.list_keys("n")) == TOGETHER


@pytest.mark.check
def test_eight_processes_compare_and_set_one_number_exactly_and_nobody_starves(path: Path, start: Start) -> None:
    workers = [start("compete", path, "counter", 2, 20 * TOGETHER) for _ in range(TOGETHER)]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.tell()
    won = [worker.hear()["won"] for worker in workers]
    with StateStore(path) as store:
        assert store.get("n", "counter").value == sum(won)
        assert store.get("n", "counter").version == sum(won)
    assert min(won) > 0
    require_sound(path)


@pytest.mark.check
@EVERY_STORE
def test_four_processes_count_to_four_hundred(place: Place, start: Start) -> None:
    workers = [start("count_up", place, "counter", 100) for _ in range(4)]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.tell()
    for worker in workers:
        assert worker.hear()["done"]
    with StateStore(place) as store:
        assert store.get("n", "counter").value == 400
        versions = [past.version for past in store.history("n", "counter", limit=1000)]
        assert versions == list(range(400, 0, -1))
    require_sound(place)


@pytest.mark.check
@pytest.mark.parametrize("times", [15, *slow(300)])
def test_opening_and_closing_processes_cause_no_refusals(path: Path, start: Start, times: int) -> None:
    workers = [start("open_and_close", path, times) for _ in range(4)]
    for worker in workers:
        for said in worker.rest():
            assert "error" not in said["read"], said
            assert "error" not in said["wrote"], said
        assert len(worker.said) == times
    require_sound(path)
