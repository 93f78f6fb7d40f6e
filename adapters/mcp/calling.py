"""The caller of an MCP request, and its store."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from holdlog.adapters.api.validation import SESSION, caller, text
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.refusals import InvalidError

MCP_SESSION: Final = "mcp_session"
"""Key in the state of a scope: the Mcp-Session-Id of a request up to 2025-11-25."""
OPEN_REQUEST: Final = "open_request"
"""Key in the state of a scope: an ExitStack that closes with the request, for resources that live as long."""

_SESSION_FACTS: Final = ("holdlog/session", "ai.opencode/sessionID", "threadId")
_CALL_FACTS: Final = ("request_id", "correlation_id")


class RequestMetadata(Protocol):
    """The metadata of a request: its `_meta`, and the HTTP request that carried it, if any."""

    @property
    def meta(self) -> Mapping[str, Any] | None: ...

    @property
    def request(self) -> Any: ...


def context_of(request: RequestMetadata | None, local: Engine | None) -> RequestContext:
    """The context of a request. Its session is that of `_meta`, else Mcp-Session-Id, else that of the HTTP request or
    of this process. Raises InvalidError."""
    meta = (request.meta if request else None) or {}
    facts = _call_facts(meta)
    if local is not None:
        own = RequestContext(local, local.caller)
        return own._replace(caller=caller(own.caller, session=_session_of(meta, None, own), **facts))
    assert request is not None
    assert request.request is not None
    state = request.request.scope["state"]
    base: RequestContext = state["served"]
    session = _session_of(meta, state.get(MCP_SESSION), base)
    if session is not None and session != base.caller.session:
        state[OPEN_REQUEST].enter_context(base.engine.lease_maintenance.request_of(base.caller.principal, session))
    return base._replace(caller=caller(base.caller, session=session, **facts))


def _call_facts(meta: Mapping[str, Any]) -> dict[str, str | None]:
    """The request id and the correlation id of a call."""
    facts = {name: meta.get(f"holdlog/{name}") for name in _CALL_FACTS}
    for name, fact in facts.items():
        if fact is not None and not isinstance(fact, str):
            raise InvalidError(f"holdlog/{name}: must be a string")
    return facts


def _session_of(meta: Mapping[str, Any], mcp_session: str | None, base: RequestContext) -> str | None:
    """The session that the request names; None if it names none."""
    identity = base.engine.identity
    for name in _SESSION_FACTS:
        given = meta.get(name)
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)
        if isinstance(given, str):
            return identity.session("meta", f"{name} {text(given, name, SESSION)}")
        if given is not None and name == _SESSION_FACTS[0]:
            raise InvalidError(f"{name}: must be a string")
    return None if mcp_session is None else identity.session("mcp", mcp_session)
