"""Lines of bytes as JSON-RPC messages. The SDK drops what its parser refuses, but every request gets a response."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

MAX_LINE: Final = 8 * 1024 * 1024
"""Bytes of a message, unless values may be larger."""
ESCAPED: Final = 8
"""Bytes of a message for each byte of a value: JSON may write one as six."""
HEAD: Final = 64 * 1024
"""Bytes that are kept of a longer line: they have its id."""
MAX_MEMBERS: Final = 64
"""Members of a broken message that are read one by one."""
_TEXT: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_MEMBER: Final = re.compile(rb"\s*(" + _TEXT + rb")\s*:\s*(" + _TEXT + rb"|[^\s\",:{}\[\]]+(?=[\s,}]))\s*,?", re.DOTALL)
_OPENING: Final = re.compile(rb"\s*\{")
_LENIENT: Final = json.JSONDecoder(strict=False)
_ENVELOPE: Final = (
    'not a JSON-RPC 2.0 request: "jsonrpc" must be "2.0", "id" a string or integer, "method" a string, "params" an'
    " object; batches are not supported"
)


class Refused(NamedTuple):
    """`response`: the line that answers, None for what gets no response: notifications and responses."""

    response: bytes | None


class Lines:
    """Splits bytes at newlines. Blank lines are left out; of a line beyond `limit` only the head is kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = bytearray()
        self._is_long = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes; no data completes the last one."""
        *full, rest = data.split(b"\n") if data else (b"", b"")
        for piece in full:
            self._keep(piece)
            if self._rest and not self._rest.isspace():
                yield bytes(self._rest)
            self._rest.clear()
            self._is_long = False
        self._keep(rest)

    def _keep(self, piece: bytes) -> None:
        if not self._is_long:
            self._rest += piece
            if len(self._rest) > self.limit:  # one byte more, so that it is too long for `read_message`, too
                self._is_long = True
                del self._rest[self.limit + 1 :]


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
        return PARSE_ERROR, "nested too deep: at most 200 levels in a message"
    if "escape" in reason:
        reason = f"a lone surrogate escape, or another bad one: {reason}"
    return PARSE_ERROR, f"not readable as JSON: {reason}"


def _refuse(line: bytes, code: int, text: str) -> Refused:
    members = _read_members(line)
    if "id" in members:
        is_request = "method" in members or not members.keys() & {"result", "error"}
    else:
        is_broken = code == PARSE_ERROR
        method = members.get("method")
        is_notification = isinstance(method, str) and (method.startswith("notifications/") or not is_broken)
        is_request = not is_notification and not (members.keys() & {"result", "error"} and not is_broken)
    if not is_request:
        return Refused(None)
    response = {"jsonrpc": "2.0", "id": _echo(members.get("id")), "error": {"code": code, "message": text}}
    return Refused(json.dumps(response, separators=(",", ":")).encode() + b"\n")


def _read_members(line: bytes) -> dict[str, Any]:
    """The outer level of a message, as far as it can be read: of a broken one, the members before the first object."""
    try:
        message = _LENIENT.decode(line.decode("utf-8", "surrogateescape"))
        return message if isinstance(message, dict) else {}
    except (ValueError, RecursionError):
        pass
    members: dict[str, Any] = {}
    opening = _OPENING.match(line)
    at = opening.end() if opening else len(line)
    while len(members) < MAX_MEMBERS and (member := _MEMBER.match(line, at)) is not None:
        at = member.end()
        try:
            name, value = (_LENIENT.decode(part.decode("utf-8", "surrogateescape")) for part in member.groups())
        except ValueError:
            break
        members[name] = value
    return members


def _echo(identity: Any) -> Any:
    """The id of a response: null for what is none."""
    if isinstance(identity, str):
        return identity if identity.isprintable() or identity.isascii() else None
    is_number = isinstance(identity, int | float) and not isinstance(identity, bool)
    return identity if is_number and math.isfinite(identity) else None
