"""Responds to a line on stdin that is not a JSON-RPC message the SDK can read: framing, the id, the fault.

JSON-RPC 2.0 requires a response to every request; the SDK drops what its parser refuses. Pure functions over bytes,
in linear time.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from mcp_types import INVALID_REQUEST, PARSE_ERROR, PROTOCOL_VERSION_META_KEY
from pydantic import ValidationError

MAX_LINE = 8 * 1024 * 1024
"""Bytes of the longest line that is read as a message, unless a larger value is allowed."""
ESCAPED = 8
"""Bytes of a line for each byte of its value: JSON may write one as six (`\\u0061`), and there are other fields."""
MAX_NESTING = 200
"""Levels of a message that the SDK's JSON parser follows; its own bound, named here for the response."""
HEAD = 64 * 1024
"""Bytes kept of each end of a line that is too long: the id is in one of them."""
MAX_MEMBERS = 64
"""Members of a broken message that are read one by one; JSON-RPC has four."""

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_MEMBER = re.compile(rb"\s*(" + _STRING + rb")\s*:\s*(" + _STRING + rb"|[^\s\",:{}\[\]]+(?=[\s,}]))\s*,?", re.DOTALL)
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
_SCALAR = _STRING + rb"|-?[0-9][0-9.eE+-]*"
_LAST_ID = re.compile(
    rb'[,{]\s*"id"\s*:\s*(' + _SCALAR + rb')\s*(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*\}\s*\Z', re.DOTALL
)
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")
_LENIENT = json.JSONDecoder(strict=False)


def longest_line(max_value_bytes: int) -> int:
    """Bytes of the longest line that is read if a value may have this many bytes."""
    return max(MAX_LINE, ESCAPED * max_value_bytes)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The outer level of a message; `id` is its JSON text (a string or a number)."""

    id: bytes | None = None
    method: str | None = None
    names: frozenset[str] = frozenset()
    complete: bool = False
    modern: bool = False

    @property
    def wants_answer(self) -> bool:
        """Whether the sender expects a response: always, except for notifications and the peer's own responses. A text
        that breaks off before an id counts as a request."""
        if "id" in self.names:
            return "method" in self.names or not self.names & {"result", "error"}
        if self.method is not None and self.method.startswith("notifications/"):
            return False
        return not (self.complete and self.names & {"method", "result", "error"})


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a message is refused: a JSON-RPC error code, one line for the agent, and whether only the content is bad."""

    code: int
    message: str
    of_content: bool = True


@dataclass(slots=True)
class TooLong:
    """A line longer than the limit: its two ends."""

    head: bytes
    tail: bytes = b""
    limit: int = MAX_LINE

    @property
    def fault(self) -> Fault:
        return Fault(INVALID_REQUEST, f"message too long: it may have at most {self.limit} bytes")

    def salvaged(self) -> Salvaged:
        found = salvage(self.head)
        if found.id is not None or (last := _LAST_ID.search(self.tail)) is None:
            return found
        return Salvaged(salvage(b'{"id":' + last[1] + b"}").id, found.method, found.names | {"id"}, modern=found.modern)


@dataclass(slots=True)
class Lines:
    """Splits a byte stream at newlines; drops blank lines, and skips a line beyond the limit without keeping it."""

    limit: int = MAX_LINE
    _rest: bytearray = field(default_factory=bytearray)
    _skipped: TooLong | None = None

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that `data` completes; empty `data` ends the stream and completes the last line."""
        if not data:
            return self._complete(b"")
        *full, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for piece in full:
            lines += self._complete(piece)
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        if self._skipped is None:
            self._rest += piece
            if len(self._rest) <= self.limit:
                return
            head, piece = bytes(self._rest[:HEAD]), bytes(self._rest[-HEAD:])
            self._skipped = TooLong(head, limit=self.limit)
            self._rest = bytearray()
        self._skipped.tail = (self._skipped.tail + piece)[-HEAD:]

    def _complete(self, piece: bytes) -> list[bytes | TooLong]:
        if self._rest or self._skipped or len(piece) > self.limit:
            self._keep(piece)
            piece, self._rest = bytes(self._rest), bytearray()
            if self._skipped is not None:
                skipped, self._skipped = self._skipped, None
                return [skipped]
        return [piece] if piece and not piece.isspace() else []


def salvage(line: bytes) -> Salvaged:
    """Read the outer level of a message, whatever it contains: all of it where Python's lenient parser can, else the
    first members, up to an object or array."""
    modern = PROTOCOL_VERSION_META_KEY.encode() in line
    try:
        found = _LENIENT.decode(line.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError):
        members, complete = dict(islice(_first_members(line), MAX_MEMBERS)), False
    else:
        members, complete = (found, True) if isinstance(found, dict) else ({}, False)
    method = members.get("method")
    return Salvaged(
        _echo(members.get("id")), method if isinstance(method, str) else None, frozenset(members), complete, modern
    )


def _first_members(line: bytes) -> Iterator[tuple[str, object]]:
    opening = _OBJECT.match(line)
    at = opening.end() if opening else len(line)
    while (member := _MEMBER.match(line, at)) is not None:
        at = member.end()
        try:
            name, value = (_LENIENT.decode(part.decode("utf-8", "surrogateescape")) for part in member.groups())
        except ValueError:
            continue
        yield name, value


def _echo(identity: object) -> bytes | None:
    """An id as JSON; None if it is not a string or a number."""
    if isinstance(identity, str):
        return None if _NOT_UTF_8.search(identity) else json.dumps(identity).encode()
    if isinstance(identity, bool) or not isinstance(identity, int | float) or not math.isfinite(identity):
        return None
    return json.dumps(identity).encode()


def fault_of(line: bytes, error: ValidationError) -> Fault:
    """What the SDK's parser could not read, in one line without the content."""
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        return Fault(PARSE_ERROR, f"not valid UTF-8 (byte {broken.start} of the message)")
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] != "json_invalid":
        return BATCH if line.lstrip().startswith(b"[") else ENVELOPE
    reason = str(first.get("ctx", {}).get("error", "invalid"))
    if "recursion" in reason:
        return Fault(PARSE_ERROR, f"nested too deep: at most {MAX_NESTING} levels in a message")
    if "escape" in reason and (lone := next((found for found in _ESCAPE.finditer(line) if found[1]), None)) is not None:
        return Fault(PARSE_ERROR, f"a lone surrogate escape \\{lone[1].decode()}: surrogates are allowed in pairs only")
    return Fault(PARSE_ERROR, f"not readable as JSON: {reason}")


BATCH = Fault(INVALID_REQUEST, "batches are not supported; send one message at a time", of_content=False)
ENVELOPE = Fault(
    INVALID_REQUEST,
    'not a JSON-RPC 2.0 request: "jsonrpc" must be "2.0", "id" a string or integer, "method" a string,'
    ' "params" an object',
    of_content=False,
)


def for_agent(found: Salvaged, fault: Fault) -> bool:
    """Whether only the content of a tool call is bad: then the agent should see the reason."""
    return fault.of_content and found.method == "tools/call" and found.id is not None


def answer(found: Salvaged, fault: Fault) -> bytes:
    """The line that responds to a refused request: a tool result if the agent should see it, else a JSON-RPC error."""
    start = b'{"jsonrpc":"2.0","id":' + (found.id or b"null")
    if for_agent(found, fault):
        text = json.dumps({"status": "error", "message": fault.message}, separators=(",", ":"), ensure_ascii=False)
        result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
        if found.modern:
            result["resultType"] = "complete"
        return start + b',"result":' + json.dumps(result, separators=(",", ":")).encode() + b"}\n"
    error = json.dumps({"code": fault.code, "message": fault.message}, separators=(",", ":"))
    return start + b',"error":' + error.encode() + b"}\n"
