"""Power cuts: what was acknowledged is there after all is lost that was not synced, and whatever part of it is left,
the store opens and is sound."""

import json
import random
import shutil
from pathlib import Path

import pytest

import holdlog
from tests.support.faults import SHIM, SYNCED, WROTE, Disk, Entry, Faults, entries
from tests.support.soundness import require_current_values, require_sound_log, require_whole_file, values_of
from tests.support.workers import Worker

ACKNOWLEDGED = "acknowledged"
pytestmark = SHIM


@pytest.fixture(scope="module", params=[(6, 100), pytest.param((40, 20_000), marks=pytest.mark.rest)])
def recording(request, tmp_path_factory) -> tuple[list[Entry], int]:
    """The calls of a process that creates a store, writes from two threads and closes it; the size of its values."""
    times, size = request.param
    folder = tmp_path_factory.mktemp("power")
    (folder / "store").mkdir(mode=0o700)
    faults = Faults(folder / "store", folder / "faults")
    process = Worker("journal", folder / "store" / "state.db", times, size, env=faults.recorded)
    assert process.rest() == [{"closed": True}], process.errors
    process.end()
    calls = list(entries(faults.journal))
    assert sum(it.name == ACKNOWLEDGED and it.kind == WROTE for it in calls) == 2 * times
    return calls, size


def require_acknowledged_after(folder: Path, acknowledged: list[Entry], size: int) -> None:
    """Every acknowledged write is there, and none is half there."""
    path = folder / "state.db"
    with holdlog.StateStore(path) as store:
        require_sound_log(store)
        histories = {key: values_of(store, key) for key in ("p", "q")}
        for key, version, number in (json.loads(it.data) for it in acknowledged):
            assert histories[key][version] == f"{key}-{number}" + "x" * size
        assert all(len(value) >= size for history in histories.values() for value in history.values())
        store.set("n", "after", 1, updated_by="test")
        require_current_values(store)
    require_whole_file(path)


def cut_power(calls: list[Entry], cuts: dict[int, float], folder: Path, size: int) -> None:
    """After this many calls each; the share of what was not synced that is left."""
    disk, acknowledged, dice = Disk(), list[Entry](), random.Random(1)
    for number, call in enumerate(calls, start=1):
        if call.name == ACKNOWLEDGED:
            acknowledged += [call] if call.kind == WROTE else []
        else:
            disk.add(call)
        if number in cuts:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            disk.lose_power(folder, dice, cuts[number])
            require_acknowledged_after(folder, acknowledged, size)


def test_acknowledged_write_is_durable_when_all_that_was_not_synced_is_lost(recording, tmp_path):
    calls, size = recording
    moments = [number for number, it in enumerate(calls, start=1) if it.name == ACKNOWLEDGED and it.kind == WROTE]
    cut_power(calls, dict.fromkeys(random.Random().sample(moments, 12), 0.0), tmp_path / "disk", size)


def test_store_is_sound_after_a_power_cut_between_any_two_system_calls(recording, tmp_path):
    calls, size = recording
    dice = random.Random()
    moments = dice.sample(range(1, len(calls) + 1), 15 if size == 100 else 100)
    cut_power(calls, {it: dice.choice((0.0, 0.2, 0.5, 0.9, 1.0)) for it in moments}, tmp_path / "disk", size)


def test_write_is_synced_before_its_acknowledgement(recording):
    """The order of calls itself: a sync of the file that the value went to lies between the two."""
    calls = recording[0]
    for number, call in enumerate(calls):
        if call.name == ACKNOWLEDGED and call.kind == WROTE:
            key, _, text = json.loads(call.data)
            value = f"{key}-{text}x".encode()
            wrote = next(at for at, it in enumerate(calls[:number]) if it.kind == WROTE and value in it.data)
            assert any(it.kind == SYNCED and it.name == calls[wrote].name for it in calls[wrote:number])
