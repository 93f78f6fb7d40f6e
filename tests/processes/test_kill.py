"""kill -9, of any writer, at any moment: what was acknowledged is there, and the store goes on."""

import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from tests.processes.conftest import Start
from tests.support.processes.soundness import require_acknowledged, require_sound, versions
from tests.support.processes.strace import STRACE, Strace
from tests.support.slow import check, slow

WRITERS = 4
KILLS = 20
KILLED = int(signal.SIGKILL)


@pytest.mark.check
def test_four_writers_killed_twenty_times_lose_no_acknowledged_write(path: Path, start: Start) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    workers = [start("load", path, number) for number in range(WRITERS)]
    for worker in workers:
        worker.hear()
    acknowledged: list[dict[str, Any]] = []
    for kill in range(KILLS):
        index = dice.randrange(WRITERS)
        for _ in range(dice.randrange(1, 40)):
            workers[index].hear()
        workers[index].kill()
        workers[index].rest()
        acknowledged += [said for said in workers[index].said if "key" in said]
        workers[index] = start("load", path, WRITERS + kill)
        workers[index].hear()
    for worker in workers:
        worker.hear()  # the store goes on
        worker.kill()
    for worker in workers:
        worker.rest()
        acknowledged += [said for said in worker.said if "key" in said]
    require_sound(path)
    require_acknowledged(path, acknowledged)
    with StateStore(path) as store:
        store.set("n", "after", 1, updated_by="test")


@STRACE
@pytest.mark.parametrize("call", ["fdatasync", *check("pwrite64", "ftruncate", "unlink", "flock"), *slow("fcntl")])
def test_write_killed_at_every_system_call_is_complete_or_absent(path: Path, start: Start, call: str) -> None:
    faults = Strace(start, path, call, "signal=KILL")
    for number in faults.numbers():
        before = set(versions(path)) if path.exists() else set()
        said, status = faults.strike(number)
        require_sound(path)
        written = [write for write in said if "version" in write]
        require_acknowledged(path, written)
        tried = 3 if status == 0 else len(written) + 1
        assert len(set(versions(path)) - before) in (len(written), tried)
        if status == 0:
            break
        assert status & 0x7F == KILLED
    assert status == 0, "there were more calls than the test strikes"
    assert number > 3, "the kills did not strike"


@STRACE
@pytest.mark.slow
def test_process_killed_while_it_creates_a_store_leaves_creation_to_the_next(path: Path, start: Start) -> None:
    for call in ("pwrite64", "fdatasync", "unlink"):
        faults = Strace(start, path, call, "signal=KILL")
        for number in faults.numbers():
            for left in path.parent.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            said, status = faults.strike(number)
            require_sound(path)
            require_acknowledged(path, [write for write in said if "version" in write])
            if status == 0:
                break
        assert number > 1, "the kills did not strike"
