"""MCP clients that write and read plain JSON, and hold every response to the contract's rules for all responses."""

import itertools
import json
import os
import selectors
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from tests.support.programs import HOLDLOG, environment
from tests.support.waiting import PATIENCE

Json = dict[str, Any]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
MAY_BE_NULL = {"value", "previous_version", "actual_value"}
WRITTEN = ("value", "actual_value", "note", "previous_note", "holder_note", "reason")
"""Fields that hold what agents wrote: untrusted input to the next, and never part of a hint."""


class Client:
    """`era`: LEGACY or MODERN. `prefix`: of the tools' names."""

    def __init__(self, era: str, prefix: str = "holdlog_") -> None:
        self.era = era
        self.prefix = prefix
        self._ids = itertools.count(1)

    def exchange(self, message: Json) -> Json:
        """Send a request and wait for its response."""
        raise NotImplementedError

    def message(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        params = dict(params or {})
        if self.era == MODERN:
            params["_meta"] = {**params.get("_meta", {}), **ENVELOPE}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """The result of a request of the protocol."""
        response = self.exchange(self.message(method, params))
        assert "result" in response, response
        result: Json = response["result"]
        return result

    def tools(self) -> dict[str, Json]:
        """The tools by their names without the prefix."""
        return {it["name"].removeprefix(self.prefix): it for it in self.ask("tools/list")["tools"]}

    def calling(self, tool: str, arguments: Json, meta: Json | None = None) -> Json:
        params = {"name": self.prefix + tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
        return self.message("tools/call", params)

    def call(self, tool: str, /, *, _meta: Json | None = None, **arguments: Any) -> Json:
        """The response of a tool, as structured content."""
        return checked(self.exchange(self.calling(tool, arguments, _meta))["result"])

    def error(self, tool: str, /, *, _meta: Json | None = None, **arguments: Any) -> str:
        """The message of a call with bad arguments."""
        result = self.exchange(self.calling(tool, arguments, _meta))["result"]
        assert result.get("isError") is True, result
        assert "structuredContent" not in result
        body = json.loads(result["content"][0]["text"])
        assert body["status"] == "error"
        assert "pydantic" not in body["message"]
        return str(body["message"])


def checked(result: Json) -> Json:
    """The structured content of a tool's result, after a look at what holds for all responses."""
    assert not result.get("isError"), result
    content: Json = result["structuredContent"]
    (text,) = result["content"]
    assert text == {"type": "text", "text": json.dumps(content, ensure_ascii=False, separators=(",", ":"))}
    assert isinstance(content["status"], str)
    assert [name for name, value in content.items() if value is None and name not in MAY_BE_NULL] == []
    hint = content.get("hint", "")
    assert len(hint) <= 200
    written = [content[name] for name in WRITTEN if isinstance(content.get(name), str)]
    assert [text for text in written if len(text) > 3 and text in hint] == []
    return content


class Stdio(Client):
    """A server process at its pipes. Requests may be sent before earlier ones are answered."""

    def __init__(
        self,
        *options: str | Path,
        era: str = LEGACY,
        prefix: str = "holdlog_",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        super().__init__(era, prefix)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [HOLDLOG, "serve", *map(str, options)],
            stdin=pipe, stdout=pipe, stderr=pipe, env=environment(env), cwd=cwd, bufsize=0,
        )  # fmt: skip
        self._bytes = b""
        self._responses: dict[Any, Json] = {}
        self.notifications: list[Json] = []
        self.opening = self.ask("server/discover") if era == MODERN else self.ask("initialize", INITIALIZE)
        if era == LEGACY:
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: Json | bytes) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        data = memoryview(line + b"\n")
        while data:
            data = data[os.write(self.process.stdin.fileno(), data) :]

    def exchange(self, message: Json) -> Json:
        self.send(message)
        return self.response(message["id"])

    def start(self, tool: str, /, *, _meta: Json | None = None, **arguments: Any) -> Any:
        """Send a call that may block; `finish` waits for its response."""
        message = self.calling(tool, arguments, _meta)
        self.send(message)
        return message["id"]

    def finish(self, number: Any) -> Json:
        return checked(self.response(number)["result"])

    def response(self, number: Any) -> Json:
        while number not in self._responses:
            message = self.read()
            if "id" in message and "method" not in message:
                self._responses[message["id"]] = message
            else:
                self.notifications.append(message)
        return self._responses.pop(number)

    def read(self) -> Json:
        """The next message."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._bytes:
                assert selector.select(PATIENCE), f"no message after {self._bytes[:200]!r}"
                data = os.read(self.process.stdout.fileno(), 1 << 20)
                assert data, f"the server ended: {self.process.communicate()[1].decode()}"
                self._bytes += data
        line, _, self._bytes = self._bytes.partition(b"\n")
        message: Json = json.loads(line)
        return message

    def close(self) -> tuple[int, str]:
        """End the server by closing its input, as hosts do: its exit code and stderr."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class OverHttp(Client):
    """A client of a server over HTTP. `url`: of the endpoint; `token`: for Authorization."""

    def __init__(self, url: str, era: str = LEGACY, prefix: str = "holdlog_", token: str | None = None) -> None:
        super().__init__(era, prefix)
        self.url = url
        self.http = requests.Session()
        self.http.headers["accept"] = "application/json, text/event-stream"
        if token is not None:
            self.http.headers["authorization"] = f"Bearer {token}"
        if era == MODERN:
            self.opening = self.ask("server/discover")
        else:
            self.opening = self.ask("initialize", INITIALIZE)
            self.http.headers["mcp-protocol-version"] = LEGACY
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message: Json, **headers: str) -> requests.Response:
        if self.era == MODERN:
            params = message.get("params", {})
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            headers |= {"mcp-name": params["name"]} if "name" in params else {}
        response = self.http.post(self.url, json=message, headers=headers, timeout=PATIENCE)
        if session := response.headers.get("mcp-session-id"):
            self.http.headers["mcp-session-id"] = session
        return response

    def exchange(self, message: Json) -> Json:
        response = self.post(message)
        assert response.status_code == 200, (response.status_code, response.text)
        if "event-stream" not in response.headers["content-type"]:
            body: Json = response.json()
            return body
        messages = [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]
        (found,) = [it for it in messages if it.get("id") == message["id"]]
        return dict(found)
