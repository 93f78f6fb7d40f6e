"""Output in encodings that lack characters: every command writes through these two streams."""

import codecs
import json
import sys
from typing import Any, Final

_HANDLER: Final = "holdlog.json"
_OVERRIDDEN: Final = frozenset({"strict", "surrogateescape"})
"""Python's default error handlers. Any other handler is the user's choice (PYTHONIOENCODING)."""


def make_every_character_writable() -> None:
    """Escape what standard output cannot encode as in JSON: in text it is readable, in JSON it is equivalent.

    Standard error escapes by default (`backslashreplace`).
    """
    codecs.register_error(_HANDLER, _as_json)
    if getattr(sys.stdout, "errors", None) in _OVERRIDDEN and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors=_HANDLER)


def _as_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text: Any = error.object[error.start : error.end]
    return json.dumps(text)[1:-1], error.end
