"""Converts refusals to JSON-RPC errors, for requests whose results cannot express a refusal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.values.presenter import named
from holdlog.adapters.mcp.resources.addresses import UnknownAddressError
from holdlog.domain.refusals import DeniedError, HoldlogError, InvalidError, NotFoundError, StoreError

NOT_FOUND_BEFORE: Final = -32002
"""The error code for a missing resource in protocol versions up to 2025-11-25; later ones use INVALID_PARAMS."""

_log = logging.getLogger("holdlog")


@contextmanager
def translated(ctx: ServerRequestContext[Any, Any], uri: str, requests: Requests, prefix: str) -> Iterator[None]:
    """Convert a refusal raised in the block to an error with a one-line message. The `data` of the error is the
    response that a tool would return."""
    try:
        yield
    except MCPError:
        raise
    except HoldlogError as error:
        code, message, facts = _error(error, requests)
        if code == NOT_FOUND_BEFORE and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            code = INVALID_PARAMS
        if "hint" in facts:
            facts["hint"] = named(facts["hint"], prefix)
        raise MCPError(code=code, message=message, data={"uri": uri, **facts}) from None
    except Exception:
        _log.exception("a request about resources failed")
        message = (
            "internal error of holdlog; report it to the person you work for: details are in holdlog's log on stderr"
        )
        raise MCPError(code=INTERNAL_ERROR, message=message) from None


def _error(error: HoldlogError, requests: Requests) -> tuple[int, str, dict[str, Any]]:
    """The code, message and data of the error."""
    body = requests.refused(error).body()
    match error:
        case UnknownAddressError():
            return NOT_FOUND_BEFORE, str(error), {}
        case NotFoundError():
            return error.rpc_code, "there is no value now", body
        case DeniedError(needed=needed):
            return error.rpc_code, str(error), {"status": "denied", "needed": needed}
        case InvalidError() | StoreError():
            return error.rpc_code, body["message"], {}
        case _:
            return error.rpc_code, str(body.get("message", "refused")), body
