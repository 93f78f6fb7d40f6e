"""The single static token, from a file or the environment."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from holdlog.adapters.auth.options import STATIC_TOKEN
from holdlog.adapters.operating_system.secrets import is_readable_by_others, secret, secret_in
from holdlog.domain.refusals import InvalidError

MIN_LENGTH: Final = 32
"""Characters: 128 bits as hexadecimal. Nothing slows down guesses over HTTP, so no token may be short."""


def static_token(environ: Mapping[str, str], file: str | None, report: Callable[[str], None]) -> str | None:
    """The static token from `file`, else HOLDLOG_AUTH_TOKEN or the file that HOLDLOG_AUTH_TOKEN_FILE names; None if
    none is set.

    Calls `report` with warnings. Raises InvalidError for an empty, blank or short token: a server configured with a
    token must not start without one.
    """
    set_ = [name for name in (STATIC_TOKEN, f"{STATIC_TOKEN}_FILE") if name in environ]
    if file is not None and set_:
        raise InvalidError(f"--auth-token-file and {set_[0]} are both set; keep one")
    for name in set_:
        if not environ[name].strip():
            raise InvalidError(f"{name} is set but empty; put a token into it, or unset it")
    named = "--auth-token-file" if file is not None else set_[0] if set_ else ""
    text = secret_in(file, named) if file is not None else secret(environ, STATIC_TOKEN)
    if text is None:
        return None
    if not text.strip():
        raise InvalidError(f"{named}: the token is empty")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidError(f"{named}: a token must contain only printable ASCII characters and no spaces")
    if len(text) < MIN_LENGTH:
        raise InvalidError(
            f"{named}: a token must have at least {MIN_LENGTH} characters; `openssl rand -hex 32` generates a good one"
        )
    path = file if file is not None else environ.get(f"{STATIC_TOKEN}_FILE")
    if path is not None and _others_read(Path(path).expanduser()):
        report(f"{path} can be read by other users of this machine; restrict it with chmod 600")
    return text


def _others_read(path: Path) -> bool:
    try:
        return is_readable_by_others(os.stat(path))
    except OSError:
        return False
