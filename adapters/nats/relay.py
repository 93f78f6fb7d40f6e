"""Publishes the log to a stream of JetStream, each event once and in order, whatever is killed.

An event has the same number in the stream as in the log. That is the fence: a relay publishes an event as the message
behind the one before, or not at all, so several relays of a store need no leader.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Final

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import Header, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError
from pydantic_core import from_json

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.store import open_to_read
from holdlog.adapters.cli.texts import print_note
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.waiting import ALL
from holdlog.adapters.nats import messages
from holdlog.adapters.nats.connection import RESPONSE_SECONDS, NatsError, Server, add_nats, find_url, run_until_signal
from holdlog.adapters.nats.messages import BOOKMARK, PREVIOUS, STORE, Row
from holdlog.adapters.operations.rows import read_position
from holdlog.domain.refusals import HoldlogError, StoreError

LOOK_SECONDS: Final = 5.0
"""After which the log is read again, as a notification may be lost."""
_FENCED: Final = 10071
"""JetStream's code for another last sequence (server/errors.json of nats-server)."""
_MISSING: Final = (10037, 10043, 10057)
"""Its codes for a message that is not there."""
_REMEDY: Final = "delete the stream, and the relay fills it again from the log"


class Relay:
    """Publishes the log of one store. Its event loop does nothing else, so reads of the log may block it."""

    def __init__(self, engine: Engine, server: Server) -> None:
        self._store = engine.store
        self._waiters = engine.waiters
        self._server = server
        self._news = asyncio.Event()
        self._id = messages.read_store_id(self._store)
        self._stream = messages.name_stream(self._id)

    async def run(self, once: bool = False) -> None:
        """Publish for ever, or `once` all that the log has now. Waits for a server that is down.

        Raises NatsError if the server refuses the credentials, or if the stream is that of another history; StoreError.
        """
        target = read_position(self._store) if once else None
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self._news.set)

        async def end() -> None:
            self._news.set()

        with self._waiters.subscribe((ALL,), wake):
            while True:
                async with self._server.attempt(), self._server.connect("relay", end) as client:
                    return await self._publish(client, target)

    async def _publish(self, client: Client, target: int | None) -> None:
        js = client.jetstream(timeout=RESPONSE_SECONDS)
        position = await self._find_end(js)
        while target is None or position < target:
            self._news.clear()
            if client.is_closed:
                raise ConnectionError("the connection was lost")
            if rows := messages.read_events(self._store, position):
                try:
                    await self._send(js, rows, client.max_payload)
                    position = rows[-1].position
                    self._server.succeed()
                except APIError as error:
                    if error.err_code != _FENCED:
                        raise
                    position = await self._find_end(js)  # another relay was faster
            else:
                self._server.succeed()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._news.wait()

    async def _find_end(self, js: JetStreamContext) -> int:
        """Up to where the stream has the log. Raises NatsError if its last message is not from this log."""
        last = (await self._find_stream(js)).state.last_seq
        with suppress(NotFoundError):  # all messages were deleted
            message = await js.get_last_msg(self._stream, f"{messages.name_root(self._id)}.>")
            sequence, headers = message.seq or 0, message.headers or {}
            if headers.get(Header.MSG_ID.value) != f"{self._id}:{sequence}":
                raise NatsError(f"the stream {self._stream} has a message of another program; {_REMEDY}")
            if headers.get(BOOKMARK) != messages.read_bookmark(self._store, sequence):
                raise self._refuse_history()
        if last > read_position(self._store):
            raise self._refuse_history()
        return last

    def _refuse_history(self) -> NatsError:
        problem = "has events that this log does not have: it may be a backup that was copied back"
        return NatsError(f"the stream {self._stream} {problem}; {_REMEDY}")

    async def _find_stream(self, js: JetStreamContext) -> StreamInfo:
        """The stream of the store, which is created if there is none. Its limits belong to its administrator."""
        try:
            return await js.stream_info(self._stream)
        except NotFoundError:
            config = StreamConfig(
                name=self._stream,
                description="events of a holdlog store",
                subjects=[f"{messages.name_root(self._id)}.>"],
                allow_direct=True,
                metadata={STORE: self._id},
            )
            return await js.add_stream(config)

    async def _send(self, js: JetStreamContext, rows: list[Row], max_payload: int) -> None:
        """Publish events. The message of a redacted event is deleted before the redaction is published: a relay that is
        killed between the two does it again."""
        batch: list[Row] = []
        for row in rows:
            if row.topic == "TextsRedacted":
                await self._send_together(js, batch, max_payload)
                batch = []
                for position in from_json(row.meta)["positions"]:
                    await self._delete(js, position)
            batch.append(row)
        await self._send_together(js, batch, max_payload)

    async def _send_together(self, js: JetStreamContext, rows: list[Row], max_payload: int) -> None:
        """The server stores messages that are on their way together in the order in which they were sent, or not."""
        if not rows:
            return
        previous = messages.read_bookmark(self._store, rows[0].position - 1) or ""
        sent = []
        for row in rows:
            bookmark = messages.make_bookmark(row.position, row.digest)
            headers = {
                Header.MSG_ID.value: f"{self._id}:{row.position}",
                Header.EXPECTED_LAST_SEQUENCE.value: str(row.position - 1),
                BOOKMARK: bookmark,
                PREVIOUS: previous,
            }
            text = messages.encode_event(row, self._id, max_payload)
            sent.append(
                js.publish(f"{messages.name_root(self._id)}.{messages.name_subject(row.stream)}", text, headers=headers)
            )
            previous = bookmark
        results = await asyncio.gather(*sent, return_exceptions=True)
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            if result.seq != row.position:  # the server knows its id from elsewhere
                raise ConnectionError("the stream has an event in another place")

    async def _delete(self, js: JetStreamContext, position: int) -> None:
        """Delete the message of an event. The server overwrites it."""
        try:
            await js.delete_msg(self._stream, position)
        except APIError as error:
            if error.err_code not in _MISSING:  # another relay was faster, or it has left the stream
                raise


def start(engine: Engine, url: str, report: Callable[[str], None] = print_note) -> None:
    """Publish the log in a new thread, as long as the process runs: a server works without NATS, too. Raises
    InvalidError for a wrong URL."""
    server = Server(url, report)

    def publish() -> None:
        try:
            asyncio.run(Relay(engine, server).run())
        except HoldlogError as error:
            with suppress(StoreError):  # it was closed, as the process ends
                engine.require_open()
                report(f"the log is not published: {error}")

    threading.Thread(target=publish, name="holdlog-relay", daemon=True).start()


def run(words: list[str]) -> int:
    """`holdlog relay`: until an interrupt or SIGTERM."""
    parser = Parser(
        "relay",
        "Publish the log to NATS, to a stream of JetStream that subscribers read. Run as many as you like.",
        ("relay --nats nats://127.0.0.1:4222", "relay --nats tls://team.example --once"),
        has_json=False,
    )
    add_nats(parser)
    parser.add_argument("--once", action="store_true", help="end when all is published that the log has now")
    options = parser.parse_args(words)
    server = Server(find_url(options), print_note)
    with closing(open_to_read(options)) as engine:
        return run_until_signal(Relay(engine, server).run(options.once))
