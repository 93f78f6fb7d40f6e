"""Adds entries to a JSON text and removes them, and leaves everything else as it is: comments, order, indentation."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdlog.adapters.cli.setup.json_tree import Node, NotJsonError, after_space, parse

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE_END: Final = re.compile(r"[ \t]*\r?\n")
_BLANK: Final = " \t\r\n\ufeff"
WIDTH: Final = 100
"""Characters of a line that is added, where it can be broken."""


class Entry(NamedTuple):
    """A value in an object, at the end of `path`; if `listed`, an item of the array there. `is_former`: whether another
    value there, or another item of the array, is a former form of this one, which is replaced. `shared`: others need
    it next to entries like ours, so it is removed only once there are none."""

    path: tuple[str, ...]
    value: Any
    listed: bool = False
    is_former: Callable[[Any], bool] = lambda item: False
    shared: bool = False


def add(text: str, entries: Sequence[Entry]) -> str:
    """Add entries, or replace former ones. Another value that is there stays. Raises NotJsonError, also if something
    else than an object or an array is in the way."""
    text = text if text.strip(_BLANK) else f"{text.strip()}{{}}{_line_break(text)}"
    for entry in entries:
        text = _added(_without_former(text, entry), entry)
    return text


def remove(text: str, entries: Sequence[Entry], original: str | None = None) -> str:
    """Remove entries, and the objects and arrays that they leave empty. `original`: the text before entries were added:
    what it has is kept, if empty."""
    original = original if original and original.strip(_BLANK) else "{}"
    before = parse(original).plain()
    for entry in reversed(entries):
        if not entry.shared:
            text = _removed(_without_former(text, entry, before), entry, before)
    keys = {it.path[0] for it in entries if not it.shared}.difference(before)
    for entry in entries:
        if entry.shared and not any(map(parse(text).member, keys)):
            text = _removed(text, entry, before)
    for entry in entries:
        for depth in range(len(entry.path) + 1):
            text = _spaced_as(original, text, entry.path[:depth])
    return text


def _spaced_as(original: str, text: str, path: Sequence[str]) -> str:
    """The text with the white space of an object or array as it was, if that was empty and is empty again."""
    nodes = parse(original), parse(text)
    for key in path:
        old, new = (it.member(key) for it in nodes)
        if old is None or new is None:
            return text
        nodes = old, new
    old, new = nodes
    before, after = original[old.start : old.end], text[new.start : new.end]
    is_empty = before[:1] in ("{", "[") and not _parts(old) and not _parts(new)
    is_same = is_empty and "".join(before.split()) == "".join(after.split())
    return text[: new.start] + before + text[new.end :] if is_same else text


def _without_former(text: str, entry: Entry, original: Any = None) -> str:
    found = _at(parse(text).plain(), entry.path) if entry.listed else None
    for item in found if isinstance(found, list) else ():
        if item != entry.value and entry.is_former(item):
            text = _removed(text, entry._replace(value=item), original)
    return text


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _added(text: str, entry: Entry) -> str:
    node = parse(text)
    for depth, key in enumerate(entry.path):
        if node.members is None:
            raise NotJsonError(f"{_spelled(entry.path[:depth])}: is not an object")
        found = node.member(key)
        if found is None:
            value = [entry.value] if entry.listed else entry.value
            for name in reversed(entry.path[depth + 1 :]):
                value = {name: value}
            return _inserted(text, node, depth, f"{json.dumps(key)}: ", value, len(entry.path) - depth - 1)
        node = found
    if not entry.listed:
        if node.plain() == entry.value or not entry.is_former(node.plain()):
            return text
        replaced = _dumped(text, entry.value, len(entry.path), _is_inline(text, node)).replace("\n", _line_break(text))
        return text[: node.start] + replaced + text[node.end :]
    if node.items is None:
        raise NotJsonError(f"{_spelled(entry.path)}: is not an array")
    if any(it.plain() == entry.value for it in node.items):
        return text
    return _inserted(text, node, len(entry.path), "", entry.value)


def _inserted(text: str, node: Node, depth: int, key: str, value: Any, broken: int = 0) -> str:
    """Insert a last element into an object or array at a depth of the text. `broken`: so many outer objects of it get
    a line for each member."""
    parts = _parts(node)
    unit, line_break = _unit(text), _line_break(text)
    inline = bool(parts) and _is_inline(text, node)
    element = key + _dumped(text, value, depth + 1, inline, broken).replace("\n", line_break)
    if not parts:
        inside = text[node.start + 1 : node.end - 1].rstrip()  # comments
        added = f"{line_break}{unit * (depth + 1)}{element}{line_break}{unit * depth}"
        return f"{text[: node.start + 1]}{inside}{added}{text[node.end - 1 :]}"
    end = parts[-1][1]
    close = node.end - 1
    tail = text[end:close].rstrip()
    before, after = (",", "") if _comma_after(text, end) is None else ("", ",")
    gap = " " if inline else f"{line_break}{unit * (depth + 1)}"
    return f"{text[:end]}{before}{tail}{gap}{element}{after}{text[end + len(tail) :]}"


def _removed(text: str, entry: Entry, original: Any = None) -> str:
    """Remove an entry with what it leaves empty, unless `original` has that."""
    there = _at(original, entry.path)
    if entry.value in there if entry.listed and isinstance(there, list) else there == entry.value:
        return text
    path = [parse(text)]
    for key in entry.path:
        found = path[-1].member(key)
        if found is None:
            return text
        path.append(found)
    if entry.listed:
        target = next((it for it in path[-1].items or [] if it.plain() == entry.value), None)
        if target is None:
            return text
        path.append(target)
    elif path[-1].plain() != entry.value:
        return text
    while len(path) > 2 and _is_alone(text, path[-2]) and _at(original, entry.path[: len(path) - 2]) is None:
        path.pop()
    return _without(text, path[-2], path[-1])


def _without(text: str, parent: Node, child: Node) -> str:
    if _is_alone(text, parent):
        return text[: parent.start + 1] + text[parent.end - 1 :]
    parts = _parts(parent)
    at = next(index for index, (_, end) in enumerate(parts) if end == child.end)
    start, end = parts[at]
    previous = parts[at - 1][1] if at else parent.start + 1
    comma = _comma_after(text, end)
    before = text[:start]
    after = text[end:] if comma is None else text[end:comma] + text[comma + 1 :]
    if comma is None and at:  # the last of several: the comma before it goes
        comma = after_space(text, previous)
        before = text[:comma] + text[comma + 1 : start]
    return _joined(before, previous, after)


def _joined(before: str, start: int, after: str) -> str:
    """The texts without the white space between them, but with the line break that a comment needs. `start`: from
    there, `before` has only comments, commas and white space."""
    before = before.rstrip()
    comments = list(_COMMENT.finditer(before, start))
    is_open = bool(comments) and comments[-1][0].startswith("//") and comments[-1].end() == len(before)
    return before + ("\n" if is_open and not _LINE_END.match(after) else "") + after


def _is_alone(text: str, parent: Node) -> bool:
    """Whether an object or array contains one element, and no comment."""
    [(start, end), *others] = _parts(parent)
    return not others and not (text[parent.start + 1 : start] + text[end : parent.end - 1]).strip(" \t\r\n,")


def _parts(node: Node) -> list[tuple[int, int]]:
    """Where the elements of an object or array begin and end."""
    if node.members is not None:
        return [(start, value.end) for _, start, value in node.members]
    return [(it.start, it.end) for it in node.items or []]


def _comma_after(text: str, end: int) -> int | None:
    at = after_space(text, end)
    return at if text[at : at + 1] == "," else None


def _is_inline(text: str, node: Node) -> bool:
    return "\n" not in text[node.start : node.end]


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """One step of the indentation of the text."""
    found = re.search(r"\n([ \t]+)[\"\]}]", text)
    return found[1] if found else "  "


def _dumped(text: str, value: Any, depth: int, inline: bool, broken: int = 0) -> str:
    """A value as text: in one line if it is short."""
    line = json.dumps(value, ensure_ascii=False)
    unit = _unit(text)
    is_short = len(line) + depth * len(unit) <= WIDTH and not broken
    if inline or is_short or not isinstance(value, dict | list) or not value:
        return line
    if isinstance(value, dict):
        inner_broken = max(0, broken - 1)
        parts = [f"{json.dumps(key)}: {_dumped(text, it, depth + 1, False, inner_broken)}" for key, it in value.items()]
    else:
        parts = [_dumped(text, it, depth + 1, False) for it in value]
    inner = f",\n{unit * (depth + 1)}".join(parts)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{unit * (depth + 1)}{inner}\n{unit * depth}{closing}"


def _spelled(path: Sequence[str]) -> str:
    return ".".join(path) or "the file"
