"""Publishing with many messages in flight. nats-py 2.16 has `publish_async`, but an error response never reaches the
future that it returns, so its caller would wait forever."""

import asyncio
import json
import re
from typing import Any, Final, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg

_SEQUENCE: Final = re.compile(rb'"seq": ?([0-9]+)')

NO_RESPONDERS: Final = "503"
FENCED: Final = (10070, 10071)
"""JetStream's error codes for an unexpected last message and an unexpected last sequence."""


class Acknowledged(NamedTuple):
    """The server's response: where the message is stored, or why it is not (`error`, with its code)."""

    sequence: int
    code: int = 0
    error: str | None = None


class Publisher:
    """Publishes through one connection; call `open` first."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[Acknowledged]] = {}
        self._number = 0

    async def open(self) -> "Publisher":
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
        return self

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> "asyncio.Future[Acknowledged]":
        """Publish a message; returns the future of its response. Raises the connection's errors."""
        self._number += 1
        token = str(self._number)
        future: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        await self._client.publish(subject, payload, f"{self._inbox}.{token}", headers)
        return future

    async def _answered(self, message: Msg) -> None:
        future = self._waiting.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(_read(message))


def _read(message: Msg) -> Acknowledged:
    if message.headers and message.headers.get("Status") == NO_RESPONDERS:
        return Acknowledged(0, int(NO_RESPONDERS), "no stream has the subject")
    if b'"error"' not in message.data and (found := _SEQUENCE.search(message.data)) is not None:
        return Acknowledged(int(found[1]))
    try:
        response: dict[str, Any] = json.loads(message.data)
        error = response["error"]
        return Acknowledged(0, int(error.get("err_code", 0)), str(error.get("description", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Acknowledged(0, 0, "the response cannot be read")
