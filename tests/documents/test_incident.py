"""A staged incident, and the eight questions of docs/duty.md about it: each answered by the command of its section."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from holdlog.adapters.stores.event_log.tree import checkpoint_of
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim
from holdlog.domain.message import Caller
from holdlog.domain.times import microseconds
from tests.support.clock import Clock
from tests.support.command_line import run_command
from tests.support.commands import change, put, run
from tests.support.kinds import InFile

DAY: Final = datetime.now(UTC).date() - timedelta(days=1)
BEGIN: Final = datetime(DAY.year, DAY.month, DAY.day, 14, tzinfo=UTC)
VERIFIER: Final = Path(__file__).parents[2] / "docs" / "verify_evidence.py"
SECRET: Final = "AKIA-not-really-a-key"

Ask = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store in which, at 14:03, an optimizer overwrote a budget that a planner had just set; and
    checkpoints from before and after it."""
    clock = Clock(now=microseconds(BEGIN))
    with closing(open_sqlite(tmp_path / "state.db", clock, clock.steady)) as store:
        change(store, put("budget", {"eur": 10_000}, 0, "campaign"), by="planner", caller=Caller(session="session-p"))
        clock.pass_by(60)
        run(store, AcquireClaim(resource="src/parser.py", agent="ann", note="renaming"), Caller(session="session-a"))
        clock.pass_by(60)
        change(store, put("token", SECRET, 0, "config"), by="ann")
        (tmp_path / "monday.txt").write_text(checkpoint_of(store).text)
        clock.pass_by(60)
        optimizer = Caller(session="session-o", reason="spend less")
        change(store, put("budget", {"eur": 500}, None, "campaign"), by="optimizer", caller=optimizer)
        clock.pass_by(120)
        run(store, ReleaseClaim(resource="src/parser.py", agent="ann"), Caller(session="session-a"))
        run(store, AcquireClaim(resource="src/parser.py", agent="ben"), Caller(session="session-b"))
        (tmp_path / "tuesday.txt").write_text(checkpoint_of(store).text)
    return tmp_path


@pytest.fixture
def ask(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command in the folder of the store; returns what it prints."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOLDLOG_DB", "state.db")
    monkeypatch.setenv("TZ", "UTC")

    def asked(*words: str, code: int = 0) -> str:
        found, out, err = run_command(capsys, *words)
        assert found == code, err
        return out

    return asked


def at(minute: int) -> str:
    return f"{DAY} 14:{minute:02}Z"


def test_1_who_overwrote_the_budget_and_when(ask: Ask) -> None:
    found = ask("blame", "campaign", "budget")
    assert "optimizer" in found
    assert f"{DAY} 14:03:00" in found


def test_2_based_on_what(ask: Ask) -> None:
    assert "overwrote v1 by force" in ask("blame", "campaign", "budget")
    changed = ask("diff", "campaign", "budget", "v1", "v2")
    assert "10000" in changed
    assert "500" in changed


def test_3_who_held_the_file_then(ask: Ask) -> None:
    held = json.loads(ask("history", "src/parser.py", "--json", "--since", at(3), "--until", at(4)))
    assert [it["held_by"] for it in held["holds"]] == ["ann"]
    assert "ann" in ask("at", at(3), "status", "src/parser.py")
    assert "ben" in ask("history", "src/parser.py")


def test_4_what_was_the_state_of_everything(ask: Ask) -> None:
    assert json.loads(ask("at", at(2), "get", "campaign", "budget")) == {"eur": 10_000}
    assert json.loads(ask("at", at(3), "get", "campaign", "budget")) == {"eur": 500}
    assert "src/parser.py" in ask("at", at(2))


def test_5_was_the_log_changed(ask: Ask, folder: Path) -> None:
    words = ("verify", "--checkpoint", "monday.txt")
    assert ask(*words).splitlines()[-1].endswith("consistent; unchanged up to position 3")
    InFile(folder / "state.db").doctored("UPDATE stored_events SET principal = 'eve' WHERE rowid = 2")
    assert "the first event that differs is at position 2" in ask(*words, code=1).splitlines()[-1]


def test_6_get_a_leaked_key_out_of_it(ask: Ask, folder: Path) -> None:
    assert SECRET in ask("history", "config", "token")
    ask("redact", "config", "token@1", "--reason", "contained a key")
    assert SECRET not in ask("history", "config", "token")
    assert ask("verify", "--checkpoint", "monday.txt").splitlines()[-1].endswith("unchanged up to position 3")
    left = [path.name for path in folder.iterdir() if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert left == []


@pytest.mark.parametrize("with_values", [True, False])
def test_7_hand_over_the_evidence(ask: Ask, folder: Path, with_values: bool) -> None:
    words = [] if with_values else ["--without-values"]
    ask("evidence", "--from", at(0), "--to", at(10), "-o", "case.zip", "--checkpoint", "tuesday.txt", *words)
    done = subprocess.run(
        [sys.executable, "-I", "-S", VERIFIER, "case.zip", "--checkpoint", "tuesday.txt"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout[:35]) == (0, "proven: all events from position 1 "), done.stdout


def test_8_back_up_and_restore(ask: Ask, folder: Path) -> None:
    (folder / "backups").mkdir(mode=0o700)
    ask("backup", "backups", "--keep", "7")
    (backup,) = (folder / "backups").glob("*.backup")
    ask("set", "campaign", "budget", "1", "--force", "--by", "eve")
    assert "lost: 1 event" in ask("restore", str(backup))
    assert json.loads(ask("get", "campaign", "budget")) == {"eur": 500}
    assert ask("verify", "--checkpoint", "monday.txt").splitlines()[-1].endswith("unchanged up to position 3")
