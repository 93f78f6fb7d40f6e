"""Reads the messages of a JetStream stream in order as they arrive, starting after a position of the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo
from nats.js.errors import NotFoundError

from holdlog.adapters.nats.stream import POSITION, PREVIOUS, is_ours

HEARTBEAT: Final = 1.0
"""Seconds after which an idle consumer sends a heartbeat."""
SILENCE: Final = 3.5
"""Seconds without a message or heartbeat after which the connection counts as lost."""
TICK: Final = 0.2
"""Seconds after which `feed` yields `None` if no message arrived."""
FORGOTTEN_AFTER: Final = 30.0
"""Seconds after which the server deletes the consumer of a subscriber that disconnected."""

_STATUS: Final = "Status"
_LAST_DELIVERED: Final = "Nats-Last-Consumer"
_STALLED: Final = "Nats-Consumer-Stalled"


class Published(NamedTuple):
    """One event as stored in the stream. `previous`: position of the event before it in the log; `sequence`: place in
    the stream."""

    subject: str
    sequence: int
    previous: int
    position: int
    text: str


async def feed(
    client: Client, js: JetStreamContext, info: StreamInfo, store_id: str, position: int
) -> AsyncIterator[Published | None]:
    """Yield the store's messages after a position, forever; yield None if none arrives for `TICK` seconds.

    Raises ConnectionError if a message was lost; the caller must then call `feed` again.
    """
    stream = str(info.config.name)
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    consumer = await js.add_consumer(
        stream,
        config=ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=await first_above(js, info, store_id, position),
            ack_policy=AckPolicy.NONE,
            max_deliver=1,
            flow_control=True,
            idle_heartbeat=HEARTBEAT,
            inactive_threshold=FORGOTTEN_AFTER,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    loop = asyncio.get_running_loop()
    delivered, received_at = 0, loop.time()
    try:
        while True:
            try:
                message = await _next(subscription)
            except nats.errors.TimeoutError:
                if client.is_closed or loop.time() - received_at > SILENCE:
                    raise ConnectionError("the connection was lost") from None
                yield None
                continue
            received_at = loop.time()
            headers = message.headers
            if headers and _STATUS in headers and not message.data:
                await _respond(client, message)
                if int(headers.get(_LAST_DELIVERED, delivered)) > delivered:
                    raise ConnectionError("messages were lost in transit")
                continue
            delivered += 1
            if message.metadata.sequence.consumer != delivered:
                raise ConnectionError("messages were lost in transit")
            if is_ours(headers, store_id) and headers is not None:
                previous, position = int(headers.get(PREVIOUS, 0)), int(headers[POSITION])
                sequence = message.metadata.sequence.stream
                yield Published(message.subject, sequence, previous, position, message.data.decode())
    finally:
        with suppress(Exception):
            async with asyncio.timeout(1.0):
                await js.delete_consumer(stream, consumer.name)


async def _next(subscription: Subscription) -> Msg:
    """The next message. Raises NATS's TimeoutError.

    The library uses `wait_for`, which before Python 3.12 loses a cancellation if a message arrives at the same
    moment."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    message = await subscription.next_msg(TICK)
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return message


async def first_above(js: JetStreamContext, info: StreamInfo, store_id: str, position: int) -> int:
    """The sequence of the store's first message after a position, or of the next message to arrive if there is none."""
    low, high = max(1, info.state.first_seq), info.state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        found = await _at_or_after(js, info, store_id, middle)
        if found is None or found[1] > position:
            high = middle
        else:
            low = found[0] + 1
    return max(1, low)


async def is_purged(js: JetStreamContext, info: StreamInfo, message: Published, position: int) -> bool:
    """Whether the messages after a position, up to this one, were deleted singly, as after a redaction: limits of a
    stream drop only its oldest messages."""
    now = await js.stream_info(str(info.config.name))
    return message.sequence - (message.previous - position) > now.state.first_seq


async def last_position(js: JetStreamContext, info: StreamInfo, store_id: str) -> int | None:
    """The position of the store's newest message; None if it has no messages."""
    sequence = info.state.last_seq
    while sequence >= max(1, info.state.first_seq):
        with suppress(NotFoundError):
            message = await js.get_msg(str(info.config.name), sequence)
            if is_ours(message.headers, store_id):
                return int((message.headers or {})[POSITION])
        sequence -= 1
    return None


async def _at_or_after(js: JetStreamContext, info: StreamInfo, store_id: str, sequence: int) -> tuple[int, int] | None:
    """Sequence and position of the store's first message at or after a sequence; None if there is none."""
    subject = (info.config.subjects or [">"])[0]
    while True:
        try:
            message = await js.get_msg(str(info.config.name), sequence, subject, next=True)
        except NotFoundError:
            return None
        if is_ours(message.headers, store_id):
            return message.seq or sequence, int((message.headers or {})[POSITION])
        sequence = (message.seq or sequence) + 1


async def _respond(client: Client, message: Any) -> None:
    """Respond to the server's flow control request; the server sends nothing more until then."""
    to = message.reply or (message.headers or {}).get(_STALLED)
    if to:
        await client.publish(to)
