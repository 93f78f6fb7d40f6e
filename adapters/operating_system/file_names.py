"""The names of files as resources. A file system allows names that no resource may have: what a resource must not
contain is percent-encoded, segment by segment, so that a claim of a folder covers the files below it."""

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from typing import Final

from holdlog.domain.names import MAX_NAME, is_printable

MAX_SEGMENT: Final = 255
"""Characters of an encoded segment."""
_KEPT: Final = 200
"""Characters that remain of a longer one."""
_DIGEST: Final = 32
"""Hexadecimal digits of a digest: 128 bits."""
_MARK: Final = "%~"
"""Before a digest, which replaces what is too long."""
_CUT: Final = len(_MARK) + _DIGEST

_SHORTENED: Final = re.compile(rf"{_MARK}[0-9a-f]{{{_DIGEST}}}$")
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_PATTERN: Final = frozenset("*?\\\\")
_SCHEME: Final = re.compile(r"custom:|(?:[a-z]|file):$", re.IGNORECASE)
"""The first segment of a path that would be read as a scheme or a drive."""


@lru_cache(1024)
def encode_path(path: str, length: int = MAX_NAME) -> str:
    """The path of a file as (part of) the name of a resource: unchanged if a claim may have this name.

    `path`: from the root of its workspace, in NFC, with `/` at its end for a folder. `length`: characters of the name.
    Two paths have two names: a file that is called as another one is encoded is encoded itself. Of a path that is too
    long, the last segments are replaced by their digest; of a folder, they are left out. Raises ValueError if not even
    the first segment fits.
    """
    is_folder = path.endswith("/")
    segments = path.rstrip("/").split("/")
    last = len(segments) - 1
    names = [_shorten(_encode(segment, at == 0, at == last and not is_folder)) for at, segment in enumerate(segments)]
    text = "/".join(names) + "/" * is_folder
    limit = length - _CUT  # also that of a folder, because what is below it may be cut there
    if len(text) <= (limit if is_folder else length):
        return text
    whole = 0  # segments that stay
    while len("/".join(names[: whole + 1])) < limit:
        whole += 1
    if not whole:
        raise ValueError(f"must have at most {MAX_NAME} characters")
    return "/".join((*names[:whole], "" if is_folder else _hash_name("/".join(names[whole:]))))


def _encode(segment: str, is_first: bool, is_last: bool) -> str:
    positions = _list_positions(segment, is_first, is_last)
    if not positions and not _is_encoded(segment, is_first, is_last):
        return segment
    return "".join(
        "".join(f"%{byte:02x}" for byte in _to_bytes(character)) if character == "%" or at in positions else character
        for at, character in enumerate(segment)
    )


def _list_positions(segment: str, is_first: bool, is_last: bool) -> set[int]:
    """Where a segment has what a resource must not have."""
    positions = {at for at, character in enumerate(segment) if character in _PATTERN or not is_printable(character)}
    if is_first and segment.startswith(" "):
        positions.add(0)
    if is_last and segment.endswith(" "):
        positions.add(len(segment) - 1)
    if is_first and (scheme := _SCHEME.match(segment)):
        positions.add(scheme.end() - 1)
    for at in range(1, len(segment)):  # a mark would be composed with the digit before it
        if at - 1 in positions and unicodedata.category(segment[at]).startswith("M"):
            positions.add(at)
    return positions


def _is_encoded(segment: str, is_first: bool, is_last: bool) -> bool:
    """Whether another segment is encoded as this one."""
    if "%" not in segment:
        return False
    octets = _ENCODED.sub(lambda it: bytes([int(it[1], 16)]), _to_bytes(segment))
    plain = octets.decode(errors="surrogateescape")
    is_other = plain != segment and _encode(plain, is_first, is_last) == segment
    return is_other or _SHORTENED.search(segment) is not None


def _shorten(segment: str) -> str:
    return segment if len(segment) <= MAX_SEGMENT else f"{segment[:_KEPT]}{_hash_name(segment)}"


def _hash_name(text: str) -> str:
    return f"{_MARK}{sha256(_to_bytes(text)).hexdigest()[:_DIGEST]}"


def _to_bytes(text: str) -> bytes:
    """UTF-8, and the bytes of a file name that are not (PEP 383)."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
