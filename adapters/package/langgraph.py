"""holdlog as LangGraph's store: `from holdlog.langgraph import HoldlogStore`. Needs the extra `langgraph`."""

try:
    import langgraph.store.base  # noqa: F401
except ImportError as error:
    from holdlog.adapters.operating_system.extras import missing

    raise ImportError(missing(error.name) or str(error), name=error.name) from None

from holdlog.adapters.langgraph.items import VersionedItem, VersionedSearchItem
from holdlog.adapters.langgraph.operations import VersionedPut
from holdlog.adapters.langgraph.store import HoldlogStore

__all__ = ["HoldlogStore", "VersionedItem", "VersionedPut", "VersionedSearchItem"]
