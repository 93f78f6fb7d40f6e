"""How `holdlog init` changes files of others, and removes again what it added: entries of JSON, and blocks of lines
between two marks."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from holdlog.domain.refusals import StoreError

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that is edited."""
HASH: Final = ("# ", "")
"""Comments of TOML, shell scripts and git's exclude file."""
SLASHES: Final = ("// ", "")
HTML: Final = ("<!-- ", " -->")
_OWN_HOOK: Final = r"(?:^|[\s/'\"\\])holdlog\\?['\"]?,? \\?\"?hook\b"
_BLANK: Final = r"[\s\ufeff{}]*|#!/bin/sh\n"
"""What is left of a file that init created, without its entries."""


class Entry(NamedTuple):
    """A value at a path of keys; `is_item`: one of a list, which replaces other hooks of holdlog there."""

    path: tuple[str, ...]
    value: Any
    is_item: bool = False


class Target(NamedTuple):
    """A file, and what init adds to it: entries, or a block. `line`: the block is one line behind the first, of a
    script."""

    path: str
    what: str
    entries: tuple[Entry, ...] = ()
    block: str = ""
    comment: tuple[str, str] = HASH
    line: str = ""

    def add(self, text: str, former: str | None) -> str:
        """The text with what init adds. `former`: what init wrote last. Raises ValueError."""
        if self.entries:
            return _add_entries(text, self.entries, former)
        if self.line:
            first, _, rest = (self.remove(text, None) or "#!/bin/sh\n").partition("\n")
            return f"{first}\n{self.line}  {_mark(self)}\n{rest}"
        return _add_block(text, self)

    def remove(self, text: str, before: str | None) -> str:
        """The text without what init adds. `before`: as it was before. Raises ValueError."""
        if self.entries:
            return _remove_entries(text, self.entries, before)
        if self.line:
            return re.sub(rf"(?m)^.*{re.escape(_mark(self))}\r?\n?", "", text)
        return _remove_block(text, self.comment, before)

    def has_all(self, text: str) -> bool:
        """Whether a file has what init adds, perhaps with another path of holdlog, or a configuration of a person."""
        if not self.entries:
            return "holdlog" in text
        tree = parse_json(text)
        return all(_has(tree, entry) for entry in self.entries)


class Edit(NamedTuple):
    """A change of a file. None: there is no file. `record`: the text before init's first change, and the one after
    this; None once nothing of init is left."""

    path: str
    what: str
    before: str | None
    after: str | None
    record: tuple[str | None, str] | None
    is_script: bool = False


class CommentedError(ValueError):
    """A file of JSON has comments, which an edit would lose. The message is what to add by hand."""


def plan(target: Target, record: tuple[str | None, str] | None, undo: bool) -> Edit | None:
    """The change of a file; None if there is none. `record`: of the last one. Raises ValueError, OSError."""
    text = read_text(target.path)
    is_unchanged = record is not None and text == record[1]
    original = record[0] if record is not None else None
    if text is None and undo:
        return None
    if is_unchanged or text is None:
        without: str | None = original if is_unchanged else None
    else:
        without = target.remove(text, original)
        if re.fullmatch(_BLANK, without) and (original is None or re.fullmatch(_BLANK, original)) and without != text:
            without = original
    after = without if undo else target.add(text or "", record[1] if record is not None else None)
    if after == text:
        return None
    kept = None if undo else (without if record is not None else text, after or "")
    return Edit(target.path, target.what, text, after, kept, bool(target.line))


def read_text(path: str) -> str | None:
    """The text of a file; None if it does not exist. Raises OSError and ValueError."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    if len(text) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST // 1024 // 1024} MB")
    return text


def write(edit: Edit) -> None:
    """Write a file at once, or remove it. Links are followed; the mode stays. Raises OSError, StoreError."""
    path = os.path.realpath(edit.path)
    if read_text(path) != edit.before:
        raise StoreError("it changed meanwhile; run the command again")
    if edit.after is None:
        os.unlink(path)
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
    """The tree of a file, empty for a blank one. Raises ValueError, which says whether it has comments."""
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
        raise ValueError("it is no object of JSON")
    return tree


def is_own_hook(value: Any) -> bool:
    """Whether a hook runs `holdlog hook`."""
    return re.search(_OWN_HOOK, json.dumps(value)) is not None


def _require_unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _add_entries(text: str, entries: Sequence[Entry], former: str | None) -> str:
    try:
        tree, old = parse_json(text), parse_json(former or "")
    except CommentedError:
        if "holdlog" in text:
            return text
        wanted: dict[str, Any] = {}
        for entry in entries:
            _put(wanted, entry)
        raise CommentedError(json.dumps(wanted)) from None
    is_changed = False
    for entry in entries:
        there = _find(tree, entry.path)
        is_former = former is not None and there == _find(old, entry.path)
        if _has(tree, entry) if entry.is_item else there is not None and (there == entry.value or not is_former):
            continue
        _put(tree, entry)
        is_changed = True
    return _dump(tree, text) if is_changed else text


def _remove_entries(text: str, entries: Sequence[Entry], before: str | None) -> str:
    try:
        tree, original = parse_json(text), parse_json(before or "")
    except CommentedError:
        return text
    is_changed = False
    for entry in entries:
        parent, last = _find(tree, entry.path[:-1]), entry.path[-1]
        if not isinstance(parent, dict) or last not in parent or _find(original, entry.path) == parent[last]:
            continue
        there = parent.pop(last)
        if entry.is_item and isinstance(there, list):
            parent[last] = [item for item in there if not _is_own(item, entry)]
        is_changed |= parent.get(last) != there
        for end in range(len(entry.path), 0, -1):  # containers that init made
            at, holder = entry.path[:end], _find(tree, entry.path[: end - 1])
            if isinstance(holder, dict) and holder.get(at[-1]) in ({}, []) and _find(original, at) is None:
                del holder[at[-1]]
    return _dump(tree, text) if is_changed else text


def _find(tree: Any, path: Sequence[str]) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _has(tree: Any, entry: Entry) -> bool:
    there = _find(tree, entry.path)
    return (
        entry.value in there if entry.is_item and isinstance(there, list) else there is not None and not entry.is_item
    )


def _is_own(value: Any, entry: Entry) -> bool:
    return value == entry.value or (is_own_hook(value) and is_own_hook(entry.value))


def _put(tree: dict[str, Any], entry: Entry) -> None:
    """Raises ValueError if something else is there."""
    *path, last = entry.path
    for key in path:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ValueError(f"its {key} is no object")
    if not entry.is_item:
        tree[last] = entry.value
        return
    items = tree.setdefault(last, [])
    if not isinstance(items, list):
        raise ValueError(f"its {last} is no list")
    tree[last] = [*(it for it in items if not _is_own(it, entry)), entry.value]


def _dump(tree: Any, text: str) -> str:
    """With the indentation, line breaks and end of the text before."""
    indent = re.search(r"\n([ \t]+)\S", text)
    body = json.dumps(tree, ensure_ascii=False, indent=indent[1] if indent else 2)
    start = "\ufeff" if text.startswith("\ufeff") else ""
    body = start + body + ("\n" if text.endswith("\n") or not text.strip() else "")
    return body.replace("\n", "\r\n") if "\r\n" in text else body


# --- blocks and lines


def list_block(text: str, comment: tuple[str, str] = HASH) -> list[str]:
    """The lines between the marks."""
    block = _search(text, comment)
    return [] if block is None else block["block"].splitlines()[1:-1]


def _add_block(text: str, target: Target) -> str:
    is_toml = target.path.endswith(".toml")
    if is_toml:
        servers = tomllib.loads(_remove_block(text, HASH, None).removeprefix("\ufeff")).get("mcp_servers")
        if isinstance(servers, dict) and "holdlog" in servers:
            return text  # a person wrote it
    before, after = target.comment
    line_break = "\r\n" if "\r\n" in text else "\n"
    lines = (f"{before}begin holdlog{after}", *target.block.rstrip().split("\n"), f"{before}end holdlog{after}", "")
    marked, block = line_break.join(lines), _search(text, target.comment)
    if block is not None:
        edited = text[: block.start("block")] + marked + text[block.end("block") :]
    else:
        edited = f"{text}{'' if text.endswith(chr(10)) else line_break}{line_break}{marked}" if text else marked
    if is_toml:
        tomllib.loads(edited.removeprefix("\ufeff"))
    return edited


def _remove_block(text: str, comment: tuple[str, str], before: str | None) -> str:
    block = _search(text, comment)
    if block is None:
        return text
    rest = text[: block.start()] + text[block.end() :]
    if before and not before.endswith("\n") and block.end() == len(text):
        return rest.removesuffix("\n").removesuffix("\r")
    return rest


def _search(text: str, comment: tuple[str, str]) -> re.Match[str] | None:
    first, last = (re.escape(f"{comment[0]}{mark} holdlog{comment[1]}") for mark in ("begin", "end"))
    return re.search(rf"(?:(?<=\n)\r?\n)?(?P<block>^{first}\r?\n.*?^{last}\r?\n)", text, re.DOTALL | re.MULTILINE)


def _mark(target: Target) -> str:
    return f"# holdlog: {target.what}"


# --- what init wrote


class Records:
    """What init wrote to each file, and what was there before, in a private file next to the store; and the folders
    that it created."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.files: dict[str, tuple[str | None, str]] = {}
        self.folders: list[str] = []
        try:
            with open(path, encoding="utf-8") as file:
                tree = json.load(file)
            self.files = {name: (before, after) for name, (before, after) in tree["files"].items()}
            self.folders = list(map(str, tree["folders"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass  # there is none, or it is damaged: as if init had not run

    def note(self, edit: Edit) -> None:
        """Note a change that is about to be written, and the folders that are missing for it. Raises OSError."""
        path = os.path.realpath(edit.path)
        if edit.record is None:
            self.files.pop(path, None)
        else:
            self.files[path] = edit.record
            self.folders += [it for it in _list_missing(path) if it not in self.folders]
        self._save()

    def remove_empty_folders(self) -> None:
        """Remove the folders that init created, if nothing is left in them. Raises OSError."""
        for folder in sorted(self.folders, reverse=True):  # the inner ones first
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)
        self.folders = [folder for folder in self.folders if os.path.isdir(folder)]
        self._save()

    def _save(self) -> None:
        part = f"{self._path}.part"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump({"files": self.files, "folders": self.folders}, file)
        os.rename(part, self._path)


def _list_missing(path: str) -> Iterator[str]:
    while not os.path.lexists(path := os.path.dirname(path)):
        yield path
