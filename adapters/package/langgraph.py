"""LangGraph's store: `from holdlog.langgraph import HoldlogStore`. Needs `holdlog[langgraph]`."""

try:
    from holdlog.adapters.langgraph.store import VersionedItem as VersionedItem
    from holdlog.adapters.langgraph.store import HoldlogStore as HoldlogStore, VersionedPut as VersionedPut
except ModuleNotFoundError as error:
    raise ImportError(f"{error.name} is not installed; install holdlog[langgraph]") from None
