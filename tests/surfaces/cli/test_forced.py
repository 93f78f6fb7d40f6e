"""A write that overwrote a value by force is shown as such wherever its event is shown, and no other write is."""

from pathlib import Path

import pytest

from holdlog.domain.envelope import Envelope
from holdlog.domain.message import Caller
from tests.support.command_line import run_command


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("log --last 1", "(overwrote v2 by force)"),
        ("log --last 1 --json", '"forced":true'),
        ("history n k", "(overwrote v2 by force)"),
        ("blame n k", "  overwrote v2 by force"),
        ("timeline n k", "overwrote or deleted one by force"),
        ("timeline n k --json", '"forced": true'),
        ("replay", "(overwrote v2 by force)"),
        ("export", '"forced":true'),
        ("diff n k v2 v3", ""),
    ],
)
def test_forced_overwrite_is_visible_wherever_its_event_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, shown: str
) -> None:
    db = f"--db={tmp_path / 'state.db'}"
    for given in ("set n k 1 --force --by ann", "set n k 2 --version 1 --by ann", "set n k 3 --force --by bob"):
        assert run_command(capsys, *given.split(), db)[0] == 0
    _, out, _ = run_command(capsys, *words.split(), db)
    assert shown in out
    assert out.count("v2 by force") <= 1
    assert "v0 by force" not in out


def test_write_that_created_its_key_is_never_called_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = f"--db={tmp_path / 'state.db'}"
    for given in ("set n k 1 --force", "delete n k --version 1", "set n k 2 --force", "update n m --increment 1"):
        assert run_command(capsys, *given.split(), db)[0] == 0
    for words in ("log", "log --json", "history n k", "blame n k", "timeline n k", "export --include-deleted"):
        assert "force" not in run_command(capsys, *words.split(), db)[1], words


def test_first_version_is_not_forced_where_an_earlier_build_recorded_it_so() -> None:
    first = Envelope(1, "record:n/k", 1, "ValueWritten", 0, Caller(), b"", forced=True)
    assert [first.is_forced, first._replace(version=2).is_forced] == [False, True]
