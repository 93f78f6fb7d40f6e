"""One follower of the log per store: says on the event loop which streams may read differently now."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Final
from urllib.parse import unquote

from holdlog.adapters.call import Read
from holdlog.adapters.opened import Opened
from holdlog.domain.agent import AgentRegistered
from holdlog.domain.claims.claim import ClaimGranted, ClaimQueued, ClaimUnqueued
from holdlog.domain.claims.lease import Who
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import HoldlogError, UnavailableError

PAGE: Final = 64
"""Events that are read at once; each may hold a value of the largest size."""
AGAIN: Final = 1.0
"""Seconds until a store that could not be read is tried again."""

_log = logging.getLogger("holdlog")


class Follower:
    """Follows the log of one store from `start` to `stop`. `touched`: called with the streams that new events bear on.
    `failed`: called once when the log cannot be followed any more; it stops then.

    What is due ends in time meanwhile. Other processes are heard by the bell; no event is read twice, however many
    want to know of it.
    """

    def __init__(self, opened: Opened, touched: Callable[[frozenset[str]], None], failed: Callable[[], None]) -> None:
        self._opened = opened
        self._touched = touched
        self._failed = failed
        self._rung = asyncio.Event()
        self._open = ExitStack()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Events from now on are told. Raises refusals; nothing is left open then."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody follows any more
                loop.call_soon_threadsafe(self._rung.set)

        self._open.enter_context(self._opened.upkeep.waiting())
        self._open.enter_context(self._opened.bell.listen(wake))
        try:
            after = await self._opened.read_async(Read(lambda reader: reader.position()))
        except BaseException:
            self._open.close()
            raise
        self._task = asyncio.create_task(self._follow(after), name="holdlog-follower")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._open.close()

    async def _follow(self, after: int) -> None:
        try:
            while True:
                try:
                    while found := await self._opened.read_async(_page(after)):
                        streams, after = found
                        self._touched(streams)
                except UnavailableError:
                    self._rung.set()
                    await asyncio.sleep(AGAIN)
                await self._rung.wait()
                self._rung.clear()
        except HoldlogError as error:  # closed; or a newer server wrote what this one does not know
            _log.warning("resources are not followed any more: %s", error)
        except Exception:
            _log.exception("resources are not followed any more")
        self._failed()


def _page(after: int) -> Read[tuple[frozenset[str], int] | None]:
    """The streams that the next events bear on, and the position of the last of these."""

    def answer(reader: Reader) -> tuple[frozenset[str], int] | None:
        events = reader.log(after, PAGE)
        if not events:
            return None
        return frozenset(it for event in events for it in _bears_on(event, reader)), events[-1].envelope.position

    return Read(answer, large=True)


def _bears_on(recorded: Recorded[Event], reader: Reader) -> Iterator[str]:
    """The stream of an event, and those of other claims whose status it changes: a ticket stands in the line of
    all that it asks for, and a claim tells what its holder is called."""
    yield recorded.envelope.stream
    match recorded.event:
        case ClaimQueued(also=also, alternatives=alternatives):
            yield from map(claim_stream, (*also, *alternatives))
        case ClaimUnqueued(ticket=int(ticket)) | ClaimGranted(ticket=int(ticket)):
            for asked in reader.history(recorded.envelope.stream, ticket + 1, 1):
                if isinstance(asked.event, ClaimQueued):
                    yield from map(claim_stream, (*asked.event.also, *asked.event.alternatives))
        case AgentRegistered():
            caller = recorded.envelope.caller
            agent = recorded.envelope.stream.partition(":")[2]
            for lease in reader.leases.of_agent(Who(unquote(agent), caller.principal, caller.session)):
                yield claim_stream(lease.resource)
        case _:
            pass
