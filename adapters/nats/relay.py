"""The relay: publishes the log to NATS, every event once and in order, even after crashes.

It continues after the last message of the stream itself. Each publish names the sequence that it expects to follow
(`Nats-Expected-Last-Sequence`), so that neither two relays nor a repeated publish can duplicate or reorder anything.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Final, Literal, NamedTuple

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError, ServiceUnavailableError

from holdlog.adapters.nats.connection import FAILURES, Pause, connect, reason
from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.lead import Lead
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.publishing import FENCED, Acknowledged, Publisher
from holdlog.adapters.nats.purging import purge
from holdlog.adapters.nats.sending import FOR_HEADERS, Sending
from holdlog.adapters.nats.stream import (
    Head,
    anchor_name,
    anchor_text,
    ensure_stream,
    find_head,
    require_ours,
)
from holdlog.adapters.nats.subjects import subject_in
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Notifier, Store
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.domain.store_log import PayloadRedacted
from holdlog.domain.value import Json

WINDOW: Final = 512
"""Maximum messages in flight that wait for an acknowledgement."""
FIRST_PAGE, PAGE = 16, 256
"""Events read from the log at once: at first, and at most."""
PAGE_BYTES: Final = 8 * 1024 * 1024
"""Target bytes of a page of values."""
ACKNOWLEDGED_WITHIN: Final = 5.0
"""Seconds until an acknowledgement."""
POLL_EVERY: Final = 1.0
"""Seconds between reads of the log without a notification, and between checks whether the lead is free."""
STALLED_AFTER: Final = 5.0
"""Seconds without progress of the stream after which a relay with a target publishes next to the leading one."""
ANCHOR_AFTER: Final = 30.0
"""Seconds without news after which the anchor is kept, too."""

State = Literal["waiting", "connecting", "publishing", "current", "failed"]


class Status(NamedTuple):
    """What a relay is doing. `waiting`: another one publishes; `current`: the stream has the whole log."""

    state: State
    position: int = 0
    published: int = 0
    behind: int = 0
    error: str | None = None


class StreamEndUnknownError(Exception):
    """Another relay published, or an acknowledgement was lost: the end of the stream is no longer known."""


class RefusedError(Exception):
    """The stream rejects an event, because it is full or being moved; it may accept it later."""


class Relay:
    """Publishes a store's log to its stream. `report` is called on each change of state, and occasionally."""

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        lead: Lead,
        options: NatsOptions,
        report: Callable[[Status], None] | None = None,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._lead = lead
        self._options = options
        self._report = report or (lambda status: None)
        self._notified = asyncio.Event()
        self._in_flight: deque[tuple[asyncio.Future[Acknowledged], Head]] = deque()
        self._acknowledged = Head(0, 0)
        self._published = 0
        self._kept = 0
        self._worked = False
        self._progress: float | None = None
        """When another relay last made progress."""
        self._pause = Pause()

    async def run(self, once: bool = False) -> None:
        """Publish forever; with `once`, until the stream has the whole log as of the start, no matter which relay
        published it. Outages do not end it.

        Raises NatsError when NATS cannot be used as configured, and StoreError when the store cannot be read; after a
        first success it waits for repair instead.
        """
        target: int | None = None
        while True:
            try:
                if once and target is None:
                    target = await asyncio.to_thread(self._position)
                if self._lead.take() or self._is_stalled():
                    await self._session(target)
                    return
                self._report_state("waiting")
                if target is not None and await self._is_reached(target):
                    self._report_state("current")
                    return
                await asyncio.sleep(POLL_EVERY)
                continue
            except NatsError as error:
                if not self._worked:
                    raise
                self._report_state("failed", str(error))
            except UnavailableError as error:
                self._report_state("failed", str(error))
            except RefusedError as error:
                self._report_state("failed", str(error))
            except FAILURES as error:
                self._report_state("failed", reason(error, self._options))
            finally:
                self._drop()
                self._lead.release()
            await asyncio.sleep(self._pause.length())

    async def _is_reached(self, target: int) -> bool:
        """Whether the stream, to which another relay publishes, has everything up to a position."""
        async with connect(self._options, "relay") as client:
            store_id = await asyncio.to_thread(self._store_id)
            try:
                info = await client.jetstream(timeout=ACKNOWLEDGED_WITHIN).stream_info(self._options.stream(store_id))
                require_ours(info, self._options, store_id)
                head = await self._head(client.jetstream(timeout=ACKNOWLEDGED_WITHIN), store_id)
            except NotFoundError:
                head = Head(0, 0)  # the leading relay has not created it yet
        if self._progress is None or head.position > self._acknowledged.position:
            self._progress = time.monotonic()
        self._acknowledged = head
        return head.position >= target

    def _is_stalled(self) -> bool:
        """Whether to publish although another relay leads, because it makes no progress. Two concurrent publishers do
        no harm."""
        return self._progress is not None and time.monotonic() - self._progress > STALLED_AFTER

    async def _session(self, target: int | None) -> None:
        """Publish through one connection. Returns when the stream has everything up to `target`; None: never."""
        self._report_state("connecting")
        async with connect(self._options, "relay", self._lost) as client:
            js = client.jetstream(timeout=ACKNOWLEDGED_WITHIN)
            store_id = await asyncio.to_thread(self._store_id)
            try:
                info = await ensure_stream(js, self._options, store_id)
            except ServiceUnavailableError:
                raise NatsError(f"JetStream is not enabled at {self._options.address} (nats-server -js)") from None
            with self._woken(asyncio.get_running_loop()):
                while True:
                    try:
                        await self._publish_from(await self._head(js, store_id), client, info, store_id, target)
                        return
                    except StreamEndUnknownError:
                        self._drop()
                        await asyncio.sleep(self._pause.length())

    async def _head(self, js: JetStreamContext, store_id: str) -> Head:
        info = await js.stream_info(self._options.stream(store_id))
        with self._store.reader() as reader:
            return await find_head(js, info, store_id, reader)

    async def _publish_from(
        self, head: Head, client: Client, info: StreamInfo, store_id: str, target: int | None
    ) -> None:
        self._acknowledged = head
        self._kept = head.sequence
        self._worked = True
        publisher = await Publisher(client).open()
        sending = Sending(publisher, self._options, store_id, head, client.max_payload - FOR_HEADERS)
        idle_since = time.monotonic()
        self._report_state("publishing")
        async with aclosing(self._pages(head.position)) as pages:
            async for events, is_more in pages:
                for recorded in events:
                    while len(self._in_flight) >= WINDOW:
                        await self._await_acknowledgements()
                    if isinstance(recorded.event, PayloadRedacted):
                        await self._purge(client, store_id, recorded.event)
                    self._in_flight.append(await sending.send(recorded))
                last = events[-1].envelope.position if events else head.position
                is_enough = target is not None and (not events or last >= target)
                if is_more and not is_enough:
                    continue
                while self._in_flight:
                    await self._await_acknowledgements()
                if events and not is_enough:
                    idle_since = time.monotonic()
                    continue
                self._pause.reset()
                self._report_state("current")
                if client.is_closed:
                    raise ConnectionError("the connection was lost")
                if is_enough or (
                    time.monotonic() - idle_since > ANCHOR_AFTER and self._kept != self._acknowledged.sequence
                ):
                    await self._keep(info)
                if is_enough:
                    return
                await self._notified_or_timeout()

    async def _pages(self, position: int) -> AsyncGenerator[tuple[Sequence[Recorded[Event]], bool], None]:
        """Pages of the log above a position, and whether more follow; an empty one when there is nothing new.

        Reads the next page while a full one is being sent. Pages of large values are short.
        """
        next_page: asyncio.Task[Sequence[Recorded[Event]]] | None = None
        size = FIRST_PAGE
        try:
            while True:
                if next_page is None:
                    self._notified.clear()
                    page = await asyncio.to_thread(self._page, position, size)
                else:
                    page, next_page = await next_page, None
                    if not page:
                        continue  # the page was read before the notifier was subscribed to
                if page:
                    position = page[-1].envelope.position
                is_more = len(page) == size
                if is_more:
                    size = _next_size(page)
                    next_page = asyncio.create_task(asyncio.to_thread(self._page, position, size))
                yield page, is_more
        finally:
            if next_page is not None:
                next_page.cancel()

    async def _await_acknowledgements(self) -> None:
        """Wait until the oldest message in flight is acknowledged. Raises StreamEndUnknownError if the stream
        stores another message in its place."""
        future, head = self._in_flight.popleft()
        if not future.done():
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN):  # `wait_for` of Python 3.11 may lose a cancellation
                await future
        answer = future.result()
        if answer.code in FENCED or (answer.error is None and answer.sequence != head.sequence):
            # In the second case the stream has it: it was published before, and the acknowledgement was lost.
            raise StreamEndUnknownError
        if answer.error is not None:
            raise RefusedError(f"{self._options.address} accepts no event: {answer.error}")
        self._acknowledged = head
        self._published += 1
        self._pause.reset()
        if self._published % PAGE == 0:
            self._report_state("publishing")

    async def _purge(self, client: Client, store_id: str, redacted: PayloadRedacted) -> None:
        """Remove the messages of redacted events. Before the redaction itself is published: a killed relay repeats
        it."""
        while self._in_flight:
            await self._await_acknowledgements()
        js = client.jetstream(timeout=ACKNOWLEDGED_WITHIN)
        subject = f"{self._options.root(store_id)}.{subject_in(redacted.target)}"
        await purge(js, self._options.stream(store_id), subject, store_id, redacted)

    async def _keep(self, info: StreamInfo) -> None:
        await asyncio.to_thread(self._put_anchor, info)
        self._kept = self._acknowledged.sequence

    async def _notified_or_timeout(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_EVERY):
                await self._notified.wait()

    def _lost(self) -> None:
        """Fail the messages in flight: the connection is lost, so their acknowledgements will never arrive."""
        for future, _ in list(self._in_flight):
            if not future.done():
                future.set_exception(ConnectionError("the connection was lost"))
        self._notified.set()

    def _drop(self) -> None:
        """Drop the messages in flight: the stream itself will show what arrived."""
        while self._in_flight:
            future, _ = self._in_flight.pop()
            if not future.cancel() and not future.cancelled():
                future.exception()

    def _report_state(self, state: State, error: str | None = None) -> None:
        behind = 0
        if state == "publishing":
            behind = self._behind()
        self._report(Status(state, self._acknowledged.position, self._published, behind, error))

    # --- the store; all of these may block

    def _store_id(self) -> str:
        with self._store.reader() as reader:
            found = reader.meta("store_id")
        if found is None:
            raise StoreError("the store has no id: it is damaged; run `holdlog doctor`")
        return found

    def _page(self, after: int, size: int) -> Sequence[Recorded[Event]]:
        with self._store.reader() as reader:
            return reader.log(after, size)

    def _position(self) -> int:
        with self._store.reader() as reader:
            return reader.position()

    def _behind(self) -> int:
        with self._store.reader() as reader:
            return max(0, reader.position() - self._acknowledged.position)

    def _put_anchor(self, info: StreamInfo) -> None:
        with self._store.transaction(time.monotonic() + ACKNOWLEDGED_WITHIN) as transaction:
            transaction.put_meta(anchor_name(info), anchor_text(info, self._acknowledged))

    @contextmanager
    def _woken(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._notified.set)

        with self._notifier.listen(wake):
            yield


def _next_size(page: Sequence[Recorded[Event]]) -> int:
    """The number of events to read next: twice as many, unless those of this page were large."""
    values = (getattr(it.event, "value", None) for it in page)
    weight = sum(len(value.text) for value in values if isinstance(value, Json))
    return max(1, min(PAGE, 2 * len(page), len(page) * PAGE_BYTES // max(1, weight)))
