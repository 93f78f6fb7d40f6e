"""Backups and restores that are killed before each step that changes a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.stores.sqlite.backup import back_up
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.adapters.stores.sqlite.restore import restore

KILLED = """
import os, signal, sys
from pathlib import Path
from holdlog.adapters.stores.sqlite.backup import back_up
from holdlog.adapters.stores.sqlite.restore import restore

what, first, second, kill_at = sys.argv[1:]
steps = 0

def watch(event, arguments):
    global steps
    if event in ("open", "os.rename", "os.link", "os.remove", "sqlite3.connect"):
        if event == "open" and not str(arguments[0]).startswith(str(Path(first).parent)):
            return
        steps += 1
        if steps == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
if what == "backup":
    back_up(Path(first), Path(second), 1)
else:
    restore(Path(first), Path(second))
"""


def killed(what: str, first: Path, second: Path, step: int) -> bool:
    """Whether it was killed: it had that many steps."""
    line = [sys.executable, "-c", KILLED, what, str(first), str(second), str(step)]
    status = subprocess.run(line, timeout=60, check=False).returncode
    assert status in (0, -9)
    return status == -9


def write(path: Path, *values: int) -> None:
    with StateStore(path) as store:
        for value in values:
            store.set("n", "k", value, updated_by="ann")


def value(path: Path) -> object:
    with StateStore(path) as store:
        return store.get("n", "k").value


def sound(path: Path) -> bool:
    return not [it for it in examine(path) if it.level == "bad"]


@pytest.mark.check
def test_killed_backup_leaves_only_whole_backups_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    path, folder = tmp_path / "state.db", tmp_path / "backups"
    folder.mkdir(mode=0o700)
    write(path, 1)
    step = 1
    while killed("backup", path, folder, step):
        assert all(sound(it) for it in folder.glob("*.backup"))
        write(path, step)
        step += 1
    back_up(path, folder, 1)
    assert len(list(folder.iterdir())) == 1
    assert step > 10


@pytest.mark.check
def test_killed_restore_leaves_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    path, folder = tmp_path / "state.db", tmp_path / "backups"
    folder.mkdir(mode=0o700)
    write(path, 1)
    backup = Path(back_up(path, folder, 1).backup)
    write(path, 2)
    outcomes = []
    step = 1
    while killed("restore", path, backup, step):
        outcomes.append(value(path))
        assert sound(path)
        if outcomes[-1] == 1:
            (kept,) = tmp_path.glob("*.before-restore-*")
            assert value(kept) == 2
            write(path, 2)
            for left in tmp_path.glob("*.before-restore-*"):
                left.unlink()
        step += 1
    assert set(outcomes) == {1, 2}
    restore(path, backup)
    assert not list(tmp_path.glob("*.restoring*"))
    assert step > 10
