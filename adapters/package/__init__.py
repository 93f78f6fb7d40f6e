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
    from holdlog.adapters.state.creating import create_state
    from holdlog.adapters.state.history import AsyncThreadHistory, ThreadHistory
    from holdlog.adapters.state.past import DataChange, StateAt
    from holdlog.adapters.state.state import State
    from holdlog.adapters.stores.copying.copy import CopyReport
    from holdlog.adapters.threads.conversation import (
        AgentResult,
        InferenceResult,
        TextContent,
        TextMessage,
        ToolCall,
        ToolCallMessage,
        ToolResultMessage,
        UserMessage,
    )
    from holdlog.domain.refusals import (
        BusyError,
        ConflictError,
        DataConflictError,
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
    "AgentResult",
    "AlreadyClaimed",
    "AlreadyFree",
    "AsyncStateStore",
    "AsyncThreadHistory",
    "Available",
    "Board",
    "Busy",
    "BusyError",
    "Claimed",
    "ClearResult",
    "CloudEvent",
    "ConflictError",
    "CopyReport",
    "DataChange",
    "DataConflictError",
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
    "InferenceResult",
    "InvalidError",
    "NatsError",
    "NotFoundError",
    "NotHolder",
    "Past",
    "Released",
    "SealedError",
    "SetResult",
    "Settings",
    "State",
    "StateAt",
    "StateRecord",
    "StateStore",
    "StoreError",
    "Subscription",
    "TextContent",
    "TextMessage",
    "ThreadHistory",
    "ToolCall",
    "ToolCallMessage",
    "ToolResultMessage",
    "UnavailableError",
    "UserMessage",
    "WaitTimeout",
    "WatchTimeout",
    "__version__",
    "copy",
    "create_state",
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
    "holdlog.adapters.threads.conversation": (
        "AgentResult",
        "InferenceResult",
        "TextContent",
        "TextMessage",
        "ToolCall",
        "ToolCallMessage",
        "ToolResultMessage",
        "UserMessage",
    ),
    "holdlog.adapters.state.creating": ("create_state",),
    "holdlog.adapters.state.history": ("AsyncThreadHistory", "ThreadHistory"),
    "holdlog.adapters.state.past": ("DataChange", "StateAt"),
    "holdlog.adapters.state.state": ("State",),
    "holdlog.domain.refusals": (
        "BusyError",
        "ConflictError",
        "DataConflictError",
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
