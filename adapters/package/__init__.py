"""holdlog: shared state and claims for agents that work side by side, kept as a log of events.

Names load on first use: `import holdlog` alone imports no dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdlog.adapters.call import Settings
    from holdlog.adapters.claims.held import HeldClaim
    from holdlog.adapters.claims.results import (
        AlreadyClaimed,
        AlreadyFree,
        Available,
        Board,
        Busy,
        Claimed,
        Deadlock,
        Expired,
        Held,
        NotHolder,
        Released,
        WaitTimeout,
    )
    from holdlog.adapters.copying import copy
    from holdlog.adapters.library import AsyncStateStore, StateStore
    from holdlog.adapters.nats.errors import EventsLostError, NatsError
    from holdlog.adapters.nats.payload import CloudEvent
    from holdlog.adapters.nats.subscriber import Subscription, subscribe
    from holdlog.adapters.results import (
        ClearResult,
        Deleted,
        DeleteResult,
        Export,
        Past,
        SetResult,
        StateRecord,
        WatchTimeout,
    )
    from holdlog.adapters.stores.copying.copy import CopyReport
    from holdlog.domain.refusals import (
        BusyError,
        ConflictError,
        DeadlockError,
        FencedError,
        HoldlogError,
        InvalidError,
        NotFoundError,
        SealedError,
        StoreError,
        UnavailableError,
    )

    __version__: str

__all__ = [
    "AlreadyClaimed",
    "AlreadyFree",
    "AsyncStateStore",
    "Available",
    "Board",
    "Busy",
    "BusyError",
    "Claimed",
    "ClearResult",
    "CloudEvent",
    "ConflictError",
    "CopyReport",
    "Deadlock",
    "DeadlockError",
    "DeleteResult",
    "Deleted",
    "EventsLostError",
    "Expired",
    "Export",
    "FencedError",
    "Held",
    "HeldClaim",
    "HoldlogError",
    "InvalidError",
    "NatsError",
    "NotFoundError",
    "NotHolder",
    "Past",
    "Released",
    "SealedError",
    "SetResult",
    "Settings",
    "StateRecord",
    "StateStore",
    "StoreError",
    "Subscription",
    "UnavailableError",
    "WaitTimeout",
    "WatchTimeout",
    "__version__",
    "copy",
    "subscribe",
]

_NAMES_IN = {
    "holdlog.adapters.call": ("Settings",),
    "holdlog.adapters.copying": ("copy",),
    "holdlog.adapters.stores.copying.copy": ("CopyReport",),
    "holdlog.adapters.library": (
        "AsyncStateStore",
        "StateStore",
    ),
    "holdlog.adapters.claims.held": ("HeldClaim",),
    "holdlog.adapters.nats.errors": ("EventsLostError", "NatsError"),
    "holdlog.adapters.nats.payload": ("CloudEvent",),
    "holdlog.adapters.nats.subscriber": ("Subscription", "subscribe"),
    "holdlog.adapters.claims.results": (
        "AlreadyClaimed",
        "AlreadyFree",
        "Available",
        "Board",
        "Busy",
        "Claimed",
        "Deadlock",
        "Expired",
        "Held",
        "NotHolder",
        "Released",
        "WaitTimeout",
    ),
    "holdlog.adapters.results": (
        "ClearResult",
        "Deleted",
        "DeleteResult",
        "Export",
        "Past",
        "SetResult",
        "StateRecord",
        "WatchTimeout",
    ),
    "holdlog.domain.refusals": (
        "BusyError",
        "ConflictError",
        "DeadlockError",
        "FencedError",
        "HoldlogError",
        "InvalidError",
        "NotFoundError",
        "SealedError",
        "StoreError",
        "UnavailableError",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("holdlog")
    elif name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
