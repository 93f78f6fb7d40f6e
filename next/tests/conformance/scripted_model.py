"""A model behind the Messages API, on this machine: it plays a script, one step for each result that it gets."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = tuple[str, dict[str, Any]]
"""The name of a tool and its input."""


class Conversation:
    """`length`: of the script. `results`: what the steps returned, in order, each with whether it is an error.
    `context`: all other texts that the model was shown."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.length = len(steps)
        self.results: list[tuple[str, bool]] = []
        self.context = ""

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        blocks = [block for message in request["messages"] for block in _blocks(message["content"])]
        found = [block for block in blocks if block["type"] == "tool_result"]
        self.results = [(_text(it["content"]), bool(it.get("is_error"))) for it in found]
        self.context = _text([block for block in blocks if block["type"] == "text"])
        if not request.get("tools") or len(found) == len(self._steps):
            return {"type": "text", "text": "done"}
        name, given = self._steps[len(found)]
        return {"type": "tool_use", "id": f"toolu_{len(found)}", "name": name, "input": given}


@contextmanager
def scripted_model(steps: Sequence[Step]) -> Iterator[tuple[str, Conversation]]:
    """The URL of the API, and the conversation."""
    conversation = Conversation(steps)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.startswith("/v1/messages?") and self.path != "/v1/messages":
                self._send(b'{"input_tokens": 1}', "application/json")
            else:
                self._send(_stream(conversation.reply(request), request["model"]), "text/event-stream")

        def do_GET(self) -> None:
            self._send(b"{}", "application/json")

        do_HEAD = do_GET

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", conversation
        server.shutdown()


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(it["text"] for it in content if it["type"] == "text")


def _stream(block: dict[str, Any], model: str) -> bytes:
    """A message with one block, as server-sent events."""
    is_text = block["type"] == "text"
    name = f"msg_{block.get('id', 'end')}"  # one id for all would make one message of them
    head = {"id": name, "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None}
    start = {"type": "text", "text": ""} if is_text else {**block, "input": {}}
    delta = {"type": "text_delta", "text": block["text"]} if is_text else _input(block["input"])
    reason = {"stop_reason": "end_turn" if is_text else "tool_use", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {it['type']}\ndata: {json.dumps(it)}\n\n" for it in events).encode()


def _input(given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": json.dumps(given)}
