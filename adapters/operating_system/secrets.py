"""Secrets from the environment (a variable, or the file that its `_FILE` variant names), and new secret files."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.private import NOFOLLOW
from holdlog.domain.refusals import InvalidError

LONGEST: Final = 65_536
"""Bytes; a larger file is not the intended one."""


def secret(environ: Mapping[str, str], variable: str) -> str | None:
    """The value of `variable`, or the content of the file that `<variable>_FILE` names, without its last line end; None
    if neither is set. Raises InvalidError, whose message never contains the secret."""
    named = f"{variable}_FILE"
    text, path = environ.get(variable) or None, environ.get(named) or None
    if path is None:
        return text
    if text is not None:
        raise InvalidError(f"{variable} and {named} are both set; keep one")
    return secret_in(path, named)


def secret_in(path: str, named: str) -> str:
    """The content of a file, without its last line end; `named`: its name in messages. Raises InvalidError."""
    try:
        with Path(path).expanduser().open("rb") as file:
            found = file.read(LONGEST + 1)
        text = found.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidError(f"{named}: {path} cannot be read ({error.strerror})") from None
    except RuntimeError:  # ~ of an unknown user
        raise InvalidError(f"{named}: {path} cannot be read (the home folder of that user is unknown)") from None
    except UnicodeDecodeError:
        raise InvalidError(f"{named}: {path} is not UTF-8") from None
    if not text or "\n" in text or len(found) > LONGEST:
        raise InvalidError(f"{named}: {path} must contain exactly one line")
    return text


def write_secret(path: Path, text: str, named: str) -> None:
    """Create a file that only this user can read, and write one line to it. Never opens an existing file, nor follows a
    symbolic link. `named`: the argument, for messages. Raises InvalidError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
    try:
        created = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
    except FileExistsError:
        raise InvalidError(f"{named}: {path} already exists; pass a file that does not exist yet") from None
    except (OSError, ValueError) as error:
        raise InvalidError(f"{named}: {path} cannot be created ({_reason(error)})") from None
    try:
        with open(created, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidError(f"{named}: {path} cannot be written ({error.strerror})") from None


def is_readable_by_others(status: os.stat_result) -> bool:
    """Whether it is a file that the group or others may read; False on systems without such modes."""
    readable = bool(status.st_mode & (stat.S_IRGRP | stat.S_IROTH))
    return sys.platform != "win32" and stat.S_ISREG(status.st_mode) and readable


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it is not a valid path"
