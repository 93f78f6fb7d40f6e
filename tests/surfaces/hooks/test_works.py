"""Whose work the dirty files of a worktree are, in a real repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.dirty import dirty_worktree
from holdlog.adapters.hooks.ledger import ReaderLedger
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.works import NOBODY, Party, Sessions, works
from holdlog.adapters.operating_system.ancestry import host_process, is_running
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.sqlite.held import lease_file
from holdlog.domain.claims.commands import RecordFileChange
from holdlog.domain.claims.lease import BY_LEASE
from tests.unit.operating_system.test_workspaces import repository


class Sides:
    """A repository with files, and the sessions of ann and bob on its store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("src/a.py", "src/b.py", "c.py"):
            self.write(name, "x = 1\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        self.store = root / ".git" / "holdlog" / "state.db"
        self.files = HookFiles(self.store)
        self.engines = {name: self._open(name) for name in ("ann", "bob")}

    def _open(self, name: str) -> Engine:
        engine = open_holdlog(self.store, Settings(workspaces=None), SessionId("hook", name))
        engine.kept_by = BY_LEASE
        return engine

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def hold(self, agent: str, resource: str) -> None:
        engine = self.engines[agent]
        engine.claim(engine.requests.claims.claim(resource, agent), engine.caller)

    def change(self, agent: str, name: str, text: str) -> None:
        from hashlib import sha256

        self.write(name, text)
        engine = self.engines[agent]
        command = RecordFileChange(resource=name, agent=agent, sha256=sha256(text.encode()).hexdigest())
        engine.writer.run(command, engine.caller)

    def session(self, agent: str) -> str:
        session = self.engines[agent].caller.session
        assert session is not None
        return session

    def works(self, agent: str | None = "bob") -> dict[str, tuple[str, bool, bool]]:
        """Agent, whether it holds, and whether it is live, by path; the same from the file and from the open store."""
        party = NOBODY if agent is None else Party(frozenset({self.session(agent)}), agent)
        worktree = dirty_worktree(str(self.root))
        assert worktree is not None
        with lease_file(self.store) as ledger:

            def names(path: str) -> list[str]:
                return [path.removeprefix(f"{self.root}/")]

            found = works(ledger, names, Sessions(self.files), party, worktree)
            opened = works(ReaderLedger(self.engines["ann"]), names, Sessions(self.files), party, worktree)
        assert [it._replace(seconds=0) for it in found] == [it._replace(seconds=0) for it in opened]
        return {os.path.relpath(it.path, self.root): (it.agent, it.holds, it.is_live) for it in found}


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sides:
    root = repository(tmp_path / "repo")
    monkeypatch.chdir(root)
    return Sides(root)


def test_dirty_file_belongs_to_the_session_that_holds_it_or_changed_it_last(sides: Sides) -> None:
    sides.change("ann", "src/a.py", "x = 2\n")
    sides.hold("ann", "src/b.py")
    assert sides.works() == {"src/a.py": ("ann", False, True)}  # src/b.py is clean
    sides.write("src/b.py", "x = 3\n")
    assert sides.works() == {"src/a.py": ("ann", False, True), "src/b.py": ("ann", True, True)}
    assert sides.works("ann") == {}
    assert sides.works(None).keys() == {"src/a.py", "src/b.py"}
    sides.change("bob", "src/a.py", "x = 4\n")
    assert sides.works().keys() == {"src/b.py"}


def test_file_that_nobody_recorded_belongs_to_nobody(sides: Sides) -> None:
    sides.write("src/a.py", "x = 2\n")
    sides.write("new.py", "x = 2\n")
    assert sides.works() == {}


def test_folder_claim_covers_dirty_files_below_it(sides: Sides) -> None:
    sides.hold("ann", "src/")
    sides.write("src/a.py", "x = 2\n")
    sides.write("src/deep/new.py", "x = 2\n")
    sides.write("c.py", "x = 2\n")
    assert sides.works() == {"src/a.py": ("ann", True, True), "src/deep": ("ann", True, True)}


def test_untracked_folder_names_the_files_of_others_in_it(sides: Sides) -> None:
    sides.change("ann", "new/deep/a.py", "x = 2\n")
    sides.write("new/b.py", "x = 2\n")
    sides.write("new/held.py", "x = 2\n")
    sides.hold("ann", "new/held.py")
    sides.change("ann", "new/gone.py", "x = 2\n")
    (sides.root / "new/gone.py").unlink()
    assert sides.works() == {"new/deep/a.py": ("ann", False, True), "new/held.py": ("ann", True, True)}


def test_change_that_is_committed_is_not_the_work_of_who_made_it(sides: Sides) -> None:
    sides.change("ann", "src/a.py", "x = 2\n")
    sides.git("commit", "-qam", "second")
    sides.write("src/a.py", "x = 3\n")  # a person
    assert sides.works() == {}
    sides.change("ann", "src/a.py", "x = 4\n")
    assert sides.works().keys() == {"src/a.py"}


def test_session_is_live_while_its_host_runs(sides: Sides) -> None:
    sides.change("ann", "src/a.py", "x = 2\n")
    with subprocess.Popen(["sleep", "60"]) as other:
        host = host_process(os.getpid())
        assert host is not None
        started = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        process = host._replace(pid=other.pid, started=started)
        with sides.files.change(sides.session("ann")) as notes:
            notes.names[""] = "ann"
            notes.host = process
        assert sides.works() == {"src/a.py": ("ann", False, True)}
        other.kill()
    assert sides.works() == {"src/a.py": ("ann", False, False)}


def test_process_of_an_earlier_boot_or_with_a_reused_pid_does_not_run() -> None:
    host = host_process(os.getpid())
    assert host is not None
    assert is_running(host)
    assert not is_running(host._replace(started="1"))
    assert not is_running(host._replace(boot="another"))
    assert is_running(host._replace(visible="another")) is None


def test_claim_of_a_command_in_a_shell_is_live_without_a_process(sides: Sides) -> None:
    command = [sys.executable, "-m", "holdlog", "claim", "src/a.py", "--agent", "carl"]
    subprocess.run(command, cwd=sides.root, check=True, capture_output=True)
    sides.write("src/a.py", "x = 2\n")
    assert sides.works() == {"src/a.py": ("carl", True, True)}


def test_session_that_has_ended_is_not_live(sides: Sides) -> None:
    sides.change("ann", "src/a.py", "x = 2\n")
    with sides.files.change(sides.session("ann")) as notes:
        notes.ended = ["*"]
    assert sides.works() == {"src/a.py": ("ann", False, False)}
