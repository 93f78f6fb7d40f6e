"""Who makes an MCP request, and for which store."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from holdlog.adapters.arguments import caller
from holdlog.adapters.opened import Opened
from holdlog.adapters.served import Served
from holdlog.domain.refusals import InvalidError

_SESSION_FACTS: Final = ("holdlog/session", "ai.opencode/sessionID", "threadId")


class Asked(Protocol):
    """What is known of a request: its `_meta`, and the HTTP request that brought it, if one did."""

    @property
    def meta(self) -> Mapping[str, Any] | None: ...

    @property
    def request(self) -> Any: ...


def served_by(request: Asked | None, local: Opened | None) -> Served:
    """Who calls, by what the request says of itself; the process's own session otherwise. Raises InvalidError."""
    meta = (request.meta if request else None) or {}
    session = next((fact for name in _SESSION_FACTS if isinstance(fact := meta.get(name), str)), None)
    request_id = meta.get("holdlog/request_id")
    if request_id is not None and not isinstance(request_id, str):
        raise InvalidError("holdlog/request_id: must be a string")
    if local is None:
        assert request is not None
        assert request.request is not None
        base: Served = request.request.scope["state"]["served"]
    else:
        base = Served(local, local.caller)
    return base._replace(caller=caller(base.caller, session=session, request_id=request_id))
