"""Adds blocks of lines to text files of other programs, between two marks by which it finds them again."""

import re
from typing import Final

BEGIN, END = "begin holdlog", "end holdlog"
HASH: Final = ("# ", "")
"""Comments of TOML, shell scripts and git's exclude file."""
SLASHES: Final = ("// ", "")
"""Comments of JavaScript."""
HTML: Final = ("<!-- ", " -->")
"""Comments of Markdown."""


def add_block(text: str, block: str, comment: tuple[str, str] = HASH) -> str:
    """Add the block at the end of the text, or replace an older one."""
    before, after = comment
    marked = f"{before}{BEGIN}{after}\n{block.rstrip()}\n{before}{END}{after}\n"
    found = _find(text, comment)
    if found is not None:
        return text[: found.start("block")] + marked + text[found.end("block") :]
    if not text:
        return marked
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}\n{marked}"


def remove_block(text: str, comment: tuple[str, str] = HASH) -> str:
    """Remove the block, with the empty line that was added before it."""
    found = _find(text, comment)
    return text if found is None else text[: found.start()] + text[found.end() :]


def lines_of_block(text: str, comment: tuple[str, str] = HASH) -> list[str]:
    """The lines between the marks; none without a block."""
    found = _find(text, comment)
    return [] if found is None else found["block"].splitlines()[1:-1]


def _find(text: str, comment: tuple[str, str]) -> re.Match[str] | None:
    first, last = (re.escape(f"{comment[0]}{it}{comment[1]}") for it in (BEGIN, END))
    return re.search(rf"(?:(?<=\n)\r?\n)?(?P<block>^{first}\r?\n.*?^{last}\r?\n)", text, re.DOTALL | re.MULTILINE)
