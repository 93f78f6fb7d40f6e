"""The MCP server that the host of this hook started: hooks and MCP calls of one host are one session.

Standard library only and quick to import: the hook's fast path uses it.
"""

import json
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.auth.identity import is_hashed
from holdlog.adapters.operating_system.ancestry import host_of

MAX_PRESENCE_BYTES: Final = 4096
_STDIO: Final = "mcp stdio"
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)


class BoundServer(NamedTuple):
    """A live stdio server: its name in leases, its session, hashed, and the version of its client, if it knows that."""

    server: str
    session: str
    version: str = ""


def find_server(store: Path) -> BoundServer | None:
    """The newest stdio server of this hook's host that has the store open."""
    host = host_of(os.getpid())
    return None if host is None else newest_server(store, [host])


def newest_server(store: Path, hosts: Collection[int]) -> BoundServer | None:
    """The newest stdio server that one of the processes `hosts` started and that has the store open."""
    newest, found = "", None
    for name, facts in _live_servers(store):
        started, pid = str(facts.get("started", "")), facts.get("pid")
        if started >= newest and isinstance(pid, int) and pid > 0 and host_of(pid) in hosts:
            version = _version_in(str(facts["what"]))
            newest, found = started, BoundServer(name.removesuffix(".json"), str(facts["session"]), version)
    return found


def folders_of_servers(store: Path) -> list[tuple[str, str]]:
    """The sessions of live stdio servers, each with the working directory of its server."""
    return [(str(facts["session"]), str(facts.get("folder", ""))) for _, facts in _live_servers(store)]


def sessions_with_server(store: Path) -> set[str]:
    """The sessions of live stdio servers."""
    return {str(facts["session"]) for _, facts in _live_servers(store)}


def _live_servers(store: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """The presence files of live stdio servers, with their names."""
    folder = sessions_folder(store)
    with suppress(OSError):
        for name in os.listdir(folder):
            facts = {} if name.startswith(".") or not name.endswith(".json") else _read_live(folder / name)
            if str(facts.get("what", "")).startswith(_STDIO) and is_hashed(str(facts.get("session"))):
                yield name, facts


def _version_in(what: str) -> str:
    """The version of the client, from how its server describes itself: `mcp stdio, claude-code 2.1.319`."""
    last = what.rpartition(" ")[2]
    return last if last[:1].isdigit() else ""


def sessions_folder(store: Path) -> Path:
    """The folder with a presence file for each connected process."""
    return store.with_name(f"{store.name}.sessions")


def _read_live(path: Path) -> dict[str, object]:
    """The presence file (presence.py) of a live process; empty if the process ended or the file is another's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NOFOLLOW)
    except OSError:
        return {}
    try:
        if hasattr(os, "geteuid") and os.fstat(descriptor).st_uid != os.geteuid():
            return {}
        if _is_unlocked(descriptor):
            return {}
        facts = json.loads(os.read(descriptor, MAX_PRESENCE_BYTES))
        return facts if isinstance(facts, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(descriptor)


def _is_unlocked(descriptor: int) -> bool:
    """Whether the process that wrote the file has ended: the kernel released its lock."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
