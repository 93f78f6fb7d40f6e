"""Reads the calls that a hint or an error names. It knows names of tools, and nothing about refusals."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

PERSON: Final = re.compile(r"\bthe person you work for\b|\bask a person\b")
"""How a text says that only a person can help."""
OWN_NAME: Final = re.compile(r"\ba name of your own\b")
_SENTENCE: Final = re.compile(r"(?<=[.;:?])\s+")
_OTHERWISE: Final = re.compile(r"[.;,]?\s+otherwise,?\s+", re.IGNORECASE)
_UNWANTED: Final = re.compile(r"If you no longer need it, [^.;]*[.;]?")


class Step(NamedTuple):
    """A call that a text names. `kind`: `call` has a `tool`; `repeat` is the refused call; `read` and `write` leave the
    tool to the reader. `words`: what the sentence says about the arguments."""

    kind: Literal["call", "repeat", "read", "write"]
    tool: str | None
    words: str


def branches(text: str) -> list[str]:
    """The parts of a text between which "otherwise" decides, without what is for a reader that gives up its goal."""
    return _OTHERWISE.split(_UNWANTED.sub("", text))


def steps(text: str, tools: Iterable[str], prefix: str) -> list[Step]:
    """The calls in a text, in order."""
    return list(_steps(text, _action(list(tools), prefix), prefix))


def _action(tools: list[str], prefix: str) -> re.Pattern[str]:
    full = "|".join(sorted(map(re.escape, tools), key=len, reverse=True))
    bare = "|".join(re.escape(tool.removeprefix(prefix)) for tool in tools)
    return re.compile(
        rf"(?:\bcall|\bthen) (?P<tool>{full})\b"
        r"|\brepeat (?P<repeat>it|this|the (?:same |whole )?call|your call)\b"
        rf"|\bpass the (?P<field>\w+) that (?P<source>{full}) returned"
        rf"|(?:^|[.;,] |\band )(?P<bare>{bare})(?= (?:this|some|it)\b| \"?\w+://)"
        r"|\bread (?P<read>the current state)\b"
        r"|\bread the value,? (?:and|then) write (?P<write>the result|a new one)\b",
        re.IGNORECASE,
    )


def _steps(text: str, action: re.Pattern[str], prefix: str) -> Iterator[Step]:
    found = list(action.finditer(text))
    for number, match in enumerate(found):
        following = found[number + 1].start() if number + 1 < len(found) else len(text)
        end = next((it.start() for it in _SENTENCE.finditer(text, match.end())), len(text))
        begin = max([0, *(it.end() for it in _SENTENCE.finditer(text, 0, match.start()))])
        if number and found[number - 1].end() > begin:
            begin = match.start()
        words = f"{text[begin : match.start()]} {text[match.end() : min(end, following)]}".strip()
        if match["field"]:
            yield Step("call", match["source"], "")
            yield Step("repeat", None, f"its {match['field']} as {text.partition(':')[0]}")
        elif match["write"]:
            yield Step("read", None, "")
            yield Step("write", None, words)
        elif match["read"]:
            yield Step("read", None, words)
        elif match["repeat"]:
            yield Step("repeat", None, words)
        else:
            yield Step("call", match["tool"] or prefix + match["bare"].lower(), words)
