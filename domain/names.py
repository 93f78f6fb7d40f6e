"""Rules for names, and the names of streams."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

from pydantic import AfterValidator, Strict

if TYPE_CHECKING:
    from precis_i18n.profile import Profile

MAX_NAME: Final = 512
MAX_AGENT: Final = 128
"""Maximum characters of an agent name or label."""
MAX_NOTE: Final = 500

_REMEMBERED: Final = 4096
"""Names whose check and stream are cached; agents use the same few repeatedly."""

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder the displayed text (Unicode TR 9)."""

_JOINERS: Final = "\u200c\u200d"
"""Format characters that scripts and emoji need between two others."""

_INVISIBLE: Final = frozenset(
    [*_JOINERS, *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"]
    + [chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]
)
"""Characters that are invisible alone: Default_Ignorable_Code_Point (Unicode TR 44), and the blank braille pattern."""

_BLANK_LOOKING: Final = frozenset(f"{_JOINERS}\u2800\ufffc\U00016fe4\U0001d159")
"""Characters that RFC 8264 allows (joiners only in some contexts), although most fonts draw nothing for them."""

_NAMELESS: Final = {
    "Cc": "a control character",
    "Cn": "an unassigned character",
    "Co": "a private use character",
    "Cs": "a lone surrogate",
}

_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that no name of an agent or resource contains."""

_NO_SCRIPT: Final = re.compile(
    "ALEF|BET|BLACK-LETTER|COMBINING|DALET|DOUBLE-STRUCK|EULER|FEMININE|GIMEL|IDEOGRAPHIC|INFORMATION|MASCULINE|MASU"
    "|MATHEMATICAL|MICRO|MUSICAL|PHAISTOS|PLANCK|ROMAN|SCRIPT|TURNED|VARIATION|VEDIC|ZNAMENNY"
)
"""First words of names of letters and marks that belong to no script, or to every one."""

_WRITTEN_TOGETHER: Final = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "HENTAIGANA", "KATAKANA", "KATAKANA-HIRAGANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
"""Scripts that Japanese, Chinese and Korean mix within a word (Unicode TS 39, "highly restrictive")."""


def acts_for(name: str, agent: str) -> bool:
    """Whether a name is that of the agent or of one of its sub-agents (`claude`, `claude/tests`)."""
    return name == agent or name.startswith(agent + "/")


@lru_cache(_REMEMBERED)
def name(text: str) -> str:
    """Return a namespace, key or resource: NFC, 1 to 512 characters, visible, also at both ends. Raises ValueError."""
    return _checked(text, MAX_NAME)


@lru_cache(_REMEMBERED)
def label(text: str) -> str:
    """Return a session, request id or similar: as `name`, up to 128 characters. Raises ValueError."""
    return _checked(text, MAX_AGENT)


@lru_cache(_REMEMBERED)
def agent_name(text: str) -> str:
    """Return the name of an agent: as `label`; slashes nest agents and separate two parts. Raises ValueError."""
    text = label(text)
    if text.startswith("/") or text.endswith("/") or "//" in text:
        raise ValueError("must have a name on both sides of every slash, as in claude/tests")
    return text


@lru_cache(_REMEMBERED)
def allowed_agent_name(text: str) -> str:
    """Like `agent_name`, but for commands: also applies `require_allowed`, which stored names may fail. Raises
    ValueError."""
    return agent_name(require_allowed(text))


def require_allowed(text: str) -> str:
    """Return the name of an agent or resource in NFC. Raises ValueError, which names the character, if one is outside
    the FreeformClass of RFC 8264 or looks blank and is not the ASCII space."""
    if text.isascii() and text.isprintable():
        return text
    if len(text) > 4 * MAX_NAME:  # too long in any normal form, as in `_normalized`
        return text
    text = unicodedata.normalize("NFC", text)
    blank = next(filter(appears_blank, text), None)
    if blank is not None:
        raise ValueError(f"must not contain {_called(blank)}")
    try:
        _freeform_class().enforce(text)
    except UnicodeEncodeError as refused:
        raise ValueError(f"must not contain {_called(text[refused.start])}") from None
    return text


def refused_positions(text: str) -> set[int]:
    """Where `require_allowed` or `name` refuses a character of text in NFC, other than a blank at an end."""
    if text.isascii() and text.isprintable():
        return set()
    found = {at for at, it in enumerate(text) if appears_blank(it) or unicodedata.category(it) in _UNPRINTABLE}
    probe = "".join("x" if at in found else it for at, it in enumerate(text))
    while True:
        try:
            _freeform_class().enforce(probe)
        except UnicodeEncodeError as refused:
            found.add(refused.start)
            probe = f"{probe[: refused.start]}x{probe[refused.start + 1 :]}"
        else:
            return found


def appears_blank(character: str) -> bool:
    """Whether most fonts draw nothing, or only a space, for a character other than the ASCII space."""
    return character in _BLANK_LOOKING or character in _INVISIBLE or (character.isspace() and character != " ")


@lru_cache(_REMEMBERED)
def mixed_scripts(text: str) -> bool:
    """Whether a word of the name mixes scripts that are not written together, such as the Cyrillic а in `аnn`.

    Slashes, dots and spaces separate words: `документ.py` is not mixed. A word in a single script is never mixed,
    whatever it looks like.
    """
    return not text.isascii() and any(_is_mixed(word) for word in re.split(r"[/. ]", text))


def note(text: str) -> str:
    """Return a note or reason: as `name`, up to 500 characters. Raises ValueError."""
    return _checked(text, MAX_NOTE)


def beginning(text: str) -> str:
    """Return the beginning of a name, in NFC; may be empty. Raises ValueError for characters that no database could
    compare: lone surrogates, NUL."""
    if "\0" in text:
        raise ValueError("must not contain control or bidirectional characters")
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        _require_unicode(text)
    return text


Name = Annotated[str, Strict(), AfterValidator(name)]
Agent = Annotated[str, Strict(), AfterValidator(agent_name)]
"""For events, and for calls that only read."""
AllowedAgent = Annotated[str, Strict(), AfterValidator(allowed_agent_name)]
"""For commands."""
Label = Annotated[str, Strict(), AfterValidator(label)]
Note = Annotated[str, Strict(), AfterValidator(note)]
Beginning = Annotated[str, Strict(), AfterValidator(beginning)]


def _checked(text: str, limit: int) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _normalized(text)
    if len(text) > limit:
        raise ValueError(f"must have at most {limit} characters")
    if not text or text.isspace():
        raise ValueError("must not be blank")
    if text[0].isspace() or text[-1].isspace():
        raise ValueError("must not start or end with a blank")
    return text


def _normalized(text: str) -> str:
    if len(text) > 4 * MAX_NAME:  # NFC shortens at most fourfold, so longer text fails the length check
        return text
    text = unicodedata.normalize("NFC", text)
    _require_unicode(text)
    for character in text:
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp") or character in _BIDI:
            raise ValueError("must not contain control or bidirectional characters")
        if category == "Cf" and character not in _JOINERS:
            raise ValueError("must not contain invisible format characters")
    if text and not text.isspace() and all(it in _INVISIBLE or it.isspace() for it in text):
        raise ValueError("must contain a visible character")
    if text.startswith(tuple(_JOINERS)) or text.endswith(tuple(_JOINERS)):
        raise ValueError("must not start or end with a joiner")
    return text


@lru_cache(_REMEMBERED)
def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain a lone surrogate") from None


@cache
def _freeform_class() -> "Profile":
    from precis_i18n import get_profile  # takes 10 to 20 ms; ASCII names never need it

    return get_profile("FreeformClass")


def _called(character: str) -> str:
    code = f"U+{ord(character):04X}"
    if called := unicodedata.name(character, ""):
        return f"{code} {called}"
    return f"{code}, {_NAMELESS.get(unicodedata.category(character), 'a character')}"


def _is_mixed(word: str) -> bool:
    scripts = {script for character in word if (script := _script(character))}
    return len(scripts) > 1 and not any(scripts <= together for together in _WRITTEN_TOGETHER)


def _script(character: str) -> str:
    """The script of a letter or mark: the first word of its name, which Unicode never changes; "" for others."""
    if unicodedata.category(character) not in ("Lu", "Ll", "Lt", "Lo", "Mn", "Mc"):
        return ""
    first, _, rest = unicodedata.name(character, "").partition(" ")
    if first in ("FULLWIDTH", "HALFWIDTH"):
        first = rest.partition(" ")[0]
    return "" if _NO_SCRIPT.fullmatch(first) else first


@lru_cache(_REMEMBERED)
def record_stream(namespace: str, key: str) -> str:
    """`record:<namespace>/<key>`, each part percent-encoded (RFC 3986)."""
    return f"record:{quote(namespace, safe='')}/{quote(key, safe='')}"


@lru_cache(_REMEMBERED)
def claim_stream(resource: str) -> str:
    """`claim:<resource>`, percent-encoded except for slashes."""
    return f"claim:{quote(resource, safe='/')}"


@lru_cache(_REMEMBERED)
def agent_stream(agent: str) -> str:
    """`agent:<name>`, percent-encoded except for slashes."""
    return f"agent:{quote(agent, safe='/')}"


@lru_cache(_REMEMBERED)
def token_stream(name: str) -> str:
    """`token:<name>`, percent-encoded, although no token name needs it."""
    return f"token:{quote(name, safe='')}"


@lru_cache(_REMEMBERED)
def thread_stream(thread: str) -> str:
    """`thread:<id>`, percent-encoded."""
    return f"thread:{quote(thread, safe='')}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to a word, for "did you mean"; None if none is similar."""
    from difflib import get_close_matches  # needed for errors only; importing it takes 2 ms

    return next(iter(get_close_matches(word, list(known), n=1)), None)
