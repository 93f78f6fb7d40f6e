"""The calls of a caller with grants: as all calls, but what the grants do not allow raises DeniedError."""

from holdlog.adapters.access.grants import Grants
from holdlog.adapters.calls import Calls


class Permitted(Calls):
    """Calls on the same store as `calls`, within `grants`; lists and boards show only what these allow to see.

    What each call needs stands in docs/tokens.md."""

    def __init__(self, calls: Calls, grants: Grants) -> None:
        super().__init__(calls._settings, calls._clock, calls.steady, calls._connected)
        self.grants = grants
