"""The context of one request: its store, its caller, and what the caller may do."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdlog.adapters.api.request import always_valid
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller


class RequestContext(NamedTuple):
    """The store, caller and grants of one request. `still`: whether the token is still valid, for streams and
    waits, which may outlive it."""

    engine: Engine
    caller: Caller
    grants: Grants = EVERYTHING
    still: Callable[[], Awaitable[bool]] = always_valid

    @property
    def requests(self) -> Requests:
        """Builder of requests. Each method raises DeniedError for what the grants do not allow."""
        return self.engine.requests if self.grants is EVERYTHING else self.engine.requests.within(self.grants)
