"""Adds entries to a JSON text and removes them, and leaves everything else as it is: comments, order, indentation."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdlog.adapters.cli.setup.json_tree import Node, NotJsonError, parse


class Entry(NamedTuple):
    """A value in an object, at the end of `path`; if `listed`, an item of the array there."""

    path: tuple[str, ...]
    value: Any
    listed: bool = False


def add(text: str, entries: Sequence[Entry]) -> str:
    """Add entries, or replace those that have another value. Raises NotJsonError, also if something else than an object
    or an array is in the way."""
    for entry in entries:
        text = _added(text if text.strip() else "{}\n", entry)
    return text


def remove(text: str, entries: Sequence[Entry]) -> str:
    """Remove entries, and the objects and arrays that they leave empty; empty if nothing else is left."""
    for entry in reversed(entries):
        text = _removed(text, entry)
    return "" if not text.strip() or parse(text).members == [] else text


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
            return _inserted(text, node, depth, f"{json.dumps(key)}: ", value)
        node = found
    if not entry.listed:
        if node.plain() == entry.value:
            return text
        return (
            text[: node.start] + _dumped(text, entry.value, len(entry.path), _is_inline(text, node)) + text[node.end :]
        )
    if node.items is None:
        raise NotJsonError(f"{_spelled(entry.path)}: is not an array")
    if any(it.plain() == entry.value for it in node.items):
        return text
    return _inserted(text, node, len(entry.path), "", entry.value)


def _inserted(text: str, node: Node, depth: int, key: str, value: Any) -> str:
    """Insert a last element into an object or array at a depth of the text."""
    parts = _parts(node)
    unit = _unit(text)
    inline = bool(parts) and _is_inline(text, node)
    element = key + _dumped(text, value, depth + 1, inline)
    if not parts:
        return f"{text[: node.start + 1]}\n{unit * (depth + 1)}{element}\n{unit * depth}{text[node.end - 1 :]}"
    end = parts[-1][1]
    close = node.end - 1
    tail = text[end:close].rstrip()
    comma = "" if _comma_after(text, end) is not None else ","
    gap = " " if inline else f"\n{unit * (depth + 1)}"
    return f"{text[:end]}{comma}{tail}{gap}{element}{text[end + len(tail) :]}"


def _removed(text: str, entry: Entry) -> str:
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
    while len(path) > 2 and len(_parts(path[-2])) == 1:
        path.pop()  # nothing else is in there
    return _without(text, path[-2], path[-1])


def _without(text: str, parent: Node, child: Node) -> str:
    parts = _parts(parent)
    at = next(index for index, (_, end) in enumerate(parts) if end == child.end)
    start, end = parts[at]
    if len(parts) == 1:
        rest = text[parent.start + 1 : start] + text[end : parent.end - 1]
        kept = "" if not rest.replace(",", "").strip() else rest
        return text[: parent.start + 1] + kept + text[parent.end - 1 :]
    begin = len(text[:start].rstrip())
    comma = _comma_after(text, end)
    if comma is not None:
        return text[:begin] + text[end:comma] + text[comma + 1 :]
    before = _comma_after(text, parts[at - 1][1])
    assert before is not None
    return text[:before] + text[before + 1 : begin] + text[end:]


def _parts(node: Node) -> list[tuple[int, int]]:
    """Where the elements of an object or array begin and end."""
    if node.members is not None:
        return [(start, value.end) for _, start, value in node.members]
    return [(it.start, it.end) for it in node.items or []]


def _comma_after(text: str, end: int) -> int | None:
    found = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*,", re.DOTALL).match(text, end)
    return None if found is None else found.end() - 1


def _is_inline(text: str, node: Node) -> bool:
    return "\n" not in text[node.start : node.end]


def _unit(text: str) -> str:
    """One step of the indentation of the text."""
    found = re.search(r"\n([ \t]+)[\"\]}]", text)
    return found[1] if found else "  "


def _dumped(text: str, value: Any, depth: int, inline: bool) -> str:
    if inline:
        return json.dumps(value, ensure_ascii=False)
    unit = _unit(text)
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{unit * depth}")


def _spelled(path: Sequence[str]) -> str:
    return ".".join(path) or "the file"
