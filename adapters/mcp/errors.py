"""Refusals as JSON-RPC errors, for requests that have no other way to refuse."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdlog.adapters.api.values.presenter import named
from holdlog.adapters.api.values.requests import Requests
from holdlog.adapters.mcp.resources.addresses import UnknownAddressError
from holdlog.domain.refusals import DeniedError, HoldlogError, InvalidError, NotFoundError, StoreError

NOT_FOUND_BEFORE: Final = -32002
"""The error code of a missing resource up to 2025-11-25; since then it is an invalid parameter."""

_log = logging.getLogger("holdlog")


@contextmanager
def translated(ctx: ServerRequestContext[Any, Any], uri: str, calls: Requests, prefix: str) -> Iterator[None]:
    """Turn a refusal in the block into an error with a one-line message; its data is what a tool would return."""
    try:
        yield
    except MCPError:
        raise
    except HoldlogError as error:
        code, message, facts = _error(error, calls)
        if code == NOT_FOUND_BEFORE and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            code = INVALID_PARAMS
        if "hint" in facts:
            facts["hint"] = named(facts["hint"], prefix)
        raise MCPError(code=code, message=message, data={"uri": uri, **facts}) from None
    except Exception:
        _log.exception("a request about resources failed")
        message = (
            "internal error of holdlog; report it to the person you work for, who finds details in its log on stderr"
        )
        raise MCPError(code=INTERNAL_ERROR, message=message) from None


def _error(error: HoldlogError, calls: Requests) -> tuple[int, str, dict[str, Any]]:
    match error:
        case UnknownAddressError():
            return NOT_FOUND_BEFORE, str(error), {}
        case InvalidError():
            return INVALID_PARAMS, str(error), {}
        case DeniedError(needed=needed):
            return INVALID_PARAMS, str(error), {"status": "denied", "needed": needed}
        case NotFoundError():
            return NOT_FOUND_BEFORE, "there is no value now", calls.refused(error).body()
        case StoreError():
            return INTERNAL_ERROR, calls.describe(error), {}
        case _:
            body = calls.refused(error).body()
            return INTERNAL_ERROR, str(body.get("message", "refused")), body
