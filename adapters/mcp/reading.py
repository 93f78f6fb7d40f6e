"""Parses bytes into a JSON-RPC message that the SDK can serve, or explains why it cannot. All transports use this."""

from typing import NamedTuple

from mcp_types import JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from holdlog.adapters.mcp.salvage import ENVELOPE, Fault, Salvaged, fault_of, salvage


class Unreadable(NamedTuple):
    """Bytes that are not a valid message. `found`: the parts that could be read; `fault`: the error to respond with."""

    found: Salvaged
    fault: Fault


def read_message(text: bytes) -> JSONRPCMessage | Unreadable:
    """Parse a message, in linear time whatever the bytes. Never raises."""
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        return Unreadable(salvage(text), fault_of(text, error))
    if not isinstance(message, JSONRPCRequest) and {"id", "method"} <= (found := salvage(text)).names:
        # The SDK mistakes a request for a notification if its id is neither a string nor an integer.
        return Unreadable(found, ENVELOPE)
    return message
