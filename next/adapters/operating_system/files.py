"""Files that only this user may access."""

import os
import stat
from typing import Final

FILE_MODE: Final = 0o600


def open_private(path: str, flags: int = 0) -> int:
    """Open a file for reading and writing, creating it with mode 0600 whatever the umask; never follows a link, which
    somebody may have planted. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, FILE_MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & FILE_MODE != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
