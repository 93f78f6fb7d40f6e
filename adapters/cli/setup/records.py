"""What `holdlog init` wrote to each file, what was there before, and which folders it created: in a private file next
to the store.

`--undo` restores files from it. Without a record, or once somebody changed the file, it removes only the entries of
init."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.cli.setup.hosts import RemoteServer
from holdlog.adapters.operating_system.private import NOFOLLOW, make_private_folder, new_private_file

FILE: Final = "init.json"
"""In the folder of the copies (store.py)."""
PENDING_SECONDS: Final = 3600.0
"""A file is noted before it is written."""
_BLANK: Final = re.compile(r"[\s\ufeff{}]*|#!/bin/sh\n")
"""What is left of a file that init created, without its entries."""


class WrittenFile(NamedTuple):
    """A file that init wrote. `before`: its text without what init added, None if it did not exist; `after`: what init
    wrote; `at`: when it was noted, in seconds since 1970."""

    before: str | None
    after: str
    at: float = 0.0


class Records:
    """The files that init wrote in a project. `folder`: that of the copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, WrittenFile] = {}
        self._folders: list[str] = []
        self.server: RemoteServer | None = None
        self._load()

    def __contains__(self, path: Path) -> bool:
        """Whether init wrote the file."""
        return _key(path) in self._files

    def before(self, path: Path) -> str | None:
        """The text of a file before init wrote it; None without a record, or if it did not exist."""
        written = self._files.get(_key(path))
        return written and written.before

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
        before = None if written is None else written.before
        return before if _BLANK.fullmatch(without) and _BLANK.fullmatch(before or "") else without

    def note(self, path: Path, written: WrittenFile | None) -> None:
        """Note what init is about to write, and the folders that are missing for it; None once it is undone. Raises
        OSError and StoreError."""
        if written is None and path not in self:
            return
        with self._changed():
            if written is None:
                self._files.pop(_key(path), None)
            else:
                self._files[_key(path)] = written._replace(at=time.time())
                self._forget_removed()
                missing = [str(it) for it in Path(_key(path)).parents if not it.exists()]
                self._folders += [it for it in missing if it not in self._folders]

    def remove_empty_folders(self) -> None:
        """Remove the folders that init created, if nothing is left in them. Raises OSError and StoreError."""
        if not self._folders:
            return
        with self._changed():
            for folder in sorted(self._folders, reverse=True):  # the inner ones first
                with suppress(OSError):  # not empty
                    os.rmdir(folder)
            self._folders = [it for it in self._folders if os.path.isdir(it)]

    def use_server(self, server: RemoteServer | None) -> None:
        """Note the server that the hosts use, for as long as init's files are there. Raises OSError and StoreError."""
        if server != self.server:
            with self._changed():
                self.server = server

    def _forget_removed(self) -> None:
        """Drop files that are gone, such as those of removed worktrees."""
        before = time.time() - PENDING_SECONDS
        self._files = {path: it for path, it in self._files.items() if it.at > before or os.path.lexists(path)}

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Change what is noted, while no other process does: several worktrees may be created at the same time."""
        make_private_folder(self.folder)
        with open(os.open(self.folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600), "rb") as lock:
            with suppress(ImportError):
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            self._load()
            yield
            with new_private_file(self.folder / FILE, replaces=True) as file:
                server = self.server if self._files else None
                file.write(json.dumps({"files": self._files, "folders": self._folders, "server": server}).encode())

    def _load(self) -> None:
        # None, or a damaged one: as if init had not run.
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            given = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
            files = given["files"] if isinstance(given.get("folders"), list) else given  # as until 0.1.0
            self._files = {path: WrittenFile(*written) for path, written in files.items()}
            self._folders = list(map(str, given["folders"]))
            self.server = RemoteServer(*given["server"]) if given.get("server") else None


def _key(path: Path) -> str:
    return os.path.realpath(path)
