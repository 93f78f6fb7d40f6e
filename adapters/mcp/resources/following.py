"""Streams of a store whose reads may have changed, reported on the event loop."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final
from urllib.parse import unquote

from holdlog.adapters.api.request import Query
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.agent import AgentRegistered
from holdlog.domain.claims.claim import ClaimGranted, ClaimQueued, ClaimResumed, ClaimUnqueued
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import HoldlogError, UnavailableError

PAGE: Final = 256
"""Entries of the log that are read at once."""
AGAIN: Final = 1.0
"""Seconds before a store that could not be read is tried again."""

_BEAR_ON_OTHERS: Final = frozenset(
    it.topic for it in (AgentRegistered, ClaimGranted, ClaimQueued, ClaimResumed, ClaimUnqueued)
)
_log = logging.getLogger("holdlog")


class Changes:
    """The changes of one store, from `start` to `stop`. `touched`: called with the streams that new events affect.
    `ended`: called once, and last, when the log can no longer be followed or all waiting ends.

    Woken by the store's one log tailer. Reads positions and, for a few kinds, events, never a value. Expires what is
    due meanwhile.
    """

    def __init__(self, engine: Engine, touched: Callable[[frozenset[str]], None], ended: Callable[[], None]) -> None:
        self._engine = engine
        self._touched = touched
        self._ended = ended
        self._notified = asyncio.Event()
        self._open = ExitStack()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to report new events. Raises refusals; nothing is left open then."""
        self._open.enter_context(self._engine.lease_maintenance.waiting())
        self._open.enter_context(self._engine.log_tailer.subscribe(lambda _: self._notified.set()))
        try:
            after = await self._engine.read_async(Query(lambda reader: reader.position()))
        except BaseException:
            self._open.close()
            raise
        self._task = asyncio.create_task(self._follow(after), name="holdlog-changes")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._open.close()

    async def _follow(self, after: int) -> None:
        try:
            while True:
                try:
                    while found := await self._engine.read_async(_page(after)):
                        streams, after = found
                        self._touched(streams)
                except UnavailableError:
                    self._notified.set()
                    await asyncio.sleep(AGAIN)
                if self._engine.waiting_is_over():
                    break
                await self._notified.wait()
                self._notified.clear()
        except HoldlogError as error:  # closed
            _log.info("stopped sending updates of resources: %s", error)
        except Exception:
            _log.exception("stopped sending updates of resources")
        self._ended()


def _page(after: int) -> Query[tuple[frozenset[str], int] | None]:
    """The streams that the next events affect, and the position of the last of these events."""

    def answer(reader: Reader) -> tuple[frozenset[str], int] | None:
        entries = reader.entries(after, PAGE)
        if not entries:
            return None
        streams = {entry.stream for entry in entries}
        for entry in entries:
            if entry.topic in _BEAR_ON_OTHERS:
                streams.update(it for event in reader.log(entry.position - 1, 1) for it in _bears_on(event, reader))
        return frozenset(streams), entries[-1].position

    return Query(answer)


def _bears_on(recorded: Recorded[Event], reader: Reader) -> Iterator[str]:
    """The streams of other claims whose status an event changes: a ticket is in the queue of every resource it
    requests, and a claim shows its holder's name."""
    match recorded.event:
        case ClaimQueued(also=also, alternatives=alternatives):
            yield from map(claim_stream, (*also, *alternatives))
        case ClaimUnqueued(ticket=int(ticket)) | ClaimGranted(ticket=int(ticket)) | ClaimResumed(ticket=int(ticket)):
            for queued in reader.history(recorded.envelope.stream, ticket + 1, 1):
                if isinstance(queued.event, ClaimQueued):
                    yield from map(claim_stream, (*queued.event.also, *queued.event.alternatives))
        case AgentRegistered():
            caller = recorded.envelope.caller
            agent = recorded.envelope.stream.partition(":")[2]
            for lease in reader.leases.of_agent(unquote(agent), caller.principal):
                yield claim_stream(lease.resource)
        case _:
            pass
