"""What a client should never send over MCP, in one table for all transports: messages, requests, values of a tool call.

`SECRET` marks what a response and a log must not repeat.
"""

from typing import Any, NamedTuple

STDIO, HTTP = "stdio", "http"
HOLE = b'"HOLE"'
"""Is replaced by the bytes of a value in a well-formed tool call."""


class Message(NamedTuple):
    """Bytes in place of a message, and the response: its id and its code (None: any). `over`: where they are sent."""

    body: bytes
    id: Any = None
    code: int | None = None
    over: tuple[str, ...] = (STDIO, HTTP)


class Unanswered(NamedTuple):
    """A notification or a response: nothing comes back over stdio, a status over HTTP, in the older and newer era."""

    body: bytes
    legacy_status: int
    modern_status: int


class Request(NamedTuple):
    """A well-formed JSON-RPC request that cannot be served."""

    method: str
    params: dict[str, Any]


class Value(NamedTuple):
    """Bytes in place of a value, and what the agent must read in the response."""

    body: bytes
    why: str
    over: tuple[str, ...] = (STDIO, HTTP)


MESSAGES = [
    # no JSON
    Message(b"SECRET", None, -32700),
    Message(b"nonsense", None, -32700),
    Message(b"\xff\xfe{\x00}\x00", None, -32700),
    Message(b'{"jsonrpc":"2.0","id":1,"method":"ping"', 1, -32700),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{', 5, -32700),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"ping"} {}', 5, -32700),
    Message(b'{"id":1,"method":"tools/list","params":' + b"[" * 50_000, 1, -32700),
    Message(b"", None, -32700, (HTTP,)),  # over stdio a blank line is no message
    # no object, no request
    Message(b"null", None, -32600),
    Message(b"5", None, -32600),
    Message(b'"SECRET"', None, -32600),
    Message(b"[]", None, -32600),
    Message(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
    Message(b"{}", None, -32600),
    Message(b'{"jsonrpc":"2.0","id":5}', 5, -32600),
    # wrong fields
    Message(b'{"id":5,"method":"ping"}', 5, -32600),
    Message(b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1, -32600),
    Message(b'{"jsonrpc":"2.0","id":5,"method":7}', 5, -32600),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}', 5, -32600),
    Message(b'{"jsonrpc":"2.0","id":"1","method":"tools/list","params":[]}', "1", -32600),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[1]}', 5, -32600),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1],"result":{}}', 5, -32600),
    Message(b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', None, -32600),
    Message(b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', None, -32600),
    Message(b'{"jsonrpc":"2.0","id":{"SECRET":1},"method":"tools/list"}', None, -32600),
    Message(b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', 1.5, -32600),
    # requests that the transport of HTTP checks in its headers
    Message(b'{"jsonrpc":"2.0","id":5,"method":"nope"}', 5, None, (STDIO,)),
    Message(b'{"jsonrpc":"2.0","id":"","method":"tools/call","params":{"name":5}}', "", -32602, (STDIO,)),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"_meta":5}}', 5, -32602, (STDIO,)),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}', 5, None, (STDIO,)),
    Message(b'{"jsonrpc":"2.0","id":5,"method":"notifications/cancelled"}', 5, None, (STDIO,)),
]

BLANK = [b"", b"  \t\r"]
"""Lines without a message."""
UNANSWERED = [
    # notifications
    Unanswered(b'{"jsonrpc":"2.0","method":"notifications/nope","params":[1]}', 400, 400),
    Unanswered(b'{"jsonrpc":"2.0","method":"notifications/nope","params":{', 400, 400),
    Unanswered(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}', 202, 202),
    Unanswered(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 202, 202),
    Unanswered(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"holdlog_set"}}', 202, 202),
    # responses
    Unanswered(b'{"jsonrpc":"2.0","id":99,"result":{}}', 202, 400),
    Unanswered(b'{"jsonrpc":"2.0","id":99,"result":[]}', 400, 400),
    Unanswered(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}', 202, 400),
    Unanswered(b'{"jsonrpc":"2.0","id":1,"result":{"a":"SECRET"}}', 202, 400),
    Unanswered(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"SECRET"}}', 202, 400),
]

REQUESTS = [
    Request("tools/call", {}),
    Request("tools/call", {"name": 5}),
    Request("tools/call", {"name": "holdlog_get", "arguments": ["SECRET"]}),
    Request("tools/call", {"name": "SECRET"}),
    Request("tools/call", {"name": "holdlog_get", "arguments": {"SECRET": 1}}),
    Request("tools/list", {"cursor": 5}),
    Request("tools/list", {"cursor": "SECRET"}),
    Request("SECRET", {}),
    Request("", {}),
    Request("tools/call\n", {}),
    Request("initialize", {"protocolVersion": {}}),
]

VALUES = [
    # numbers and texts that JSON or UTF-8 does not have
    Value(b"NaN", "finite"),
    Value(b"-Infinity", "finite"),
    Value(b"1e999", "finite"),
    Value(b'{"SECRET":[NaN]}', "finite"),
    Value(b'"\\ud800"', "a lone surrogate escape \\ud800"),
    Value(b'"\\udc00x"', "a lone surrogate escape \\udc00"),
    Value(b'"SECRET \\ud800"', "surrogate"),
    Value(b'{"\\udfff":"SECRET"}', "surrogate"),
    Value(b'"\xff"', "not valid UTF-8"),
    Value(b'"\xed\xa0\x80"', "not valid UTF-8"),
    Value(b'"SECRET \xed\xa0\x80"', "UTF-8"),
    Value(b'"SECRET \xff"', "UTF-8"),
    Value(b"9" * 5000, "not readable as JSON"),
    Value(b"tru", "not readable as JSON"),
    Value(b'"\t"', "not readable as JSON"),
    Value(b"SECRET", "not readable as JSON"),
    # too deep, too long
    Value(b"[" * 101 + b"]" * 101, "100 levels"),
    Value(b'{"a":' * 150 + b"1" + b"}" * 150, "100 levels"),
    Value(b"[" * 300 + b"]" * 300, "nested too deep: at most 200 levels"),
    Value(b"[" * 20_000 + b"]" * 20_000, "nested too deep: at most 200 levels"),
    Value(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
    Value(b"[" * 20_000, "nested too deep: at most 200 levels"),
    Value(b'"' + b"x" * 1_000_000 + b'"', "262144 bytes"),
    Value(b'"' + b"x" * 5_000_000 + b'"', "262144 bytes"),
    Value(b'"' + "é".encode() * 131_072 + b'"', "262144 bytes"),
    Value(b'"' + b"x" * 50_000_000 + b'"', "message too long: it may have at most 8388608 bytes", (STDIO,)),
]
