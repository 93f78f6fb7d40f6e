"""Raw lines to and from a server process: what clients would never send, and exactly what they would get."""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
PATIENCE = 60.0
"""Seconds after which a test gives up: never reached when all is well."""


class Wire:
    """Raw lines to and from one server process."""

    def __init__(
        self,
        *arguments: str | Path,
        modern: bool = False,
        before: tuple[str | Path, ...] = (),
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """`python` with these arguments, behind what stands `before` it. `modern`: speak 2026-07-28."""
        self.modern = modern
        environment = {**os.environ, "FASTMCP_LOG_ENABLED": "false", "PYTHONUNBUFFERED": "1", **(env or {})}
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(
            [*map(str, before), sys.executable, *map(str, arguments)], env=environment, bufsize=0, **(pipes | options)
        )
        self._rest = {"stdout": b"", "stderr": b""}

    def open(self) -> "Wire":
        """Send what decides the era of the connection: the first request does."""
        if self.modern:
            assert self.ask("server/discover", identity="open")["result"]
        else:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            assert self.ask("initialize", params, "open")["result"]["protocolVersion"] == "2025-11-25"
            self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def send(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        data = memoryview(b"".join(line + b"\n" for line in lines))
        while data:
            data = data[os.write(self.process.stdin.fileno(), data) :]

    def line(self, stream: str = "stdout") -> bytes:
        """The next line; empty at the end of the stream."""
        pipe = getattr(self.process, stream)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            parts = [self._rest[stream]]
            while b"\n" not in parts[-1]:
                assert selector.select(PATIENCE), f"nothing on {stream} after {parts[-1][:200]!r}"
                data = os.read(pipe.fileno(), 1 << 20)
                if not data:
                    return b""
                parts.append(data)
        line, _, self._rest[stream] = b"".join(parts).partition(b"\n")
        return line

    def answer(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.line())
        return read

    def message(self, method: str, params: dict[str, Any] | None = None, identity: Any = 1) -> bytes:
        if self.modern:
            params = {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **ENVELOPE}}
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        return json.dumps({name: value for name, value in message.items() if value is not None}).encode()

    def ask(self, method: str, params: dict[str, Any] | None = None, identity: Any = 1) -> dict[str, Any]:
        self.send(self.message(method, params, identity))
        answer = self.answer()
        assert answer["id"] == identity
        return answer

    def call(self, tool: str, identity: Any = 1, **arguments: Any) -> bytes:
        return self.message("tools/call", {"name": tool, "arguments": arguments}, identity)

    def until(self, word: str) -> None:
        while (line := self.line("stderr").decode()) != word:
            assert line, f"{word} never came"

    def ended(self) -> tuple[int, list[str], list[bytes]]:
        """Exit code, what stood on stderr, what was left on stdout."""
        left = list(self._left("stdout"))
        said = [line.decode() for line in self._left("stderr")]
        return self.process.wait(PATIENCE), said, left

    def _left(self, stream: str) -> Iterator[bytes]:
        while getattr(self.process, stream) is not None and (line := self.line(stream)):
            yield line

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()


def text_of(answer: dict[str, Any]) -> str:
    assert answer["result"]["content"][0]["type"] == "text"
    return str(answer["result"]["content"][0]["text"])
