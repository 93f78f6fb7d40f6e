"""Reads JSON with comments and trailing commas, as hosts allow it, and remembers where each part is in the text."""

import json
import re
from typing import Any, Final, NamedTuple, NoReturn

MAX_DEPTH: Final = 100

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TEXT: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_OTHER: Final = re.compile(r"[-+.\w]+")


class Node(NamedTuple):
    """A value at `text[start:end]`. `members`: those of an object, as key, start of the key and value. `items`: of an
    array. `value`: of anything else."""

    start: int
    end: int
    members: list[tuple[str, int, "Node"]] | None = None
    items: list["Node"] | None = None
    value: Any = None

    def member(self, key: str) -> "Node | None":
        """The last member of this name, which is the one that counts."""
        return next((node for name, _, node in reversed(self.members or []) if name == key), None)

    def plain(self) -> Any:
        """The value as `json.loads` returns it."""
        if self.members is not None:
            return {key: node.plain() for key, _, node in self.members}
        return self.value if self.items is None else [node.plain() for node in self.items]


class NotJsonError(ValueError):
    """The text is not JSON. The message names the line."""


def parse(text: str) -> Node:
    """Parse a text that is one value. Raises NotJsonError."""
    reader = _JsonReader(text)
    node = reader.value(reader.skip(0), 0)
    if reader.skip(node.end) != len(text):
        reader.fail(node.end)
    return node


def after_space(text: str, at: int) -> int:
    """The position after white space and comments."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text = text

    def skip(self, at: int) -> int:
        return after_space(self._text, at)

    def value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail(at)
        match self._text[at : at + 1]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._array(at, depth)
            case '"':
                return self._scalar(at, _TEXT)
            case _:
                return self._scalar(at, _OTHER)

    def fail(self, at: int) -> NoReturn:
        """Raise NotJsonError for the line of a position."""
        line = self._text.count("\n", 0, at) + 1
        raise NotJsonError(f"line {line}: is not JSON")

    def _object(self, start: int, depth: int) -> Node:
        members: list[tuple[str, int, Node]] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != "}":
            key = self._scalar(at, _TEXT)
            colon = self.skip(key.end)
            if self._text[colon : colon + 1] != ":":
                self.fail(colon)
            value = self.value(self.skip(colon + 1), depth + 1)
            members.append((key.value, at, value))
            at = self._next(value.end, "}")
        return Node(start, at + 1, members=members)

    def _array(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != "]":
            items.append(self.value(at, depth + 1))
            at = self._next(items[-1].end, "]")
        return Node(start, at + 1, items=items)

    def _next(self, end: int, closing: str) -> int:
        """The position of the next element or of `closing`, which a comma may precede."""
        at = self.skip(end)
        if self._text[at : at + 1] == ",":
            return self.skip(at + 1)
        if self._text[at : at + 1] != closing:
            self.fail(at)
        return at

    def _scalar(self, at: int, pattern: re.Pattern[str]) -> Node:
        found = pattern.match(self._text, at)
        if found is None:
            self.fail(at)
        try:
            return Node(at, found.end(), value=json.loads(found[0]))
        except ValueError:
            self.fail(at)
