"""Secrets come from a variable or from the file that a second one names, and stand in no message."""

from pathlib import Path

import pytest

from holdlog.adapters.cli.main import main
from holdlog.adapters.cli.settings import location_of
from holdlog.adapters.nats.options import nats_options
from holdlog.adapters.operating_system.secrets import LONGEST, secret
from holdlog.domain.refusals import InvalidError


def test_secret_in_a_variable_is_used_unchanged() -> None:
    assert secret({"HOLDLOG_X": " a b "}, "HOLDLOG_X") == " a b "
    assert secret({"HOLDLOG_X": ""}, "HOLDLOG_X") is None
    assert secret({}, "HOLDLOG_X") is None


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_secret_in_a_file_is_read_without_its_line_end(tmp_path: Path, end: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b" t\xc3\xb6ken " + end.encode())
    assert secret({"HOLDLOG_X_FILE": str(file)}, "HOLDLOG_X") == " töken "


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "one line"),
        (b"\n", "one line"),
        (b"SECRET\nSECRET\n", "one line"),
        (b"S" * (LONGEST + 1), "one line"),
        (b"SECRET\xff", "UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_unusable_secret_file_is_reported_in_one_line(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidError, match=says) as refusal:
        secret({"HOLDLOG_X_FILE": str(file)}, "HOLDLOG_X")
    assert "HOLDLOG_X_FILE" in str(refusal.value)
    assert "SECRET" not in str(refusal.value)


def test_secret_from_two_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="both set"):
        secret({"HOLDLOG_X": "a", "HOLDLOG_X_FILE": str(tmp_path / "b")}, "HOLDLOG_X")


def test_store_and_nats_token_may_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, token = tmp_path / "url", tmp_path / "token"
    url.write_text("postgresql://ann:SECRET@db/team\n")
    token.write_text("t0ken\n")
    monkeypatch.delenv("HOLDLOG_DB", raising=False)
    monkeypatch.setenv("HOLDLOG_DB_FILE", str(url))
    assert location_of(None) == "postgresql://ann:SECRET@db/team"
    url.write_text(f"{tmp_path}/state.db\n")
    assert location_of(None) == tmp_path / "state.db"
    assert location_of(str(tmp_path / "other.db")) == tmp_path / "other.db"
    assert nats_options("nats://one", {"HOLDLOG_NATS_TOKEN_FILE": str(token)}).token == "t0ken"


def test_missing_secret_file_of_a_command_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOLDLOG_DB", raising=False)
    monkeypatch.setenv("HOLDLOG_DB_FILE", str(tmp_path / "none"))
    assert main(["get", "n", "k"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "HOLDLOG_DB_FILE" in told.err


def test_missing_home_of_a_secret_file_is_reported_in_one_line() -> None:
    with pytest.raises(InvalidError, match="HOLDLOG_X_FILE: ~nobody-at-all/x cannot be read"):
        secret({"HOLDLOG_X_FILE": "~nobody-at-all/x"}, "HOLDLOG_X")
