"""Runs requests on an open store, from threads and coroutines."""

from holdlog.adapters.runtime.async_calls import AsyncCalls
from holdlog.adapters.runtime.calls import Calls


class Engine(Calls, AsyncCalls):
    """Runs commands and queries. Methods whose names end in `_async` are for coroutines. Refusals are raised
    unchanged."""
