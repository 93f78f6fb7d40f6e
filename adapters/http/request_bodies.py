"""Values in requests and responses: text or JSON, by Content-Type (RFC 9110 section 8.3) and Accept."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json
from starlette.exceptions import HTTPException

from holdlog.domain.refusals import InvalidError

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_CHARSETS: Final = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
}
_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^";\s]+)"?', re.IGNORECASE)


def value_of(body: bytes, headers: Mapping[bytes, bytes]) -> Any:
    """The value of a body: JSON by its content type, else a string. Raises InvalidError and HTTPException (415)."""
    media, charset = _content_type(headers)
    if is_json(media):
        return json_of(body, charset)
    if media.startswith("multipart/"):
        raise HTTPException(415, "the body must be text or JSON, not a form with parts")
    return _text(body, charset)


def patch_of(body: bytes, headers: Mapping[bytes, bytes]) -> tuple[str, Any]:
    """A patch and its media type, MERGE_PATCH (RFC 7396) or JSON_PATCH (RFC 6902). Raises InvalidError and
    HTTPException (415)."""
    media, charset = _content_type(headers)
    if media not in (MERGE_PATCH, JSON_PATCH):
        accepted = f"{MERGE_PATCH}, {JSON_PATCH}"
        raise HTTPException(415, f"the body must be one of {accepted}", {"accept-patch": accepted})
    return media, json_of(body, charset)


def json_body(body: bytes, headers: Mapping[bytes, bytes]) -> Any:
    """A body that must be JSON. Raises InvalidError and HTTPException (415)."""
    media, charset = _content_type(headers)
    if not is_json(media):
        raise HTTPException(415, "the body must be JSON, and its content type application/json")
    return json_of(body, charset)


def json_of(body: bytes, charset: str = "utf-8") -> Any:
    if charset not in ("utf-8", "ascii"):
        raise HTTPException(415, "the body must be JSON in UTF-8")  # RFC 8259 section 8.1
    try:
        return from_json(_text(body, "utf-8"), allow_inf_nan=False)
    except InvalidError:
        raise
    except ValueError:
        raise InvalidError("body: is not valid JSON, although its content type is JSON") from None


def is_json(media: str) -> bool:
    return media == "application/json" or media.endswith("+json")


@lru_cache(256)
def wants_json(accept: bytes | None) -> bool:
    """Whether the client prefers JSON to text (RFC 9110 section 12.5.1): a higher quality, or the same quality and a
    more specific range."""
    if accept is None or b"application/" not in accept:
        return False
    ranges = [_accepted(part) for part in accept.decode("latin-1").lower().split(",")]
    preference = _preference(ranges, "application/json")
    return preference[0] > 0 and preference > _preference(ranges, "text/plain")


def _preference(ranges: list[tuple[str, float]], media: str) -> tuple[float, int]:
    """The quality of the most specific matching range, and how specific it is."""
    named = [media, media.partition("/")[0] + "/*", "*/*"]
    exact, quality = max(
        ((3 - named.index(kind), quality) for kind, quality in ranges if kind in named), default=(0, 0.0)
    )
    return quality, exact


def _accepted(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in text.split(";"))
    weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
    return kind, float(weight) if re.fullmatch(r"[01](\.[0-9]{0,3})?", weight) else 0.0


def _content_type(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """The media type, text/plain by default, and Python's name of its charset."""
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
        raise HTTPException(415, "the body must not be compressed", {"accept-encoding": "identity"})
    text = headers.get(b"content-type", b"text/plain").decode("latin-1")
    media = text.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(media):
        raise HTTPException(415, "the content type is not valid")
    charset_parameter = _CHARSET.search(text)
    charset = _CHARSETS.get(charset_parameter[1].lower() if charset_parameter else "utf-8")
    if charset is None:
        raise HTTPException(415, "the charset must be utf-8, us-ascii or iso-8859-1")
    return media, charset


def _text(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset)
    except UnicodeDecodeError:
        name = {"utf-8": "UTF-8", "ascii": "US-ASCII"}[charset]
        raise InvalidError(
            f"body: must be valid {name}; if it has another charset, name it in the content type"
        ) from None
