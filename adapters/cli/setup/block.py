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
    line_break = "\r\n" if "\r\n" in text else "\n"
    marked = f"{before}{BEGIN}{after}\n{block.rstrip()}\n{before}{END}{after}\n".replace("\n", line_break)
    found = _find(text, comment)
    if found is not None:
        return text[: found.start("block")] + marked + text[found.end("block") :]
    if not text:
        return marked
    return f"{text}{'' if text.endswith(chr(10)) else line_break}{line_break}{marked}"


def remove_block(text: str, comment: tuple[str, str] = HASH, original: str | None = None) -> str:
    """Remove the block, with the empty line that was added before it. `original`: the text before it was added: if that
    had no line break at its end, neither has the rest."""
    found = _find(text, comment)
    if found is None:
        return text
    rest = text[: found.start()] + text[found.end() :]
    if original and not original.endswith("\n") and found.end() == len(text):
        return rest.removesuffix("\n").removesuffix("\r")
    return rest


def lines_of_block(text: str, comment: tuple[str, str] = HASH) -> list[str]:
    """The lines between the marks; none without a block."""
    found = _find(text, comment)
    return [] if found is None else found["block"].splitlines()[1:-1]


def _find(text: str, comment: tuple[str, str]) -> re.Match[str] | None:
    first, last = (re.escape(f"{comment[0]}{it}{comment[1]}") for it in (BEGIN, END))
    return re.search(rf"(?:(?<=\n)\r?\n)?(?P<block>^{first}\r?\n.*?^{last}\r?\n)", text, re.DOTALL | re.MULTILINE)
