"""What `holdlog init` wrote to each file, and what was there before: in a private file next to the store.

`--undo` restores files from it. Without a record, or once somebody changed the file, it removes only the entries of
init."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.private import make_private_folder, new_private_file

FILE: Final = "init.json"
"""In the folder of the copies (store.py)."""
_BLANK: Final = re.compile(r"[\s\ufeff{}]*|#!/bin/sh\n")
"""What is left of a file that init created, without its entries."""


class WrittenFile(NamedTuple):
    """A file that init wrote. `before`: its text without what init added, None if it did not exist; `after`: what init
    wrote."""

    before: str | None
    after: str


class Records:
    """The files that init wrote in a project. `folder`: that of the copies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, WrittenFile] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError):  # none, or damaged: as if init had not run
            given = json.loads((folder / FILE).read_text(encoding="utf-8"))
            self._files = {path: WrittenFile(*written) for path, written in given.items()}

    def __contains__(self, path: Path) -> bool:
        """Whether init wrote the file."""
        return _key(path) in self._files

    def original(self, path: Path, text: str | None, without: str) -> str | None:
        """What to restore once init has changed a file. `text`: of the file now; `without`: what is left of it without
        entries of init."""
        written = self._files.get(_key(path))
        if written is None:
            return text
        return written.before if text == written.after else without

    def restored(self, path: Path, text: str | None, without: str) -> str | None:
        """The text of a file after `--undo`; None removes it: a file that init created is removed once nothing else is
        left in it."""
        written = self._files.get(_key(path))
        if written is not None and text == written.after:
            return written.before
        is_created = written is None or written.before is None
        return None if is_created and _BLANK.fullmatch(without) else without

    def note(self, path: Path, written: WrittenFile | None) -> None:
        """Note what init is about to write; None once it is undone. Raises OSError and StoreError."""
        if written is None:
            if self._files.pop(_key(path), None) is None:
                return
        else:
            self._files[_key(path)] = written
        make_private_folder(self._folder)
        with new_private_file(self._folder / FILE, replaces=True) as file:
            file.write(json.dumps(self._files).encode())


def _key(path: Path) -> str:
    return os.path.realpath(path)
