"""Events as messages: subject, headers with the fence, payload."""

import asyncio
from typing import Final

from nats.js.api import Header

from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.payload import CONTENT_TYPE, text_within
from holdlog.adapters.nats.publishing import Acknowledged, Publisher
from holdlog.adapters.nats.stream import POSITION, PREVIOUS, Head
from holdlog.adapters.nats.subjects import subject_in
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event

FOR_HEADERS: Final = 4096
"""Bytes of the largest message that are reserved for its headers and subject."""


class Sending:
    """Messages in flight. `head`: where the stream ends when all of them have arrived."""

    def __init__(self, publisher: Publisher, options: NatsOptions, store_id: str, head: Head, largest: int) -> None:
        self.head = head
        self._publisher = publisher
        self._root = options.root(store_id)
        self._store_id = store_id
        self._largest = largest
        self._before: str | None = None

    async def send(self, recorded: Recorded[Event]) -> tuple["asyncio.Future[Acknowledged]", Head]:
        envelope = recorded.envelope
        payload = text_within(self._store_id, recorded, self._largest)
        message_id = f"{self._store_id}:{envelope.position}"
        headers = {
            Header.MSG_ID.value: message_id,
            Header.EXPECTED_LAST_SEQUENCE.value: str(self.head.sequence),
            POSITION: str(envelope.position),
            PREVIOUS: str(self.head.position),
            "Topic": envelope.topic,
            "Version": str(envelope.version),
            "Content-Type": CONTENT_TYPE,
        }
        if self._before is not None:  # the sequence alone would match a foreign message in place of ours
            headers[Header.EXPECTED_LAST_MSG_ID.value] = self._before
        future = await self._publisher.publish(f"{self._root}.{subject_in(envelope.stream)}", payload, headers=headers)
        self._before = message_id
        self.head = Head(self.head.sequence + 1, envelope.position)
        return future, self.head
