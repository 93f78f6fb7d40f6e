"""From bytes to a JSON-RPC message the SDK can serve, or to what is wrong with them; the same for every transport."""

from typing import NamedTuple

from mcp_types import JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from holdlog.adapters.mcp.salvage import ENVELOPE, Fault, Salvaged, fault_of, salvage


class Unreadable(NamedTuple):
    """No message: what could be read of it all the same, and the fault to answer with."""

    found: Salvaged
    fault: Fault


def read_message(text: bytes) -> JSONRPCMessage | Unreadable:
    """Linear time, whatever the bytes are; raises nothing."""
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        return Unreadable(salvage(text), fault_of(text, error))
    if not isinstance(message, JSONRPCRequest) and {"id", "method"} <= (found := salvage(text)).names:
        # An id that is no string or integer makes the SDK take a request for a notification.
        return Unreadable(found, ENVELOPE)
    return message
