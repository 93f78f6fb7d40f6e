"""Events of a store from NATS: each once, in order by position, without gaps."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from holdlog.adapters.nats import payload
from holdlog.adapters.nats.checkpoints import Checkpoints
from holdlog.adapters.nats.connection import FAILURES, Pause, connect, reason
from holdlog.adapters.nats.errors import EventsLostError
from holdlog.adapters.nats.feed import Published, feed, is_purged, last_position
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.nats.patterns import pattern_of
from holdlog.adapters.nats.payload import CloudEvent
from holdlog.adapters.nats.source import EventSource, find
from holdlog.adapters.nats.subjects import subject_in
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.refusals import InvalidError, UnavailableError

KEPT_EVERY: Final = 0.25
"""Seconds between saves of a durable subscriber's position; after a crash, events of this interval may come again."""
PAGE: Final = 256


class Subscription:
    """Yields CloudEvents: `async with subscribe(…) as events: async for event in events`.
    `position`: every match up to here was yielded, including the current event; save it with your results, and pass it
    as `after` next time. Outages are waited out. Raises NatsError if NATS cannot be used as configured, and
    EventsLostError if events left the stream before they were read and no store was named.
    """

    def __init__(
        self,
        options: NatsOptions,
        subjects: Sequence[str] = (),
        after: int | None = None,
        durable: str | None = None,
        opened: Engine | None = None,
        bookmarks: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if after is not None and after < 0:
            raise InvalidError("after: must be a position, 0 or more")
        self.position = after
        self._options = options
        self._patterns = [pattern_of(it, options.prefix) for it in subjects]
        self._checkpoints = Checkpoints(durable) if durable is not None else None
        self._engine = opened
        self._bookmarks = bookmarks
        self._report = tell or (lambda line: None)
        self._handled: int | None = None
        self._kept: int | None = None
        self._kept_at = 0.0
        self._marked: tuple[float, int] = (time.monotonic(), -1)
        self._suspect: int | None = None
        self._worked = False
        self._complaint: str | None = None
        self._from_empty = False
        self._followed: str | None = None
        self._events = self._run()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CloudEvent:
        return await self._events.__anext__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._handled = self.position
        await self.aclose()

    async def aclose(self) -> None:
        """Close. A durable subscriber's position is saved without the current event (with it if `async with` ends
        without an error)."""
        await self._events.aclose()
        if self._engine is not None:
            self._engine.close()

    async def _run(self) -> AsyncGenerator[CloudEvent, None]:
        pause = Pause()
        while True:
            try:
                async with connect(self._options, "subscriber") as client:
                    session = self._session(client, client.jetstream())
                    try:
                        async for event in session:
                            pause.reset()
                            yield event
                    finally:
                        await session.aclose()
            except UnavailableError as error:
                self._complain(f"{error}; trying again")
            except NotFoundError:
                self._complain(f"{self._options.address} has no stream of that store yet; waiting for its relay")
            except FAILURES as error:
                self._complain(f"{reason(error, self._options)}; trying again")
            await asyncio.sleep(pause.length())

    async def _session(self, client: Any, js: JetStreamContext) -> AsyncGenerator[CloudEvent, None]:
        """Events through one connection."""
        source = await find(js, self._options, await asyncio.to_thread(self._store_id))
        self._follow(source)
        for pattern in self._patterns:
            pattern.require_of(source.root)
        await self._begin(js, source)
        assert self.position is not None
        self._worked = True
        if self._complaint is not None:
            self._complaint = None
            self._report(f"{self._options.address} is available again; continuing after position {self.position}")
        if self._engine is not None and not source.info.state.messages:
            async for event in self._from_log(source, None):
                yield event
                await self._finished()
        messages = feed(client, js, source.info, source.store_id, self.position)
        try:
            async for message in messages:
                if message is not None and message.position > self.position:
                    if message.previous > self.position and not self._from_empty:
                        async for event in self._gap(js, source, message):
                            yield event
                            await self._finished()
                    self._from_empty = False
                    self._suspect = None
                    event_or_none = await self._event(source, message)
                    self.position = message.position
                    if event_or_none is not None:
                        self._marked = (time.monotonic(), message.position)
                        yield event_or_none
                await self._finished(idle=message is None)
                if (mark := self._bookmark(source)) is not None:
                    yield mark
        finally:
            with suppress(*FAILURES):
                await messages.aclose()  # type: ignore[attr-defined]
                await self._keep()

    def _follow(self, source: EventSource) -> None:
        """Continue with the store that was found first, even if another store publishes there after an outage."""
        if self._followed is None and self._options.name is None:
            self._options = replace(self._options, name=source.root.removeprefix(f"{self._options.prefix}."))
        self._followed = source.store_id

    def _complain(self, line: str) -> None:
        """Report a problem once, however often it is retried."""
        if line != self._complaint:
            self._complaint = line
            self._report(line)

    async def _begin(self, js: JetStreamContext, source: EventSource) -> None:
        """Determine the start position, the first time."""
        kept = await self._checkpoints.open(js, str(source.info.config.name)) if self._checkpoints is not None else None
        if self.position is None or (not self._worked and kept is not None):
            if kept is None and self._engine is not None:
                kept = await asyncio.to_thread(self._log_position)
            if kept is None:
                kept = await last_position(js, source.info, source.store_id)
                self._from_empty = kept is None
            self.position = kept or 0
        if self._handled is None:
            self._handled = self.position
        if self._checkpoints is not None:
            await self._keep(always=True)

    async def _event(self, source: EventSource, message: Published) -> CloudEvent | None:
        if not self._wants(message.subject.removeprefix(source.root + ".")):
            return None
        event = payload.read(message.text)
        if event.omitted and self._engine is not None:
            recorded = await asyncio.to_thread(self._page, event.position - 1, 1)
            if recorded and recorded[0].envelope.position == event.position:
                event = payload.read(payload.text_of(source.store_id, recorded[0]))
        return event

    def _wants(self, subject: str) -> bool:
        return not self._patterns or any(pattern.fits(subject) for pattern in self._patterns)

    async def _gap(
        self, js: JetStreamContext, source: EventSource, message: Published
    ) -> AsyncGenerator[CloudEvent, None]:
        """Events missing before a message: from the log, if the store is known."""
        assert self.position is not None
        until = message.previous
        if self._engine is None and await is_purged(js, source.info, message, self.position):
            return
        if self._suspect != self.position:
            self._suspect = self.position
            raise ConnectionError("messages were lost in transit")  # read again first: they may still be there
        if self._engine is None:
            raise EventsLostError(self.position, until)
        async for event in self._from_log(source, until):
            yield event

    async def _from_log(self, source: EventSource, until: int | None) -> AsyncGenerator[CloudEvent, None]:
        while True:
            assert self.position is not None
            page = await asyncio.to_thread(self._page, self.position)
            for recorded in page:
                if until is not None and recorded.envelope.position > until:
                    return
                self.position = recorded.envelope.position
                if self._wants(subject_in(recorded.envelope.stream)):
                    self._marked = (time.monotonic(), self.position)
                    yield payload.read(payload.text_of(source.store_id, recorded))
            if not page:
                return

    def _bookmark(self, source: EventSource) -> CloudEvent | None:
        """An event with the current position, if the log grew but nothing matched for a while."""
        at, position = self._marked
        if self._bookmarks is None or self.position is None or time.monotonic() - at < self._bookmarks:
            return None
        self._marked = (time.monotonic(), self.position)
        if self.position == position:
            return None
        return payload.bookmark(source.store_id, self.position, time.time_ns() // 1000)

    async def _finished(self, idle: bool = False) -> None:
        """Mark everything yielded so far as handled."""
        self._handled = self.position
        if self._checkpoints is not None and (idle or time.monotonic() - self._kept_at > KEPT_EVERY):
            await self._keep()

    async def _keep(self, always: bool = False) -> None:
        if self._checkpoints is None or self._handled is None or (self._handled == self._kept and not always):
            return
        await self._checkpoints.keep(self._handled)
        self._kept, self._kept_at = self._handled, time.monotonic()

    # --- the store; may block

    def _store_id(self) -> str | None:
        if self._engine is None:
            return self._followed
        with self._engine.store.reader() as reader:
            return reader.meta("store_id")

    def _log_position(self) -> int:
        assert self._engine is not None
        with self._engine.store.reader() as reader:
            return reader.position()

    def _page(self, after: int, limit: int = PAGE) -> list[Recorded[Event]]:
        assert self._engine is not None
        with self._engine.store.reader() as reader:
            return reader.log(after, limit)


def subscribe(
    url: str,
    *,
    store: str | Path | None = None,
    name: str | None = None,
    subject: str | Sequence[str] = (),
    after: int | None = None,
    durable: str | None = None,
    bookmarks: float | None = None,
    prefix: str = "holdlog",
    **connection: Any,
) -> Subscription:
    """Subscribe to the events of a store that a relay publishes at `url`: each event once and in order.
    `store`: its path, if reachable: events that left the stream are then read from its log. `name`: as configured in
    the relay (`--nats-name`); not needed if only one store publishes there. `subject`: patterns such as
    `record.campaign.*`, `claim.>`. `after`: the position to continue from (None = only new events). `durable`: a name
    under which NATS saves the position. `bookmarks`: seconds without a matching event after which an event of type
    `holdlog.Bookmark` reports the position. `connection`: `credentials`, `nkey`, `ca`, `certificate`, `key` (paths).
    Raises NatsError, InvalidError.
    """
    from holdlog.adapters.compose import open_holdlog

    options = nats_options(url, os.environ, name=name, prefix=prefix, **connection)
    options.arguments()
    subjects = (subject,) if isinstance(subject, str) else tuple(subject)
    for each in subjects:
        pattern_of(each, prefix)  # check before opening anything
    engine = open_holdlog(store, what="subscriber") if store is not None else None
    return Subscription(options, subjects, after, durable, engine, bookmarks)
