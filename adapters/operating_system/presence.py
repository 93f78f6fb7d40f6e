"""Presence: one file per connected process, locked by the kernel while that process lives. Does not touch the store."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdlog.adapters.operating_system.hook_socket import socket_name
from holdlog.adapters.operating_system.location import explain
from holdlog.adapters.operating_system.private import NOFOLLOW, make_private_folder, open_private, require_private
from holdlog.adapters.operating_system.write_lock import lock_file
from holdlog.domain.refusals import StoreError

MAX_BYTES: Final = 4096
"""Limit of a presence file; three texts of `MAX_TEXT` characters always fit."""
MAX_TEXT: Final = 200
_SUFFIX: Final = ".json"


class ConnectedProcess(NamedTuple):
    """A connected live process. `pid` is for display (0: unknown; it may be of another container); `started`: ISO 8601,
    UTC; `folder`: its working directory; `file`: the file that it has open (empty: unknown). `server`:
    `Presence.server`."""

    session: str
    pid: int
    what: str
    started: str
    folder: str = ""
    server: str = ""
    file: str = ""


class Presence:
    """This process's registration as connected, until `close` or the end of the process. Create it with `announce`.

    `server` identifies the process among all present and past processes of the store.
    """

    def __init__(self, path: Path, descriptor: int, session: str, what: str, file: str) -> None:
        self._path = path
        self._descriptor = descriptor
        self.server = path.stem
        self._state = ConnectedProcess(
            session, os.getpid(), what, datetime.now(UTC).isoformat(timespec="seconds"), _folder_here(), file=file
        )
        self.describe(what)

    def describe(self, what: str) -> None:
        """Describe this process more exactly, once more is known (the client's name)."""
        if self._descriptor < 0:
            return
        self._state = self._state._replace(what=what[:MAX_TEXT])
        fields = {name: value for name, value in self._state._asdict().items() if name != "server"}
        text = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
        os.pwrite(self._descriptor, text.ljust(MAX_BYTES), 0)

    def descriptors(self) -> tuple[int, ...]:
        """The locked file: it stays locked for as long as any process has it open (not on Windows)."""
        return (self._descriptor,) if self._descriptor >= 0 and os.name == "posix" else ()

    def close(self) -> None:
        """Deregister this process. Calling it again, or after a fork, does nothing."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.unlink(self._path)
            self.detach_after_fork()

    def detach_after_fork(self) -> None:
        """In a forked child: close the descriptor without releasing the lock, which belongs to the parent."""
        _present.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def announce(path: Path, session: str, what: str, file: str = "") -> Presence:
    """Announce that this process is connected to the store `path` for a session, as `what` (`mcp stdio`). `file`:
    names the file that it has open among all of this machine.

    One session may have several processes. Raises StoreError if the folder is not writable.
    """
    folder = _folder(path)
    name = f"s-{re.sub(r'[^A-Za-z0-9-]', '_', session)[:64]}.{secrets.token_hex(8)}{_SUFFIX}"
    unready = folder / f".{name}"
    try:
        make_private_folder(folder)
        for _ in _living(folder):
            pass
        descriptor = open_private(unready, os.O_RDWR | os.O_EXCL)
        lock_file(descriptor)
        presence = Presence(folder / name, descriptor, session[:MAX_TEXT], what, file)
        os.rename(unready, folder / name)
    except OSError as error:
        raise StoreError(explain(folder, "written", error)) from None
    _present.add(presence)
    return presence


def connected(path: Path) -> list[ConnectedProcess]:
    """Processes that have the store `path` open now, by start time. Removes the files of those that exited without
    `close`."""
    folder = _folder(path)
    try:
        require_private(folder)  # never remove files in another user's folder
        return sorted(_living(folder), key=lambda found: (found.started, found.pid, found.session))
    except (OSError, StoreError):
        return []


def is_connected(path: Path, server: str) -> bool:
    """Whether the process of this name (`Presence.server`) is alive. Leaves its file for `connected` to remove."""
    try:
        descriptor = os.open(_folder(path) / f"{server}{_SUFFIX}", os.O_RDONLY | os.O_CLOEXEC | NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # for example out of descriptors: that does not prove a process dead
    try:
        return not lock_file(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _folder_here() -> str:
    """The working directory; only its end if it is long."""
    try:
        folder = os.getcwd()
    except OSError:  # the folder was removed
        return ""
    return folder if len(folder) <= MAX_TEXT else "…" + folder[1 - MAX_TEXT :]


def _folder(path: Path) -> Path:
    return path.with_name(path.name + ".sessions")


def _living(folder: Path) -> Iterator[ConnectedProcess]:
    for name in os.listdir(folder):
        if name.startswith(".") or not name.endswith(_SUFFIX):
            continue
        with suppress(OSError):
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | NOFOLLOW)  # a sandbox may not write
            try:
                # Shared, so that two concurrent readers do not mistake each other for the owner.
                if lock_file(descriptor, shared=True):
                    os.unlink(folder / name)
                    os.unlink(folder / socket_name(name.removesuffix(_SUFFIX)))
                else:
                    yield _parsed(os.pread(descriptor, MAX_BYTES, 0))._replace(server=name.removesuffix(_SUFFIX))
            finally:
                os.close(descriptor)


def _parsed(text: bytes) -> ConnectedProcess:
    try:
        fields: Any = json.loads(text)
        folder, file = str(fields.get("folder", "")), str(fields.get("file", ""))  # older releases did not write them
        return ConnectedProcess(
            str(fields["session"]), int(fields["pid"]), str(fields["what"]), str(fields["started"]), folder, file=file
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ConnectedProcess("", 0, "unknown", "")


_present: set[Presence] = set()


def _abandon_after_fork() -> None:
    for presence in list(_present):
        presence.detach_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_after_fork)
