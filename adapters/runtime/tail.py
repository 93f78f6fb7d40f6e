"""The end of the log, read once for all followers on one event loop."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.events.event_view import event_view, names_others
from holdlog.adapters.api.pagination import event_bytes
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.log_tailer import LogTailer
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.refusals import HoldlogError

READ_AT_ONCE: Final = 32
BACKLOG_BYTES: Final = 1024 * 1024
"""Bytes buffered for a slow follower; beyond this it must read the log again."""


class RenderedEvent:
    """One event, encoded once for many followers."""

    def __init__(self, recorded: Recorded[Event], shown: Callable[[str], str] | None) -> None:
        self.recorded = recorded
        self.position = recorded.envelope.position
        self.kind = recorded.envelope.topic
        self.size = event_bytes(recorded)
        self._shown = shown
        self._names_others = names_others(recorded)
        self._text: str | None = None

    def text(self, sees: Callable[[str], bool] | None) -> str:
        """Compact JSON on one line, for a caller who may see the streams that `sees` allows."""
        if self._names_others and sees is not None:
            return event_view(self.recorded, self._shown, sees).model_dump_json()
        if self._text is None:
            self._text = event_view(self.recorded, self._shown).model_dump_json()
        return self._text


class Backlog:
    """Events buffered for one follower. `begins`: contains only events above this position. `position`: up to which the
    log was read. `overflowed`: the buffer was full; it gets no more events."""

    def __init__(self, choice: EventFilter, begins: int) -> None:
        self.begins = self.position = begins
        self.overflowed = False
        self._choice = choice
        self._events: list[RenderedEvent] = []
        self._held = 0
        self._news = asyncio.Event()
        self._error: HoldlogError | None = None

    async def take(self, seconds: float) -> list[RenderedEvent]:
        """Wait up to `seconds` for events and return them; empty on a timeout. Raises the refusal if the log cannot be
        read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        events, self._events, self._held = self._events, [], 0
        return events

    def put(self, batch: Sequence[RenderedEvent]) -> None:
        if self.overflowed:
            return
        for event in batch:
            recorded = event.recorded
            if self._choice.may_fit(recorded.envelope.stream, event.kind) and self._choice.fits(recorded):
                self._events.append(event)
                self._held += event.size
        self.position = max(self.position, batch[-1].position)
        if self._held > BACKLOG_BYTES:
            self.overflowed, self._events = True, []
        if self._events or self.overflowed:
            self._news.set()

    def fail(self, error: HoldlogError) -> None:
        self._error = error
        self._news.set()

    def wake(self) -> None:
        self._news.set()


class Tail:
    """Reads the end of the log for coroutines of one loop, while there are followers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log_tailer = engine.log_tailer
        self._subscription = ExitStack()
        self._backlogs: list[Backlog] = []
        self._position = 0
        self._news = False
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def join(self, choice: EventFilter, position: int) -> Iterator[Backlog]:
        """Yield a backlog of new events for a follower that has read the log up to `position`."""
        if not self._backlogs:
            self._position = position
            _tails[self._log_tailer] = self
            self._subscription.enter_context(self._log_tailer.subscribe(self._listen))
        backlog = Backlog(choice, self._position)
        self._backlogs.append(backlog)
        self._listen(None)  # no notification covers events between that position and now
        try:
            yield backlog
        finally:
            self._backlogs.remove(backlog)
            if not self._backlogs:
                self._subscription.close()
                _tails.pop(self._log_tailer, None)

    def _listen(self, streams: frozenset[str] | None) -> None:
        self._news = True
        if self._engine.waiting_is_over():
            for backlog in self._backlogs:
                backlog.wake()
        elif self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            while self._news and self._backlogs:
                self._news = False
                start = self._position
                batch = await self._engine.run_off_loop_async(partial(self._above, start))
                if start != self._position:
                    self._news = True  # all followers left meanwhile, and others joined
                elif batch:
                    self._position = batch[-1].position
                    self._news = self._news or len(batch) == READ_AT_ONCE
                    for backlog in self._backlogs:
                        backlog.put(batch)
                await asyncio.sleep(0)
        except HoldlogError as error:
            for backlog in self._backlogs:
                backlog.fail(error)
        finally:
            self._reading = None

    def _above(self, position: int) -> list[RenderedEvent]:
        with self._engine.store.reader() as reader:
            return [
                RenderedEvent(recorded, self._engine.requests.rules.spelled)
                for recorded in reader.log(position, READ_AT_ONCE)
            ]


def tail_of(engine: Engine) -> Tail:
    """The tail of the running loop, or a new one."""
    return _tails.get(engine.log_tailer) or Tail(engine)


_tails: dict[LogTailer, Tail] = {}
