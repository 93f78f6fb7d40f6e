"""What a request names in its target and headers: path segments, query arguments, header fields."""

import re
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Scope

from holdlog.adapters.api.validation import number_of_seconds, unknown_argument
from holdlog.domain.refusals import InvalidError

MAX_ARGUMENTS: Final = 16
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def below(path: str, endpoint: Callable[..., Any], methods: list[str]) -> list[Route]:
    """Read routes for a path and for all paths below it.

    The endpoint takes the names from `segments` or `behind`: routes match the decoded path, in which a name with a
    slash looks like two.
    """
    tree = Route(f"{path}/{{rest:path}}", endpoint, methods=methods)
    tree.path_regex = re.compile(tree.path_regex.pattern, re.DOTALL)  # a line break makes a bad name, not another path
    return [Route(path, endpoint, methods=["GET"]), tree]


def segments(scope: Scope, first: str) -> list[str]:
    """The path segments behind the first, each decoded once. Raises InvalidError, HTTPException (404)."""
    rest = behind(scope, first)
    return [] if rest is None else [decoded(segment) for segment in rest.split("/")]


def behind(scope: Scope, first: str) -> str | None:
    """The part behind the first segment and its slash, still encoded; None without a slash. Raises HTTPException (404)
    if the first segment is another one, as in `kv%2Fgroup`."""
    raw: bytes = scope["raw_path"]
    path = raw.decode("latin-1").removeprefix(scope.get("root_path", ""))
    named, slash, rest = path[1:].partition("/")
    if decoded(named) != first:
        raise HTTPException(404)
    return rest if slash else None


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


def arguments(scope: Scope, *known: str) -> dict[str, str]:
    """The query arguments. Raises InvalidError for an unknown or repeated argument."""
    query: bytes = scope["query_string"]
    if not query:
        return {}
    given: dict[str, str] = {}
    parts = query.decode("latin-1").replace("+", " ").split("&")
    if len(parts) > MAX_ARGUMENTS:
        raise InvalidError(f"query: must have at most {MAX_ARGUMENTS} arguments")
    for part in filter(None, parts):
        name, _, value = (decoded(text, "query") for text in part.partition("="))
        if name not in known:
            raise InvalidError(unknown(name, known))
        if name in given:
            raise InvalidError(f"{name}: must be given only once")
        given[name] = value
    return given


def number(given: dict[str, str], name: str, default: int) -> int:
    """An integer argument of the query. Raises InvalidError."""
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise InvalidError(f"{name}: must be a whole number")
    return int(text)


def seconds_of(given: str, name: str) -> float:
    """A number of seconds in the query. Raises InvalidError."""
    try:
        return number_of_seconds(float(given), name)
    except ValueError:
        raise InvalidError(f"{name}: must be a finite number of seconds, 0 or more") from None


def fields(scope: Scope) -> dict[bytes, bytes]:
    """The headers by their names in lower case; repeated ones are joined by commas (RFC 9110 section 5.3)."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found
