"""The URIs of MCP resources: the value, claim or overview that each names. Each has one reading; nothing is guessed."""

import re
from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from holdlog.domain.refusals import InvalidError

STATE: Final = "state://{namespace}/{key}"
CLAIM: Final = "claim://{resource}"
CLAIMS: Final = "holdlog://claims"
NAMESPACES: Final = "holdlog://namespaces"

MAX_URI: Final = 16 * 1024
"""Characters. Two names of 512 characters have 12 288 when fully percent-encoded."""

_STRAY: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class OfValue(NamedTuple):
    """The value at a key, by the names in the URI."""

    namespace: str
    key: str


class OfClaim(NamedTuple):
    """The claim on a resource, by the name in the URI."""

    resource: str


class OfAll(NamedTuple):
    """An overview: all claims, or all namespaces."""

    uri: str


Address = OfValue | OfClaim | OfAll


class UnknownAddressError(InvalidError):
    """The URI names no resource here, whatever is stored."""


def address_of(uri: str, groups: Collection[str]) -> Address:
    """What a URI names, if its group is served. Names are percent-decoded, and not checked further.

    Raises InvalidError for an ambiguous URI: `?` and `#`, which cut a name in a URI; a stray `%`; invalid UTF-8; and
    two slashes in a row in a claim, which URL parsers make of `custom://name` by dropping its colon.
    """
    if len(uri) > MAX_URI:
        raise InvalidError(f"uri: must have at most {MAX_URI} characters")
    scheme, _, rest = uri.partition("://")
    match scheme.lower():
        case "state" if "state" in groups and "/" in rest:
            namespace, _, key = rest.partition("/")
            return OfValue(_name(namespace), _name(key))
        case "claim" if "claims" in groups:
            if "//" in rest:
                raise InvalidError("uri: must have the resource percent-encoded, as in claim://custom%3A%2F%2Fdeploy")
            return OfClaim(_name(rest))
        case "holdlog" if uri.lower().rstrip("/") in overviews(groups):
            return OfAll(uri.lower().rstrip("/"))
    raise UnknownAddressError(f"uri: must be one of {', '.join([*templates(groups), *overviews(groups)])}")


def templates(groups: Collection[str]) -> tuple[str, ...]:
    return tuple(uri for uri, group in ((STATE, "state"), (CLAIM, "claims")) if group in groups)


def overviews(groups: Collection[str]) -> tuple[str, ...]:
    return tuple(uri for uri, group in ((NAMESPACES, "state"), (CLAIMS, "claims")) if group in groups)


def _name(text: str) -> str:
    if "?" in text or "#" in text:
        raise InvalidError("uri: must have ? and # in names percent-encoded as %3F and %23")
    if _STRAY.search(text):
        raise InvalidError("uri: must have % in names percent-encoded as %25")
    try:
        return unquote_to_bytes(text).decode()
    except ValueError:  # also raised for a lone surrogate
        raise InvalidError("uri: must be percent-encoded UTF-8") from None
