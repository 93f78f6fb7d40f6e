"""LangGraph's store: `from holdlog.langgraph import HoldlogStore`. Needs `holdlog[langgraph]`."""

from holdlog.adapters.langgraph.store import VersionedItem as VersionedItem
from holdlog.adapters.langgraph.store import HoldlogStore as HoldlogStore, VersionedPut as VersionedPut
