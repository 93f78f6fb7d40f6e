"""Parses bytes into a JSON-RPC message the SDK can serve, or into a fault; the same for every transport."""

from typing import NamedTuple

from mcp_types import JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from holdlog.adapters.mcp.salvage import ENVELOPE, Fault, Salvaged, fault_of, salvage


class Unreadable(NamedTuple):
    """Bytes that are not a message: the parts that could be read, and the fault for the response."""

    found: Salvaged
    fault: Fault


def read_message(text: bytes) -> JSONRPCMessage | Unreadable:
    """Read a message. Linear time for any bytes; raises nothing."""
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        return Unreadable(salvage(text), fault_of(text, error))
    if not isinstance(message, JSONRPCRequest) and {"id", "method"} <= (found := salvage(text)).names:
        # The SDK takes a request whose id is not a string or integer for a notification.
        return Unreadable(found, ENVELOPE)
    return message
