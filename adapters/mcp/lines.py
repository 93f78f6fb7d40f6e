"""Lines of bytes as JSON-RPC messages. The SDK drops what its parser refuses, but every request gets a response."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

MAX_LINE: Final = 8 * 1024 * 1024
"""Bytes of a message, unless values may be larger."""
ESCAPED: Final = 8
"""Bytes of a message for each byte of a value: JSON may write one as six."""
HEAD: Final = 64 * 1024
"""Bytes of a broken message in which its id is looked for."""
_MEMBER: Final = rb'\s*\{[^{}\[\]]*?"%b"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9.]+)(?=\s*[,}])'
"""A member before the first object within a message."""
_MEMBERS: Final = {name: re.compile(_MEMBER % name.encode()) for name in ("id", "method")}
_ENVELOPE: Final = (
    'not a JSON-RPC 2.0 request: "jsonrpc" must be "2.0", "id" a string or integer, "method" a string, "params" an'
    " object; batches are not supported"
)


class Refused(NamedTuple):
    """`response`: the line that answers; None for notifications and responses."""

    response: bytes | None


class Lines:
    """Splits bytes at newlines. Blank lines are left out; of a line beyond `limit` only the head is kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes; no data completes the last one."""
        *full, rest = data.split(b"\n") if data else (b"", b"")
        for piece in full:
            self._keep(piece)
            if self._rest and not self._rest.isspace():
                yield bytes(self._rest)
            self._rest.clear()
        self._keep(rest)

    def _keep(self, piece: bytes) -> None:
        """One byte beyond the limit is kept, so that `read_message` refuses the line."""
        self._rest += piece[: self.limit + 1 - len(self._rest)]


def read_message(line: bytes, limit: int = MAX_LINE) -> JSONRPCMessage | Refused:
    """A message that the SDK can serve, or why it cannot. Never raises."""
    if len(line) > limit:
        return _refuse(line[:HEAD], INVALID_REQUEST, f"message too long: it may have at most {limit} bytes")
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        return _refuse(line, *_explain(line, error))
    if not isinstance(message, JSONRPCRequest) and b'"id"' in line and {"id", "method"} <= _read_members(line).keys():
        return _refuse(line, INVALID_REQUEST, _ENVELOPE)  # an id that is neither text nor integer
    return message


def _explain(line: bytes, error: ValidationError) -> tuple[int, str]:
    """A code, and what is wrong in one line without the content."""
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        return PARSE_ERROR, f"not valid UTF-8 (byte {broken.start} of the message)"
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] != "json_invalid":
        return INVALID_REQUEST, _ENVELOPE
    reason = str(first.get("ctx", {}).get("error", "invalid"))
    if "recursion" in reason:
        reason = "nested too deep, at most 200 levels"
    elif "escape" in reason:
        reason = f"a lone surrogate escape, or another bad one: {reason}"
    return PARSE_ERROR, f"not readable as JSON: {reason}"


def _refuse(line: bytes, code: int, text: str) -> Refused:
    members = _read_members(line)
    if "id" in members:
        is_request = "method" in members or not members.keys() & {"result", "error"}
    elif code == PARSE_ERROR:  # it may break off before its id
        is_request = not str(members.get("method")).startswith("notifications/")
    else:
        is_request = not members.keys() & {"method", "result", "error"}
    if not is_request:
        return Refused(None)
    identity: Any = members.get("id")
    is_number = isinstance(identity, int | float) and not isinstance(identity, bool) and math.isfinite(identity)
    is_text = isinstance(identity, str) and identity.isprintable()
    error = {"code": code, "message": text}
    response = {"jsonrpc": "2.0", "id": identity if is_number or is_text else None, "error": error}
    return Refused(json.dumps(response, separators=(",", ":")).encode() + b"\n")


def _read_members(line: bytes) -> dict[str, Any]:
    """The outer level of a message, as far as it can be read."""
    try:
        message = json.loads(line.decode("utf-8", "surrogateescape"), strict=False)
        return message if isinstance(message, dict) else {}
    except (ValueError, RecursionError):
        matches = {name: pattern.match(line, 0, HEAD) for name, pattern in _MEMBERS.items()}
        return {name: _read_scalar(match[1]) for name, match in matches.items() if match is not None}


def _read_scalar(text: bytes) -> Any:
    with suppress(ValueError):
        return json.loads(text)
