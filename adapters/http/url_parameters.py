"""What a request names in its target and headers: path segments, query arguments, header fields."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from holdlog.adapters.api.validation import unknown_argument
from holdlog.domain.refusals import InvalidError

MAX_ARGUMENTS: Final = 16
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def decoded(text: str, argument: str = "path") -> str:
    """Percent-encoded UTF-8 (RFC 3986 section 2.1), decoded once. Raises InvalidError."""
    if "%" not in text and text.isascii():
        return text
    if _BROKEN.search(text):
        raise InvalidError(f"{argument}: must be percent-encoded; write a percent sign as %25")
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise InvalidError(f"{argument}: must be percent-encoded UTF-8") from None


def shown(name: str, otherwise: str = "query") -> str:
    """How an unknown argument is shown: by its name only if that is harmless to print."""
    return name if name.isidentifier() and name.isascii() and len(name) <= 32 else otherwise


def unknown(name: str, known: Collection[str], otherwise: str = "query") -> str:
    """The error for an unknown argument, shown as `shown` shows it."""
    word = shown(name, otherwise)
    return unknown_argument(word, known, is_name=word == name)


def arguments(scope: Scope, known: Mapping[str, bool]) -> dict[str, Any]:
    """The query arguments as text; of those that are `known` as lists, a list: an argument may be repeated, or have
    several values separated by commas. Raises InvalidError for an unknown or repeated argument."""
    query: bytes = scope["query_string"]
    given: dict[str, Any] = {}
    parts = query.decode("latin-1").replace("+", " ").split("&")
    if len(parts) > MAX_ARGUMENTS:
        raise InvalidError(f"query: must have at most {MAX_ARGUMENTS} arguments")
    for part in filter(None, parts):
        name, _, value = (decoded(text, "query") for text in part.partition("="))
        if name not in known:
            raise InvalidError(unknown(name, known))
        if known[name]:
            given.setdefault(name, []).extend(value.split(","))
        elif name in given:
            raise InvalidError(f"{name}: must be given only once")
        else:
            given[name] = value
    return given


def fields(scope: Scope) -> dict[bytes, bytes]:
    """The headers by their names in lower case; repeated ones are joined by commas (RFC 9110 section 5.3)."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found
