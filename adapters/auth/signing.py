"""Signs checkpoints with Ed25519 (RFC 8032), and verifies them. Keys are files in PEM, as openssl writes them."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.secrets import LONGEST, is_readable_by_others
from holdlog.domain.checkpoint import Checkpoint, CheckpointNote, NoteSignature, ed25519_key_id
from holdlog.domain.refusals import InvalidError

TO_MAKE_A_KEY: Final = "openssl genpkey -algorithm ed25519 -out KEY"
TO_PUBLISH_A_KEY: Final = "openssl pkey -in KEY -pubout -out PUBLIC"


class SigningKey:
    """A private key, read from a file that only its owner may read. `named`: the argument, for messages. Raises
    InvalidError, and ModuleNotFoundError without the extra `sign`."""

    def __init__(self, path: Path, named: str) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        data = _read(path, named, is_secret=True)
        try:
            key = _loaded(lambda: load_pem_private_key(data, password=None))
        except TypeError:
            raise InvalidError(f"{named}: {path} is encrypted; pass a key without a passphrase") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidError(f"{named}: {path} is not a private Ed25519 key; to make one, run: {TO_MAKE_A_KEY}")
        self._key = key

    def signed(self, checkpoint: Checkpoint) -> CheckpointNote:
        """The checkpoint with this key's signature."""
        key_id = ed25519_key_id(checkpoint.origin, self._key.public_key().public_bytes_raw())
        signature = NoteSignature(checkpoint.origin, key_id, self._key.sign(checkpoint.text.encode()))
        return CheckpointNote(checkpoint, (signature,))


class PublicKey:
    """A public key from a file. `named`: the argument, for messages. Raises as `SigningKey`."""

    def __init__(self, path: Path, named: str) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        data = _read(path, named)
        key = _loaded(lambda: load_pem_public_key(data))
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidError(f"{named}: {path} is not a public Ed25519 key; to write one, run: {TO_PUBLISH_A_KEY}")
        self._key = key

    def require_signed(self, note: CheckpointNote) -> None:
        """Require that this key signed the checkpoint. Ignores signatures of other keys. Raises InvalidError."""
        from cryptography.exceptions import InvalidSignature

        name = note.checkpoint.origin
        key_id = ed25519_key_id(name, self._key.public_bytes_raw())
        own = [it for it in note.signatures if (it.name, it.key_id) == (name, key_id)]
        if not own:
            raise InvalidError("checkpoint: has no signature of this key")
        try:
            for it in own:
                self._key.verify(it.signature, note.checkpoint.text.encode())
        except InvalidSignature:
            raise InvalidError("checkpoint: the signature does not match its text") from None


def _loaded(load: Callable[[], object]) -> object | None:
    """The key that `load` returns; None if it is not one."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load()
    except (ValueError, UnsupportedAlgorithm):
        return None


def _read(path: Path, named: str, is_secret: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            is_open = is_readable_by_others(os.fstat(file.fileno()))
            data = file.read(LONGEST)
    except OSError as error:
        raise InvalidError(f"{named}: {path} cannot be read ({error.strerror})") from None
    except ValueError:
        raise InvalidError(f"{named}: is not a valid path") from None
    if is_secret and is_open:
        raise InvalidError(f"{named}: other users can read {path}; run: chmod 600 {shlex.quote(str(path))}")
    return data
