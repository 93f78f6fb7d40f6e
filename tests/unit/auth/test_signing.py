"""Checkpoints are signed with Ed25519; the keys are openssl's files, and openssl accepts the signatures."""

import shutil
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.auth.signing import PublicKey, SigningKey
from holdlog.domain.checkpoint import Checkpoint, CheckpointNote, parse_note
from holdlog.domain.refusals import InvalidError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
CHECKPOINT = Checkpoint("0b9fca2f-53a4-41f5-a1d8-9d02e5e0b9a0", 12, bytes(range(32)))


def openssl(*words: str | Path) -> str:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key; next to it the public one, `key.pub`."""
    path = tmp_path / "key"
    openssl("genpkey", "-algorithm", "ed25519", "-out", path)
    openssl("pkey", "-in", path, "-pubout", "-out", tmp_path / "key.pub")
    path.chmod(0o600)
    return path


def test_signed_checkpoint_is_accepted_with_the_public_key(key: Path) -> None:
    note = SigningKey(key, "--sign").signed(CHECKPOINT)
    PublicKey(key.with_suffix(".pub"), "--key").require_signed(parse_note(note.text))
    assert note.checkpoint == CHECKPOINT


def test_openssl_accepts_the_signature_of_the_text(key: Path, tmp_path: Path) -> None:
    note = SigningKey(key, "--sign").signed(CHECKPOINT)
    body, signature = tmp_path / "body", tmp_path / "signature"
    signature.write_bytes(note.signatures[0].signature)
    words = ("pkeyutl", "-verify", "-pubin", "-inkey", key.with_suffix(".pub"), "-rawin", "-in", body)
    body.write_text(CHECKPOINT.text)
    assert "Verified Successfully" in openssl(*words, "-sigfile", signature)
    body.write_text(CHECKPOINT.text.replace("12", "13"))
    assert "Verified Successfully" not in openssl(*words, "-sigfile", signature)


def test_checkpoint_with_another_text_is_refused(key: Path) -> None:
    signed = SigningKey(key, "--sign").signed(CHECKPOINT)
    changed = CheckpointNote(CHECKPOINT._replace(size=13), signed.signatures)
    with pytest.raises(InvalidError, match="does not match"):
        PublicKey(key.with_suffix(".pub"), "--key").require_signed(changed)


def test_checkpoint_without_a_signature_of_the_key_is_refused(key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    openssl("genpkey", "-algorithm", "ed25519", "-out", other)
    other.chmod(0o600)
    public = PublicKey(key.with_suffix(".pub"), "--key")
    for note in (CheckpointNote(CHECKPOINT), SigningKey(other, "--sign").signed(CHECKPOINT)):
        with pytest.raises(InvalidError, match="no signature of this key"):
            public.require_signed(note)
    both = SigningKey(other, "--sign").signed(CHECKPOINT).signatures + SigningKey(key, "").signed(CHECKPOINT).signatures
    public.require_signed(CheckpointNote(CHECKPOINT, both))


def test_private_key_that_others_can_read_is_refused(key: Path) -> None:
    key.chmod(0o640)
    with pytest.raises(InvalidError, match=f"^--sign: other users can read {key}; run: chmod 600 {key}$"):
        SigningKey(key, "--sign")


@pytest.mark.parametrize("content", [b"", b"not a key", b"\xff\xfe", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_file_that_is_no_key_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InvalidError, match=r"^--sign: .*is not a private Ed25519 key; to make one, run: openssl"):
        SigningKey(path, "--sign")
    with pytest.raises(InvalidError, match=r"^--key: .*is not a public Ed25519 key; to write one, run: openssl"):
        PublicKey(path, "--key")


def test_keys_of_other_kinds_are_refused(key: Path, tmp_path: Path) -> None:
    other, encrypted = tmp_path / "ec", tmp_path / "encrypted"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", other)
    openssl("pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", encrypted)
    for path in (other, encrypted):
        path.chmod(0o600)
    for path, problem in (
        (other, "is not a private Ed25519 key"),
        (encrypted, "is encrypted; pass a key without"),
        (key.with_suffix(".pub"), "is not a private Ed25519 key|other users can read"),
        (tmp_path / "missing", "cannot be read"),
        (tmp_path, "cannot be read"),
        (Path("a\0b"), "not a valid path"),
    ):
        with pytest.raises(InvalidError, match=problem):
            SigningKey(path, "--sign")
    with pytest.raises(InvalidError, match="is not a public Ed25519 key"):
        PublicKey(key, "--key")
