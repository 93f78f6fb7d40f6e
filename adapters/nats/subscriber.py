"""Reads the events of a store from NATS: each once, in order, none missing. Gaps are filled from the log."""

import asyncio
import logging
import os
import re
from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import KeyNotFoundError, NotFoundError
from nats.js.kv import KeyValue
from pydantic_core import from_json

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.settings import find_place
from holdlog.adapters.cli.store import MissingStoreError, has_store, is_named
from holdlog.adapters.cli.texts import print_json, print_note
from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.nats import messages
from holdlog.adapters.nats.connection import (
    FAILURES,
    RESPONSE_SECONDS,
    NatsError,
    Server,
    add_nats,
    find_url,
    run_until_signal,
)
from holdlog.adapters.nats.messages import BOOKMARK, PREVIOUS, STORE, Row
from holdlog.adapters.operations.json import Object
from holdlog.adapters.operations.log import check_place
from holdlog.adapters.operations.rows import read_position
from holdlog.domain.refusals import InvalidError

QUEUE: Final = 500
"""Messages that wait for their reader."""
HEARTBEAT_SECONDS: Final = 1.0
SAVE_SECONDS: Final = 0.25
"""Between two bookmarks that NATS keeps: after a crash the events since the last one come again."""
UNKNOWN: Final = -1
"""The position before the first connection of a subscriber to new events."""
_DURABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = logging.getLogger("holdlog")


class Subscriber:
    """Reads the events after a place, which is a position or a bookmark; None: those that come from now on. `store_id`:
    needed if several stores publish there. With an engine, events that have left the stream are read from the log."""

    def __init__(
        self,
        server: Server,
        engine: Engine | None = None,
        store_id: str | None = None,
        subjects: Sequence[str] = (),
        after: int | str | None = None,
        durable: str | None = None,
    ) -> None:
        """Raises InvalidError."""
        if durable is not None and _DURABLE.fullmatch(durable) is None:
            raise InvalidError("durable: must have 1 to 64 letters, digits, _ and -")
        self._server = server
        self._engine = engine
        self._id = (store_id or "") if engine is None else messages.read_store_id(engine.store)
        self._subjects = [messages.check_pattern(text) for text in subjects]
        self._durable = durable
        self._bucket: KeyValue | None = None
        self._saved_at = 0.0
        self._position = UNKNOWN
        self._bookmark = ""
        """Of the position; empty if its digest is not known."""
        self._handled = self._saved = ""
        """Bookmark of the last event that the reader is done with, and the one that NATS keeps."""
        if after is not None:
            self._begin_after("after", str(after))

    async def read(self) -> AsyncGenerator[Object, None]:
        """The events, for ever. Waits for a server that is down, and for a stream that nobody has published to yet.

        Raises NatsError if the server refuses the credentials, if events left the stream and there is no log to read
        them from, and for a bookmark of another history; StoreError.
        """
        while True:
            queue: asyncio.Queue[Msg | None] = asyncio.Queue(QUEUE)

            async def end(queue: asyncio.Queue[Msg | None] = queue) -> None:
                while queue.full():
                    queue.get_nowait()  # it is read again
                queue.put_nowait(None)

            async with self._server.attempt(), self._server.connect("subscriber", end) as client:
                events = self._read(client.jetstream(timeout=RESPONSE_SECONDS), queue)
                try:
                    async for event in events:
                        yield event
                finally:
                    await events.aclose()

    def finish(self) -> None:
        """The reader is done with all that it got."""
        self._handled = self._bookmark or self._handled

    async def _read(self, js: JetStreamContext, queue: "asyncio.Queue[Msg | None]") -> AsyncGenerator[Object, None]:
        """The events that one connection brings."""
        if not self._id:
            self._id = await self._find_store(js)
        await self._begin(js)
        subscription = await js.subscribe(
            f"{messages.name_root(self._id)}.>",
            stream=messages.name_stream(self._id),
            cb=queue.put,
            config=ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self._position + 1),
            ordered_consumer=True,
            idle_heartbeat=HEARTBEAT_SECONDS,
        )
        self._server.succeed()
        try:
            first = (await js.stream_info(messages.name_stream(self._id))).state.first_seq
            async for event in self._fill(js, first):
                yield event
            while (message := await self._next(queue)) is not None:
                async for event in self._receive(js, message):
                    yield event
            raise ConnectionError("the connection was lost")
        finally:
            with suppress(*FAILURES):
                await self._save()
                await subscription.unsubscribe()

    async def _next(self, queue: "asyncio.Queue[Msg | None]") -> Msg | None:
        """The next message; None: the connection was lost. Saves the bookmark when it is time."""
        save_at = self._saved_at + SAVE_SECONDS
        if self._bucket is not None and self._handled != self._saved:
            if asyncio.get_running_loop().time() < save_at:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(save_at):
                        return await queue.get()
            await self._save()
        return await queue.get()

    async def _receive(self, js: JetStreamContext, message: Msg) -> AsyncGenerator[Object, None]:
        """The event of a message, after those that are missing before it."""
        position, headers = message.metadata.sequence.stream, message.headers or {}
        async for event in self._fill(js, position):
            yield event
        if position != self._position + 1:  # it was received before
            return
        if BOOKMARK not in headers:
            raise NatsError(f"the stream has a message of another program, at {position}")
        if self._bookmark and headers.get(PREVIOUS) != self._bookmark:
            raise self._refuse_history()
        self._position, self._bookmark = position, headers[BOOKMARK]
        subject = message.subject.removeprefix(f"{messages.name_root(self._id)}.")
        if subject != messages.FOREIGN_SUBJECT and messages.matches(self._subjects, subject):
            event = from_json(message.data)
            if event.get("omitted") and self._engine is not None:
                rows = await self._read_log(position - 1)
                event = messages.describe_event(rows[0], self._id)
            yield event
        self._handled = self._bookmark

    async def _fill(self, js: JetStreamContext, until: int) -> AsyncGenerator[Object, None]:
        """The events before a position that the stream does not have."""
        if self._engine is None and self._position + 1 < until:
            await self._skip(js, until)
        while self._position + 1 < until:
            for row in await self._read_log(self._position):
                if row.position >= until:
                    break
                self._position, self._bookmark = row.position, messages.make_bookmark(row.position, row.digest)
                if not row.is_foreign and messages.matches(self._subjects, messages.name_subject(row.stream)):
                    yield messages.describe_event(row, self._id)
                self._handled = self._bookmark

    async def _skip(self, js: JetStreamContext, until: int) -> None:
        """Pass over messages that were deleted one by one, as those of redacted events are."""
        stream, begin = messages.name_stream(self._id), self._position + 1
        if (await js.stream_info(stream)).state.first_seq > begin:
            raise NatsError(
                f"the stream has no events {begin} to {until - 1} any more; pass --db to read them from the log, or"
                f" --after {until - 1} to continue without them"
            )
        message = await js.get_msg(stream, begin, f"{messages.name_root(self._id)}.>", next=True)
        if (message.seq or 0) < until:
            raise ConnectionError("messages were lost on their way")
        self._position, self._bookmark = until - 1, ""

    async def _read_log(self, after: int) -> list[Row]:
        """The next events of the log. Raises NatsError if it is not the log of the events that were read."""
        assert self._engine is not None
        store = self._engine.store
        bookmark = await asyncio.to_thread(messages.read_bookmark, store, after)
        rows = await asyncio.to_thread(messages.read_events, store, after)
        if not rows or (self._bookmark and after == self._position and bookmark != self._bookmark):
            raise self._refuse_history()
        return rows

    async def _find_store(self, js: JetStreamContext) -> str:
        """The id of the only store that publishes here."""
        streams = await js.streams_info()
        stores = [store for each in streams if (store := (each.config.metadata or {}).get(STORE)) is not None]
        if not stores:
            raise NotFoundError
        if len(stores) > 1:
            raise NatsError(f"{self._server.name} has the events of several stores; name one: {', '.join(stores)}")
        return stores[0]

    async def _begin(self, js: JetStreamContext) -> None:
        """Find where to begin, at the first connection."""
        name = messages.name_stream(self._id)
        if self._durable is not None:
            self._bucket = await js.create_key_value(bucket=f"{name}_bookmarks")
            if not self._handled:
                with suppress(KeyNotFoundError):
                    entry = await self._bucket.get(self._durable)
                    self._begin_after(f"the bookmark of {self._durable}", (entry.value or b"").decode(errors="replace"))
        if self._position == UNKNOWN and self._engine is not None:
            self._position = await asyncio.to_thread(read_position, self._engine.store)
        elif self._position == UNKNOWN:
            self._position = (await js.stream_info(name)).state.last_seq
        elif self._engine is not None:
            bookmark = await asyncio.to_thread(messages.read_bookmark, self._engine.store, self._position)
            if bookmark is None or self._bookmark not in ("", bookmark):
                raise self._refuse_history()
        self._handled = self._handled or self._bookmark or str(self._position)
        await self._save()

    def _begin_after(self, name: str, place: str) -> None:
        """Raises InvalidError unless it is a position or a bookmark."""
        try:
            check_place(place)
        except ValueError as error:
            raise InvalidError(f"{name}: {error}") from None
        text, _, digest = place.partition(".")
        self._position, self._bookmark = int(text), place if digest else ""

    async def _save(self) -> None:
        if self._bucket is not None and self._durable is not None and self._handled != self._saved:
            await self._bucket.put(self._durable, self._handled.encode())
            self._saved, self._saved_at = self._handled, asyncio.get_running_loop().time()

    def _refuse_history(self) -> NatsError:
        return NatsError(
            f"position {self._position}: the log has another history there, or ends before it, as after a restored"
            " backup; read the current state, and continue from its position"
        )


@asynccontextmanager
async def subscribe(
    url: str,
    store: str | os.PathLike[str] | None = None,
    *,
    store_id: str | None = None,
    subjects: Sequence[str] = (),
    after: int | str | None = None,
    durable: str | None = None,
    report: Callable[[str], None] = _log.warning,
) -> AsyncIterator[AsyncGenerator[Object, None]]:
    """Read the events that a relay publishes at `url`, as CloudEvents: each once, in order, for ever.

    `store`: path or URL of the store, if it can be reached: events that left the stream are read from its log.
    `store_id`: which store, if several publish there. `subjects`: patterns such as `claim.>`. `after`: a position, or
    the `bookmark` of an event; None: only new events. `durable`: a name under which NATS keeps the bookmark, which then
    counts instead of `after`. `report` gets a line about each outage. Raises InvalidError, NatsError and StoreError.
    """
    server = Server(url, report)
    engine = await asyncio.to_thread(open_engine, store, creates=False) if store is not None else None
    try:
        subscriber = Subscriber(server, engine, store_id, subjects, after, durable)
        events = subscriber.read()
        try:
            yield events
            subscriber.finish()
        finally:
            await events.aclose()
    finally:
        if engine is not None:
            engine.close()


def run(words: list[str]) -> int:
    """`holdlog subscribe`: until an interrupt or SIGTERM."""
    parser = Parser(
        "subscribe",
        "Print events from NATS as JSON lines: each once, in order. Events that left the stream are read from the log.",
        (
            "subscribe --nats nats://127.0.0.1:4222 --after 0",
            "subscribe --nats nats://127.0.0.1:4222 --subject 'record.campaign.*' --subject 'claim.>' --durable robot",
        ),
        has_json=False,
    )
    add_nats(parser)
    parser.add_argument("--after", metavar="PLACE", help="begin after this position or bookmark (default: now)")
    parser.add_argument("--subject", action="append", default=[], metavar="PATTERN", help="only these; repeatable")
    parser.add_argument("--durable", metavar="NAME", help="continue where the subscriber of this name ended")
    parser.add_argument("--store", metavar="ID", help="a store that is elsewhere, if several publish there")
    parser.add_argument("--limit", type=int, metavar="N", help="end after this many events")
    options = parser.parse_args(words)
    if options.limit is not None and options.limit < 1:
        raise InvalidError("--limit: must be at least 1")
    return run_until_signal(_print(options, find_url(options)))


async def _print(options: Namespace, url: str) -> None:
    store = None
    if options.store is None:
        place = find_place(options.db)
        if not has_store(place) and is_named(options):
            raise MissingStoreError(place, 1)
        store = place if has_store(place) else None
    choice = {"store_id": options.store, "subjects": options.subject, "after": options.after}
    async with subscribe(url, store, **choice, durable=options.durable, report=print_note) as events:
        count = 0
        async for event in events:
            print_json(event)
            count += 1
            if count == options.limit:
                break
