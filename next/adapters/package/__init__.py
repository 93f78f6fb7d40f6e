"""holdlog: a coordination store for AI agents. Versioned shared values and claims on resources, kept as a log of
events."""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

__all__ = ("AsyncStateStore", "StateStore", "subscribe")  # and every refusal and result: see __getattr__

if TYPE_CHECKING:
    from holdlog.adapters.nats.subscriber import subscribe as subscribe
    from holdlog.adapters.python.async_store import AsyncStateStore as AsyncStateStore
    from holdlog.adapters.python.store import StateStore as StateStore
    from holdlog.domain.refusals import (
        BusyError as BusyError,
        ConflictError as ConflictError,
        CurrentError as CurrentError,
        DeadlockError as DeadlockError,
        FencedError as FencedError,
        HoldlogError as HoldlogError,
        InapplicableError as InapplicableError,
        InvalidError as InvalidError,
        NotFoundError as NotFoundError,
        StoreError as StoreError,
        UnavailableError as UnavailableError,
    )


def __getattr__(name: str) -> Any:
    """Import on first use: a hook must not load pydantic."""
    if name == "StateStore":
        from holdlog.adapters.python.store import StateStore

        return StateStore
    if name == "AsyncStateStore":
        from holdlog.adapters.python.async_store import AsyncStateStore

        return AsyncStateStore
    if name == "subscribe":
        from holdlog.adapters.nats.subscriber import subscribe

        return subscribe
    from holdlog.domain import refusals, results, revert, threads, tokens
    from holdlog.domain.claims import results as claim_results
    from holdlog.projections import board, difference, results as query_results

    for module in (refusals, results, query_results, claim_results, board, difference, revert, threads, tokens):
        if not name.startswith("_") and hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module holdlog has no attribute {name}")
