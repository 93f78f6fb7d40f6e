"""The one place that wires: which store, which bell, which writer."""

import logging
import os
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdlog.adapters.calls import Calls, Settings
from holdlog.adapters.machine import host
from holdlog.adapters.machine.bells import MachineBell, ProcessBell
from holdlog.adapters.opened import Opened
from holdlog.adapters.stores.memory import MemoryStore
from holdlog.domain.message import Caller
from holdlog.domain.refusals import StoreError

MEMORY: Final = ":memory:"

_log = logging.getLogger("holdlog")


def open_holdlog(
    place: str | Path,
    settings: Settings | None = None,
    session: str | None = None,
    tell: Callable[[str], None] = _log.info,
) -> Opened:
    """Open what `place` names: `:memory:` or a file; `tell` is told when its schema was migrated.

    Raises StoreError, UnavailableError.
    """
    caller = Caller(session=session or process_session())
    calls = Calls(settings or Settings(), host.now)
    if str(place) == MEMORY:
        return _kept(Opened(MemoryStore(), ProcessBell(), caller, calls))
    if "://" in str(place):
        raise StoreError(f"{str(place).split('://')[0]}:// stores are planned; give the path of a file")
    from holdlog.adapters.stores.opening import open_sqlite

    path = Path(os.path.realpath(Path(place).expanduser()))
    store = open_sqlite(path, tell=tell)
    bell = MachineBell(path.with_name(path.name + ".bells"), store.changed)
    return _kept(Opened(store, bell, caller, calls))


def process_session() -> str:
    """A name for this process among all that share a store; a fork gets its own."""
    return f"p-{secrets.token_hex(5)}"


def _kept(opened: Opened) -> Opened:
    _opened.add(opened)
    return opened


_opened: "weakref.WeakSet[Opened]" = weakref.WeakSet()


def _abandon_after_fork() -> None:
    for opened in list(_opened):
        opened.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_after_fork)
