"""Backups and restores that are killed before each step that changes a file."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from holdlog.adapters.stores.sqlite.backup import back_up
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.adapters.stores.sqlite.restore import restore
from tests.support.backups import value, write

KILLED = """
import os, signal, sys
from itertools import count
from pathlib import Path
from holdlog.adapters.stores.sqlite.backup import back_up
from holdlog.adapters.stores.sqlite.restore import restore

what, first, second = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
steps = kill_at = 0

def watch(event, arguments):
    global steps
    is_step = event in ("open", "os.rename", "os.link", "os.remove", "sqlite3.connect")
    steps += is_step
    if is_step and steps == kill_at:  # the kill is an event, too
        os.kill(os.getpid(), signal.SIGKILL)

for kill_at in count(1):
    if (child := os.fork()) == 0:
        sys.addaudithook(watch)
        back_up(first, second, 1) if what == "backup" else restore(first, second)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.readline()
"""


def killed(what: str, first: Path, second: Path) -> Iterator[int]:
    """Run it again and again, killed before its first step, then before its second, until it was not killed."""
    line = [sys.executable, "-c", KILLED, what, str(first), str(second)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for step in count(1):
                status = int(process.stdout.readline())
                if status == 0:
                    return
                assert status == -9
                yield step
                process.stdin.write("\n")
                process.stdin.flush()
        finally:
            process.kill()


def sound(path: Path) -> bool:
    return not [it for it in examine(path) if it.level == "bad"]


@pytest.mark.check
def test_killed_backup_leaves_only_whole_backups_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    path, folder = tmp_path / "state.db", tmp_path / "backups"
    folder.mkdir(mode=0o700)
    write(path, 1)
    for step in killed("backup", path, folder):
        backups = sorted(folder.glob("*.backup"))
        assert all(sound(it) for it in backups)
        for extra in backups[2:]:  # or each run would have more to remove than the one before
            extra.unlink()
        write(path, step)
    assert step > 10
    back_up(path, folder, 1)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.check
def test_killed_restore_leaves_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    path, folder = tmp_path / "state.db", tmp_path / "backups"
    folder.mkdir(mode=0o700)
    write(path, 1)
    backup = Path(back_up(path, folder, 1).backup)
    write(path, 2)
    outcomes = []
    for _ in killed("restore", path, backup):
        outcomes.append(value(path))
        assert sound(path)
        if outcomes[-1] == 1:
            (kept,) = tmp_path.glob("*.before-restore-*")
            assert value(kept) == 2
            write(path, 2)
            for left in tmp_path.glob("*.before-restore-*"):
                left.unlink()
    assert set(outcomes) == {1, 2}
    restore(path, backup)
    assert not list(tmp_path.glob("*.restoring*"))
    assert len(outcomes) > 10
