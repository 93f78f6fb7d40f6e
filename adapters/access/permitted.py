"""The calls of a caller with grants: as all calls, but what the grants do not allow raises DeniedError."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

from holdlog.adapters.access.grants import Grants, Scope
from holdlog.adapters.call import Read, Stand, Write
from holdlog.adapters.calls import Calls
from holdlog.adapters.claims import results as claims
from holdlog.adapters.events.choice import Choice
from holdlog.adapters.results import Result
from holdlog.domain.names import claim_stream


class Permitted(Calls):
    """Calls on the same store as `calls`, within `grants`."""

    def __init__(self, calls: Calls, grants: Grants) -> None:
        super().__init__(calls._settings, calls._clock, calls.steady, calls._connected)
        self.grants = grants
        self.sees = grants.sees

    def choice(
        self,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        agent: str | None = None,
    ) -> Choice:
        """Raises DeniedError for a namespace or resource whose events may not be seen: nothing would ever come."""
        choice = super().choice(namespace, prefix, kinds, resource, agent)
        if choice.namespace is not None:
            self.grants.require("read", choice.namespace)
        if choice.resource is not None and not self.grants.sees(claim_stream(choice.resource)):
            self.grants.require("read", self._spelled(choice.resource))
        return choice

    def claim(self, resource: str, agent: str, also: Sequence[str] = (), *rest: Any, **named: Any) -> Stand[Result]:
        alternatives = rest[0] if rest else named.get("alternatives") or ()
        for name in (resource, *also, *alternatives):
            self._require_claim(name)
        return super().claim(resource, agent, also, *rest, **named)

    def release(
        self, resource: str | None, agent: str, also: Sequence[str] = (), *rest: Any, **named: Any
    ) -> Write[claims.Released | claims.AlreadyFree]:
        for name in (*([] if resource is None else [resource]), *also):
            self._require_claim(name)
        return super().release(resource, agent, also, *rest, **named)

    def board(self, agent: str | None = None, limit: int = 100, after: str | None = None) -> Read[claims.Board]:
        return super().board(agent, limit, after)

    def _require_claim(self, resource: str) -> None:
        self.grants.require("claim", self._spelled(resource))

    def _spelled(self, resource: str) -> str:
        """As patterns name it: the short canonical form."""
        workspaces = self._settings.workspaces
        canonical = self.resource(resource)
        return canonical if workspaces is None else workspaces.shown(canonical)


_SCOPES: Final[dict[str, Scope]] = {
    "set": "write",
    "get": "read",
    "delete": "write",
    "clear_namespace": "admin",
    "list_records": "read",
    "all_records": "read",
    "history": "read",
    "all_history": "read",
    "export": "read",
    "all_exported": "read",
    "watch": "read",
}
"""Of the calls whose first argument is a namespace."""


def _within(call: Callable[..., Any], scope: Scope) -> Callable[..., Any]:
    @wraps(call)
    def permitted(self: Permitted, namespace: str, *rest: Any, **named: Any) -> Any:
        self.grants.require(scope, namespace)
        return call(self, namespace, *rest, **named)

    return permitted


for _name, _scope in _SCOPES.items():
    setattr(Permitted, _name, _within(getattr(Calls, _name), _scope))
