"""The rules for names, and the names of streams."""

import unicodedata
from functools import lru_cache
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import AfterValidator, Strict

MAX_NAME: Final = 512
MAX_AGENT: Final = 128
"""Of a label, too."""
MAX_NOTE: Final = 500

_REMEMBERED: Final = 4096
"""Names whose check and stream are remembered; agents use the same few again and again."""

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder what a person sees (Unicode TR 9)."""

_JOINERS: Final = "\u200c\u200d"
"""Characters of format that scripts and emoji need between two others."""

_INVISIBLE: Final = frozenset(
    [*_JOINERS, *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"]
    + [chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]
)
"""Characters that show nothing by themselves: Default_Ignorable_Code_Point (Unicode TR 44), and the empty braille."""


@lru_cache(_REMEMBERED)
def name(text: str) -> str:
    """A namespace, key or resource: NFC, 1 to 512 characters, visible, also at both ends. Raises ValueError."""
    return _checked(text, MAX_NAME)


@lru_cache(_REMEMBERED)
def label(text: str) -> str:
    """A session, request id or the like: as `name`, up to 128 characters. Raises ValueError."""
    return _checked(text, MAX_AGENT)


@lru_cache(_REMEMBERED)
def agent_name(text: str) -> str:
    """The name of an agent: as `label`; slashes nest agents and stand between two parts. Raises ValueError."""
    text = label(text)
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise ValueError("must have a name on both sides of every slash, as in claude/tests")
    return text


def note(text: str) -> str:
    """A note or reason: as `name`, up to 500 characters. Raises ValueError."""
    return _checked(text, MAX_NOTE)


def beginning(text: str) -> str:
    """What a name may begin with, in the spelling of names; may be empty. Raises ValueError for what no database could
    compare: lone surrogates, NUL."""
    if "\0" in text:
        raise ValueError("must not hold control or direction characters")
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        _require_unicode(text)
    return text


Name = Annotated[str, Strict(), AfterValidator(name)]
Agent = Annotated[str, Strict(), AfterValidator(agent_name)]
Label = Annotated[str, Strict(), AfterValidator(label)]
Note = Annotated[str, Strict(), AfterValidator(note)]
Beginning = Annotated[str, Strict(), AfterValidator(beginning)]


def _checked(text: str, limit: int) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _normalized(text)
    if len(text) > limit:
        raise ValueError(f"must have {limit} characters at most")
    if not text or text.isspace():
        raise ValueError("must not be blank")
    if text[0].isspace() or text[-1].isspace():
        raise ValueError("must not start or end with a blank")
    return text


def _normalized(text: str) -> str:
    if len(text) > 4 * MAX_NAME:  # composing shortens fourfold at most; longer ones need no look
        return text
    text = unicodedata.normalize("NFC", text)
    _require_unicode(text)
    for character in text:
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp") or character in _BIDI:
            raise ValueError("must not hold control or direction characters")
        if category == "Cf" and character not in _JOINERS:
            raise ValueError("must not hold invisible characters of format")
    if text and not text.isspace() and all(it in _INVISIBLE or it.isspace() for it in text):
        raise ValueError("must hold a visible character")
    if text.startswith(tuple(_JOINERS)) or text.endswith(tuple(_JOINERS)):
        raise ValueError("must not start or end with a joiner")
    return text


@lru_cache(_REMEMBERED)
def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must not hold a lone surrogate") from None


def record_stream(namespace: str, key: str) -> str:
    """`record:<namespace>/<key>`, each part percent-encoded (RFC 3986)."""
    return f"record:{quote(namespace, safe='')}/{quote(key, safe='')}"


@lru_cache(_REMEMBERED)
def claim_stream(resource: str) -> str:
    """`claim:<resource>`, percent-encoded but for its slashes."""
    return f"claim:{quote(resource, safe='/')}"


def agent_stream(agent: str) -> str:
    """`agent:<name>`, percent-encoded but for its slashes."""
    return f"agent:{quote(agent, safe='/')}"


def token_stream(name: str) -> str:
    """`token:<name>`, percent-encoded, though no token's name needs it."""
    return f"token:{quote(name, safe='')}"


def thread_stream(thread: str) -> str:
    """`thread:<id>`, percent-encoded."""
    return f"thread:{quote(thread, safe='')}"
