"""What identifies the content of a file. Standard library only and quick to import: the hook's fast path uses it."""

import os
import stat
from typing import Final

LARGEST: Final = 64 * 1024 * 1024
"""Bytes; of a larger file, size and time are compared."""
MISSING: Final = "missing"
SHA256_LENGTH: Final = 64


def digest_of(path: str) -> str:
    """A text that changes with the content of a file: its SHA-256 in hexadecimal, or another text if it is missing,
    too large, or not a regular file: opening a pipe would block."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "folder" if stat.S_ISDIR(status.st_mode) else "special"
        if status.st_size > LARGEST:
            return stamp_of(path)
        import hashlib  # it loads OpenSSL (6 ms)

        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return MISSING


def stamp_of(path: str) -> str:
    """Size and time of a file: while they are the same, so is its content, in all likelihood."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return MISSING
    return f"{status.st_size} {status.st_mtime_ns}"
