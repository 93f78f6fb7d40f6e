"""`holdlog checkpoint` and `holdlog verify`, and checkpoints that a server hands over."""

import json
import subprocess
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.domain.checkpoint import CheckpointNote, parse_note
from tests.support.command_line import run_command
from tests.support.commands import until
from tests.support.http import http_server


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "state.db")
    write(path, 1)
    return path


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """A private and a public key."""
    pytest.importorskip("cryptography")
    private, public = str(tmp_path / "key.pem"), str(tmp_path / "public.pem")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    Path(private).chmod(0o600)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    return private, public


def write(db: str, value: int) -> None:
    with StateStore(db) as store:
        store.set("n", "k", value, updated_by="ann")


def kept(path: Path) -> list[CheckpointNote]:
    """The checkpoints in a file to which `cat` appended them, each followed by a line `--`."""
    return [parse_note(text) for text in path.read_text().split("--\n") if text] if path.exists() else []


def test_checkpoint_verifies_later_and_shows_a_change(
    db: str, keys: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private, public = keys
    code, note, err = run_command(capsys, "checkpoint", "--db", db, "--sign", private)
    assert (code, err, parse_note(note).checkpoint.size) == (0, "", 1)
    (file := tmp_path / "kept.txt").write_text(note)
    write(db, 2)
    code, out, _ = run_command(capsys, "verify", "--db", db, "--checkpoint", str(file), "--key", public)
    assert (code, out.splitlines()[-1]) == (0, "✓ consistent; unchanged up to position 1")
    other = parse_note(note).checkpoint._replace(root=bytes(32))
    file.write_text(other.text)
    code, out, _ = run_command(capsys, "verify", "--db", db, "--checkpoint", str(file))
    assert (code, out.splitlines()[-1]) == (1, "✗ consistent, but not as in the checkpoint; not proven unchanged")
    code, out, err = run_command(capsys, "verify", "--db", db, "--checkpoint", str(file), "--key", public)
    assert (code, out) == (2, "")
    assert err == f"holdlog: --checkpoint: {file}: has no signature of this key\n"


def test_verdict_and_checkpoint_are_json(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run_command(capsys, "checkpoint", "--db", db, "--json")
    found = json.loads(out)
    assert list(found) == ["origin", "size", "root", "note"]
    assert parse_note(found["note"]).checkpoint.root.hex() == found["root"]
    code, out, _ = run_command(capsys, "verify", "--db", db, "--json")
    verdict = json.loads(out)
    assert code == 0
    assert [verdict[it] for it in ("consistent", "unchanged_to", "position")] == [True, 0, None]
    assert {it["name"] for it in verdict["findings"]} >= {"digests", "tree", "redactions", "views"}


def test_signature_that_is_not_checked_is_mentioned(
    db: str, keys: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "kept.txt").write_text(run_command(capsys, "checkpoint", "--db", db, "--sign", keys[0])[1])
    code, _, err = run_command(capsys, "verify", "--db", db, "--checkpoint", str(file))
    assert (code, err) == (0, f"holdlog: the signature of {file} is not checked; pass --key\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verify", "--key", "public.pem"], "--key: requires --checkpoint"),
        (["verify", "--checkpoint", "none.txt"], "--checkpoint: none.txt cannot be read (No such file or directory)"),
        (["checkpoint", "--sign", "none.pem"], "--sign: none.pem cannot be read (No such file or directory)"),
    ],
)
def test_wrong_files_are_refused_in_one_line(
    words: list[str], line: str, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(capsys, *words, "--db", db) == (2, "", f"holdlog: {line}\n")


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"a\nb\nc\n", b"a\n1\nAAAA\n", b"{}\n"])
def test_file_that_is_no_checkpoint_is_refused_in_one_line(
    content: bytes, db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "wrong.txt").write_bytes(content)
    code, out, err = run_command(capsys, "verify", "--db", db, "--checkpoint", str(file))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"holdlog: --checkpoint: {file}")


@pytest.mark.parametrize("command", ["checkpoint", "verify"])
def test_missing_store_is_not_created(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, command, "--db", str(tmp_path / "none.db"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_anchor_command_gets_the_checkpoint(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"cat > {tmp_path / 'kept.txt'}"
    _, note, _ = run_command(capsys, "checkpoint", "--db", db, "--anchor-command", command)
    assert (tmp_path / "kept.txt").read_text() == note


def test_failed_anchor_command_fails_the_checkpoint(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "checkpoint", "--db", db, "--anchor-command", "exit 3")
    assert (code, out, err) == (1, "", "holdlog: the anchor command failed with exit code 3\n")


@pytest.mark.check
def test_server_hands_over_signed_checkpoints_at_intervals_and_at_its_end(
    db: str, keys: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "kept.txt"
    options = ("--sign", keys[0], "--anchor-command", f"cat >> {file}; echo -- >> {file}", "--anchor-every-seconds")
    with http_server(db, *options, "1") as server:
        until(lambda: len(kept(file)) == 1)
        write(db, 2)
        until(lambda: len(kept(file)) == 2)
        assert server.stop() == 0
    with http_server(db, *options, "86400") as server:
        until(lambda: len(kept(file)) == 3)
        write(db, 3)
        assert server.stop() == 0
    notes = kept(file)
    assert [it.checkpoint.size for it in notes] == [1, 2, 2, 3]
    assert all(it.signatures for it in notes)


def test_server_with_a_key_and_no_command_does_not_start(
    db: str, keys: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_command(capsys, "serve", "--transport", "http", "--port", "0", "--db", db, "--sign", keys[0])
    assert (code, err) == (
        2,
        "holdlog: --sign: requires --anchor-command; to print one checkpoint, use holdlog checkpoint\n",
    )


@pytest.mark.check
def test_failing_anchor_command_is_logged_and_the_server_continues(db: str) -> None:
    with http_server(db, "--anchor-command", "exit 7") as server:
        assert server.stop() == 0
    assert "no checkpoint was kept: the anchor command failed with exit code 7" in "\n".join(server.said)
