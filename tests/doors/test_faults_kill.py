"""kill -9 between any two system calls, and of any writer at any time: what was acknowledged is there, what was not is
whole or absent, and the store goes on."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.faults import CHANGES, SHIM
from tests.support.soundness import (
    require_acknowledged,
    require_current_values,
    require_sound,
    require_sound_log,
    require_whole_file,
    values_of,
)
from tests.support.work import CLAIMS
from tests.support.workers import Line

KILLED = int(signal.SIGKILL)
MANY = 1_000
"""More calls than the story makes, so that its end is reached."""
RECENT = 4
"""More versions than one story makes."""
BURST = 40
"""Rounds of a writer, which it writes while the others do."""


def require_story(store: Any, name: str, lines: list[Line]) -> None:
    """Of the calls in this story those that were acknowledged took place, at most one other, and each whole."""
    require_acknowledged(store, [line for line in lines if line.get("tried") is not None], RECENT)
    a, b = values_of(store, "a", RECENT), values_of(store, "b", RECENT)
    assert a == b, "one transaction wrote both"
    counter = values_of(store, "counter", RECENT)
    assert counter == {version: version for version in counter}
    said = {line["key"] for line in lines if "key" in line}
    written = {key for key in ("k", "g") if name in values_of(store, key, RECENT).values()}
    written |= {"both"} if name in a.values() else set()
    assert len(written - said) <= 1, (written, said)
    for line in lines:
        if "claim" in line:
            status = store.status(line["resource"])
            holder = status.held_by if status.status == "claimed" else status.previous_holder
            assert holder == "worker"


def numbers(step: int, dice: random.Random) -> Iterator[int]:
    number = dice.randrange(1, step + 1)
    while number < MANY:
        yield number
        number += step


@SHIM
@pytest.mark.parametrize(
    ("state", "step"),
    [
        ("new", 17),
        ("old", 17),
        pytest.param("new", 4, marks=pytest.mark.rest),
        pytest.param("old", 2, marks=pytest.mark.rest),
        pytest.param("shared", 4, marks=pytest.mark.rest),
        *(  # over a thousand kills
            pytest.param(state, 1, marks=pytest.mark.slow, id=f"{state}-{number}")
            for state in ("new", "old", "shared")
            for number in range(3)
        ),
    ],
)
def test_process_killed_between_any_two_system_calls_leaves_a_sound_store(faults, worker, tmp_path, state, step):
    path = tmp_path / "store" / "state.db"
    forks = worker("forks", path, env=faults.env)
    forks.hear()
    shared = holdlog.StateStore(path) if state == "shared" else None
    struck, status = 0, 1
    for number in numbers(step, random.Random()):
        if state == "new":
            empty(path.parent)
        faults.arm(CHANGES, -KILLED, number)
        lines, status = forks.story(f"story {number}")
        require_sound_after(path, shared, f"story {number}", lines)
        if status == 0:
            break
        assert status & 0x7F == KILLED
        struck += 1
    assert status == 0, "the story has more system calls than that"
    assert struck > (100 if CLAIMS else 60) // step
    if shared:
        shared.close()
    require_sound(path)


def require_sound_after(path: Path, shared: Any, name: str, lines: list[Line]) -> None:
    store = shared or holdlog.StateStore(path)
    require_story(store, name, lines)
    require_current_values(store)
    store.set("m", "after", name, updated_by="test")
    if not shared:
        store.close()
        require_whole_file(path)


def empty(folder: Path) -> None:
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.mark.rest
@both_stores
def test_four_writers_killed_again_and_again_lose_no_acknowledged_write(open_store, worker, kind, request):
    place = request.getfixturevalue("postgres" if kind == "postgres" else "db")
    dice = random.Random()
    workers = [worker("load", place, number, BURST) for number in range(4)]
    for each in workers:
        each.hear()
    for kill in range(10):
        for each in workers[:4]:
            each.tell()
        index = dice.randrange(4)
        for _ in range(dice.randrange(1, BURST)):
            workers[index].hear()
        workers[index].kill()
        workers.append(workers[index])
        workers[index] = worker("load", place, 4 + kill, BURST)
        workers[index].hear()
    for each in workers[:4]:
        each.tell()
        each.hear()  # the store goes on
        each.kill()
    store = open_store()
    require_sound_log(store)
    require_acknowledged(store, [line for each in workers for line in each.heard])
    assert store.set("n", "after", 1, updated_by="test").version == 1
    if kind == "file":
        require_whole_file(place)
