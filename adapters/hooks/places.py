"""Which stores a hook call concerns: a file belongs to the innermost repository around it that uses holdlog, no matter
where the agent works. Quick to import."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.operating_system import location
from holdlog.adapters.operating_system.files import is_missing
from holdlog.adapters.policy.in_force import FILE
from holdlog.domain.refusals import StoreError

SERVER_FILE: Final = "server"  # next to the store
TOKEN: Final = "HOLDLOG_TOKEN"


class Place(NamedTuple):
    """A repository that uses holdlog, or a folder with `.holdlog`: path or URL of its store, and root folder."""

    store: str
    root: str


class Server(NamedTuple):
    """A server over HTTP that agents on many hosts share. `url`: without `/mcp`. `token`: where to read its token:
    TOKEN for that variable, the absolute path of a file, or empty if the server needs none."""

    url: str
    token: str = ""


def read_server(store: str) -> Server | None:
    """The server that `holdlog init --url` wrote into a file next to the store, which git does not track."""
    with suppress(OSError, ValueError), open(f"{os.path.dirname(store)}/{SERVER_FILE}", encoding="utf-8") as file:
        lines = [line for line in file.read(location.MAX_POINTER_BYTES).splitlines() if line and line[0] != "#"]
        return Server(*lines[:2]) if lines else None
    return None


class Places:
    """Finds the place of a file."""

    def __init__(self, environ: Mapping[str, str], folder: str) -> None:
        """`folder`: where the agent works. Raises StoreError, InvalidError."""
        self._home = location.find_home(environ)
        self._start = location.find_start(environ, folder)
        named = location.read_variable("db")
        self.named = None if named in (None, ":memory:") else location.find_store(named, environ, folder)
        """Where the store is, if the user has named it."""
        self.own = self.find(self._start)

    def find(self, folder: str) -> Place | None:
        """The place of a folder, whose path must contain no links; None if holdlog is not used there."""
        if self.named is not None:
            is_used = location.is_url(self.named) or not is_missing(self.named)
            return Place(self.named, self._start) if is_used else None
        for around in location.go_up(folder, self._home):
            if (place := _read_place(around)) is not None and os.path.dirname(place.store) != f"{self._home}/holdlog":
                return place
        own = location.find_own_folder(folder, self._home)
        store = f"{own}/{location.STORE_FILE}"
        return Place(os.path.realpath(store), os.path.dirname(own)) if own and not is_missing(store) else None

    def split(self, call: HookCall) -> dict[Place, list[str]]:
        """The paths of a call by their places; the agent's own place is the first."""
        parts: dict[Place, list[str]] = {} if self.own is None else {self.own: []}
        for path in call.targets.paths:
            real = os.path.realpath(path)
            folder = real if os.path.isdir(real) else os.path.dirname(real)
            place = self.find(folder) or (self.own if self.named else None)
            if place is not None:
                parts.setdefault(place, []).append(path)
        for command in call.targets.git:
            if (place := self.find(os.path.realpath(command.folder))) is not None:
                parts.setdefault(place, [])
        return parts


@cache
def _read_place(folder: str) -> Place | None:
    """The repository with this root, if it uses holdlog. A broken one is part of the repository around it."""
    try:
        repository = location.read_repository(folder)
    except StoreError:
        return None
    if repository is None:
        return None
    store = os.path.realpath(f"{repository.common}/holdlog/{location.STORE_FILE}")
    return Place(store, folder) if not is_missing(store) or os.path.isfile(f"{folder}/{FILE}") else None
