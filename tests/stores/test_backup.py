"""Backups of a store in use, restores, and processes whose file was replaced."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdlog import StateStore, StoreError, UnavailableError
from holdlog.adapters.cli.main import main
from holdlog.adapters.stores.sqlite.backup import BackupReport, back_up
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.adapters.stores.sqlite.restore import restore
from holdlog.domain.refusals import ReplacedError
from tests.support.backups import value, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir(mode=0o700)
    return folder


def names(folder: Path) -> list[str]:
    """Without SQLite's files, which a reader may leave."""
    return sorted(it.name for it in folder.iterdir() if not it.name.endswith(("-wal", "-shm")))


def backed_up(path: Path, folder: Path, *values: int) -> BackupReport:
    write(path, *values)
    return back_up(path, folder, 7)


def test_backup_of_a_store_in_use_is_one_private_sound_file(path: Path, folder: Path) -> None:
    with StateStore(path) as store:
        store.set("n", "k", 1, updated_by="ann")
        report = back_up(path, folder, 7)
        assert path.with_name("state.db-wal").stat().st_size > 0
    assert names(folder) == [Path(report.backup).name]
    assert f"-{report.position}.backup" in report.backup
    assert stat.S_IMODE(os.stat(report.backup).st_mode) == 0o600
    assert {it.name for it in examine(Path(report.backup)) if it.level == "bad"} == set()


def test_writers_continue_while_a_backup_is_made(path: Path, folder: Path) -> None:
    write(path, *range(300))
    with StateStore(path) as store:
        written: list[int] = []

        def write_once(done: int, total: int) -> None:
            if not written:
                written.append(store.set("n", "k", "later", updated_by="ann").version)

        report = back_up(path, folder, 7, write_once)
    assert written == [301]
    assert report.position == 300
    assert value(Path(report.backup)) == 299


def test_keep_removes_the_oldest_backups_of_the_same_store_alone(path: Path, folder: Path, tmp_path: Path) -> None:
    reports = [backed_up(path, folder, number) for number in range(3)]
    other = backed_up(tmp_path / "other.db", folder, 1)
    looks_alike = folder / Path(reports[0].backup).name.replace("-1.backup", "-99.backup")
    shutil.copy(reports[0].backup, looks_alike)
    link = folder / Path(reports[0].backup).name.replace("-1.backup", "-98.backup")
    link.symlink_to(reports[0].backup)
    write(path, 3)
    newest = back_up(path, folder, 2)
    assert newest.removed == [it.backup for it in reports[:2]]
    kept = [reports[2].backup, newest.backup, other.backup, str(looks_alike), str(link)]
    assert names(folder) == sorted(Path(it).name for it in kept)


def test_missing_folder_is_reported_with_how_to_create_it(path: Path, tmp_path: Path) -> None:
    write(path, 1)
    with pytest.raises(StoreError, match="is not a folder; create it first"):
        back_up(path, tmp_path / "missing", 7)


def test_links_planted_in_the_folder_are_not_followed(path: Path, folder: Path, tmp_path: Path) -> None:
    report = backed_up(path, folder, 1)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    stem = f"holdlog-{report.store_id[:8]}"
    for name in ("partial", "partial-wal", "partial-journal", "lock"):
        planted = folder / f"{stem}.{name}"
        planted.symlink_to(victim)
        with suppress(StoreError, UnavailableError):
            back_up(path, folder, 7)
        planted.unlink(missing_ok=True)
    assert victim.read_text() == "mine"


LIMITED = """
import resource, signal, sys
from holdlog.adapters.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_full_disk_is_one_line_and_leaves_everything_as_before(path: Path, folder: Path, command: str) -> None:
    report = backed_up(path, folder, 1)
    write(path, 2)
    before = names(folder), names(path.parent)
    target = str(folder) if command == "backup" else report.backup
    line = [sys.executable, "-c", LIMITED, command, target, "--db", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("holdlog: ")
    assert done.stderr.count("\n") == 1
    assert (names(folder), names(path.parent)) == before
    assert value(path) == 2


def test_two_backups_of_one_store_to_one_folder_exclude_each_other(path: Path, folder: Path) -> None:
    write(path, 1)
    refused: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(UnavailableError, match="another backup of this store") as caught:
            back_up(path, folder, 7)
        refused.append(str(caught.value))

    back_up(path, folder, 7, meanwhile)
    assert refused
    assert len(names(folder)) == 1


def test_restore_keeps_the_replaced_store_and_counts_what_is_lost(path: Path, folder: Path) -> None:
    report = backed_up(path, folder, 1)
    write(path, 2, 3)
    path.with_name("state.db.views").write_bytes(b"read models of the replaced log")
    done = restore(path, Path(report.backup))
    assert (done.position, tuple(done.lost), done.same_store) == (1, (2, 2, 3), True)
    assert done.kept is not None
    assert value(path) == 1
    assert value(Path(done.kept)) == 3
    assert not path.with_name("state.db.views").exists()
    assert {it.name for it in examine(path) if it.level == "bad"} == set()


def test_restore_counts_events_that_differ_at_the_same_position(path: Path, folder: Path) -> None:
    report = backed_up(path, folder, 1)
    write(path, 2)
    later = back_up(path, folder, 7)
    restore(path, Path(report.backup))
    write(path, 22, 33)
    done = restore(path, Path(later.backup))
    assert tuple(done.lost) == (2, 2, 3)
    assert value(path) == 2


def test_restore_creates_a_store_that_is_missing(path: Path, folder: Path) -> None:
    report = backed_up(path, folder, 1)
    path.unlink()
    path.with_name("state.db-wal").write_bytes(b"of a store that is gone")
    assert restore(path, Path(report.backup)).kept is None
    assert value(path) == 1


def test_backup_of_another_store_is_restored_and_named_as_such(path: Path, folder: Path, tmp_path: Path) -> None:
    report = backed_up(tmp_path / "other.db", folder, 1)
    write(path, 2, 3)
    done = restore(path, Path(report.backup))
    assert not done.same_store
    assert done.lost.events == 2


@pytest.mark.parametrize("how", ["claim", "read"])
def test_restore_refuses_while_a_process_uses_the_store(path: Path, folder: Path, how: str) -> None:
    report = backed_up(path, folder, 1)
    with StateStore(path) as store:
        store.claim("file.py", agent="ann") if how == "claim" else store.get("n", "k")
        with pytest.raises(UnavailableError, match="stop all of its processes"):
            restore(path, Path(report.backup))
        assert store.set("n", "k", 2, updated_by="ann").version == 2
    assert value(path) == 2
    assert not list(path.parent.glob("*restor*"))


def damage(backup: Path) -> None:
    with closing(sqlite3.connect(backup, isolation_level=None)) as connection:
        connection.execute("UPDATE stored_events SET digest = zeroblob(32) WHERE rowid = 1")


@pytest.mark.parametrize("what", ["digest", "text", "cut", "missing", "folder", "itself"])
def test_backup_that_is_not_sound_is_not_restored(path: Path, folder: Path, what: str) -> None:
    backup = Path(backed_up(path, folder, *range(20)).backup)
    match what:
        case "digest":
            damage(backup)
        case "text":
            backup.write_text("dear diary\n" * 1000)
        case "cut":
            os.truncate(backup, backup.stat().st_size // 2)
        case "missing":
            backup.unlink()
        case "folder":
            backup = folder
        case "itself":
            backup = path
    with pytest.raises((StoreError, UnavailableError)) as caught:
        restore(path, backup)
    assert "\n" not in str(caught.value)
    assert value(path) == 19
    assert not list(path.parent.glob("*restor*"))


def test_store_that_cannot_be_read_must_be_moved_away_first(path: Path, folder: Path) -> None:
    report = backed_up(path, folder, 1)
    path.write_text("dear diary\n" * 1000)
    with pytest.raises(StoreError, match="move it away, then restore"):
        restore(path, Path(report.backup))
    assert path.read_text().startswith("dear diary")


def replaced(path: Path, folder: Path) -> None:
    """As by `cp` to a new file and `mv`, under running processes."""
    report = back_up(path, folder, 7)
    os.replace(report.backup, path)


def test_process_whose_file_was_replaced_refuses_reads_and_writes(path: Path, folder: Path) -> None:
    with StateStore(path) as store:
        store.set("n", "k", 1, updated_by="ann")
        assert store.get("n", "k").value == 1
        replaced(path, folder)
        with pytest.raises(ReplacedError, match="restart this process"):
            store.get("n", "k")
        with pytest.raises(ReplacedError, match="restart this process"):
            store.set("n", "k", 2, updated_by="ann")


def test_wait_in_a_process_whose_file_was_replaced_ends_with_the_error(path: Path, folder: Path) -> None:
    with StateStore(path) as store:
        store.set("n", "k", 1, updated_by="ann")
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                store.watch("n", "k", 1, timeout_seconds=30)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        replaced(path, folder)
        thread.join(20)
    assert [type(it) for it in raised] == [ReplacedError]


def test_doctor_names_processes_that_have_a_replaced_file_open(path: Path, folder: Path) -> None:
    with StateStore(path) as store:
        store.claim("file.py", agent="ann")
        assert [it.level for it in examine(path) if it.name == "connected"] == ["ok"]
        replaced(path, folder)
        (found,) = [it for it in examine(path) if it.name == "connected"]
        assert found.level == "bad"
        assert f"restart: python, process {os.getpid()}" in found.text


def test_commands_print_what_scripts_need(path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(path, 1)
    assert main(["backup", str(folder), "--db", str(path), "--json"]) == 0
    backup = json.loads(capsys.readouterr().out)
    write(path, 2)
    assert main(["restore", backup["backup"], "--db", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "restored up to position 1, verified with all digests" in printed
    assert f"{path}.before-restore-" in printed
    assert "lost: 1 event that the backup lacks, position 2" in printed


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_postgresql_is_referred_to_its_own_tools(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "somewhere", "--db", "postgresql://ann@db.example/team"]) == 2
    assert "for PostgreSQL use pg_dump" in capsys.readouterr().err
