"""Checkpoints of the log as text (https://c2sp.org/tlog-checkpoint), and notes that carry their signatures
(https://c2sp.org/signed-note).

The origin of a checkpoint is the id of the store. Its key has the same name, as the specification recommends.
"""

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple, TypeGuard

from holdlog.domain.refusals import InvalidError, StoreError

ROOT_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
MAX_NOTE: Final = 1 << 18
"""Characters of a signed note: more than 16 signatures need, the number that a reader must accept."""

_ED25519: Final = b"\x01"
"""Identifies the type of signature within a key id."""
_BLANK_LINE: Final = "\n\n"
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_STORE_ID: Final = re.compile(r"[!-*,-~]{1,200}")
"""Also the name of a key, which has no plus."""
_SIGNATURE: Final = re.compile(r"— ([^\s+]+) (\S+)")


class Checkpoint(NamedTuple):
    """The first `size` events of a log, to which `root` (32 bytes) commits. `extensions`: further lines of its text,
    which other programs may add; holdlog adds none."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What is signed; each line ends with a newline."""
        lines = (self.origin, str(self.size), b64encode(self.root).decode(), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def is_store_id(text: str | None) -> TypeGuard[str]:
    """Whether a store can have this id."""
    return text is not None and _STORE_ID.fullmatch(text) is not None


def checkpoint_of(store_id: str | None, size: int, root: bytes) -> Checkpoint:
    """The checkpoint of a store's log. Raises StoreError for a store id that another program wrote: with a newline in
    it, the text would be that of another checkpoint, and would get its signature."""
    if not is_store_id(store_id):
        raise StoreError("the store has no id, or one that holdlog did not write; run: holdlog doctor")
    return Checkpoint(store_id, size, root)


class NoteSignature(NamedTuple):
    """A signature line of a note. `key_id`: 4 bytes, which tell keys of one name apart."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def text(self) -> str:
        return f"— {self.name} {b64encode(self.key_id + self.signature).decode()}\n"


class CheckpointNote(NamedTuple):
    """A checkpoint and its signatures, which are not verified yet; none: it is not signed."""

    checkpoint: Checkpoint
    signatures: tuple[NoteSignature, ...] = ()

    @property
    def text(self) -> str:
        if not self.signatures:
            return self.checkpoint.text
        return "\n".join((self.checkpoint.text, "".join(it.text for it in self.signatures)))


def ed25519_key_id(name: str, public_key: bytes) -> bytes:
    """The id of a key. `public_key`: its 32 bytes (RFC 8032)."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:KEY_ID_BYTES]


def parse_note(text: str) -> CheckpointNote:
    """Read a checkpoint with its signatures, or the text of a checkpoint without any. Keeps signatures of unknown keys
    and types. Raises InvalidError, which names the line."""
    if len(text) > MAX_NOTE:
        raise InvalidError(f"checkpoint: must have at most {MAX_NOTE} characters")
    if _CONTROL.search(text) or not text.endswith("\n"):
        raise InvalidError("checkpoint: must be lines of text without control characters, each ended by a newline")
    body, blank, rest = text.rpartition(_BLANK_LINE)
    if not blank:
        return CheckpointNote(_parse_body(text[:-1].split("\n")))
    lines = body.split("\n")
    signatures = rest.removesuffix("\n").split("\n")
    return CheckpointNote(
        _parse_body(lines), tuple(_parse_signature(line, len(lines) + 2 + at) for at, line in enumerate(signatures))
    )


def _parse_body(lines: list[str]) -> Checkpoint:
    if len(lines) < 3 or not all(lines):
        raise InvalidError("checkpoint: must begin with three lines, which are origin, number of events and root")
    origin, size, root, *extensions = lines
    if not _SIZE.fullmatch(size):
        raise InvalidError("checkpoint: line 2 must be the number of events, in decimal")
    hashed = _decoded(root)
    if hashed is None or len(hashed) != ROOT_BYTES:
        raise InvalidError("checkpoint: line 3 must be the root, 32 bytes in base64")
    return Checkpoint(origin, int(size), hashed, tuple(extensions))


def _parse_signature(line: str, number: int) -> NoteSignature:
    found = _SIGNATURE.fullmatch(line)
    data = None if found is None else _decoded(found[2])
    if found is None or data is None or len(data) <= KEY_ID_BYTES:
        raise InvalidError(f"checkpoint: line {number} must be a signature: —, name and signature in base64")
    return NoteSignature(found[1], data[:KEY_ID_BYTES], data[KEY_ID_BYTES:])


def _decoded(text: str) -> bytes | None:
    """Decode base64; None if it is not exactly what encoding writes."""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if b64encode(data).decode() == text else None
