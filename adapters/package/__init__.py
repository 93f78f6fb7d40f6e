"""holdlog: shared state and claims for agents that work side by side, kept as a log of events.

Names load on first use: `import holdlog` alone imports no dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdlog.adapters.calls import Settings
    from holdlog.adapters.library import AsyncStateStore, StateStore
    from holdlog.domain.refusals import (
        ConflictError,
        HoldlogError,
        InvalidError,
        NotFoundError,
        StoreError,
        UnavailableError,
    )

    __version__: str

__all__ = [
    "AsyncStateStore",
    "ConflictError",
    "HoldlogError",
    "InvalidError",
    "NotFoundError",
    "Settings",
    "StateStore",
    "StoreError",
    "UnavailableError",
    "__version__",
]

_MODULE_OF = {
    "AsyncStateStore": "holdlog.adapters.library",
    "Settings": "holdlog.adapters.calls",
    "StateStore": "holdlog.adapters.library",
    "ConflictError": "holdlog.domain.refusals",
    "HoldlogError": "holdlog.domain.refusals",
    "InvalidError": "holdlog.domain.refusals",
    "NotFoundError": "holdlog.domain.refusals",
    "StoreError": "holdlog.domain.refusals",
    "UnavailableError": "holdlog.domain.refusals",
}


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
