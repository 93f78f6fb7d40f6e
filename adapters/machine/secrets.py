"""Secrets in the environment: a variable, or the file that it names with `_FILE`, as containers hand them over."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdlog.domain.refusals import InvalidError

LONGEST: Final = 65_536
"""Bytes; a file that holds more is not the one that was meant."""


def secret(environ: Mapping[str, str], variable: str) -> str | None:
    """What `variable` holds, or the file that `<variable>_FILE` names, without its last line end; None where neither is
    set. Raises InvalidError, whose message never holds the secret."""
    named = f"{variable}_FILE"
    text, path = environ.get(variable) or None, environ.get(named) or None
    if path is None:
        return text
    if text is not None:
        raise InvalidError(f"{variable} and {named} are both set; keep one")
    return secret_in(path, named)


def secret_in(path: str, named: str) -> str:
    """What a file holds, without its last line end; `named`: what a message calls it. Raises InvalidError."""
    try:
        with Path(path).expanduser().open("rb") as file:
            found = file.read(LONGEST + 1)
        told = found.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidError(f"{named}: {path} cannot be read ({error.strerror})") from None
    except RuntimeError:  # ~ of a user whom nobody knows
        raise InvalidError(f"{named}: {path} cannot be read (there is no such home)") from None
    except UnicodeDecodeError:
        raise InvalidError(f"{named}: {path} is not UTF-8") from None
    if not told or "\n" in told or len(found) > LONGEST:
        raise InvalidError(f"{named}: {path} must hold one line")
    return told
