"""holdlog: a coordination store for AI agents. Versioned shared values and claims on resources, kept as a log of
events."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from holdlog.adapters.nats.subscriber import subscribe as subscribe
    from holdlog.adapters.operations.conversation import AgentResult as AgentResult, TextMessage as TextMessage
    from holdlog.adapters.operations.conversation import ToolCallMessage as ToolCallMessage
    from holdlog.adapters.operations.conversation import ToolResultMessage as ToolResultMessage
    from holdlog.adapters.python.async_store import AsyncStateStore as AsyncStateStore
    from holdlog.adapters.python.state import State as State, create_state as create_state
    from holdlog.adapters.python.store import StateStore as StateStore
    from holdlog.domain.refusals import BusyError as BusyError, ConflictError as ConflictError
    from holdlog.domain.refusals import CurrentError as CurrentError, DeadlockError as DeadlockError
    from holdlog.domain.refusals import FencedError as FencedError, HoldlogError as HoldlogError
    from holdlog.domain.refusals import InapplicableError as InapplicableError, InvalidError as InvalidError
    from holdlog.domain.refusals import NotFoundError as NotFoundError, StoreError as StoreError
    from holdlog.domain.refusals import UnavailableError as UnavailableError

    InferenceResult = AgentResult

_STATE = "adapters.python.state"
_CONVERSATION = "adapters.operations.conversation"
_REFUSALS = "domain.refusals"
_PLACES = {
    "StateStore": "adapters.python.store",
    "AsyncStateStore": "adapters.python.async_store",
    "subscribe": "adapters.nats.subscriber",
    **dict.fromkeys(("State", "create_state"), _STATE),
    **dict.fromkeys(("AgentResult", "TextMessage", "ToolCallMessage", "ToolResultMessage"), _CONVERSATION),
    **dict.fromkeys(("BusyError", "ConflictError", "CurrentError", "DeadlockError", "FencedError"), _REFUSALS),
    **dict.fromkeys(("HoldlogError", "InapplicableError", "InvalidError", "NotFoundError"), _REFUSALS),
    **dict.fromkeys(("StoreError", "UnavailableError"), _REFUSALS),
}
__all__ = [name for name in _PLACES if name != "subscribe"]  # it needs an extra; all results: see __getattr__
_RESULTS = (
    *("domain.refusals", "domain.results", "projections.results", "domain.claims.results", "projections.board"),
    *("projections.difference", "domain.revert", "domain.threads", "domain.tokens"),
)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]


def __getattr__(name: str) -> Any:
    """Import on first use: a hook must not load pydantic."""
    name = "AgentResult" if name == "InferenceResult" else name
    for place in (_PLACES[name],) if name in _PLACES else _RESULTS:
        try:
            module = import_module(f"holdlog.{place}")
        except ModuleNotFoundError as error:
            if name != "subscribe":
                raise
            raise ImportError(f"{error.name} is not installed; install holdlog[nats]") from None
        if not name.startswith("_") and hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module holdlog has no attribute {name}")
