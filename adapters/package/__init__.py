"""holdlog: a coordination store for AI agents. Versioned shared values and claims on resources, kept as a log of
events.
Names load on first use: `import holdlog` alone imports no dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdlog.adapters.api.changes.responses import Blame as Blame, Diff as Diff
    from holdlog.adapters.api.claims.responses import (
        AlreadyClaimed as AlreadyClaimed,
        AlreadyFree as AlreadyFree,
        Available as Available,
        Board as Board,
        Busy as Busy,
        Claimed as Claimed,
        Deadlock as Deadlock,
        Expired as Expired,
        Held as Held,
        NotHolder as NotHolder,
        Released as Released,
        WaitTimeout as WaitTimeout,
    )
    from holdlog.adapters.api.settings import Settings as Settings
    from holdlog.adapters.api.threads.conversation import (
        AgentResult as AgentResult,
        InferenceResult as InferenceResult,
        TextContent as TextContent,
        TextMessage as TextMessage,
        ToolCall as ToolCall,
        ToolCallMessage as ToolCallMessage,
        ToolResultMessage as ToolResultMessage,
        UserMessage as UserMessage,
    )
    from holdlog.adapters.api.values.responses import (
        ClearResult as ClearResult,
        Deleted as Deleted,
        DeleteResult as DeleteResult,
        Export as Export,
        Past as Past,
        SetResult as SetResult,
        StateRecord as StateRecord,
        TransactionResult as TransactionResult,
        UpdateResult as UpdateResult,
        WatchTimeout as WatchTimeout,
    )
    from holdlog.adapters.nats.errors import EventsLostError as EventsLostError, NatsError as NatsError
    from holdlog.adapters.nats.payload import CloudEvent as CloudEvent
    from holdlog.adapters.python.async_past_store import AsyncPastStore as AsyncPastStore
    from holdlog.adapters.python.async_store import AsyncStateStore as AsyncStateStore
    from holdlog.adapters.python.block import HeldClaim as HeldClaim
    from holdlog.adapters.python.copying import copy as copy
    from holdlog.adapters.python.past_store import PastStore as PastStore
    from holdlog.adapters.python.state.async_history import AsyncThreadHistory as AsyncThreadHistory
    from holdlog.adapters.python.state.creating import create_state as create_state
    from holdlog.adapters.python.state.history import ThreadHistory as ThreadHistory
    from holdlog.adapters.python.state.past import DataChange as DataChange, StateAt as StateAt
    from holdlog.adapters.python.state.state import State as State
    from holdlog.adapters.python.store import StateStore as StateStore
    from holdlog.adapters.python.subscriber import Subscription as Subscription, subscribe as subscribe
    from holdlog.adapters.stores.copying.copy import CopyReport as CopyReport
    from holdlog.domain.refusals import (
        BusyError as BusyError,
        ConflictError as ConflictError,
        DataConflictError as DataConflictError,
        DeadlockError as DeadlockError,
        FencedError as FencedError,
        HoldlogError as HoldlogError,
        InapplicableError as InapplicableError,
        InvalidError as InvalidError,
        NotFoundError as NotFoundError,
        SealedError as SealedError,
        StoreError as StoreError,
        UnavailableError as UnavailableError,
    )

    __version__: str

_NAMES_IN = {
    "holdlog.adapters.api.settings": ("Settings",),
    "holdlog.adapters.python.copying": ("copy",),
    "holdlog.adapters.stores.copying.copy": ("CopyReport",),
    "holdlog.adapters.python.async_past_store": ("AsyncPastStore",),
    "holdlog.adapters.python.async_store": ("AsyncStateStore",),
    "holdlog.adapters.python.past_store": ("PastStore",),
    "holdlog.adapters.python.store": ("StateStore",),
    "holdlog.adapters.python.block": ("HeldClaim",),
    "holdlog.adapters.nats.errors": ("EventsLostError", "NatsError"),
    "holdlog.adapters.nats.payload": ("CloudEvent",),
    "holdlog.adapters.python.subscriber": ("Subscription", "subscribe"),
    "holdlog.adapters.api.changes.responses": ("Blame", "Diff"),
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
        "TransactionResult",
        "UpdateResult",
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
        "InapplicableError",
        "InvalidError",
        "NotFoundError",
        "SealedError",
        "StoreError",
        "UnavailableError",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names}
__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("holdlog")
    elif name in _MODULE_OF:
        try:
            value = getattr(import_module(_MODULE_OF[name]), name)
        except ModuleNotFoundError as error:
            from holdlog.adapters.operating_system.extras import missing

            raise ImportError(missing(error.name) or str(error), name=error.name) from None
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
