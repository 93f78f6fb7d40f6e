"""Rules for names and the names of streams."""

import unicodedata
from functools import lru_cache
from typing import Final

MAX_NAME: Final = 512
"""Characters of a namespace, key or resource."""
MAX_AGENT: Final = 128
THREAD_DATA: Final = "threads/"
"""What the namespaces of threads' data start with: only operations on threads write them."""
MAX_NOTE: Final = 500
AUTHORS: Final = ("updated_by", "deleted_by", "reverted_by", "redacted_by", "created_by", "revoked_by", "agent")
"""Arguments that name who calls. Of several the first does: the `agent` of a revert selects writes."""

WITHOUT_RECORD: Final = ("claim:", "foreign:")
"""What streams start with that have no row in the view `current`."""

_REMEMBERED: Final = 4096
"""Names whose check and stream are cached: agents use the same few."""
_CONTROL: Final = frozenset({"Cc", "Zl", "Zp"})
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder the displayed text (Unicode TR 9)."""
_JOINERS: Final = "\u200c\u200d"
"""Format characters that scripts and emoji need between two others."""
_INVISIBLE: Final = frozenset(
    [*_JOINERS, *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"]
    + [chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]
)
"""Characters that are invisible alone: Default_Ignorable_Code_Point (Unicode TR 44) and the blank braille pattern."""
_BLANK_LOOKING: Final = _INVISIBLE | frozenset("\ufffc\U00016fe4\U0001d159")
"""Characters for which most fonts draw nothing."""


@lru_cache(_REMEMBERED)
def check_name(text: str) -> str:
    """Return a namespace or key in NFC: 1 to 512 characters, visible, also at both ends. Raises ValueError."""
    return _check(text, MAX_NAME)


def is_name(text: str) -> bool:
    """Whether `check_name` would change nothing."""
    try:
        return check_name(text) == text
    except ValueError:
        return False


@lru_cache(_REMEMBERED)
def check_writable(text: str) -> str:
    """Return a namespace that everybody may write, as `check_name`. Raises ValueError."""
    if (text := check_name(text)).startswith(THREAD_DATA):
        raise ValueError(f"must not start with {THREAD_DATA}, as these are the data of threads")
    return text


@lru_cache(_REMEMBERED)
def check_label(text: str) -> str:
    """Return a session, request id or similar: as `check_name`, up to 128 characters. Raises ValueError."""
    return _check(text, MAX_AGENT)


def is_of_agent(name: str, agent: str | None) -> bool:
    """Whether a name is that of the agent or of one of its sub-agents. None: of any."""
    return agent is None or f"{name}/".startswith(f"{agent}/")


@lru_cache(_REMEMBERED)
def check_agent(text: str) -> str:
    """Return the name of an agent: as `check_label`, printable; slashes nest agents and separate two parts. Raises
    ValueError, which names the character."""
    text = _check(check_printable(text), MAX_AGENT)
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise ValueError("must have a name on both sides of every slash, as in claude/tests")
    return text


def check_note(text: str) -> str:
    """Return a note or reason: as `check_name`, up to 500 characters. Raises ValueError."""
    return _check(text, MAX_NOTE)


def check_prefix(text: str) -> str:
    """Return the beginning of a name in NFC; it may be empty. Raises ValueError for what no database can compare."""
    if text.isascii() and text.isprintable():
        return text
    if "\0" in text:
        raise ValueError("must not contain control or bidirectional characters")
    return _normalize(text)


def check_printable(text: str) -> str:
    """Return the name of an agent or resource, which contains printable Unicode and the ASCII space alone. Raises
    ValueError, which names the character."""
    if not (text.isascii() and text.isprintable()):
        for character in text:
            if not is_printable(character):
                raise ValueError(f"must not contain {describe(character)}")
    return text


def is_printable(character: str) -> bool:
    """Whether fonts draw something for it, or it is the ASCII space."""
    if character in _BLANK_LOOKING or (character.isspace() and character != " "):
        return False
    return unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def describe(character: str) -> str:
    """Describe a character for a message, as `U+00A0 NO-BREAK SPACE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


@lru_cache(_REMEMBERED)
def value_stream(namespace: str, key: str) -> str:
    """The stream of a value: `record:namespace/key`. The key is its end and stays as it is, so that streams of a
    namespace sort as their keys do and a prefix of keys is a range of streams."""
    return f"{namespace_prefix(namespace)}{key}"


def namespace_prefix(namespace: str) -> str:
    """What the streams of all values of a namespace start with."""
    if "%" in namespace or "/" in namespace:
        namespace = namespace.replace("%", "%25").replace("/", "%2F")
    return f"record:{namespace}/"


@lru_cache(_REMEMBERED)
def split_stream(stream: str) -> tuple[str, str]:
    """Namespace and key of the stream of a value."""
    namespace, _, key = stream.removeprefix("record:").partition("/")
    if "%" in namespace:
        namespace = namespace.replace("%2F", "/").replace("%25", "%")
    return namespace, key


def end_of_range(prefix: str) -> str:
    """The smallest text above all texts that start with the prefix, compared bytewise."""
    last = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last) if last < 0x110000 else prefix + "\U0010ffff"


def _check(text: str, limit: int) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _check_characters(text)
    if len(text) > limit:
        raise ValueError(f"must have at most {limit} characters")
    if not text or text.isspace():
        raise ValueError("must not be blank")
    if text[0].isspace() or text[-1].isspace():
        raise ValueError("must not start or end with a blank")
    return text


def _check_characters(text: str) -> str:
    if len(text) > 4 * MAX_NAME:  # NFC shortens at most fourfold, so longer text fails the length check
        return text
    text = _normalize(text)
    for character in text:
        category = unicodedata.category(character)
        if category in _CONTROL or character in _BIDI:
            raise ValueError("must not contain control or bidirectional characters")
        if category == "Cf" and character not in _JOINERS:
            raise ValueError("must not contain invisible format characters")
    if text and not text.isspace() and all(character in _INVISIBLE or character.isspace() for character in text):
        raise ValueError("must contain a visible character")
    if text.startswith(tuple(_JOINERS)) or text.endswith(tuple(_JOINERS)):
        raise ValueError("must not start or end with a joiner")
    return text


def _normalize(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("must not contain a lone surrogate") from None
    return text
