"""How `holdlog init` changes files of other programs, and undoes that: entries in JSON, blocks of lines between two
marks, and single lines with a mark."""

import json
import os
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from holdlog.domain.refusals import StoreError

MAX_BYTES: Final = 4 * 1024 * 1024
"""Larger files are not edited."""
_HOST_FOLDER: Final = r"/(?:\.[a-z]+|plugins)$"
"""Folders of hosts, which are removed once they are empty."""
HASH: Final = "# "
"""Comments of TOML, shell scripts and git's exclude file."""
SLASHES: Final = "// "
_OWN_HOOK: Final = r"(?:^|[\s/'\"\\])holdlog\\?['\"]?,? \\?\"?hook\b"


class Entry(NamedTuple):
    """A value at a path of keys in a JSON file. `is_item`: it is an item of the list at that path, and replaces other
    hooks of holdlog there. `former`: a value that an earlier init may have written instead."""

    path: tuple[str, ...]
    value: Any
    is_item: bool = False
    former: Any = None


class Target(NamedTuple):
    """A file, and what init adds to it: `entries`, a `block` of lines, or a `line` after the first one of a script.
    `what`: the purpose, for people. `is_user_wide`: it is the same file in all projects."""

    path: str
    what: str
    entries: tuple[Entry, ...] = ()
    block: str = ""
    comment: str = HASH
    line: str = ""
    is_user_wide: bool = False

    def add(self, text: str) -> str:
        """The text with what init adds. Raises ValueError."""
        if self.entries:
            return _add_entries(text, self.entries)
        if self.line:
            first, _, rest = (self.remove(text) or "#!/bin/sh\n").partition("\n")
            return f"{first}\n{self.line}  {_mark(self)}\n{rest}"
        return _add_block(text, self)

    def remove(self, text: str, before: str | None = None) -> str | None:
        """The text without what init adds; None if nothing is left. `before`: the text before init, None if there was
        no file or if that is unknown. Raises ValueError."""
        if self.entries:
            return _remove_entries(text, self.entries, before)
        if self.line:
            text = re.sub(rf"(?m)^.*{re.escape(_mark(self))}\r?\n?", "", text)
        else:
            text = _remove_block(text, self.comment)
        return None if text in ("", "#!/bin/sh\n") else text

    def has_all(self, text: str) -> bool:
        """Whether a file contains what init adds (perhaps with another path of holdlog), or what a person configured
        instead."""
        if not self.entries:
            return "holdlog" in text
        tree = parse_json(text)
        return all(_has(tree, entry) for entry in self.entries)


class Edit(NamedTuple):
    """A change of a file. None: there is no file."""

    path: str
    what: str
    before: str | None
    after: str | None
    is_script: bool = False


class CommentedError(ValueError):
    """A JSON file has comments, which an edit would remove. The message is the JSON to add by hand."""


def plan_edit(target: Target, undo: bool, before: str | None = None) -> Edit | None:
    """The change that a file needs; None if it needs none. `before`: its text before init. Raises ValueError,
    OSError."""
    text = read_text(target.path)
    after = target.add(text or "") if not undo else None if text is None else target.remove(text, before)
    return None if after == text else Edit(target.path, target.what, text, after, bool(target.line))


def read_text(path: str) -> str | None:
    """The text of a file; None if it does not exist. Raises OSError and ValueError."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES // 1024 // 1024} MB")
    return text


def write(edit: Edit) -> None:
    """Write a file atomically, or remove it. Follows links and keeps the file mode. Raises OSError, and StoreError if
    the file has changed since it was planned."""
    path = os.path.realpath(edit.path)
    if read_text(path) != edit.before:
        raise StoreError("it changed meanwhile; run the command again")
    if edit.after is None:
        os.unlink(path)
        with suppress(OSError):  # the folder is not empty
            while re.search(_HOST_FOLDER, path := os.path.dirname(path)):
                os.rmdir(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o755 if edit.is_script else 0o644
    part = f"{path}.holdlog-part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        file.write(edit.after.encode())
        os.fchmod(file.fileno(), mode)
    os.rename(part, path)


# --- JSON


def parse_json(text: str) -> Any:
    """The JSON object of a file, empty for a blank text. Raises ValueError, CommentedError if it has comments."""
    text = text.removeprefix("\ufeff")
    try:
        tree = json.loads(text, object_pairs_hook=_require_unique) if text.strip() else {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if re.search(r"//|/\*|,\s*[}\]]", text):
            raise CommentedError("has comments") from None
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(tree, dict):
        raise ValueError("it is not a JSON object")
    return tree


def is_own_hook(value: Any) -> bool:
    """Whether a hook runs `holdlog hook`."""
    return re.search(_OWN_HOOK, json.dumps(value)) is not None


def _require_unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _add_entries(text: str, entries: Sequence[Entry]) -> str:
    try:
        tree = parse_json(text)
    except CommentedError:
        if "holdlog" in text:
            return text
        additions: dict[str, Any] = {}
        for entry in entries:
            _put(additions, entry)
        raise CommentedError(json.dumps(additions)) from None
    missing = [entry for entry in entries if not _has(tree, entry)]
    for entry in missing:
        _put(tree, entry)
    return _dump(tree, text) if missing else text


def _remove_entries(text: str, entries: Sequence[Entry], before: str | None) -> str | None:
    try:
        tree, original = parse_json(text), parse_json(before or "")
    except CommentedError:
        return text
    removed = [entry for entry in entries if _remove(tree, entry, original)]
    if not removed:
        return text
    return None if tree == {} and before is None else _dump(tree, text)


def _remove(tree: Any, entry: Entry, original: Any) -> bool:
    """Remove an entry, and the containers that init made for it. Returns whether it was there."""
    parent, last = _find(tree, entry.path[:-1]), entry.path[-1]
    current = _find(parent, [last])
    if current is None or current == _find(original, entry.path):
        return False
    if entry.is_item and isinstance(current, list):
        parent[last] = [item for item in current if not _is_own(item, entry)]
    elif not entry.is_item and _is_own(current, entry):
        del parent[last]
    is_removed = parent.get(last) != current
    for end in range(len(entry.path), 0, -1):
        path, container = entry.path[:end], _find(tree, entry.path[: end - 1])
        if container and container.get(path[-1]) in ({}, []) and _find(original, path) is None:
            del container[path[-1]]
    return bool(is_removed)


def _find(tree: Any, path: Sequence[str]) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _has(tree: Any, entry: Entry) -> bool:
    """Whether the file has the entry, or in its place a value that a person wrote."""
    current = _find(tree, entry.path)
    if entry.is_item:
        return isinstance(current, list) and entry.value in current
    return current is not None and (current == entry.value or not _is_own(current, entry))


def _is_own(value: Any, entry: Entry) -> bool:
    """Whether init wrote a value, perhaps with another path of holdlog, or for another server."""
    if is_own_hook(entry.value):
        return is_own_hook(value)
    return _shorten(value) in (_shorten(entry.value), _shorten(entry.former))


def _shorten(value: Any) -> str:
    text = re.sub(r', "headers": {"Authorization": "Bearer \$?{(?:env:)?HOLDLOG_TOKEN}"}', "", json.dumps(value))
    return re.sub(r'"https?://[^"]*/mcp"', '"/mcp"', re.sub(r'"[^"]*/holdlog"', '"holdlog"', text))


def _put(tree: dict[str, Any], entry: Entry) -> None:
    """Raises ValueError if something else is there."""
    *path, last = entry.path
    for key in path:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ValueError(f"its {key} is not an object")
    if not entry.is_item:
        tree[last] = entry.value
        return
    items = tree.setdefault(last, [])
    if not isinstance(items, list):
        raise ValueError(f"its {last} is not a list")
    tree[last] = [*(it for it in items if not _is_own(it, entry)), entry.value]


def _dump(tree: Any, text: str) -> str:
    """The JSON text, with the indentation, line breaks and last line of the old text."""
    indent = re.search(r"\n([ \t]+)\S", text)
    body = json.dumps(tree, ensure_ascii=False, indent=indent[1] if indent else 2)
    start = "\ufeff" if text.startswith("\ufeff") else ""
    body = start + body + ("\n" if text.endswith("\n") or not text.strip() else "")
    return body.replace("\n", "\r\n") if "\r\n" in text else body


# --- blocks and lines


def list_block(text: str) -> list[str]:
    """The lines between the marks."""
    block = _search(text, HASH)
    return [] if block is None else block["block"].splitlines()[1:-1]


def _add_block(text: str, target: Target) -> str:
    is_toml = target.path.endswith(".toml")
    if is_toml:
        servers = tomllib.loads(_remove_block(text, HASH).removeprefix("\ufeff")).get("mcp_servers")
        if isinstance(servers, dict) and "holdlog" in servers:
            return text  # a person wrote it
    line_break = "\r\n" if "\r\n" in text else "\n"
    marks = f"{target.comment}begin holdlog", f"{target.comment}end holdlog"
    lines = (marks[0], *target.block.rstrip().split("\n"), marks[1], "")
    marked, block = line_break.join(lines), _search(text, target.comment)
    if block is not None:
        edited = text[: block.start("block")] + marked + text[block.end("block") :]
    else:
        edited = f"{text}{'' if text.endswith(chr(10)) else line_break}{line_break}{marked}" if text else marked
    if is_toml:
        tomllib.loads(edited.removeprefix("\ufeff"))
    return edited


def _remove_block(text: str, comment: str) -> str:
    block = _search(text, comment)
    return text if block is None else text[: block.start()] + text[block.end() :]


def _search(text: str, comment: str) -> re.Match[str] | None:
    first, last = (re.escape(f"{comment}{mark} holdlog") for mark in ("begin", "end"))
    return re.search(rf"(?:(?<=\n)\r?\n)?(?P<block>^{first}\r?\n.*?^{last}\r?\n)", text, re.DOTALL | re.MULTILINE)


def _mark(target: Target) -> str:
    return f"# holdlog: {target.what}"


# --- the files before init


class Originals:
    """The texts of files before init changed them. Kept in a file next to the store that only its owner can read."""

    def __init__(self, folder: str) -> None:
        self.folder, self._path = folder, os.path.join(folder, "init.json")
        self.texts: dict[str, str | None] = {}
        with suppress(OSError, ValueError), open(self._path, encoding="utf-8") as file:
            self.texts = dict(json.load(file))

    def note(self, edit: Edit) -> None:
        """Record the text before a change, before the change is written. Raises OSError."""
        self.texts.setdefault(edit.path, edit.before)
        part = f"{self._path}.part"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(self.texts, file)
        os.rename(part, self._path)
