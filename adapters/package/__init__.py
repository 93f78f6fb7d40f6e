"""holdlog: a coordination store for AI agents. Versioned shared values and claims on resources, kept as a log of
events.
Names load on first use: `import holdlog` alone imports no dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdlog.adapters.api.claims.responses import (
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
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.api.threads.conversation import (
        AgentResult,
        InferenceResult,
        TextContent,
        TextMessage,
        ToolCall,
        ToolCallMessage,
        ToolResultMessage,
        UserMessage,
    )
    from holdlog.adapters.api.values.responses import (
        ClearResult,
        Deleted,
        DeleteResult,
        Export,
        Past,
        SetResult,
        StateRecord,
        WatchTimeout,
    )
    from holdlog.adapters.nats.errors import EventsLostError, NatsError
    from holdlog.adapters.nats.payload import CloudEvent
    from holdlog.adapters.python.async_store import AsyncStateStore
    from holdlog.adapters.python.block import HeldClaim
    from holdlog.adapters.python.copying import copy
    from holdlog.adapters.python.state.async_history import AsyncThreadHistory
    from holdlog.adapters.python.state.creating import create_state
    from holdlog.adapters.python.state.history import ThreadHistory
    from holdlog.adapters.python.state.past import DataChange, StateAt
    from holdlog.adapters.python.state.state import State
    from holdlog.adapters.python.store import StateStore
    from holdlog.adapters.python.subscriber import Subscription, subscribe
    from holdlog.adapters.stores.copying.copy import CopyReport
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
    "holdlog.adapters.api.settings": ("Settings",),
    "holdlog.adapters.python.copying": ("copy",),
    "holdlog.adapters.stores.copying.copy": ("CopyReport",),
    "holdlog.adapters.python.async_store": ("AsyncStateStore",),
    "holdlog.adapters.python.store": ("StateStore",),
    "holdlog.adapters.python.block": ("HeldClaim",),
    "holdlog.adapters.nats.errors": ("EventsLostError", "NatsError"),
    "holdlog.adapters.nats.payload": ("CloudEvent",),
    "holdlog.adapters.python.subscriber": ("Subscription", "subscribe"),
    "holdlog.adapters.api.claims.responses": (
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
    "holdlog.adapters.api.values.responses": (
        "ClearResult",
        "Deleted",
        "DeleteResult",
        "Export",
        "Past",
        "SetResult",
        "StateRecord",
        "WatchTimeout",
    ),
    "holdlog.adapters.api.threads.conversation": (
        "AgentResult",
        "InferenceResult",
        "TextContent",
        "TextMessage",
        "ToolCall",
        "ToolCallMessage",
        "ToolResultMessage",
        "UserMessage",
    ),
    "holdlog.adapters.python.state.creating": ("create_state",),
    "holdlog.adapters.python.state.async_history": ("AsyncThreadHistory",),
    "holdlog.adapters.python.state.history": ("ThreadHistory",),
    "holdlog.adapters.python.state.past": ("DataChange", "StateAt"),
    "holdlog.adapters.python.state.state": ("State",),
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
