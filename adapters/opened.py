"""An opened store that runs calls, for threads and for coroutines."""

import asyncio
import os
import time

from holdlog.adapters.calls import Answered, Calls, Read, Wait, Write
from holdlog.adapters.machine.bells import ProcessBell
from holdlog.adapters.stores.writer import Writer
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.projections.waiting import wait_until, wait_until_async


class Opened:
    """A store with its bell and writer. `caller`: who calls when a call does not say. Raises refusals as they come."""

    def __init__(self, store: Store, bell: ProcessBell, caller: Caller, calls: Calls) -> None:
        self.store = store
        self.bell = bell
        self.caller = caller
        self.calls = calls
        self.writer = Writer(store, bell)
        self._process = os.getpid()

    def write(self, call: Write[Answered], caller: Caller) -> Answered:
        return call.answer(self.writer.run(call.command, caller))

    async def write_async(self, call: Write[Answered], caller: Caller) -> Answered:
        return call.answer(await self.writer.run_async(call.command, caller))

    def read(self, call: Read[Answered]) -> Answered:
        with self.store.snapshot() if call.large else self.store.reader() as reader:
            return call.answer(reader)

    async def read_async(self, call: Read[Answered]) -> Answered:
        """One row is read on the loop (some µs), more in a thread, so that no listing holds up other calls."""
        return await asyncio.to_thread(self.read, call) if call.large else self.read(call)

    def wait(self, call: Wait[Answered]) -> Answered:
        started = time.monotonic()
        found = wait_until(lambda: self._look(call, started), self.bell, call.seconds)
        return found if found is not None else self._timed_out(call, started)

    async def wait_async(self, call: Wait[Answered]) -> Answered:
        started = time.monotonic()
        found = await wait_until_async(lambda: self._look(call, started), self.bell, call.seconds)
        return found if found is not None else self._timed_out(call, started)

    def close(self) -> None:
        """Finish what runs, then let go of everything; who waits learns that it is closed.

        Calling it again, or after a fork, does nothing.
        """
        if self.writer.leads_here():
            self.writer.refuse()  # a signal handler cannot wait for what it interrupted: the process's end closes it
        elif self._process == os.getpid():
            self.writer.close()
            self.bell.close()
            self.store.close()
            self.bell.wake()

    def abandon(self) -> None:
        """In a forked child: nothing of the parent's may be used or closed here."""
        self.writer.abandon()
        self.store.abandon()
        self.bell.abandon()
        self.bell = ProcessBell()

    def _look(self, call: Wait[Answered], started: float) -> Answered | None:
        with self.store.reader() as reader:
            return call.look(reader, time.monotonic() - started)

    def _timed_out(self, call: Wait[Answered], started: float) -> Answered:
        with self.store.reader() as reader:
            return call.timed_out(reader, time.monotonic() - started)
