"""A store belongs to one user: links next to it, files of other users and files open to others are refused."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog import StateStore, StoreError
from holdlog.adapters.compose import open_lead
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.operating_system.presence import connected
from holdlog.adapters.stores.sqlite.doctor import examine
from tests.processes.conftest import Start

STRANGER = 12_345
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
SIDES = (".gate", ".bells", ".sessions", ".spaces", "-wal", "-shm")


def side(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def make(path: Path, suffix: str) -> Path:
    """A file or folder of this name that only its owner may reach."""
    made = side(path, suffix)
    if suffix in (".bells", ".sessions", ".spaces"):
        made.mkdir(0o700)
    else:
        made.touch(0o600)
    return made


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as refused:
        StateStore(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def modes(folder: Path) -> dict[str, int]:
    return {str(it.relative_to(folder)): stat.S_IMODE(it.lstat().st_mode) for it in folder.rglob("*")}


@pytest.mark.parametrize("suffix", SIDES)
def test_symbolic_link_in_place_of_a_side_file_is_refused(path: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "s-1.json").write_text("{}")
    side(path, suffix).symlink_to(target)
    assert refusal(path) == f"{side(path, suffix)} is a symbolic link, which holdlog does not follow; remove it"
    assert [it.name for it in target.iterdir()] == ["s-1.json"]
    assert not path.exists()


@pytest.mark.parametrize("suffix", [".sessions", ".bells"])
def test_link_planted_next_to_a_store_in_use_is_not_followed(path: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    names = ("s-1.json", "4026531840-9", "s-2.0123.json")
    for name in names:
        (target / name).write_text("precious")
    with StateStore(path) as store:
        side(path, suffix).symlink_to(target)
        assert connected(path) == []
        examine(path)
        if suffix == ".sessions":
            with pytest.raises(StoreError, match="symbolic link"):
                store.claim("src/a.py", agent="ann")
        else:
            store.claim("src/a.py", agent="ann")
            assert store.wait("src/a.py", 0.2).status == "timeout"
        store.set("n", "k", 1, updated_by="ann")
    assert {it.name: it.read_text() for it in target.iterdir()} == dict.fromkeys(names, "precious")


def test_link_in_place_of_the_relay_lock_is_refused(path: Path, tmp_path: Path) -> None:
    options = NatsOptions(("nats://127.0.0.1:4222",))
    lead = open_lead(path, options)
    target = tmp_path / "target"
    target.write_text("")
    side(path, f".relay-{options.target:08x}").symlink_to(target)
    with pytest.raises(StoreError, match="symbolic link"):
        lead.take()


@AS_ROOT
@pytest.mark.parametrize("suffix", ["", *SIDES])
def test_file_created_beforehand_by_another_user_is_refused(path: Path, suffix: str) -> None:
    if suffix != "-wal":
        StateStore(path).close()
    found = side(path, suffix)
    if not found.exists():
        make(path, suffix)
    os.chown(found, STRANGER, STRANGER)
    line = refusal(path)
    assert f"{found} belongs to another user (uid {STRANGER}; you are uid 0)" in line
    assert f"chown -R 0 {found} && chmod -R go-rwx {found}" in line


@AS_ROOT
def test_commands_of_the_refusal_make_the_store_usable(path: Path) -> None:
    with StateStore(path) as store:
        store.set("n", "k", 1, updated_by="ann")
        store.claim("src/a.py", agent="ann")
    for found in path.parent.iterdir():
        os.chown(found, STRANGER, STRANGER)
        found.chmod(0o777)
    subprocess.run(refusal(path).rpartition("run: ")[2], shell=True, check=True)
    with StateStore(path) as store:
        assert store.get("n", "k").value == 1
        store.claim("src/b.py", agent="ann")


@AS_ROOT
def test_folder_of_another_user_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    folder = tmp_path / "holdlog"
    folder.mkdir(0o777)
    os.chown(folder, STRANGER, STRANGER)
    assert "belongs to another user" in refusal(folder / "state.db")
    assert not list(folder.iterdir())


def test_world_writable_folder_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    line = refusal(folder / "state.db")
    assert "can be written by every user (mode 0777)" in line
    assert f"chown {os.geteuid()} {folder} && chmod go-w {folder}" in line
    assert not list(folder.iterdir())
    folder.chmod(0o1777)  # as /tmp
    StateStore(folder / "state.db").close()


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o2770])
def test_holdlog_folder_made_by_hand_may_have_any_usual_mode(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / ".holdlog"
    folder.mkdir()
    folder.chmod(mode)
    with StateStore(folder / "state.db") as store:
        assert store.set("n", "k", 1, updated_by="ann").version == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
@pytest.mark.parametrize("suffix", ["", ".gate", ".sessions"])
def test_store_that_others_may_read_or_write_is_refused(path: Path, suffix: str, mode: int) -> None:
    with StateStore(path) as store:
        store.claim("src/a.py", agent="ann")
    found = side(path, suffix)
    mode |= 0o100 if found.is_dir() else 0
    found.chmod(mode)
    line = refusal(path)
    commands = f"chown -R {os.geteuid()} {found} && chmod -R go-rwx {found}"
    assert line == f"{found} is open to other users (mode {mode:04o}); run: {commands}"
    assert stat.S_IMODE(found.stat().st_mode) == mode


def test_file_that_is_not_a_store_is_reported_as_such_with_any_mode(path: Path) -> None:
    path.write_text("dear diary\n" * 100)
    path.chmod(0o644)
    assert "not a SQLite file" in refusal(path)


@pytest.mark.check
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o177, 0o777])
def test_files_of_holdlog_are_private_under_any_umask(tmp_path: Path, umask: int, start: Start) -> None:
    path = tmp_path / "holdlog" / "state.db"
    worker = start("with_umask", path, umask)
    assert worker.hear().get("error") is None
    found = modes(tmp_path)
    assert {"holdlog", "holdlog/state.db", "holdlog/state.db-wal", "holdlog/state.db-shm"} <= set(found)
    assert {"holdlog/state.db.gate", "holdlog/state.db.sessions", "holdlog/state.db.bells"} <= set(found)
    for name, mode in found.items():
        assert mode == (0o700 if (tmp_path / name).is_dir() else 0o600), name
    worker.tell()
    worker.rest()


def test_doctor_reports_what_opening_refuses(path: Path) -> None:
    StateStore(path).close()
    assert {it.name: it.level for it in examine(path)}["permissions"] == "ok"
    path.chmod(0o644)
    found = {it.name: it for it in examine(path)}["permissions"]
    assert found.level == "bad"
    assert f"chmod -R go-rwx {path}" in found.text


def test_command_line_names_the_repair_commands_in_one_line(path: Path) -> None:
    StateStore(path).close()
    path.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-m", "holdlog", "--db", path, "set", "n", "k", "1", "--version", "0", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "chmod -R go-rwx" in done.stderr


@AS_ROOT
def test_folder_of_spaces_owned_by_another_user_is_refused(path: Path) -> None:
    StateStore(path).close()
    spaces = make(path, ".spaces")
    os.chown(spaces, STRANGER, STRANGER)
    assert "belongs to another user" in refusal(path)
    assert "belongs to another user" in refusal(spaces / "team.db")


def test_presence_files_stay_readable_for_their_owner(path: Path) -> None:
    with StateStore(path) as store:
        store.claim("src/a.py", agent="ann")
        [found] = side(path, ".sessions").iterdir()
        assert json.loads(found.read_text())["pid"] == os.getpid()
