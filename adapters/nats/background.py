"""Runs the relay and the NATS notifier of a server, in a background thread with its own event loop. Never delays a
call."""

import asyncio
import logging
import threading
from contextlib import suppress
from typing import Final

from nats.aio.msg import Msg

from holdlog.adapters.nats.connection import FAILURES, Pause, connect, reason
from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.lead import Lead
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.relay import Relay, Status
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.domain.ports import Store
from holdlog.domain.refusals import HoldlogError

STOPS_WITHIN: Final = 2.0
"""Seconds to wait for the thread to end."""
RETRY_EVERY: Final = 30.0
"""Seconds between attempts after NATS rejected the connection; an administrator has to change something first."""
GATHER: Final = 0.0005
"""Seconds to collect messages before one notification is sent for all of them."""

_log = logging.getLogger("holdlog.nats")


class BackgroundRelay:
    """Relay and notifier of one server. Failures are retried forever; a failure is logged once until its cause
    changes."""

    def __init__(self, store: Store, notifier: ProcessNotifier, lead: Lead, options: NatsOptions) -> None:
        """Check the options. Raises NatsError for invalid options, such as missing files."""
        options.arguments()
        self._store = store
        self._notifier = notifier
        self._lead = lead
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None
        self._logged: dict[str, str] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="holdlog-nats", daemon=True)
        self.status = Status("connecting")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the relay and the notifier. The next relay publishes the events that are left."""
        self._stopped = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(STOPS_WITHIN)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._main = self._loop.create_task(self._run_both())
            if self._stopped:
                self._main.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
        except Exception:
            _log.exception("NATS stopped")
        finally:
            self._loop.close()

    async def _run_both(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relay())
            group.create_task(self._listen_for_events())

    async def _relay(self) -> None:
        relay = Relay(self._store, self._notifier, self._lead, self._options, self._log_status)
        while True:
            try:
                await relay.run()
            except HoldlogError as error:
                self._warn("relay", str(error))
            except Exception:
                _log.exception("the relay failed; restarting it")
            await asyncio.sleep(RETRY_EVERY)

    async def _listen_for_events(self) -> None:
        pause = Pause()
        while True:
            try:
                await self._listen(pause)
            except (NatsError, *FAILURES) as error:
                text = str(error) if isinstance(error, NatsError) else reason(error, self._options)
                _log.debug("notifications over NATS do not arrive: %s", text)
            except HoldlogError as error:
                _log.debug("notifications over NATS do not arrive: %s", error)
            except Exception:
                _log.exception("notifications over NATS failed; restarting them")
            await asyncio.sleep(pause.length())

    async def _listen(self, pause: Pause) -> None:
        """Wake this process's waiters for every message of the store, until the connection ends."""
        with self._store.reader() as reader:
            store_id = reader.meta("store_id") or ""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        pending = False

        def notify() -> None:
            nonlocal pending
            pending = False
            self._notifier.wake()

        async def received(_: Msg) -> None:
            nonlocal pending
            if not pending:
                pending = True
                loop.call_later(GATHER, notify)

        async with connect(self._options, "listener", ended.set) as client:
            await client.subscribe(f"{self._options.root(store_id)}.>", cb=received)
            await client.flush()
            pause.reset()
            notify()  # events may have been published before the subscription
            await ended.wait()

    def _log_status(self, status: Status) -> None:
        self.status = status
        if status.error is not None:
            self._warn("relay", status.error)
        elif status.state == "publishing" and self._logged.pop("relay", None) is not None:
            _log.warning("NATS is available again; the relay continues from position %d", status.position)

    def _warn(self, source: str, text: str) -> None:
        if self._logged.get(source) != text:
            self._logged[source] = text
            _log.warning("%s; everything else continues, and the events will be published once NATS is available", text)
